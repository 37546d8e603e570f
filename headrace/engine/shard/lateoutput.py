"""Late outputs of groupings: late rows leave a shard behind its panes, and enter Python as elements.

They travel as rows of the schema PANES with a timing that no pane has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.processor import PANES, ShardProcessor, StepResult
from headrace.engine.shard.rows import ELEMENT
from headrace.engine.shard.windowbounds import bounds_of
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import RETRACTION
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE, pair_bundle
from headrace.model.algebra import CombineFn
from headrace.model.panes import NO_PANE

_TOO_LATE: Final = -1


class LateOutputProcessor(ShardProcessor):
    """A shard processor that emits late rows behind its panes."""

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        step = super().step(rows, clocks)
        if step.late is None or not step.late.num_rows:
            return step
        return replace(step, panes=pa.concat_batches([step.panes, _as_panes(step.late)]))


def split_late(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Splits what a step emitted into panes and late rows."""
    late = pc.equal(rows.column("timing"), _TOO_LATE)
    return rows.filter(pc.invert(late)), rows.filter(late)


def late_bundles(late: pa.RecordBatch, *, global_windows: bool) -> Iterator[Bundle]:
    """Reads late rows as bundles of pairs; retractions come first, in bundles of their own."""
    for back in (True, False):
        rows = late.filter(pc.equal(late.column("retraction"), back))
        if rows.num_rows:
            yield pair_bundle(rows, NO_PANE, global_windows=global_windows, retraction=back)


def _as_panes(late: pa.RecordBatch) -> pa.RecordBatch:
    count = late.num_rows
    has = late.schema.names
    start, end = map(pa.array, bounds_of(late))
    numbers = [pa.array(np.full(count, number)) for number in (0, 0)]
    flags = [pa.array(np.full(count, False))] * 2
    back = late.column(RETRACTION) if RETRACTION in has else pa.array(np.full(count, False))
    timing = pa.array(np.full(count, _TOO_LATE, np.int8))
    value = late.column(ELEMENT if ELEMENT in has else VALUE)
    placed = [late.column(KEY), late.column(SPELLING), start, end, late.column(TIME), value]
    return pa.record_batch([*placed, timing, *numbers, *flags, back], schema=PANES)


@dataclass(frozen=True)
class ElementFn(CombineFn[Any, Any, Any]):
    """An aggregation of a part of each element, so that a late output of an input with retractions has whole elements.

    >>> from operator import itemgetter
    >>> from headrace.model.algebra import SumFn
    >>> total = ElementFn(SumFn(), itemgetter(1))
    >>> total.finish(total.add_all(total.zero(), [("a", 1), ("b", 2)]))
    3
    """

    fn: CombineFn[Any, Any, Any]
    part: Callable[[Any], Any]

    def __repr__(self) -> str:
        return repr(self.fn)

    def state_identity(self) -> Identity:
        """Returns the identity of `fn`: with or without a late output, the state is the same."""
        return identity_of(self.fn)

    @property
    def timed(self) -> bool:  # type: ignore[override]
        return self.fn.timed

    def zero(self) -> Any:
        return self.fn.zero()

    def add(self, acc: Any, value: Any) -> Any:
        return self.add_all(acc, [value])

    def add_all(self, acc: Any, values: Any) -> Any:
        if self.timed:
            return self.fn.add_all(acc, [(time, self.part(element)) for time, element in values])
        return self.fn.add_all(acc, [self.part(element) for element in values])

    def merge(self, a: Any, b: Any) -> Any:
        return self.fn.merge(a, b)

    def finish(self, acc: Any) -> Any:
        return self.fn.finish(acc)

    def dump(self, acc: Any) -> object:
        return self.fn.dump(acc)

    def load(self, data: Any) -> Any:
        return self.fn.load(data)


@dataclass(frozen=True)
class ElementPairs:
    """Pairs of keys and whole elements: the function that makes them, and the aggregation of elements."""

    pair: Callable[[Any], tuple[Any, Any]]
    fn: ElementFn


def whole_elements(keyed: Callable[[Any], tuple[Any, Any]], fn: CombineFn[Any, Any, Any]) -> ElementPairs:
    """Returns, for a function from element to key and value, pairs with the element, and `fn` of the value in it."""
    return ElementPairs(lambda element: (keyed(element)[0], element), ElementFn(fn, lambda element: keyed(element)[1]))
