"""Computes a program once by arrays of codes, as `fromscratch` does by dicts; what arrays cannot do raises NotByArrays.

Functions that only put parts together are not called; others are called with elements, and what they return is encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from headrace.engine.incremental.changeoperators import operator_of, result_of
from headrace.engine.incremental.changeprogram import check_limit, collections_before, loops_around
from headrace.engine.incremental.codedchanges import (
    Coded,
    Codes,
    NotByArrays,
    added_up,
    check_sum,
    multiplied,
    together,
)
from headrace.engine.incremental.projections import Constant, Part, projection_of
from headrace.engine.incremental.traces import Counts
from headrace.model.incremental import changingcollections as declared
from headrace.model.incremental.changingcollections import Collection, Loop
from headrace.model.times import Int64Array

_PLAIN: Final = frozenset([declared.MAP, declared.FILTER, declared.FLAT_MAP])


class ScratchArrays:
    """Computes collections from inputs, which are changes by the names of inputs.

    >>> words = Collection.input("words")
    >>> ScratchArrays({"words": [("a", 1), ("b", 1), ("a", 1)]}).compute(words.distinct())
    {'a': 1, 'b': 1}
    """

    def __init__(self, inputs: Mapping[str, Iterable[tuple[Any, int]]]) -> None:
        self._inputs, self._codes = inputs, Codes()
        self._known: dict[Collection, Coded] = {}
        self._by_key: dict[Collection, Coded] = {}
        self._inside: dict[Loop, list[Collection]] = {}
        self._order = np.empty(0, np.int64)
        self._places = np.empty(0, np.int64)

    def compute(self, result: Collection) -> Counts:
        """Returns how often each element is in a collection."""
        for each in collections_before(result):
            for loop in loops_around(each):
                self._inside.setdefault(loop, []).append(each)
        return dict(self._codes.decode(added_up(self._changes(result))))

    def _changes(self, collection: Collection) -> Coded:
        known = self._known.get(collection)
        if known is None:
            known = self._known[collection] = self._compute(collection)
        return known

    def _compute(self, collection: Collection) -> Coded:
        match collection.kind:
            case declared.INPUT:
                return self._codes.encode(self._inputs.get(collection.name, ()))
            case declared.LEAVE:
                assert collection.loop is not None
                return self._iterate(collection.loop)
            case declared.JOIN:
                return self._join(collection)
            case declared.REDUCE:
                return self._reduce(collection)
            case declared.DISTINCT:
                found = added_up(self._changes(collection.inputs[0]))
                found = found.take(found.counts > 0)
                return Coded(found.first, found.second, np.ones_like(found.counts))
            case declared.CONCAT:
                return together([self._changes(each) for each in collection.inputs])
            case declared.NEGATE:
                changes = self._changes(collection.inputs[0])
                return Coded(changes.first, changes.second, -changes.counts)
            case kind if kind in _PLAIN:
                return self._apply(collection)
            case _:
                return self._changes(collection.inputs[0])

    def _apply(self, collection: Collection) -> Coded:
        changes = self._changes(collection.inputs[0])
        made = projection_of(collection) if collection.kind == declared.MAP else None
        if made is not None and changes.pairs:
            columns = {Part(0, 0): changes.first, Part(0, 1): changes.second}
            return self._projected(made, columns, changes.counts)
        return self._codes.encode(operator_of(collection, stored=False).apply(self._codes.decode(changes)))

    def _projected(
        self, made: tuple[Part | Constant, Part | Constant], columns: Mapping[Part, Int64Array], counts: Int64Array
    ) -> Coded:
        first, second = (
            np.full_like(counts, self._codes.code(part.value)) if isinstance(part, Constant) else columns[part]
            for part in made
        )
        return Coded(first, second, counts)

    def _sorted(self, collection: Collection) -> Coded:
        """Returns the changes of a collection by key, added up."""
        known = self._by_key.get(collection)
        if known is None:
            changes = self._changes(collection)
            if not changes.pairs:
                raise NotByArrays
            known = self._by_key[collection] = added_up(changes)
        return known

    def _join(self, collection: Collection) -> Coded:
        left, right = map(self._sorted, collection.inputs)
        begin = np.searchsorted(right.first, left.first)
        lengths = np.searchsorted(right.first, left.first, side="right") - begin
        ones = np.repeat(np.arange(len(lengths)), lengths)
        ends = np.cumsum(lengths)
        others = np.arange(len(ones)) - np.repeat(ends - lengths, lengths) + np.repeat(begin, lengths)
        counts = multiplied(left.counts[ones], right.counts[others])
        key, one, other = left.first[ones], left.second[ones], right.second[others]
        if (made := projection_of(collection)) is not None:
            columns = {Part(0): key, Part(1): one, Part(2): other}
            return self._projected(made, columns, counts)
        pair: Any = collection.fn or (lambda key, one, other: (key, (one, other)))
        parts = self._codes.parts
        rows = zip(key.tolist(), one.tolist(), other.tolist(), counts.tolist(), strict=True)
        return self._codes.encode([(pair(parts[a], parts[b], parts[c]), count) for a, b, c, count in rows])

    def _reduce(self, collection: Collection) -> Coded:
        found = self._sorted(collection.inputs[0])
        found = found.take(found.counts > 0)
        if not len(found.first):
            return found
        new = np.ones(len(found.first), bool)
        new[1:] = found.first[1:] != found.first[:-1]
        starts = np.flatnonzero(new)
        keys, ones = found.first[starts], np.ones(len(starts), np.int64)
        if collection.fn is min or collection.fn is max:
            order, ranks = self._ranks(found.second)
            by = np.minimum if collection.fn is min else np.maximum
            return Coded(keys, order[by.reduceat(ranks[found.second], starts)], ones)
        if collection.fn is len:
            check_sum(found.counts)
            totals = np.add.reduceat(found.counts, starts)
            numbers, places = np.unique(totals, return_inverse=True)
            return Coded(keys, np.array([self._codes.code(n) for n in numbers.tolist()], np.int64)[places], ones)
        assert collection.fn is not None
        parts, values, counts = self._codes.parts, found.second.tolist(), found.counts.tolist()
        results = []
        for begin, end in zip(starts.tolist(), [*starts.tolist()[1:], len(values)], strict=True):
            group = dict(zip([parts[value] for value in values[begin:end]], counts[begin:end], strict=True))
            (result,) = result_of(collection.fn, group)
            results.append(self._codes.code(result))
        return Coded(keys, np.array(results, np.int64), ones)

    def _ranks(self, codes: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Returns codes, these and perhaps others, in the order of their parts, and by code the place in that order."""
        if not len(self._order) or len(self._places) <= codes.max() or (self._places[codes] < 0).any():
            self._order = self._codes.ordered(np.union1d(self._order, codes))
            self._places = np.full(len(self._codes.parts), -1)
            self._places[self._order] = np.arange(len(self._order))
        return self._order, self._places

    def _iterate(self, loop: Loop) -> Coded:
        """Goes round until nothing changes, or as often as the loop says."""
        assert loop.variable is not None and loop.result is not None
        now = added_up(self._changes(loop.variable.inputs[0]))
        rounds = 0
        while loop.iterations is None or rounds < loop.iterations:
            for each in self._inside[loop]:
                self._known.pop(each, None)
                self._by_key.pop(each, None)
            self._known[loop.variable] = now
            before, now = now, added_up(self._changes(loop.result))
            if loop.iterations is None and now.same(before):
                break
            rounds += 1
            if loop.iterations is None and rounds > loop.limit:
                check_limit(loop, rounds, self._difference(before, now))
        return now

    def _difference(self, before: Coded, now: Coded) -> list[tuple[Any, int]]:
        moved = added_up(together([now, Coded(before.first, before.second, -before.counts)]))
        return self._codes.decode(moved)
