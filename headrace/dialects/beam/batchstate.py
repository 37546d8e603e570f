"""State and timers in a batch: the elements of a key and window at once, in the order of their times.

`KeyFn` makes the pairs that are grouped, `StatefulStageFn` runs the stage over the groups. When all elements of a group
were processed its timers fire, in their order, until none is left; then the state is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from headrace.dialects.beam.border import ElementBorder, Form, WindowKind, fold, from_pane, from_times, unfold
from headrace.dialects.beam.stagefn import StageFn, Tagged
from headrace.dialects.beam.stageprocess import StageProcess
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.dialects.beam.userstate import Record
from headrace.engine.worker.bundles import Bundle
from headrace.model.bundlefns import SideContents
from headrace.model.panes import PaneInfo
from headrace.model.times import MAX_TIME

Entry = tuple[int, bytes, PaneInfo]
"""An element of a group: its time, its bytes, and the pane that it came in."""


@dataclass
class KeyFn:
    """Makes pairs of elements: the bytes of the key, and an entry. A window that is no interval precedes its key."""

    spec: StageSpec
    source: Port
    reads: Form
    _border: ElementBorder | None = field(default=None, repr=False)

    def open(self, sides: Sequence[SideContents]) -> None:
        self._border = None

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        """Makes a pair of each element; times and windows stay as they are."""
        if self._border is None:
            self._border = self.spec.components.border(self.source.collection, self.reads)
            self._encode = self._border.coder.get_impl().encode
            self._encode_key = self._border.coder.key_coder().get_impl().encode
        windows, pairs = self._border.windows, []
        for value, time in zip(self._border.from_bundle(bundle), bundle.all_times().tolist(), strict=True):
            key = self._encode_key(value.value[0])
            if windows.kind is WindowKind.FOLDED:
                key = fold(windows.bytes_of(value.windows[0]), key)
            pairs.append((key, (time, self._encode(value.value), bundle.pane)))
        yield "pairs", bundle.with_elements(pairs)

    def close(self) -> Iterator[Tagged]:
        return iter(())


@dataclass
class StatefulStageFn(StageFn):
    """Runs a stage with state over the groups of its keys and windows."""

    def _entered(self, process: StageProcess, bundle: Bundle) -> Iterator[None]:
        windows, state = self._border.windows, self._handler.user_state
        decode = self._border.coder.get_impl().decode
        assert self._enter is not None  # a stage with state is entered by it
        for number, ((key, entries), bounds) in enumerate(zip(bundle.elements, bundle.windows(), strict=True)):
            if windows.kind is WindowKind.GLOBAL:
                placed: tuple[Any, ...] = (GlobalWindow(),)
            elif windows.kind is WindowKind.INTERVAL:
                placed = windows.interval(bounds)
            else:
                placed = windows.decoded(unfold(key)[0])
            state.at.record = record = Record(key, None, placed[0], number, MAX_TIME)
            ordered: list[Entry] = sorted(entries, key=itemgetter(0))
            micros = from_times(np.array([time for time, _, _ in ordered], np.int64))
            for time, (_, cell, pane) in zip(micros, ordered, strict=True):
                element = decode(cell)
                record.user_key = element[0]
                self._enter(windowed_value.create(element, time, placed, from_pane(pane)))
                yield

    def _ended(self, process: StageProcess) -> Iterator[Tagged]:
        state = self._handler.user_state
        yield from self._bundle(process, self._fired(process))
        state.at.changed.clear()
        state.reset()

    def _fired(self, process: StageProcess) -> Iterator[None]:
        """Fires the timers of all groups, also those that are set meanwhile, in the order of their times."""
        assert self.spec.stateful is not None
        state = self._handler.user_state
        while (due := state.timers.due(watermark=MAX_TIME, now=MAX_TIME)) is not None:
            record, timer = due
            state.at.record = record
            process.first.fire(self.spec.stateful, timer.family, timer.data(record))
            yield
