"""Operators of a program: each takes the changes of a round, and returns those of its output, by round.

Changes are pairs of an element and a count. An operator is called once for a round in an epoch, in order of rounds, so
what it has in its traces is all that there is of earlier rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import length_hint
from typing import Any, Final, TypeAlias

from headrace.engine.incremental.traces import Counts, Round, Trace
from headrace.model.errors import PipelineError
from headrace.model.incremental import changingcollections as declared
from headrace.model.incremental.changingcollections import Collection
from headrace.model.keys import encode_key
from headrace.model.timely.antichains import least_upper_bound

Changes: TypeAlias = Iterable[tuple[Any, int]]
Output: TypeAlias = Iterator[tuple[Round, list[tuple[Any, int]]]]

DUE: Final = -1
"""The port on which an operator gets the keys that it asked to look at in a later round."""


class Operator:
    """An operator without state: what it makes of changes does not depend on others."""

    traces: Sequence[Trace] = ()

    def __init__(self, fn: Callable[[Iterable[tuple[Any, int]]], Iterable[tuple[Any, int]]]) -> None:
        self._fn = fn

    def run(self, round_: Round, ports: dict[int, list[Any]], later: Callable[[Round, list[Any]], None]) -> Output:
        """Takes changes by port, as lists of them; asks by `later` to look at keys again in another round."""
        yield round_, self.apply(chain.from_iterable(chain.from_iterable(ports.values())))

    def apply(self, changes: Changes) -> list[tuple[Any, int]]:
        """Returns what the operator makes of changes."""
        listed = list(changes)
        cursor = iter(listed)
        try:
            return list(self._fn(cursor))
        except Exception as error:
            element, _ = listed[len(listed) - length_hint(cursor) - 1]  # the last that was taken
            error.add_note(f"(of the element {shown(element)})")
            raise


class Consolidate(Operator):
    """Adds up what came of each element: at the head of a loop, what cancels out does not go round."""

    def __init__(self) -> None:
        super().__init__(lambda changes: add_up(changes).items())


class Join(Operator):
    """Pairs values of equal keys: what is new on one side with all of the other."""

    def __init__(self, depth: int, fn: Callable[[Any, Any, Any], Any] | None, *, stored: bool) -> None:
        self.traces = (Trace(depth, stored=stored), Trace(depth, stored=stored))
        self._pair = fn or (lambda key, left, right: (key, (left, right)))
        self._bound = max if depth <= 1 else least_upper_bound

    def run(self, round_: Round, ports: dict[int, list[Any]], later: Callable[[Round, list[Any]], None]) -> Output:
        fn = self._pair
        out: dict[Round, list[tuple[Any, int]]] = {}
        for side in (0, 1):
            if side not in ports:
                continue
            changes = by_key(chain.from_iterable(ports[side]))
            others = self.traces[1 - side].keys
            for key, counts in changes.items():
                for known, there in others.get(key, _NOTHING).items():
                    pairs = out.setdefault(self._bound(round_, known), [])
                    try:
                        if side == 0:
                            pairs += [(fn(key, a, b), m * n) for a, m in counts.items() for b, n in there.items()]
                        else:
                            pairs += [(fn(key, b, a), m * n) for a, m in counts.items() for b, n in there.items()]
                    except Exception as error:
                        error.add_note(f"(of the key {shown(key)})")
                        raise
            self.traces[side].add(round_, changes)
        yield from out.items()


class Reduce(Operator):
    """Makes a value of all values of a key: compares what is to be in each round with what it has said."""

    def __init__(self, depth: int, fn: Callable[[Sequence[Any]], Any], *, stored: bool) -> None:
        self.traces = (Trace(depth, stored=stored), Trace(depth, stored=stored))
        self._reduce = fn

    def run(self, round_: Round, ports: dict[int, list[Any]], later: Callable[[Round, list[Any]], None]) -> Output:
        seen, said = self.traces
        changes = by_key(chain.from_iterable(ports.get(0, ())))
        seen.add(round_, changes)
        keys = dict.fromkeys(chain(changes, chain.from_iterable(ports.get(DUE, ()))))
        out: list[tuple[Any, int]] = []
        noted: dict[Any, Counts] = {}
        again: dict[Round, list[Any]] = {}
        for key in keys:
            for when in {*seen.later(key, round_), *said.later(key, round_)}:
                again.setdefault(when, []).append(key)
            try:
                result = self._result(seen.at(key, round_))
            except Exception as error:
                error.add_note(f"(of the values of the key {shown(key)})")
                raise
            before = said.at(key, round_)
            if result == before:
                continue
            difference = {value: count - before.get(value, 0) for value, count in result.items()}
            difference.update((value, -count) for value, count in before.items() if value not in result)
            noted[key] = {value: count for value, count in difference.items() if count}
            out += [(self._element(key, value), count) for value, count in noted[key].items()]
        said.add(round_, noted)
        for when, found in again.items():
            later(when, found)
        yield round_, out

    def _result(self, counts: Counts) -> Counts:
        return result_of(self._reduce, counts)

    def _element(self, key: Any, value: Any) -> Any:
        return (key, value)


class Distinct(Reduce):
    """Leaves one of equal elements: elements are keys, whose only value is None."""

    def __init__(self, depth: int, *, stored: bool) -> None:
        super().__init__(depth, lambda values: None, stored=stored)

    def run(self, round_: Round, ports: dict[int, list[Any]], later: Callable[[Round, list[Any]], None]) -> Output:
        if 0 in ports:
            pairs = [((element, None), count) for element, count in chain.from_iterable(ports[0])]
            ports = {**ports, 0: [pairs]}
        return super().run(round_, ports, later)

    def _result(self, counts: Counts) -> Counts:
        return {None: 1} if counts.get(None, 0) > 0 else {}

    def _element(self, key: Any, value: Any) -> Any:
        return key


_OF_A_SET: Final = frozenset([min, max])  # what does not depend on the order of values, nor on how often each is there
_NOTHING: Final[dict[Round, Counts]] = {}


def shown(element: Any) -> str:
    """Renders an element for a message, in at most 200 characters.

    >>> shown(("a", 1)), len(shown("x" * 1000))
    ("('a', 1)", 200)
    """
    text = repr(element)
    return text if len(text) <= 200 else f"{text[:199]}…"


def add_up(changes: Changes) -> Counts:
    """Adds up the counts of each element.

    >>> add_up([("a", 1), ("b", 1), ("a", -1)])
    {'b': 1}
    """
    totals: Counts = {}
    element: Any = None
    try:
        for element, count in changes:
            totals[element] = totals.get(element, 0) + count
    except TypeError as error:
        raise unhashable(element) or error from None
    return {element: count for element, count in totals.items() if count}


def unhashable(element: Any) -> PipelineError | None:
    """Returns the error of an element that cannot be hashed; None if it can.

    >>> print(unhashable(["a", 1]))
    elements of collections that change must be hashable, got ['a', 1]; make tuples of lists, frozensets of sets
    >>> unhashable(("a", 1))
    """
    try:
        hash(element)
    except TypeError:
        return PipelineError(
            f"elements of collections that change must be hashable, got {shown(element)}; make tuples of lists, "
            "frozensets of sets"
        )
    return None


def by_key(changes: Changes) -> dict[Any, Counts]:
    """Adds up the counts of pairs, by key.

    >>> by_key([(("a", 1), 1), (("a", 2), 1), (("b", 1), 1), (("b", 1), -1)])
    {'a': {1: 1, 2: 1}}
    """
    found: dict[Any, Counts] = {}
    pair: Any = None
    try:
        for pair, count in changes:
            key, value = pair
            counts = found.get(key)
            if counts is None:
                found[key] = {value: count}
            elif value in counts:
                counts[value] += count
            else:
                counts[value] = count
    except (TypeError, ValueError):
        if refused := unhashable(pair):
            raise refused from None
        if isinstance(pair, tuple) and len(pair) == 2:
            raise
        raise PipelineError(f"join, reduce and count take pairs of key and value, got {pair!r}") from None
    gone = []
    for key, counts in found.items():
        if not all(counts.values()):
            found[key] = {value: count for value, count in counts.items() if count}
            if not found[key]:
                gone.append(key)
    for key in gone:
        del found[key]
    return found


def result_of(fn: Callable[[Sequence[Any]], Any], counts: Counts) -> Counts:
    """Returns what a function makes of the values of a key, once; nothing if there are no values.

    >>> result_of(sum, {2: 3, 5: 1}), result_of(sum, {2: -1})
    ({11: 1}, {})
    """
    values = [value for value, count in counts.items() if count > 0]
    if not values:
        return {}
    if fn in _OF_A_SET:
        return {fn(values): 1}
    values = in_order(values)
    if any(counts[value] > 1 for value in values):
        values = [each for value in values for each in [value] * counts[value]]
    return {fn(values): 1}


def in_order(values: list[Any]) -> list[Any]:
    """Sorts values, so that a function of them gives the same in every run; by their bytes if they have no order."""
    if len(values) < 2:
        return values
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=encode_key)


def operator_of(collection: Collection, *, stored: bool) -> Operator:
    """Makes the operator of a collection; `stored` if its state is."""
    fn: Any = collection.fn
    match collection.kind:
        case declared.MAP:
            return Operator(lambda changes: [(fn(element), count) for element, count in changes])
        case declared.FILTER:
            return Operator(lambda changes: [change for change in changes if fn(change[0])])
        case declared.FLAT_MAP:
            return Operator(lambda changes: [(made, count) for element, count in changes for made in fn(element)])
        case declared.NEGATE:
            return Operator(lambda changes: [(element, -count) for element, count in changes])
        case declared.VARIABLE | declared.HOME:
            return Consolidate()
        case declared.JOIN:
            return Join(collection.depth, fn, stored=stored)
        case declared.REDUCE:
            return Reduce(collection.depth, fn, stored=stored)
        case declared.DISTINCT:
            return Distinct(collection.depth, stored=stored)
        case _:
            return Operator(lambda changes: changes)
