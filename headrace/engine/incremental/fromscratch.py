"""Computes a program once, over all of its input: what a batch does. Rounds are computed whole, and forgotten.

That takes less time and memory than the changes of every round, which nobody will ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.engine.incremental.changeoperators import add_up, by_key, operator_of, result_of
from headrace.engine.incremental.changeprogram import check_limit, collections_before, loops_around
from headrace.engine.incremental.traces import Counts
from headrace.model.incremental import changingcollections as declared
from headrace.model.incremental.changingcollections import Collection, Loop


class FromScratch:
    """Computes collections from inputs, which are changes by the names of inputs.

    >>> words = Collection.input("words")
    >>> FromScratch({"words": [("a", 1), ("b", 1), ("a", 1)]}).compute(words.distinct())
    {'a': 1, 'b': 1}
    """

    def __init__(self, inputs: Mapping[str, Iterable[tuple[Any, int]]]) -> None:
        self._inputs = inputs
        self._lists: dict[Collection, list[tuple[Any, int]]] = {}
        self._by_key: dict[Collection, dict[Any, Counts]] = {}
        self._inside: dict[Loop, list[Collection]] = {}

    def compute(self, result: Collection) -> Counts:
        """Returns how often each element is in a collection."""
        for each in collections_before(result):
            for loop in loops_around(each):
                self._inside.setdefault(loop, []).append(each)
        return add_up(self._list(result))

    def _list(self, collection: Collection) -> list[tuple[Any, int]]:
        known = self._lists.get(collection)
        if known is None:
            known = self._lists[collection] = self._compute(collection)
        return known

    def _keyed(self, collection: Collection) -> dict[Any, Counts]:
        known = self._by_key.get(collection)
        if known is None:
            known = self._by_key[collection] = by_key(self._list(collection))
        return known

    def _compute(self, collection: Collection) -> list[tuple[Any, int]]:
        fn = collection.fn
        match collection.kind:
            case declared.INPUT:
                return list(add_up(self._inputs.get(collection.name, ())).items())
            case declared.LEAVE:
                assert collection.loop is not None
                return self._iterate(collection.loop)
            case declared.JOIN:
                left, right = map(self._keyed, collection.inputs)
                pair = fn or (lambda key, one, other: (key, (one, other)))
                return [
                    (pair(key, one, other), m * n)
                    for key in (left if len(left) <= len(right) else right)
                    if key in left and key in right
                    for one, m in left[key].items()
                    for other, n in right[key].items()
                ]
            case declared.REDUCE:
                assert fn is not None
                found = ((key, result_of(fn, counts)) for key, counts in self._keyed(collection.inputs[0]).items())
                return [((key, value), 1) for key, values in found for value in values]
            case declared.DISTINCT:
                return [(each, 1) for each, count in add_up(self._list(collection.inputs[0])).items() if count > 0]
            case declared.CONCAT:
                return [change for each in collection.inputs for change in self._list(each)]
            case _:
                return operator_of(collection, stored=False).apply(self._list(collection.inputs[0]))

    def _iterate(self, loop: Loop) -> list[tuple[Any, int]]:
        """Goes round until nothing changes, or as often as the loop says."""
        assert loop.variable is not None and loop.result is not None
        now = add_up(self._list(loop.variable.inputs[0]))
        rounds = 0
        while loop.iterations is None or rounds < loop.iterations:
            for each in self._inside[loop]:
                self._lists.pop(each, None)
                self._by_key.pop(each, None)
            self._lists[loop.variable] = list(now.items())
            before, now = now, add_up(self._list(loop.result))
            if loop.iterations is None and now == before:
                break
            rounds += 1
            if loop.iterations is None:
                check_limit(loop, rounds, [change for change in now.items() if before.get(change[0]) != change[1]])
        return list(now.items())
