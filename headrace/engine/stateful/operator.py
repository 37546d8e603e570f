"""Stateful DoFns over a batch: each key and window on its own, its elements in the order of their times.

The elements are their own watermark: an event timer fires before the first element that is not earlier than it, and
what is still set fires when the elements are through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.engine.stateful.calls import Calls
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import ParDoOp, Tagged
from headrace.model.panes import Windowing
from headrace.model.times import MIN_TIME
from headrace.model.windows import Window


@dataclass
class StatefulOp(ParDoOp):
    """Runs a DoFn with state: in a batch over (key, [(time, value), ...]) groups."""

    windowing: Windowing = field(kw_only=True)
    opened: bool = field(default=False, init=False)

    def open(self) -> None:
        super().open()
        self.opened = True

    def processed(self, bundle: Bundle) -> Iterator[Tagged]:
        calls = Calls(self)
        at, calls.pane = calls.at, bundle.pane
        with calls.blamed():
            for (key, values), window in zip(bundle.elements, bundle.windows(), strict=True):
                record = calls.record(key, Window(*window))
                for time, value in values:
                    calls.ring(watermark=time, now=MIN_TIME - 1)
                    at.now = at.watermark = time
                    calls.element(record, (key, value), time, bundle.pane)
                    yield from calls.outputs.ready()
                calls.close(record)
                for queue in (calls.event, calls.processing, calls.holds, calls.expiring):
                    queue.clear()
            yield from calls.outputs.rest()
