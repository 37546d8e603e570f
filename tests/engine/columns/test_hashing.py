"""Hashes of keys, against a definition in plain integers."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns import hashing
from headrace.engine.columns.hashing import hash_bytes, mixed

MASK = 2**64 - 1
cells = st.lists(st.binary(max_size=40) | st.binary(min_size=120, max_size=140) | st.none(), max_size=20)


def finished(number: int) -> int:
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def defined(cell: bytes) -> int:
    factor = 0xD6E8FEB86659FD93
    number = len(cell) * factor & MASK ^ 0x9E3779B97F4A7C15
    if len(cell) >= 128:
        return finished(int.from_bytes(blake2b(cell, digest_size=8).digest(), "little"))
    for at in range(0, len(cell), 8):
        number = (number ^ int.from_bytes(cell[at : at + 8], "little")) * factor & MASK
        number ^= number >> 32
    return finished(number)


@given(cells, st.integers(0, 5), st.booleans())
def test_hashes_are_as_defined(values: list[bytes | None], skipped: int, large: bool) -> None:
    """Of slices, nulls and either width of offsets, too."""
    array = pa.array(values, pa.large_binary() if large else pa.binary()).slice(skipped)
    assert hash_bytes(array).tolist() == [defined(value or b"") for value in values[skipped:]]


def test_pieces_make_no_difference() -> None:
    values = [str(number).encode() for number in range(2 * hashing._PIECE + 5)]
    assert hash_bytes(pa.array(values)).tolist() == [defined(value) for value in values]


def test_every_bit_spreads() -> None:
    """Keys that differ little fall evenly into places, whichever bits of the hash choose them."""
    hashes = hash_bytes(pa.array([f"user-{number}".encode() for number in range(64_000)]))
    for chosen in (hashes, mixed(hashes), mixed(hashes, np.zeros(len(hashes), np.int64))):
        for shift in range(0, 64, 4):
            places = np.bincount((chosen >> np.uint64(shift)).astype(np.int64) & 15, minlength=16)
            assert np.abs(places - 4_000).max() < 400
