"""The changes of a value: what was taken back, and what came in its place.

They make sense over panes that are discarded, of a collection that takes elements back: what is left then of a group
whose rows are replaced one by one is its last change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.model.algebra.protocol import CombineFn

Changes = tuple[list[Any], list[Any]]
"""The values that were taken back, and those that came."""


@dataclass(frozen=True)
class _ChangesFn(CombineFn[Any, Changes, Any]):
    """Gathers the values that were taken back, and those that came; a value in both is in neither."""

    def zero(self) -> Changes:
        return [], []

    def add(self, acc: Changes, value: Any) -> Changes:
        return [*acc[0]], [*acc[1], value]

    def subtract(self, acc: Changes, value: Any) -> Changes:
        return [*acc[0], value], [*acc[1]]

    def merge(self, a: Changes, b: Changes) -> Changes:
        return [*a[0], *b[0]], [*a[1], *b[1]]

    def load(self, data: Any) -> Changes:
        removed, added = data
        return list(removed), list(added)


@dataclass(frozen=True)
class RemovedFn(_ChangesFn):
    """Finds the value that was taken back, which is None if none was.

    >>> fn = RemovedFn()
    >>> fn.finish(fn.add(fn.subtract(fn.zero(), 1), 2)), fn.finish(fn.add(fn.zero(), 2))
    (1, None)
    """

    def finish(self, acc: Changes) -> Any:
        return _without(acc[0], acc[1])


@dataclass(frozen=True)
class AddedFn(_ChangesFn):
    """Finds the value that came, which is None if none did.

    >>> fn = AddedFn()
    >>> fn.finish(fn.add(fn.subtract(fn.zero(), 1), 2)), fn.finish(fn.subtract(fn.zero(), 1))
    (2, None)
    """

    def finish(self, acc: Changes) -> Any:
        return _without(acc[1], acc[0])


def _without(values: list[Any], others: list[Any]) -> Any:
    """Returns the value that is left without those that came and went; of a value that stays, there is one in both."""
    left = list(values)
    for each in others:
        if len(left) > 1 and each in left:
            left.remove(each)
    return left[0] if left else None
