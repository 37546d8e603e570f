"""An index of queries' constants, which finds by arrays which queries the values of rows match.

One parameter finds candidates, at a cost that depends on how many there are; the others are checked on these. Values
in sets are found by hash or by binary search. Ranges are found by a segment tree: the ends of all ranges cut the
numbers into pieces, and a range is the union of a few nodes of a binary tree over the pieces, so that a number is in
the ranges of the nodes above its piece and in no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.matching import GREATEST, Constants, Parameter, sort_keys
from headrace.model.times import Int64Array

Pairs = tuple[Int64Array, Int64Array]
"""Numbers of rows, which ascend, and of queries."""

_PAIRS: Final = 1_000_000  # candidates at once, unless a single row has more


class QueryIndex:
    """The index of queries of the same parameters; a query is known by its position.

    >>> index = QueryIndex([Parameter("symbol", "in"), Parameter("price", "range")], [(["IBM", "SAP"], [5, 9])])
    >>> list(index.matches([pa.array(["IBM", "IBM", "HPQ"]), pa.array([7, 3, 7])]))
    [(array([0]), array([0]))]
    """

    def __init__(self, parameters: Sequence[Parameter], queries: Sequence[Constants]) -> None:
        kinds: dict[str, Callable[[list[Any]], _ParameterIndex]] = {"in": _Sets, "range": _Ranges}
        self._indexes = [
            kinds[each.kind]([constants[number] for constants in queries]) for number, each in enumerate(parameters)
        ]
        self._alone = len(queries) == 1
        # Sets first: they are likely to leave fewer candidates.
        self._order = sorted(range(len(parameters)), key=lambda number: parameters[number].kind)

    def matches(self, columns: Sequence[pa.Array]) -> Iterator[Pairs]:
        """Yields pairs of rows and queries that they match, given the values of each parameter; rows in order."""
        valid = np.ones(len(columns[0]), np.bool_)
        for column in columns:
            if column.null_count:
                valid &= np.asarray(column.is_valid())
        rows = np.flatnonzero(valid)
        if len(rows) < len(valid):
            columns = [column.take(pa.array(rows)) for column in columns]
        codes = [index.codes(column) for index, column in zip(self._indexes, columns, strict=True)]
        if self._alone:  # nothing is to be found, only to be checked
            query = np.zeros(len(rows), np.int64)
            checks = [index.check(each, query) for index, each in zip(self._indexes, codes, strict=True)]
            found = rows[np.logical_and.reduce(checks)]
            if len(found):
                yield found, query[: len(found)]
            return
        first, *others = self._order
        counts = self._indexes[first].counts(codes[first])
        for begin, end in _slices(counts):
            found, queries = self._indexes[first].candidates(codes[first][begin:end])
            found += begin
            for number in others:
                there = self._indexes[number].check(codes[number][found], queries)
                found, queries = found[there], queries[there]
            if len(found):
                yield rows[found], queries


class _ParameterIndex(Protocol):
    """An index of what queries have for one parameter. A value is known by its code."""

    def codes(self, values: pa.Array) -> Int64Array: ...

    def counts(self, codes: Int64Array) -> Int64Array:
        """Returns the number of candidates of each value."""
        ...

    def candidates(self, codes: Int64Array) -> Pairs: ...

    def check(self, codes: Int64Array, queries: Int64Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns whether each value matches the query beside it."""
        ...


