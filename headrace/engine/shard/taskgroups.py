"""Groups of a task's rows by key and window, as arrays: before they are sent, slices become sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import ArrayAccumulators
from headrace.engine.columns.codes import Codes
from headrace.engine.worker.columnbundles import with_bounds
from headrace.engine.worker.hidden import START
from headrace.model.times import Int64Array
from headrace.model.windows import Assigned, SlidingWindows

Details = dict[str, pa.Array]
"""The SESSION_COLUMNS of groups that are sessions."""


@dataclass(frozen=True)
class TaskGroups:
    """Groups of rows: of each its key, a row, an accumulator, the number of elements, and of sessions the elements."""

    keys: Codes
    rows: pa.RecordBatch
    accumulators: ArrayAccumulators
    counts: Int64Array
    details: Details | None = None

    def in_windows(self, sliding: SlidingWindows) -> TaskGroups | None:
        """Returns the groups by window, if these are by slice; None if a number does not fit."""
        if sliding.size % sliding.period:
            return self._in(sliding.assign(np.asarray(self.rows.column(START))), sliding.period)
        # Sixty slices are joined by twos, twos again, threes and fives: in twelve steps a slice, and not sixty.
        groups: TaskGroups | None = self
        width = sliding.period
        for factor in _prime_factors(sliding.size // sliding.period):
            if groups is not None:
                groups = groups._joined(width, factor, sliding.period)
            width *= factor
        return groups

    def _joined(self, width: int, several: int, period: int) -> TaskGroups | None:
        """Returns the groups by intervals that are several of these long, one for each period that one begins in."""
        starts = np.asarray(self.rows.column(START))
        start = (starts[:, np.newaxis] - width * np.arange(several)[::-1]).reshape(-1)
        return self._in(Assigned(np.repeat(np.arange(len(starts)), several), start, start + width * several), period)

    def _in(self, assigned: Assigned, step: int) -> TaskGroups | None:
        """Returns the groups by other intervals, which begin whole steps apart; None if a number does not fit."""
        index, start, end = assigned
        groups = self.keys.take(index).with_codes(Codes.of_steps(start, step))
        accumulators = self.accumulators.regrouped(index, groups.numbers, groups.count)
        if accumulators is None:
            return None
        counts, firsts = np.zeros(groups.count, np.int64), groups.first_rows()
        np.add.at(counts, groups.numbers, self.counts[index])
        first = index[firsts]
        rows = with_bounds(self.rows.take(pa.array(first)), start[firsts], end[firsts])
        return TaskGroups(self.keys.take(first), rows, accumulators, counts)


def _prime_factors(number: int) -> list[int]:
    """Returns the prime factors of a number, ascending.

    >>> _prime_factors(60), _prime_factors(1)
    ([2, 2, 3, 5], [])
    """
    factors, factor = [], 2
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor = factor + 1 if factor * factor <= number else number
    return factors
