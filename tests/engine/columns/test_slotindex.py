"""The index of slots and the column of cells, against dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns import bytecolumn
from headrace.engine.columns.bytecolumn import ByteColumn
from headrace.engine.columns.slotindex import SlotIndex

SLOTS = 40

few_hashes = st.sampled_from([0, 1, 2**63, 2**64 - 1])  # chains
any_hashes = st.integers(0, 2**64 - 1)


@given(st.data(), st.sampled_from([few_hashes, any_hashes]))
def test_the_index_finds_what_was_added_and_not_removed(data: Any, hashes: Any) -> None:
    index, held = SlotIndex(), dict[int, int]()
    index.reserve(SLOTS)
    for _ in range(data.draw(st.integers(1, 6))):
        free = [slot for slot in range(SLOTS) if slot not in held]
        if free and data.draw(st.booleans()):
            added = data.draw(st.lists(st.sampled_from(free), unique=True))
            new = {slot: data.draw(hashes) for slot in added}
            index.add(np.array(added, np.int64), np.array(list(new.values()), np.uint64))
            held |= new
        elif held:
            removed = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True))
            index.remove(np.array(removed, np.int64))
            for slot in removed:
                del held[slot]
        asked = [*held.values(), 0, 5]
        at, found = index.pairs(np.array(asked, np.uint64))
        expected = [(at, slot) for at, hashed in enumerate(asked) for slot, other in held.items() if hashed == other]
        assert sorted(zip(at.tolist(), found.tolist(), strict=True)) == sorted(expected)


cells = st.none() | st.binary(max_size=5)


@given(st.lists(st.dictionaries(st.integers(0, SLOTS - 1), cells, max_size=10), max_size=30), st.booleans())
def test_a_column_has_what_was_put_last(puts: list[dict[int, bytes | None]], clearing: bool) -> None:
    column, held = ByteColumn(), dict[int, bytes | None]()
    few, bytecolumn._FEW = bytecolumn._FEW, 0  # type: ignore[misc]
    try:
        for number, put in enumerate(puts):
            column.reserve(SLOTS)
            slots = np.array(list(put), np.int64)
            if clearing and number % 3 == 2:
                column.clear(slots)
                held |= dict.fromkeys(put)
            else:
                column.put(slots, pa.array([b"cut off", *put.values()], pa.binary())[1:])
                held |= put
            assert column.take(np.arange(SLOTS)).to_pylist() == [held.get(slot) for slot in range(SLOTS)]
    finally:
        bytecolumn._FEW = few  # type: ignore[misc]


def test_what_is_replaced_does_not_pile_up() -> None:
    column, slots = ByteColumn(), np.arange(1_000)
    column.reserve(1_000)
    for number in range(50):
        column.put(slots, pa.array([b"%d" % number] * 1_000))
    assert column._count <= 2 * 1_000 + bytecolumn._FEW
    assert column.take(slots[:1]).to_pylist() == [b"49"]
