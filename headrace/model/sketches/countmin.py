"""Count-Min sketches: how often a value occurs."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import datasketches as ds

from headrace.model.safebytes import EncodingError, decode, encode
from headrace.model.sketches.exactcounts import CountedFn
from headrace.model.sketches.hashedvalues import hashed_as

R = TypeVar("R")
_ERROR: Final = 0.001
_CONFIDENCE: Final = 0.99


class CountMinSketch:
    """A Count-Min sketch, the result of `hr.count_min(column)`: it tells how often a value occurs.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     visits = p | hr.Create([("a", "ann"), ("a", "bob"), ("a", "bob")]) | hr.Select(page="_1", user="_2")
    ...     pages = visits | hr.GroupBy("page").aggregate(users=hr.count_min("user")) | hr.Collect()
    >>> users = hr.CountMinSketch(list(pages)[0].users)
    >>> users.frequency("bob"), users.frequency("eve"), users.total, users.bounds("bob")
    (2, 0, 3, (2, 2))
    """

    def __init__(self, data: bytes) -> None:
        try:
            counts = decode(bytes(data))
            self._counts = counts if isinstance(counts, dict) else _load(counts)
        except (IndexError, TypeError, ValueError, RuntimeError, zlib.error, EncodingError):
            raise ValueError(
                f"these are not the bytes of a Count-Min sketch: {data[:20]!r}; use those of hr.count_min(...)"
            ) from None

    @property
    def total(self) -> int:
        """The number of all values."""
        return _total(self._counts)

    def frequency(self, value: Any) -> int:
        """Estimates how often a value occurs: never too low, and seldom too high by more than the stated error."""
        return _frequency(self._counts, value)

    def bounds(self, value: Any) -> tuple[int, int]:
        """Returns what the frequency of a value is between, with the confidence that the sketch was made with."""
        most = self.frequency(value)
        if isinstance(self._counts, dict):
            return most, most
        return max(0, most - math.ceil(math.e / self._counts.num_buckets * self.total)), most


class _CountMinFn(CountedFn[Any, R]):
    """Base of the aggregations with a Count-Min sketch: of N values, a count is too high by at most `error` * N."""

    error: float
    confidence: float

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not 1e-6 <= self.error < 1:
            raise ValueError(f"{name}: error must be from 1e-6 to 1, got {self.error!r}; 0.001 takes 109 kB")
        if not 0 < self.confidence < 1:
            raise ValueError(f"{name}: confidence must be between 0 and 1, got {self.confidence!r}; 0.99 is usual")

    def new_sketch(self) -> Any:
        sketch = ds.count_min_sketch
        return sketch(sketch.suggest_num_hashes(self.confidence), sketch.suggest_num_buckets(self.error))

    def update(self, sketch: Any, counts: Mapping[int | str, int]) -> None:
        for value, count in counts.items():
            sketch.update(value, count)

    def merge_sketches(self, a: Any, b: Any) -> None:
        a.merge(b)

    def dump_sketch(self, sketch: Any) -> bytes:
        return zlib.compress(sketch.serialize(), 1)

    def load_sketch(self, data: bytes) -> Any:
        return _load(data)


@dataclass(frozen=True, repr=False)
class CountMinFn(_CountMinFn[bytes]):
    """Makes a Count-Min sketch of the values, as the bytes of a `CountMinSketch`.

    Of N values, a frequency is never too low, and with the given confidence not too high by more than `error` * N. It
    is exact up to 1,000 different values; beyond, the sketch has e / error * ln(1 / (1 - confidence)) counters of 8
    bytes, 109 kB by default. Its bits are the same however the values are split.

    >>> pages = CountMinFn()
    >>> CountMinSketch(pages.finish(pages.add_all(pages.zero(), "abracadabra"))).frequency("a")
    5
    """

    error: float = _ERROR
    confidence: float = _CONFIDENCE

    def finish(self, acc: Any) -> bytes:
        return encode(self.dump(acc))


@dataclass(frozen=True, repr=False)
class FrequencyFn(_CountMinFn[Any]):
    """Estimates how often a value occurs, or each of a tuple of values, by a Count-Min sketch.

    The error is that of `CountMinFn`.

    >>> letters = FrequencyFn(("a", "b", "z"))
    >>> letters.finish(letters.add_all(letters.zero(), "abracadabra"))
    [5, 2, 0]
    """

    of: Any
    error: float = _ERROR
    confidence: float = _CONFIDENCE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of is None or self.of == ():
            raise ValueError(f"FrequencyFn: of must be a value or several, got {self.of!r}; give those to count")

    def finish(self, acc: Any) -> Any:
        if isinstance(self.of, tuple):
            return [_frequency(acc, value) for value in self.of]
        return _frequency(acc, self.of)


def _load(data: bytes) -> Any:
    return ds.count_min_sketch.deserialize(zlib.decompress(data))


def _total(counts: Any) -> int:
    return sum(counts.values()) if isinstance(counts, dict) else round(counts.total_weight)


def _frequency(counts: Any, value: Any) -> int:
    hashed = hashed_as(value)
    return int(counts.get(hashed, 0)) if isinstance(counts, dict) else round(counts.get_estimate(hashed))
