"""An aggregation that is exact for what a batch counted, and approximate once merged with other counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model.algebra.protocol import CombineFn

Accumulator = tuple[bool, Any]
"""Whether an accumulator is that of the exact aggregation, and the accumulator."""

_EXACT, _APPROXIMATE = b"e", b"a"


@dataclass(frozen=True, repr=False)
class EitherFn(CombineFn[Any, Accumulator, Any]):
    """Aggregates with `exact`, until merged with an accumulator of `approximate`; then with `approximate`.

    The accumulator of `exact` must be a collection of values; to merge the two, `approximate` aggregates these.
    `counting` is whether new accumulators are exact.

    >>> from headrace.model.algebra import CountDistinctFn
    >>> from headrace.model.sketches import ApproxDistinctFn
    >>> people = EitherFn(CountDistinctFn(), ApproxDistinctFn())
    >>> batch, speed = people.add(people.zero(), "ann"), people.speed.add(people.speed.zero(), "bob")
    >>> people.is_exact(batch), people.is_exact(people.merge(speed, batch)), people.finish(people.merge(speed, batch))
    (True, False, 2)
    """

    exact: CombineFn[Any, Any, Any]
    approximate: CombineFn[Any, Any, Any]
    counting: bool = field(default=True)

    @property
    def speed(self) -> EitherFn:
        """The same aggregation, whose new accumulators are approximate: for the speed layer."""
        return replace(self, counting=False)

    def zero(self) -> Accumulator:
        return (True, self.exact.zero()) if self.counting else (False, self.approximate.zero())

    def add(self, acc: Accumulator, value: Any) -> Accumulator:
        return acc[0], self._fn(acc).add(acc[1], value)

    def add_all(self, acc: Accumulator, values: Sequence[Any]) -> Accumulator:
        return acc[0], self._fn(acc).add_all(acc[1], values)

    def merge(self, a: Accumulator, b: Accumulator) -> Accumulator:
        if a[0] and b[0]:
            return True, self.exact.merge(a[1], b[1])
        return False, self.approximate.merge(self._approximated(a), self._approximated(b))

    def finish(self, acc: Accumulator) -> Any:
        return self._fn(acc).finish(acc[1])

    def is_exact(self, acc: Accumulator) -> bool:
        return acc[0]

    def dump(self, acc: Accumulator) -> object:
        inner = self._fn(acc).dump(acc[1])
        # Bytes where possible: a tuple takes a third more in a store.
        return (_EXACT if acc[0] else _APPROXIMATE) + inner if isinstance(inner, bytes) else (acc[0], inner)

    def load(self, data: Any) -> Accumulator:
        exact, inner = (data[:1] == _EXACT, data[1:]) if isinstance(data, bytes) else data
        return exact, (self.exact if exact else self.approximate).load(inner)

    def _fn(self, acc: Accumulator) -> CombineFn[Any, Any, Any]:
        return self.exact if acc[0] else self.approximate

    def _approximated(self, acc: Accumulator) -> Any:
        return self.approximate.add_all(self.approximate.zero(), list(acc[1])) if acc[0] else acc[1]
