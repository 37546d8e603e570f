"""Partial aggregations: CombineFns whose result is an accumulator, to be merged and finished elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.algebra import CombineFn
from headrace.model.safebytes import encode


@dataclass(frozen=True)
class PartialFn(CombineFn[Any, Any, bytes]):
    """A partial aggregation: its result is the accumulator of another CombineFn, as bytes for a store.

    >>> from headrace.model.algebra import MeanFn
    >>> from headrace.model.safebytes import decode
    >>> mean = PartialFn(MeanFn())
    >>> decode(mean.finish(mean.add_all(mean.zero(), [1, 2, 6])))
    (9, 3)
    """

    fn: CombineFn[Any, Any, Any]

    @property
    def timed(self) -> bool:  # type: ignore[override]
        return self.fn.timed

    def zero(self) -> Any:
        return self.fn.zero()

    def add(self, acc: Any, value: Any) -> Any:
        return self.fn.add(acc, value)

    def add_all(self, acc: Any, values: Sequence[Any]) -> Any:
        return self.fn.add_all(acc, values)

    def merge(self, a: Any, b: Any) -> Any:
        return self.fn.merge(a, b)

    def finish(self, acc: Any) -> bytes:
        return encode(self.fn.dump(acc))

    def dump(self, acc: Any) -> object:
        return self.fn.dump(acc)

    def load(self, data: Any) -> Any:
        return self.fn.load(data)
