"""Combining in the fast lane: before the shuffle accumulators by window and key, behind it what is done with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Final

import numpy as np
from apache_beam.transforms import core
from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.cy_combiners import SumInt64Fn

from headrace.dialects.beam.fastlane import Step
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle
from headrace.engine.worker.shuffle import MAX_ACCUMULATORS
from headrace.model.panes import NO_PANE
from headrace.model.times import MAX_TIME

Pairs = list[tuple[Any, Any]]
_WHOLE: Final = None
"""The window of a table where all elements are in the global window."""


class PrecombineStep(Step):
    """Combines values by key, or by window and key; `bare` results have no time, as the windowing is the default."""

    def __init__(self, name: str, fn: core.CombineFn, output: str, *, windowed: bool, bare: bool) -> None:
        super().__init__(name)
        self._fn, self._output, self._windowed, self._bare = fn, output, windowed, bare
        self._compact = type(fn).compact is not core.CombineFn.compact
        self._tables: dict[Any, Table] = defaultdict(partial(_table, fn))

    def setup(self) -> None:
        self._fn.setup()

    def teardown(self) -> None:
        self._fn.teardown()

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        for window, pairs in self._by_window(bundle):
            self._tables[window].add(pairs)
        if sum(map(len, self._tables.values())) >= MAX_ACCUMULATORS:
            yield from self.flush()

    def _by_window(self, bundle: Bundle) -> Iterable[tuple[Any, Pairs]]:
        if not self._windowed:
            return [(_WHOLE, bundle.elements)]
        windows = bundle.windows()
        if len(set(windows)) == 1:
            return [(windows[0], bundle.elements)]
        found: defaultdict[Any, Pairs] = defaultdict(list)
        for window, pair in zip(windows, bundle.elements, strict=True):
            found[window].append(pair)
        return found.items()

    def flush(self) -> Iterator[tuple[str, Bundle]]:
        for window, table in self._tables.items():
            pairs = list(table.accumulators().items())
            if self._compact:
                pairs = [(key, self._fn.compact(acc)) for key, acc in pairs]
            for at in range(0, len(pairs), BUNDLE_SIZE):
                yield self._output, self._bundle(window, pairs[at : at + BUNDLE_SIZE])
        self._tables.clear()

    def _bundle(self, window: tuple[int, int] | None, pairs: Pairs) -> Bundle:
        """Makes a bundle of accumulators at the last instant of their window."""
        if window is None:
            return Bundle(pairs) if self._bare else Bundle(pairs, time=MAX_TIME - 1)
        start, end = (np.full(len(pairs), bound, np.int64) for bound in window)
        return Bundle(pairs, end - 1, start, end, NO_PANE)


class CombineStep(Step):
    """Applies one phase of a combine to the values, or the accumulators, of each key."""

    def __init__(self, name: str, fn: core.CombineFn, phase: str, output: str) -> None:
        super().__init__(name)
        self._fn, self._phase, self._output = fn, getattr(fn, phase), output

    def setup(self) -> None:
        self._fn.setup()

    def teardown(self) -> None:
        self._fn.teardown()

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        phase = self._phase
        yield self._output, bundle.with_elements([(key, phase(values)) for key, values in bundle.elements])


# Tables


class Table:
    """Accumulators by key: each value is added to that of its key."""

    def __init__(self, fn: core.CombineFn) -> None:
        self._fn, self._found = fn, dict[Any, Any]()

    def __len__(self) -> int:
        return len(self._found)

    def add(self, pairs: Pairs) -> None:
        """Adds values."""
        found, get = self._found, self._found.get
        create, add_input = self._fn.create_accumulator, self._fn.add_input
        for key, value in pairs:
            accumulator = get(key)
            found[key] = add_input(create() if accumulator is None and key not in found else accumulator, value)

    def accumulators(self) -> dict[Any, Any]:
        """Returns the accumulators."""
        return self._found


class CountTable(Table):
    """Counts of values, whatever they are."""

    def __init__(self, fn: core.CombineFn) -> None:
        super().__init__(fn)
        self._found = Counter()

    def add(self, pairs: Pairs) -> None:
        self._found.update([key for key, _ in pairs])


class SumTable(Table):
    """Sums of ints; of equal ones, the number is counted. Other values are added to accumulators, one by one."""

    def __init__(self, fn: core.CombineFn, *, bits: int | None) -> None:
        super().__init__(fn)
        self._bits = bits
        self._sums: dict[Any, int] = {}
        self._counts: defaultdict[int, Counter[Any]] = defaultdict(Counter)

    def __len__(self) -> int:
        return len(self._found) + len(self._sums) + sum(map(len, self._counts.values()))

    def add(self, pairs: Pairs) -> None:
        values = list(map(itemgetter(1), pairs))
        if set(map(type, values)) != {int} or (self._bits and max(map(int.bit_length, values)) >= self._bits):
            super().add(pairs)
        elif len(set(values)) == 1:
            self._counts[values[0]].update(map(itemgetter(0), pairs))
        else:
            sums, get = self._sums, self._sums.get
            for key, value in pairs:
                sums[key] = get(key, 0) + value

    def accumulators(self) -> dict[Any, Any]:
        sums, get = self._sums, self._sums.get
        for value, counts in self._counts.items():
            for key, count in counts.items():
                sums[key] = get(key, 0) + value * count
        if self._bits:
            top = 1 << (self._bits - 1)
            sums = {key: (total + top) % (2 * top) - top for key, total in sums.items()}  # as C adds them
        super().add(list(sums.items()))
        return self._found


def _table(fn: core.CombineFn) -> Table:
    """Returns an empty table for a CombineFn."""
    if type(fn) is CountCombineFn:
        return CountTable(fn)
    if type(fn) is SumInt64Fn:
        return SumTable(fn, bits=64)
    if type(fn) in _OF_CALLABLES and fn._fn is sum:
        return SumTable(fn, bits=None)
    return Table(fn)


_OF_CALLABLES: Final[tuple[type, ...]] = (
    core.CallableWrapperCombineFn,
    core.NoSideInputsCallableWrapperCombineFn,
)