class _Sets:
    """Queries by the values of their sets; the code of a value is its place among all of them, or behind."""

    def __init__(self, sets: Sequence[Sequence[Any]]) -> None:
        query = np.repeat(np.arange(len(sets)), [len(set(each)) for each in sets])
        listed = [value for each in sets for value in dict.fromkeys(each)]
        kind = pa.string() if any(isinstance(value, str) for value in listed) else pa.int64()
        encoded = pa.array(listed, kind).dictionary_encode()
        self._values = encoded.dictionary
        code = np.asarray(encoded.indices).astype(np.int64)
        order = np.lexsort((query, code))
        self._queries, self._width = query[order], max(1, len(sets))
        self._members = code[order] * self._width + self._queries  # ascending
        self._starts = np.searchsorted(code[order], np.arange(len(self._values) + 2))

    def codes(self, values: pa.Array) -> Int64Array:
        if pa.types.is_large_string(values.type):
            values = values.cast(pa.string())
        elif not pa.types.is_string(values.type):
            values = pa.array(sort_keys(values))
        if values.type != self._values.type:  # there are no queries
            return np.zeros(len(values), np.int64)
        found = pc.index_in(values, value_set=self._values)
        return np.asarray(found.fill_null(len(self._values))).astype(np.int64)

    def counts(self, codes: Int64Array) -> Int64Array:
        return self._starts[codes + 1] - self._starts[codes]

    def candidates(self, codes: Int64Array) -> Pairs:
        rows, positions = _expand(self._starts[codes], self.counts(codes))
        return rows, self._queries[positions]

    def check(self, codes: Int64Array, queries: Int64Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        wanted = codes * self._width + queries
        at = np.searchsorted(self._members, wanted)
        found = at < len(self._members)
        found[found] = self._members[at[found]] == wanted[found]
        return found


class _Ranges:
    """Queries by the nodes of the tree that make up their ranges; the code of a value is its sort key."""

    def __init__(self, ranges: Sequence[Sequence[int]]) -> None:
        ends = np.array(ranges, np.int64).reshape(-1, 2)
        self._low, self._high = ends[:, 0], ends[:, 1]
        query = np.flatnonzero(self._low <= self._high)
        low, high = self._low[query], self._high[query]
        self._cuts = np.unique(np.concatenate([low, high[high < GREATEST] + 1]))
        self._levels = len(self._cuts).bit_length()
        # The pieces of a range are those from `left` up to but without `right`; nodes are numbered as in a heap.
        leaves = 1 << self._levels
        left, right = self._piece(low) + leaves, self._piece(high) + leaves + 1
        nodes, queries = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        while len(left):
            odd, last = left & 1 == 1, right & 1 == 1
            nodes += [left[odd], right[last] - 1]
            queries += [query[odd], query[last]]
            left, right = (left + 1) >> 1, right >> 1
            more = left < right
            left, right, query = left[more], right[more], query[more]
        node, queries_of = np.concatenate(nodes), np.concatenate(queries)
        order = np.lexsort((queries_of, node))
        self._queries = queries_of[order]
        self._starts = np.searchsorted(node[order], np.arange(2 * leaves + 1))

    def codes(self, values: pa.Array) -> Int64Array:
        return sort_keys(values)

    def counts(self, codes: Int64Array) -> Int64Array:
        return sum((self._starts[node + 1] - self._starts[node] for node in self._above(codes)), np.zeros_like(codes))

    def candidates(self, codes: Int64Array) -> Pairs:
        found = [
            _expand(self._starts[node], self._starts[node + 1] - self._starts[node]) for node in self._above(codes)
        ]
        rows = np.concatenate([rows for rows, _ in found])
        queries = self._queries[np.concatenate([positions for _, positions in found])]
        order = np.argsort(rows, kind="stable")  # few ascending runs
        return rows[order], queries[order]

    def check(self, codes: Int64Array, queries: Int64Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return (self._low[queries] <= codes) & (codes <= self._high[queries])

    def _piece(self, codes: Int64Array) -> Int64Array:
        return np.searchsorted(self._cuts, codes, "right")

    def _above(self, codes: Int64Array) -> Iterator[Int64Array]:
        """Yields the nodes above the pieces of values, level by level, as far as there are queries."""
        leaf = self._piece(codes) + (1 << self._levels)
        for level in range(self._levels + 1):
            first = 1 << (self._levels - level)
            if level == 0 or self._starts[first] < self._starts[2 * first]:
                yield leaf >> level


def _expand(starts: Int64Array, counts: Int64Array) -> Pairs:
    """Returns pairs of the number of each range and each position in it."""
    rows = np.repeat(np.arange(len(starts)), counts)
    before = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) + np.repeat(starts - before, counts)


def _slices(counts: Int64Array) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows with at most _PAIRS candidates each, or of one row."""
    total = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = int(total[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(total, before + _PAIRS, "right")))
        yield begin, end
        begin = end
