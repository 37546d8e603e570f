"""Spark's hash of a number, by which it shares rows out to partitions."""

from __future__ import annotations


def spark_hash(number: int) -> int:
    """Returns what Spark's `hash` gives for a long: Murmur3 with seed 42, as a signed number of 32 bits.

    >>> spark_hash(7), spark_hash(7) % 2
    (1293116811, 1)
    """
    mask = 0xFFFFFFFF

    def rotated(x: int, bits: int) -> int:
        return (x << bits | x >> (32 - bits)) & mask

    hashed = 42
    for word in (number & mask, number >> 32 & mask):
        hashed ^= rotated(word * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        hashed = (rotated(hashed, 13) * 5 + 0xE6546B64) & mask
    hashed ^= 8
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> shift) * factor & mask
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed
