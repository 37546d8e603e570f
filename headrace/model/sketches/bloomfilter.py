"""Bloom filters: whether a value has occurred."""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.model.algebra import CombineFn
from headrace.model.keys import encode_key

Bits = npt.NDArray[np.uint8]
Accumulator = set[bytes] | Bits
"""The digests of few values, or the bits of the filter."""

_HEADER: Final = struct.Struct("<2sHI")  # the mark, the number of hashes, the number of bytes
_MARK: Final = b"BF"
_DIGEST: Final = 16  # bytes
_DIGESTS, _BITS = b"d", b"b"  # how an accumulator is dumped
_LARGEST: Final = 1 << 27  # bytes


class BloomFilter:
    """A Bloom filter, the result of `hr.bloom(column)`: `value in filter` tells whether the value has occurred.

    A value that has occurred is always found. One that has not is found, too, with a small probability.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     visits = p | hr.Create([("a", "ann"), ("a", "bob")]) | hr.Select(page="_1", user="_2")
    ...     pages = visits | hr.GroupBy("page").aggregate(users=hr.bloom("user")) | hr.Collect()
    >>> users = hr.BloomFilter(list(pages)[0].users)
    >>> "ann" in users, "eve" in users, users.false_positives < 0.01
    (True, False, True)
    """

    def __init__(self, data: bytes) -> None:
        data = bytes(data)
        mark, self._hashes, size = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (b"", 0, 0)
        if mark != _MARK or not self._hashes or not size or len(data) != _HEADER.size + size:
            raise ValueError(f"these are not the bytes of a Bloom filter: {data[:20]!r}; use those of hr.bloom(...)")
        self._bits: Bits = np.frombuffer(data, np.uint8, offset=_HEADER.size)

    @property
    def false_positives(self) -> float:
        """The probability that a value that has not occurred is found: the part of the bits set, to the hashes."""
        return float((np.bitwise_count(self._bits).sum() / (8 * len(self._bits))) ** self._hashes)

    def __contains__(self, value: Any) -> bool:
        bits = _bits_of([_digest(value)], self._hashes, len(self._bits))
        return bool((self._bits[bits >> 3] & _masks(bits)).all())

    def __or__(self, other: BloomFilter) -> BloomFilter:
        if (self._hashes, len(self._bits)) != (other._hashes, len(other._bits)):
            raise ValueError("Bloom filters of different sizes have no union; make them with equal arguments")
        return BloomFilter(_filter(self._bits | other._bits, self._hashes))

    def __bytes__(self) -> bytes:
        return _filter(self._bits, self._hashes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BloomFilter) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))


@dataclass(frozen=True, repr=False)
class BloomFn(CombineFn[Any, Accumulator, bytes]):
    """Makes a Bloom filter of the values, as the bytes of a `BloomFilter`.

    A value that has occurred is always found. Up to so many different `items`, one that has not is found with a
    probability of about `false_positives` at most; with more items it grows, which the filter tells. It takes
    -ln(false_positives) / ln(2)**2 bits per item: 12 kB by default. Its bits are the same however the values are split.

    >>> users = BloomFn()
    >>> "bob" in BloomFilter(users.finish(users.add_all(users.zero(), ["ann", "bob"])))
    True
    """

    items: int = 10_000
    false_positives: float = 0.01

    def __post_init__(self) -> None:
        if not isinstance(self.items, int) or self.items < 1:
            raise ValueError(f"BloomFn: items must be positive, got {self.items!r}; give the number that you expect")
        if not 0 < self.false_positives < 1:
            raise ValueError(f"BloomFn: false_positives must be between 0 and 1, got {self.false_positives!r}")
        if self._size > _LARGEST:
            raise ValueError(f"BloomFn: {self.items} items take {self._size >> 20} MB, and 128 are allowed; use fewer")

    @property
    def _size(self) -> int:
        return math.ceil(-self.items * math.log(self.false_positives) / math.log(2) ** 2 / 8)

    @property
    def _hashes(self) -> int:
        return max(1, round(-math.log2(self.false_positives)))

    @property
    def _few(self) -> int:
        """The number of digests that take about as much memory as the bits of a filter."""
        return self._size // 128

    def zero(self) -> Accumulator:
        return set()

    def add(self, acc: Accumulator, value: Any) -> Accumulator:
        return self.add_all(acc, (value,))

    def add_all(self, acc: Accumulator, values: Sequence[Any]) -> Accumulator:
        return self._add(acc, set(map(_digest, values)))

    def merge(self, a: Accumulator, b: Accumulator) -> Accumulator:
        if isinstance(b, set):
            return self._add(a, b)
        return self._add(b.copy(), a) if isinstance(a, set) else np.bitwise_or(a, b, out=a)

    def is_exact(self, acc: Accumulator) -> bool:
        return False

    def finish(self, acc: Accumulator) -> bytes:
        return _filter(self._bits(acc), self._hashes)

    def dump(self, acc: Accumulator) -> bytes:
        if isinstance(acc, set):
            return _DIGESTS + b"".join(sorted(acc))
        return _BITS + zlib.compress(acc.tobytes(), 1)

    def load(self, data: Any) -> Accumulator:
        if data[:1] == _BITS:
            return np.frombuffer(zlib.decompress(data[1:]), np.uint8).copy()
        return {data[at : at + _DIGEST] for at in range(1, len(data), _DIGEST)}

    def _add(self, acc: Accumulator, digests: set[bytes]) -> Accumulator:
        if isinstance(acc, set):
            acc |= digests
            return acc if len(acc) <= self._few else self._bits(acc)
        bits = _bits_of(digests, self._hashes, self._size)
        np.bitwise_or.at(acc, bits >> 3, _masks(bits))
        return acc

    def _bits(self, acc: Accumulator) -> Bits:
        bits = self._add(np.zeros(self._size, np.uint8), acc) if isinstance(acc, set) else acc
        assert not isinstance(bits, set)
        return bits


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(encode_key(value), digest_size=_DIGEST).digest()


def _bits_of(digests: Iterable[bytes], hashes: int, size: int) -> npt.NDArray[np.intp]:
    """Returns the numbers of the bits of all digests, in a filter of so many bytes.

    Two hashes make all of them, h + i * g: Kirsch and Mitzenmacher showed that this costs nothing.
    """
    first, step = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T
    numbers = first[:, None] + np.arange(hashes, dtype=np.uint64) * (step[:, None] | np.uint64(1))
    return (numbers % np.uint64(8 * size)).astype(np.intp).ravel()


def _masks(bits: npt.NDArray[np.intp]) -> Bits:
    masks: Bits = np.left_shift(1, bits & 7).astype(np.uint8)
    return masks


def _filter(bits: Bits, hashes: int) -> bytes:
    return _HEADER.pack(_MARK, hashes, len(bits)) + bits.tobytes()
