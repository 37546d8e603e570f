"""An exact aggregation that goes on as an approximate one: exact of what a batch counted, approximate of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model.algebra.protocol import CombineFn

Held = tuple[bool, Any]
"""Whether an accumulator is the exact aggregation's, and the accumulator."""

_EXACT, _APPROXIMATE = b"e", b"a"


@dataclass(frozen=True, repr=False)
class EitherFn(CombineFn[Any, Held, Any]):
    """What `exact` says, until it is merged with what only `approximate` counted; then what that says.

    The accumulator of `exact` must be a collection of values, of which `approximate` makes its own when the two meet.
    `counting` tells which of them counts.

    >>> from headrace.model.algebra import CountDistinctFn
    >>> from headrace.model.sketches import ApproxDistinctFn
    >>> people = EitherFn(CountDistinctFn(), ApproxDistinctFn())
    >>> batch, speed = people.add(people.zero(), "ann"), people.speed.add(people.speed.zero(), "bob")
    >>> people.is_exact(batch), people.is_exact(people.merge(speed, batch)), people.finish(people.merge(speed, batch))
    (True, False, 2)
    """

    exact: CombineFn[Any, Any, Any]
    approximate: CombineFn[Any, Any, Any]
    counting: bool = field(default=True)  # exactly

    @property
    def speed(self) -> EitherFn:
        """The same, which counts approximately."""
        return replace(self, counting=False)

    def zero(self) -> Held:
        return (True, self.exact.zero()) if self.counting else (False, self.approximate.zero())

    def add(self, acc: Held, value: Any) -> Held:
        return acc[0], self._fn(acc).add(acc[1], value)

    def add_all(self, acc: Held, values: Sequence[Any]) -> Held:
        return acc[0], self._fn(acc).add_all(acc[1], values)

    def merge(self, a: Held, b: Held) -> Held:
        if a[0] and b[0]:
            return True, self.exact.merge(a[1], b[1])
        return False, self.approximate.merge(self._approximated(a), self._approximated(b))

    def finish(self, acc: Held) -> Any:
        return self._fn(acc).finish(acc[1])

    def is_exact(self, acc: Held) -> bool:
        return acc[0]

    def dump(self, acc: Held) -> object:
        inner = self._fn(acc).dump(acc[1])
        # One run of bytes, if it can be: what is in a tuple takes a third more in a store.
        return (_EXACT if acc[0] else _APPROXIMATE) + inner if isinstance(inner, bytes) else (acc[0], inner)

    def load(self, data: Any) -> Held:
        exact, inner = (data[:1] == _EXACT, data[1:]) if isinstance(data, bytes) else data
        return exact, (self.exact if exact else self.approximate).load(inner)

    def _fn(self, acc: Held) -> CombineFn[Any, Any, Any]:
        return self.exact if acc[0] else self.approximate

    def _approximated(self, acc: Held) -> Any:
        return self.approximate.add_all(self.approximate.zero(), list(acc[1])) if acc[0] else acc[1]
