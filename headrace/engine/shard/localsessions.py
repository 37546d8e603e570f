"""Sessions that a task merges before it sends them, and how a shard takes apart those that are partly too late.

Whether an element is late is judged by its own window, and only a shard knows its watermark. So a session of several
elements travels with their times and accumulators, in order of time: where a watermark has passed the first of them
but not the last, the shard goes on with the elements one by one, as if they had never been merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrays import stable_order
from headrace.engine.columns.codes import Codes
from headrace.engine.shard.placing import COUNT, expired
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import VALUE
from headrace.model.times import Int64Array

ELEMENT_TIMES, ELEMENTS = "element_times", "elements"
SESSION_COLUMNS: Final = pa.schema([(ELEMENT_TIMES, pa.binary()), (ELEMENTS, pa.binary())])
"""The columns of the elements of merged sessions, joined to one cell each; null in rows that cannot be taken apart."""


@dataclass(frozen=True)
class LocalSessions:
    """The sessions of rows, numbered in order of their first rows.

    - codes: the session of each row
    - start, end: the bounds of sessions
    - order: the rows by session, those of a session by time; `sizes`: how many each session has
    """

    codes: Codes
    start: Int64Array
    end: Int64Array
    order: Int64Array
    sizes: Int64Array

    def details(self, times: Int64Array, cells: pa.BinaryArray) -> dict[str, pa.Array]:
        """Returns the SESSION_COLUMNS, given the time of each row and its accumulator, all of one length."""
        several = self.sizes > 1
        if not several.any():
            return no_details(len(several))
        rows = self.order[np.repeat(several, self.sizes)]
        width = len(cells[0].as_buffer())
        edges = np.concatenate([[0], np.cumsum(np.where(several, self.sizes, 0))])
        taken = pa.concat_arrays([cells.take(pa.array(rows))])  # whose bytes begin at 0
        joined = {ELEMENT_TIMES: (pa.py_buffer(times[rows]), 8), ELEMENTS: (taken.buffers()[2], width)}
        valid = pa.array(several).buffers()[1]
        return {
            name: pa.BinaryArray.from_buffers(
                pa.binary(), len(several), [valid, pa.py_buffer((edges * size).astype(np.int32)), buffer]
            )
            for name, (buffer, size) in joined.items()
        }


def no_details(rows: int) -> dict[str, pa.Array]:
    """Returns the SESSION_COLUMNS of rows that cannot be taken apart."""
    return {name: pa.nulls(rows, pa.binary()) for name in SESSION_COLUMNS.names}


def local_sessions(keys: Int64Array, times: Int64Array, gap: int) -> LocalSessions:
    """Merges the sessions of rows, given codes of their keys and their times.

    >>> found = local_sessions(np.array([0, 1, 0, 0]), np.array([5, 5, 20, 1]), gap=10)
    >>> found.codes.numbers.tolist(), found.start.tolist(), found.end.tolist()
    ([0, 1, 2, 0], [1, 5, 20], [15, 15, 30])
    """
    by_time = np.arange(len(times)) if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
    order = by_time[stable_order(keys[by_time])]
    of_key, time = keys[order], times[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (of_key[1:] != of_key[:-1]) | (time[1:] >= time[:-1] + gap)  # which only touch are not merged
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=len(order))
    firsts = np.minimum.reduceat(order, starts) if len(order) else order
    by_first = stable_order(firsts)
    rank = np.empty(len(starts), np.int64)
    rank[by_first] = np.arange(len(starts))
    label = np.empty(len(order), np.int64)
    label[order] = np.repeat(rank, sizes)
    end, order = time[starts + sizes - 1][by_first] + gap, order[_joined(starts, sizes, by_first)]
    return LocalSessions(Codes(label, len(starts)), time[starts][by_first], end, order, sizes[by_first])


def take_apart(rows: pa.RecordBatch, gap: int, lateness: int, watermark: int) -> pa.RecordBatch:
    """Returns rows with the elements of sessions of which some are late and others are not, and no SESSION_COLUMNS."""
    if ELEMENTS not in rows.schema.names:
        return rows
    merged, rows = rows, rows.drop_columns(SESSION_COLUMNS.names)
    own_end = np.asarray(rows.column(START)) + gap  # of the earliest element
    late = expired(own_end, lateness, watermark) & ~expired(np.asarray(rows.column(END)), lateness, watermark)
    late &= np.asarray(merged.column(ELEMENTS).is_valid())
    if not late.any():
        return rows
    parts = merged.filter(pa.array(late))
    times = np.frombuffer(b"".join(parts.column(ELEMENT_TIMES).to_pylist()), np.int64)
    cells = parts.column(ELEMENTS).to_pylist()
    counts = np.asarray(parts.column(COUNT))
    width = len(cells[0]) // int(counts[0])
    offsets = pa.py_buffer((np.arange(len(times) + 1) * width).astype(np.int32))
    elements = rows.take(pa.array(np.repeat(np.flatnonzero(late), counts)))
    columns = dict(zip(elements.schema.names, elements.columns, strict=True)) | {
        START: pa.array(times),
        END: pa.array(times + gap),
        TIME: pa.array(times + gap - 1),
        VALUE: pa.BinaryArray.from_buffers(pa.binary(), len(times), [None, offsets, pa.py_buffer(b"".join(cells))]),
        COUNT: pa.array(np.ones(len(times), np.int64)),
    }
    whole = np.flatnonzero(~late)
    together = pa.concat_batches([rows.take(pa.array(whole)), pa.record_batch(columns, schema=rows.schema)])
    places = np.concatenate([whole, np.repeat(np.flatnonzero(late), counts)])
    return together.take(pa.array(stable_order(places)))


def _joined(starts: Int64Array, sizes: Int64Array, order: Int64Array) -> Int64Array:
    """Returns the positions of runs, one run after the other in this order."""
    sizes = sizes[order]
    return np.repeat(starts[order] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
