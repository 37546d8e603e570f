"""Runs stateful DoFns in a batch: each key and window by itself, its elements in the order of their times.

The elements are their own watermark: an event timer fires before the first element that is not earlier than it, and
what is still set fires when the elements are through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from headrace.engine.stateful.calls import Calls
from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Operator, Tagged
from headrace.engine.worker.sidevalues import SideResolver
from headrace.model.elementwise import SideInput
from headrace.model.times import MIN_TIME
from headrace.model.windows import Window


@dataclass
class StatefulOperator(Operator):
    """Runs a DoFn with state in a batch, over (key, [(time, value), ...]) groups."""

    fn: StatefulFn

    @property
    def side_inputs(self) -> Sequence[SideInput]:
        return self.fn.call.side_inputs

    def bind(self, resolve: SideResolver) -> Self:
        return replace(self, fn=self.fn.bind(resolve))

    def open(self) -> None:
        self.fn.open()

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        last = Bundle([], pane=bundle.pane, retraction=bundle.retraction)
        return self.fn.life.framed(self._processed(bundle), last)

    def close(self) -> Iterator[Tagged]:
        self.fn.life.close()
        return iter(())

    def _processed(self, bundle: Bundle) -> Iterator[Tagged]:
        calls = Calls(self.fn)
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
