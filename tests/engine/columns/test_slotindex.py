"""The index of slots, compared with a dict."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.slotindex import SlotIndex

SLOTS = 40

few_hashes = st.sampled_from([0, 1, 2**63, 2**64 - 1])  # chains
any_hashes = st.integers(0, 2**64 - 1)


@given(st.data(), st.sampled_from([few_hashes, any_hashes]))
def test_the_index_finds_what_was_added_and_not_removed(data: Any, hashes: Any) -> None:
    index, hashed = SlotIndex(), dict[int, int]()
    index.reserve(SLOTS)
    for _ in range(data.draw(st.integers(1, 6))):
        free = [slot for slot in range(SLOTS) if slot not in hashed]
        if free and data.draw(st.booleans()):
            added = data.draw(st.lists(st.sampled_from(free), unique=True))
            new = {slot: data.draw(hashes) for slot in added}
            index.add(np.array(added, np.int64), np.array(list(new.values()), np.uint64))
            hashed |= new
        elif hashed:
            removed = data.draw(st.lists(st.sampled_from(sorted(hashed)), unique=True))
            index.remove(np.array(removed, np.int64))
            for slot in removed:
                del hashed[slot]
        asked = [*hashed.values(), 0, 5]
        at, slots = index.pairs(np.array(asked, np.uint64))
        expected = [(at, slot) for at, wanted in enumerate(asked) for slot, other in hashed.items() if wanted == other]
        assert sorted(zip(at.tolist(), slots.tolist(), strict=True)) == sorted(expected)
