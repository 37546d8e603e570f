"""Collections that change, and the operators that a program is made of; what a program means, not how it runs.

A collection is a multiset of elements. Whoever adds to it or removes from it sends changes; what is computed from it
changes along. `tests/reference_incremental.py` is the definition of every operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headrace.model.errors import PipelineError

INPUT: Final = "input"
MAP: Final = "map"
FILTER: Final = "filter"
FLAT_MAP: Final = "flat_map"
JOIN: Final = "join"
REDUCE: Final = "reduce"
DISTINCT: Final = "distinct"
CONCAT: Final = "concat"
NEGATE: Final = "negate"
VARIABLE: Final = "variable"
LEAVE: Final = "leave"
HOME: Final = "home"

_serials = itertools.count()
_around: ContextVar[Loop | None] = ContextVar("around", default=None)  # the loop whose body is being built


class Change(NamedTuple):
    """A change of a collection: an element, and how many of it come (positive) or go (negative).

    >>> Change("a"), Change("a", -1)
    (Change(element='a', diff=1), Change(element='a', diff=-1))
    """

    element: Any
    diff: int = 1


@dataclass(eq=False)
class Loop:
    """A loop: the loop that it is in, if any, how often it goes round, and where its body begins and ends."""

    parent: Loop | None
    iterations: int | None
    limit: int
    variable: Collection | None = None
    result: Collection | None = None
    end: Collection | None = None

    @property
    def depth(self) -> int:
        """The number of loops around the body."""
        return 1 if self.parent is None else self.parent.depth + 1


@dataclass(eq=False)
class Collection:
    """A collection that changes: an input, or what an operator makes of others. Elements must be hashable.

    Operators that work by key (`join`, `reduce`, `count`) take pairs of key and value.

    >>> edges = Collection.input("edges")
    >>> degrees = edges.count()
    >>> popular = degrees.filter(lambda pair: pair[1] > 10)
    """

    kind: str
    inputs: tuple[Collection, ...] = ()
    fn: Callable[..., Any] | None = None
    loop: Loop | None = None
    name: str = ""
    origin: Any = None  # what the elements of an input come from
    serial: int = field(default_factory=lambda: next(_serials))

    @staticmethod
    def input(name: str, origin: Any = None) -> Collection:
        """Returns a collection whose changes come from outside."""
        return Collection(INPUT, name=name, origin=origin)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the origin out: a program runs where there is no pipeline."""
        return {**self.__dict__, "origin": None}

    @property
    def depth(self) -> int:
        """The number of loops that it is in."""
        return 0 if self.loop is None else self.loop.depth

    def map(self, fn: Callable[[Any], Any]) -> Collection:
        """Replaces each element by what a function makes of it.

        >>> swapped = Collection.input("edges").map(lambda edge: (edge[1], edge[0]))
        """
        return self._then(MAP, _callable("map", fn))

    def filter(self, fn: Callable[[Any], Any]) -> Collection:
        """Leaves out elements for which a function returns false.

        >>> loops = Collection.input("edges").filter(lambda edge: edge[0] == edge[1])
        """
        return self._then(FILTER, _callable("filter", fn))

    def flat_map(self, fn: Callable[[Any], Iterable[Any]]) -> Collection:
        """Replaces each element by all elements that a function makes of it.

        >>> nodes = Collection.input("edges").flat_map(lambda edge: edge).distinct()
        """
        return self._then(FLAT_MAP, _callable("flat_map", fn))

    def join(self, other: Collection, fn: Callable[[Any, Any, Any], Any] | None = None) -> Collection:
        """Pairs values that have the same key, as (key, (left, right)), or as `fn(key, left, right)` returns them.

        >>> edges = Collection.input("edges")
        >>> two_steps = edges.map(lambda edge: (edge[1], edge[0])).join(edges, lambda via, start, end: (start, end))
        """
        return self._then(JOIN, None if fn is None else _callable("join", fn), other)

    def reduce(self, fn: Callable[[Sequence[Any]], Any]) -> Collection:
        """Gives each key the value that a function makes of the list of its values, which is sorted if it can be.

        Values that are there twice are in the list twice. A key without values has no result.

        >>> nearest = Collection.input("distances").reduce(min)
        """
        return self._then(REDUCE, _callable("reduce", fn))

    def count(self) -> Collection:
        """Gives each key the number of its values.

        >>> degrees = Collection.input("edges").count()
        """
        return self._then(REDUCE, len)

    def distinct(self) -> Collection:
        """Leaves one of equal elements.

        >>> nodes = Collection.input("edges").map(lambda edge: edge[0]).distinct()
        """
        return self._then(DISTINCT)

    def concat(self, *others: Collection) -> Collection:
        """Puts collections together; elements that are in several are there several times.

        >>> edges = Collection.input("edges")
        >>> both = edges.concat(edges.map(lambda edge: (edge[1], edge[0])))
        """
        return self._then(CONCAT, None, *others)

    def negate(self) -> Collection:
        """Counts each element as often below zero as it was above: `a.concat(b.negate())` is a without b.

        >>> edges, closed = Collection.input("edges"), Collection.input("closed")
        >>> open_edges = edges.concat(closed.negate())
        """
        return self._then(NEGATE)

    def _then(self, kind: str, fn: Callable[..., Any] | None = None, *others: Collection) -> Collection:
        if bad := [other for other in others if not isinstance(other, Collection)]:
            raise PipelineError(f"{kind} takes collections that change, got {bad[0]!r}; make one by hr.collection(...)")
        inputs = (self, *others)
        return Collection(kind, inputs, fn, _innermost(kind, inputs))


