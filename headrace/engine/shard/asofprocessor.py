"""The processor of an as-of join: a left row waits until the version that was valid at its time is known.

A step stores the rows that came. Then the watermark moves: left rows whose time it has passed by the lateness are
joined, each with the latest right row of its key up to its time, and leave. Of right rows, the latest of each key up to
the least time of left rows to come stays, and all later ones.

As with other joins, the state is the rows, and what left follows from the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.engine.columns.joinkeys import latest_pairs
from headrace.engine.columns.sorting import sort_keys
from headrace.engine.shard.joinprocessor import LEFT, RIGHT, Arrivals, JoinProcessor
from headrace.engine.shard.triggernodes import Mask
from headrace.engine.worker.hidden import TIME
from headrace.model.sortorder import is_sortable
from headrace.model.times import MAX_TIME, Int64Array


class AsOfProcessor(JoinProcessor):
    """The processor of the shard of an as-of join.

    >>> from headrace.engine.shard.clocks import Clocks
    >>> from headrace.engine.shard.joinprocessor import JoinSide, JoinSpec, arrivals
    >>> sides = [JoinSide(pa.schema({"id": pa.int64(), value: pa.int64(), TIME: pa.int64()}), ("id",))
    ...          for value in ("sum", "rate")]
    >>> columns = (("sum", LEFT, "sum"), ("rate", RIGHT, "rate"))
    >>> shard = AsOfProcessor(JoinSpec(tuple(sides), columns, late_by_time=True))
    >>> _ = shard.step(arrivals(LEFT, pa.record_batch({"id": [7], "sum": [3], TIME: [5]})))
    >>> _ = shard.step(arrivals(RIGHT, pa.record_batch({"id": [7, 7, 7], "rate": [1, 2, 3], TIME: [2, 4, 6]})))
    >>> shard.step(None, Clocks(6)).panes.to_pylist()
    [{'sum': 3, 'rate': 2, '__time': 5}]
    """

    def _until(self, side: int, rows: pa.RecordBatch) -> Int64Array:
        if side == RIGHT:
            return np.full(rows.num_rows, MAX_TIME, np.int64)
        times: Int64Array = np.asarray(rows.column(TIME))
        return np.minimum(times + (self.spec.lateness + 1), MAX_TIME)

    def _matches(self, left: Arrivals, right: Arrivals) -> Iterator[pa.RecordBatch]:
        """Yields nothing: no row is joined before the watermark has passed it."""
        yield from ()

    def _closed(self, before: int, after: int, first: int) -> Iterator[pa.RecordBatch]:
        """Yields the results of left rows that the watermark has passed."""
        closed = np.flatnonzero(self.waiting[LEFT]["until"] <= after)
        if not len(closed):
            return
        own = self._numbers(LEFT, closed)
        versions = self._in_order(self._in_slots(RIGHT, own["slot"]))
        known = self._numbers(RIGHT, versions)
        at_left, at_right = latest_pairs(own["slot"], known["slot"], own["time"], known["time"])
        rows = self.waiting[LEFT].take(closed)
        if len(at_left):
            used, at = np.unique(versions[at_right], return_inverse=True)
            yield self._results(rows.take(pa.array(at_left)), self.waiting[RIGHT].take(used).take(pa.array(at)))
        if self.spec.sides[LEFT].keeps and len(alone := np.delete(np.arange(len(closed)), at_left)):
            yield self._results(rows.take(pa.array(alone)), None)

    def _over(self, side: int, watermark: int) -> Mask:
        over = super()._over(side, watermark)
        if side == RIGHT and not over.all():
            over[self._superseded(watermark - self.spec.lateness)] = True
        return over

    def _superseded(self, horizon: int) -> Int64Array:
        """Returns the positions of right rows that are not the latest of their key up to a time."""
        slots, times = self.waiting[RIGHT]["slot"], self.waiting[RIGHT]["time"]
        past = times <= horizon
        several = np.bincount(slots[past], minlength=self.slots.used) > 1
        versions = self._in_order(np.flatnonzero(past & several[slots]))
        order = versions[np.lexsort((times[versions], slots[versions]))]
        superseded: Int64Array = order[:-1][slots[order[:-1]] == slots[order[1:]]]
        return superseded

    def _in_order(self, positions: Int64Array) -> Int64Array:
        """Puts right rows of one key and time in the order of their columns, so that the last of them counts."""
        places = np.stack([self.waiting[RIGHT][name][positions] for name in ("slot", "time")])
        order = np.lexsort(places)
        if not (places[:, order[1:]] == places[:, order[:-1]]).all(axis=0).any():
            return positions
        rows = self.waiting[RIGHT].take(positions)
        columns = [rows.column(name) for name in rows.schema.names if name != TIME]
        keys = [key for column in columns if is_sortable(column.type) for key in sort_keys(column)]
        return positions[np.lexsort(keys[::-1])]

    def _holds(self, watermark: int) -> Int64Array:
        return self.waiting[LEFT]["time"]
