"""The bounds of the windows that rows are in, as arrays and as bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.worker.hidden import END, START
from headrace.model.keys import tag_numbers
from headrace.model.times import Int64Array
from headrace.model.windows import GLOBAL_WINDOW


def global_bounds(count: int) -> tuple[Int64Array, Int64Array]:
    """Returns starts and ends of so many rows in the global window."""
    return np.full(count, GLOBAL_WINDOW.start, np.int64), np.full(count, GLOBAL_WINDOW.end, np.int64)


def bounds_of(rows: pa.RecordBatch) -> tuple[Int64Array, Int64Array]:
    """Returns starts and ends of the windows of rows; rows without bounds are in the global window.

    >>> [bounds.tolist() for bounds in bounds_of(pa.record_batch({"__start": [0], "__end": [10]}))]
    [[0], [10]]
    """
    if START not in rows.schema.names:
        return global_bounds(rows.num_rows)
    return np.asarray(rows.column(START)), np.asarray(rows.column(END))


def window_names(keys: pa.BinaryArray, start: Int64Array, end: Int64Array) -> pa.BinaryArray:
    """Encodes encoded keys and bounds as bytes, different ones for different windows."""
    return pc.binary_join_element_wise(keys, tag_numbers(b"", start), tag_numbers(b"", end), b"")
