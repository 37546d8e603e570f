"""The column of cells, compared with a dict."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns import bytecolumn
from headrace.engine.columns.bytecolumn import ByteColumn

SLOTS = 40

cells = st.none() | st.binary(max_size=5)


@given(st.lists(st.dictionaries(st.integers(0, SLOTS - 1), cells, max_size=10), max_size=30), st.booleans())
def test_a_column_has_what_was_put_last(puts: list[dict[int, bytes | None]], clearing: bool) -> None:
    column, expected = ByteColumn(), dict[int, bytes | None]()
    few, bytecolumn._FEW = bytecolumn._FEW, 0  # type: ignore[misc]
    try:
        for number, put in enumerate(puts):
            column.reserve(SLOTS)
            slots = np.array(list(put), np.int64)
            if clearing and number % 3 == 2:
                column.clear(slots)
                expected |= dict.fromkeys(put)
            else:
                column.put(slots, pa.array([b"cut off", *put.values()], pa.binary())[1:])
                expected |= put
            assert column.take(np.arange(SLOTS)).to_pylist() == [expected.get(slot) for slot in range(SLOTS)]
    finally:
        bytecolumn._FEW = few  # type: ignore[misc]


def test_what_is_replaced_does_not_pile_up() -> None:
    column, slots = ByteColumn(), np.arange(1_000)
    column.reserve(1_000)
    for number in range(50):
        column.put(slots, pa.array([b"%d" % number] * 1_000))
    assert column._count <= 2 * 1_000 + bytecolumn._FEW
    assert column.take(slots[:1]).to_pylist() == [b"49"]
