"""The partition of a key, by Kafka's hash: a key is in the partition of the same number in both."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = 0x9747B28C
_BITS: Final = 0xFFFFFFFF

U32 = npt.NDArray[np.uint32]


def partitions_of(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int64]:
    """Computes the partition of each key.

    >>> partitions_of(pa.array([b"21", b"foobar", b"a-little-bit-long-string"]), 1000).tolist()
    [340, 166, 112]
    """
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int64)


@lru_cache(maxsize=1 << 16)
def partition_of(key: bytes, partitions: int) -> int:
    """Computes the partition of one key, quicker than for an array of one.

    >>> partition_of(b"21", 1000)
    340
    """
    hashed, factor = _SEED ^ len(key), int(_M)
    whole = len(key) - len(key) % 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        mixed = word * factor & _BITS
        hashed = (hashed * factor ^ (mixed ^ mixed >> 24) * factor) & _BITS
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * factor & _BITS
    hashed = (hashed ^ hashed >> 13) * factor & _BITS
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions


def murmur2(keys: pa.BinaryArray) -> U32:
    """Computes the MurmurHash2 of each key, as Kafka's clients do; keys of equal length are hashed together."""
    keys = keys.cast(pa.binary())
    offsets = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.zeros(len(keys), np.uint32)
    for length in np.unique(lengths).tolist():
        of_length = np.flatnonzero(lengths == length)
        octets = data[offsets[of_length][:, np.newaxis] + np.arange(length)].reshape(len(of_length), length)
        hashes[of_length] = _hash_rows(octets)
    return hashes


def _hash_rows(octets: npt.NDArray[np.uint8]) -> U32:
    count, length = octets.shape
    hashed = np.full(count, np.uint32(_SEED ^ length), np.uint32)
    whole = length - length % 4
    for words in np.ascontiguousarray(octets[:, :whole]).view("<u4").T:
        mixed = words * _M
        mixed ^= mixed >> np.uint32(24)
        hashed = hashed * _M ^ mixed * _M
    for place in range(length - 1, whole - 1, -1):
        hashed ^= octets[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
    if whole < length:
        hashed = hashed * _M
    hashed ^= hashed >> np.uint32(13)
    hashed = hashed * _M
    return hashed ^ (hashed >> np.uint32(15))