def iterate(
    start: Collection,
    body: Callable[[Collection], Collection],
    *,
    iterations: int | None = None,
    limit: int = 1000,
) -> Collection:
    """Applies a body to a collection, to the result, and so on, until it changes no more, or `iterations` times.

    The body may use collections from outside, also such as are in a loop around this one. When these change, the
    result changes as if it had been computed anew, but only that is computed which is not as it was. A loop that goes
    round more often than `limit` is an error.

    >>> edges, roots = Collection.input("edges"), Collection.input("roots")
    >>> reached = iterate(roots, lambda nodes: nodes.join(edges, lambda _, way, to: (to, way)).concat(roots).distinct())
    """
    if not isinstance(start, Collection):
        raise PipelineError(f"iterate begins with a collection that changes, got {start!r}; make one by hr.collection")
    for name, number in (("iterations", iterations), ("limit", limit)):
        if number is not None and (type(number) is not int or number < 1):
            raise PipelineError(f"iterate: {name} must be a whole number, at least 1, got {number!r}")
    loop = Loop(_around.get(), iterations, limit)
    loop.variable = Collection(VARIABLE, (start,), loop=loop)
    before = _around.set(loop)
    try:
        result = body(loop.variable)
    finally:
        _around.reset(before)
    if not isinstance(result, Collection):
        raise PipelineError(f"the body of iterate must return a collection, got {result!r}")
    if result.loop is not loop:
        if result.depth >= loop.depth:
            raise PipelineError(
                "the body of iterate returns a collection of another loop; let it return one of its own"
            )
        result = result.concat(loop.variable.filter(_nothing))  # it does not depend on the variable
    loop.result = result
    loop.end = Collection(LEAVE, (result,), loop=loop)
    return Collection(CONCAT, (loop.end,), loop=loop.parent)


def _nothing(element: Any) -> bool:
    return False


def _innermost(kind: str, inputs: tuple[Collection, ...]) -> Loop | None:
    """The loop in which an operator over these inputs is: the innermost of theirs, which are within each other."""
    innermost = max((each.loop for each in inputs), key=lambda loop: 0 if loop is None else loop.depth)
    around = set()
    loop = innermost
    while loop is not None:
        around.add(loop)
        loop = loop.parent
    for each in inputs:
        if each.loop is not None and each.loop not in around:
            raise PipelineError(f"{kind} takes collections of one loop and those around it, not of two different loops")
        if each.loop is not None and each.loop.end is not None:
            raise PipelineError(f"{kind} takes a collection of a loop that has ended; use what iterate returned")
    return innermost


def _callable(operator: str, fn: Any) -> Callable[..., Any]:
    if not callable(fn):
        raise PipelineError(f"{operator} takes a function, got {fn!r}")
    return fn  # type: ignore[no-any-return]
