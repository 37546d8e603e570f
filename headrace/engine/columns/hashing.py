"""Hashes cells as arrays: 64 bits for each cell, the same in every process, on every machine, in every release.

A hash only says where to look; whoever looks compares the keys themselves. It is no defence against those who choose
keys that collide: that costs time, never a wrong answer. It is written by hand because stored state depends on it, and
no library promises that its hashes stay.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = npt.NDArray[np.uint64]

HASHES: Final = 2**64
"""The number of possible hashes."""

_LONG: Final = 128  # bytes; from here on a cell is hashed by itself
_SEED: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xD6E8FEB86659FD93)
_WORD: Final = np.dtype("<u8")
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD.itemsize + 1)], np.uint64)
_PIECE: Final = 16_384


def hash_bytes(cells: pa.BinaryArray) -> Hashes:
    """Hashes each cell; one that is null counts as empty.

    >>> hash_bytes(pa.array([b"a", b"b", b"a"])).tolist()
    [912821338054103863, 12428646423615215362, 912821338054103863]
    """
    # Pieces that stay in the processor's cache.
    pieces = [_hash_piece(cells.slice(start, _PIECE)) for start in range(0, len(cells), _PIECE)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint64)


def _hash_piece(cells: pa.BinaryArray) -> Hashes:
    _, buffer, data = cells.buffers()
    kind = np.dtype(np.int64 if pa.types.is_large_binary(cells.type) else np.int32)
    offsets = np.frombuffer(buffer, kind, len(cells) + 1, cells.offset * kind.itemsize).astype(np.int64)
    at, length = offsets[:-1] - offsets[0], np.diff(offsets)
    # Words are read whole, also where a cell ends within one.
    padded = np.zeros(int(offsets[-1] - offsets[0]) + _WORD.itemsize, np.uint8)
    if data is not None:
        padded[: -_WORD.itemsize] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    words = np.ndarray(len(padded) - _WORD.itemsize + 1, _WORD, padded, strides=(1,))
    hashes = length.astype(np.uint64) * _FACTOR ^ _SEED
    long = length >= _LONG
    left = np.flatnonzero((length > 0) & ~long)
    done = 0
    while len(left):
        rest = length[left] - done
        word = words[at[left] + done] & _MASKS[np.minimum(rest, _WORD.itemsize)]
        hashes[left] = (hashes[left] ^ word) * _FACTOR
        hashes[left] ^= hashes[left] >> np.uint64(32)
        done += _WORD.itemsize
        left = left[rest > _WORD.itemsize]
    for i in np.flatnonzero(long).tolist():
        digest = blake2b(padded[at[i] : at[i] + length[i]].tobytes(), digest_size=_WORD.itemsize).digest()
        hashes[i] = int.from_bytes(digest, "little")
    return mixed(hashes)


def mixed(hashes: Hashes, *numbers: npt.NDArray[np.int64]) -> Hashes:
    """Mixes hashes with numbers: every bit of the input can change every bit of the output.

    >>> mixed(np.array([1, 2], np.uint64), np.array([7, 7])).tolist()
    [7101023157824843080, 3682355495988435106]
    """
    for number in (None, *numbers):
        if number is not None:
            hashes = hashes * _FACTOR ^ number.astype(np.uint64)
        hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes = hashes ^ (hashes >> np.uint64(31))
    return hashes
