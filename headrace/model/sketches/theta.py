"""Theta sketches: how many different values there are, also in unions, intersections and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import datasketches as ds

from headrace.model.algebra import CombineFn
from headrace.model.sketches.hashedvalues import hashed_as

_LG_K: Final = 12
_EMPTY: Final[bytes] = ds.update_theta_sketch().compact().serialize()


class ThetaSketch:
    """A theta sketch, the result of `hr.theta(column)`: an estimate of how many different values a set has.

    `|`, `&` and `-` give the sketches of unions, intersections and differences; `bytes(sketch)` is what a column
    stores. In `Select`, Spark's functions `theta_union`, `theta_intersection`, `theta_difference` and
    `theta_sketch_estimate` do the same.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     visits = p | hr.Create([("a", "ann"), ("a", "bob"), ("b", "bob")]) | hr.Select(page="_1", user="_2")
    ...     users = visits | hr.GroupBy("page").aggregate(users=hr.theta("user")) | hr.Collect()
    >>> a, b = (hr.ThetaSketch(row.users) for row in sorted(users))
    >>> (a | b).estimate, (a & b).estimate, (a - b).estimate, a.bounds()
    (2.0, 1.0, 1.0, (2.0, 2.0))
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._sketch = ds.compact_theta_sketch.deserialize(bytes(data))
        except (IndexError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"these are not the bytes of a theta sketch: {error}; use those of hr.theta(...)"
            ) from None

    @property
    def estimate(self) -> float:
        """The estimated number of different values; exact up to 2**lg_k of them."""
        return float(self._sketch.get_estimate())

    def bounds(self, deviations: int = 2) -> tuple[float, float]:
        """Returns what the number is between, with 68, 95 or 99.7 % confidence: 1, 2 or 3 standard deviations."""
        if deviations not in (1, 2, 3):
            raise ValueError(f"bounds: deviations must be 1, 2 or 3, got {deviations!r}; 2 gives 95 % confidence")
        return self._sketch.get_lower_bound(deviations), self._sketch.get_upper_bound(deviations)

    def __or__(self, other: ThetaSketch) -> ThetaSketch:
        return _of(_union(self._sketch, other._sketch, lg_k=max(map(_size_of, (self, other)))))

    def __and__(self, other: ThetaSketch) -> ThetaSketch:
        both = ds.theta_intersection()
        both.update(self._sketch)
        both.update(other._sketch)
        return _of(both.get_result())

    def __sub__(self, other: ThetaSketch) -> ThetaSketch:
        return _of(ds.theta_a_not_b().compute(self._sketch, other._sketch))

    def __bytes__(self) -> bytes:
        return _dump(self._sketch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThetaSketch) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))

    def __repr__(self) -> str:
        return f"<ThetaSketch of about {self.estimate:.0f} values>"


def _of(sketch: Any) -> ThetaSketch:
    return ThetaSketch(_dump(sketch))


def _dump(sketch: Any) -> bytes:
    # Spark writes empty sketches with other bytes.
    return _EMPTY if sketch.is_empty() else sketch.serialize(compress=True)


def _union(*sketches: Any, lg_k: int) -> Any:
    union = ds.theta_union(lg_k)
    for sketch in sketches:
        union.update(sketch)
    return union.get_result()


def _size_of(sketch: ThetaSketch) -> int:
    """Returns the lg_k that keeps all that a sketch has: it does not say with which one it was made."""
    return max(_LG_K, int(sketch._sketch.num_retained - 1).bit_length())


@dataclass
class _Parts:
    """An accumulator: what was merged, which nothing can be added to, and what was added since."""

    merged: Any  # None: nothing
    added: Any


@dataclass(frozen=True, repr=False)
class ThetaFn(CombineFn[Any, _Parts, bytes]):
    """Makes a theta sketch of the different values, as the bytes of a `ThetaSketch`.

    The estimate is exact up to 2**lg_k different values; beyond, its relative standard error is 1 / sqrt(2**lg_k - 1),
    1.6 % for the default 12. That of an intersection or a difference grows as it is smaller than the union: `bounds`
    tells. The sketch has the 2**lg_k smallest hashes, so its bits are the same however the values are split; they are
    those of Spark's `theta_sketch_agg(column, lg_k)`.

    >>> users = ThetaFn()
    >>> ThetaSketch(users.finish(users.add_all(users.zero(), ["a", "b", 1, 1.0, True])))
    <ThetaSketch of about 3 values>
    """

    lg_k: int = _LG_K

    def __post_init__(self) -> None:
        if not isinstance(self.lg_k, int) or not 5 <= self.lg_k <= 26:
            raise ValueError(f"ThetaFn: lg_k must be from 5 to 26, got {self.lg_k!r}; 12 errs by 1.6 %")

    def zero(self) -> _Parts:
        return self.load(None)

    def add(self, acc: _Parts, value: Any) -> _Parts:
        acc.added.update(hashed_as(value))
        return acc

    def add_all(self, acc: _Parts, values: Sequence[Any]) -> _Parts:
        update = acc.added.update
        for value in values:
            update(hashed_as(value))
        return acc

    def merge(self, a: _Parts, b: _Parts) -> _Parts:
        return _Parts(_union(self._compact(a), self._compact(b), lg_k=self.lg_k), self.zero().added)

    def is_exact(self, acc: _Parts) -> bool:
        return not self._compact(acc).is_estimation_mode()

    def finish(self, acc: _Parts) -> bytes:
        return _dump(self._compact(acc))

    def dump(self, acc: _Parts) -> bytes:
        return self.finish(acc)

    def load(self, data: Any) -> _Parts:
        merged = None if data is None else ds.compact_theta_sketch.deserialize(bytes(data))
        return _Parts(merged, ds.update_theta_sketch(self.lg_k))

    def _compact(self, acc: _Parts) -> Any:
        if acc.merged is not None:
            return acc.merged if acc.added.is_empty() else _union(acc.merged, acc.added, lg_k=self.lg_k)
        acc.added.trim()  # of what does not count: the answers stay
        return acc.added.compact()
