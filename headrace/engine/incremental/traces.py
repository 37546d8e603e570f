"""Traces: what an operator has seen of a collection, by key and round, and the state of it as blocks of bytes.

A round is a tuple of loop counters, empty outside of loops. Epochs are not in it: whenever an epoch is computed, all
before it are over, so what they left are simply the changes of each round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from headrace.engine.columns.hashing import hash_bytes
from headrace.model.keys import encode_keys
from headrace.model.timely.antichains import Time, is_before, least_upper_bound

Round: TypeAlias = Time
Counts: TypeAlias = dict[Any, int]
"""How often each value is there."""


def add_count(counts: Counts, value: Any, count: int) -> None:
    """Adds to the count of a value; a value that is there zero times is not there."""
    total = counts.get(value, 0) + count
    if total:
        counts[value] = total
    else:
        del counts[value]


class Trace:
    """The changes of a collection by key and round; `depth` is the number of loops around it.

    One that is not `stored` does not note what has changed since `changes` was last called.

    >>> trace = Trace(1)
    >>> trace.add((0,), {"a": {1: 1, 2: 1}})
    >>> trace.add((3,), {"a": {1: -1}})
    >>> trace.at("a", (2,)), trace.at("a", (3,))
    ({1: 1, 2: 1}, {2: 1})
    """

    def __init__(self, depth: int, *, stored: bool = True) -> None:
        self.depth, self._stored = depth, stored
        self.keys: dict[Any, dict[Round, Counts]] = {}
        self._before: Callable[[Round, Round], bool] = is_before if depth > 1 else _is_before
        self._touched: list[tuple[Round, dict[Any, Counts]]] = []

    def add(self, round_: Round, changes: dict[Any, Counts]) -> None:
        """Adds the changes of a round, by key, and takes them over: they must not be used afterwards."""
        keys = self.keys
        for key, counts in changes.items():
            rounds = keys.get(key)
            if rounds is None:
                keys[key] = {round_: counts}
                continue
            known = rounds.get(round_)
            if known is None:
                rounds[round_] = counts
                continue
            for value, count in counts.items():
                add_count(known, value, count)
            if not known:
                del rounds[round_]
                if not rounds:
                    del keys[key]
        if self._stored:
            self._touched.append((round_, changes))

    def at(self, key: Any, round_: Round) -> Counts:
        """Returns how often each value of a key is there in a round."""
        rounds = self.keys.get(key)
        if not rounds:
            return {}
        before = self._before
        parts = [counts for known, counts in rounds.items() if before(known, round_)]
        if len(parts) == 1:
            return parts[0]
        total: Counts = {}
        for counts in parts:
            for value, count in counts.items():
                total[value] = total.get(value, 0) + count
        return {value: count for value, count in total.items() if count}

    def later(self, key: Any, round_: Round) -> Iterator[Round]:
        """Yields the rounds at which a change of a key in this round meets others that the key had."""
        for known in self.keys.get(key, ()):
            if not self._before(known, round_):
                yield known if self.depth == 1 else least_upper_bound(known, round_)

    def changes(self) -> list[tuple[Round, list[Any], list[Any], list[int]]]:
        """Returns, by round, keys, values and counts that changed since it was last called; gone is a count of 0."""
        touched, self._touched = self._touched, []
        return [
            (round_, *_columns((key, value, self._count(key, round_, value)) for key, value in pairs))
            for round_, pairs in _pairs_by_round(touched).items()
        ]

    def _count(self, key: Any, round_: Round, value: Any) -> int:
        return self.keys.get(key, {}).get(round_, {}).get(value, 0)

    def part(self, low: int, high: int) -> list[tuple[Round, list[Any], list[Any], list[int]]]:
        """Returns the same of all keys whose hash is in a range."""
        keys = list(self.keys)
        if not keys:
            return []
        hashes = hash_bytes(encode_keys(keys)[0])
        inside = hashes >= np.uint64(low)
        if high < 2**64:
            inside &= hashes < np.uint64(high)
        rows: dict[Round, list[tuple[Any, Any, int]]] = {}
        for place in np.flatnonzero(inside).tolist():
            for round_, counts in self.keys[keys[place]].items():
                rows.setdefault(round_, []).extend((keys[place], value, count) for value, count in counts.items())
        return [(round_, *_columns(found)) for round_, found in rows.items()]

    def load(self, round_: Round, keys: list[Any], values: list[Any], counts: list[int]) -> None:
        """Sets counts of a round."""
        for key, value, count in zip(keys, values, counts, strict=True):
            if count:
                self.keys.setdefault(key, {}).setdefault(round_, {})[value] = count
                continue
            rounds = self.keys.get(key, {})
            known = rounds.get(round_, {})
            known.pop(value, None)
            if not known and round_ in rounds:
                del rounds[round_]
                if not rounds:
                    del self.keys[key]


def _is_before(one: Round, other: Round) -> bool:
    return one <= other


def _pairs_by_round(touched: Iterable[tuple[Round, dict[Any, Counts]]]) -> dict[Round, dict[tuple[Any, Any], None]]:
    found: dict[Round, dict[tuple[Any, Any], None]] = {}
    for round_, changes in touched:
        pairs = found.setdefault(round_, {})
        for key, counts in changes.items():
            pairs.update(dict.fromkeys((key, value) for value in counts))
    return found


def _columns(rows: Iterable[tuple[Any, Any, int]]) -> tuple[list[Any], list[Any], list[int]]:
    keys, values, counts = [], [], []
    for key, value, count in rows:
        keys.append(key)
        values.append(value)
        counts.append(count)
    return keys, values, counts
