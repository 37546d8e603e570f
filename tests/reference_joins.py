"""The naive definitions of Join and AsOfJoin: every left row is compared with every right one, as SQL joins tables.

Rows are dicts. A row of the result comes with the place (time and window) of its left row or, without one, of its right
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.reference_toprows import compare

Row = dict[str, Any]
Placed = tuple[Row, Any]
"""A row, and the window that it is in; None is the global window."""


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same: nulls never are, and NaN is itself."""
    if a is None or b is None:
        return False
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b)


def join(
    left: Sequence[Placed], right: Sequence[Placed], pairs: Sequence[tuple[str, str]], how: str, names: Sequence[str]
) -> list[Placed]:
    """The rows of a join with the columns `names`: those of the left, and those of the right not joined on."""

    def match(a: Placed, b: Placed) -> bool:
        return b[1] in (None, a[1]) and all(same(a[0][ours], b[0][theirs]) for ours, theirs in pairs)

    def row(a: Row, b: Row) -> Row:
        keys = {ours: b.get(theirs) for ours, theirs in pairs}
        return {name: a[name] if name in a else keys.get(name, b.get(name)) for name in names}

    matched = [(row(a[0], b[0]), a[1]) for a in left for b in right if match(a, b)]
    if how in ("left", "outer"):
        matched += [(row(a[0], {}), a[1]) for a in left if not any(match(a, b) for b in right)]
    if how in ("right", "outer"):
        matched += [(row({}, b[0]), b[1]) for b in right if not any(match(a, b) for a in left)]
    return matched


class StreamJoin:
    """The naive definition of a join of two streams: all rows that ever came, and what became of each.

    A row comes with its window, by start and end. A match is emitted in the step in which its second row comes; a row
    without a match, if it is kept, in the step in which the watermark passes the end of its window by the lateness.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], how: str, names: Sequence[str], lateness: int) -> None:
        self.pairs, self.how, self.names, self.lateness = pairs, how, names, lateness
        self.rows: tuple[list[Placed], list[Placed]] = ([], [])
        self.watermark: float = -math.inf
        self.late = 0

    def step(self, left: Sequence[Placed], right: Sequence[Placed], watermark: float) -> list[Placed]:
        """Takes rows in, moves the watermark, and returns what is emitted."""
        before = self._joined("inner", lambda window: True)
        for side, rows in enumerate((left, right)):
            for row in rows:
                if self._over(row[1], self.watermark):
                    self.late += 1
                else:
                    self.rows[side].append(row)
        emitted = self._joined("inner", lambda window: True)
        for row in before:
            emitted.remove(row)
        earlier, self.watermark = self.watermark, max(self.watermark, watermark)
        closing = self._joined(self.how, lambda w: self._over(w, self.watermark) and not self._over(w, earlier))
        for row in self._joined("inner", lambda w: self._over(w, self.watermark) and not self._over(w, earlier)):
            closing.remove(row)
        return emitted + closing

    def _over(self, window: tuple[int, int], watermark: float) -> bool:
        return window[1] + self.lateness <= watermark

    def _joined(self, how: str, among: Callable[[tuple[int, int]], bool]) -> list[Placed]:
        left, right = ([row for row in rows if among(row[1])] for rows in self.rows)
        return join(left, right, self.pairs, how, self.names)


class TimedJoin:
    """The naive definition of a join of two streams by keys and times, in the global window.

    A row comes with its time. It is late, and left out, if its time is behind the watermark by more than the lateness.
    A match is emitted in the step in which its second row comes, with the later time; a row without a match, if it is
    kept, in the step in which the watermark passes the last time that could match it by the lateness.
    """

    def __init__(
        self, pairs: Sequence[tuple[str, str]], how: str, names: Sequence[str], lateness: int, within: tuple[int, int]
    ) -> None:
        self.pairs, self.names, self.lateness, self.within = pairs, names, lateness, within
        self.keeps = (how in ("left", "outer"), how in ("right", "outer"))
        self.rows: tuple[list[Placed], list[Placed]] = ([], [])
        self.waiting: tuple[list[Placed], list[Placed]] = ([], [])
        self.watermark: float = -math.inf
        self.late = 0

    def step(self, left: Sequence[Placed], right: Sequence[Placed], watermark: float) -> list[Placed]:
        """Takes rows in, moves the watermark, and returns what is emitted, with times."""
        emitted = []
        for side, rows in enumerate((left, right)):
            for row in rows:
                if row[1] + self.lateness < self.watermark:
                    self.late += 1
                    continue
                for other in self.rows[1 - side]:
                    a, b = (row, other) if side == 0 else (other, row)
                    if self._match(a, b):
                        emitted.append((self._row(a[0], b[0]), max(a[1], b[1])))
                self.rows[side].append(row)
                self.waiting[side].append(row)
        self.watermark = max(self.watermark, watermark)
        for side, waiting in enumerate(self.waiting):
            reach = self.within[1] if side == 0 else -self.within[0]
            for row in [row for row in waiting if row[1] + reach + self.lateness < self.watermark]:
                waiting.remove(row)
                others = self.rows[1 - side]
                if self.keeps[side] and not any(self._match(*((row, o) if side == 0 else (o, row))) for o in others):
                    emitted.append((self._row(*((row[0], {}) if side == 0 else ({}, row[0]))), row[1]))
        return emitted

    def _match(self, a: Placed, b: Placed) -> bool:
        near = self.within[0] <= b[1] - a[1] <= self.within[1]
        return near and all(same(a[0][ours], b[0][theirs]) for ours, theirs in self.pairs)

    def _row(self, a: Row, b: Row) -> Row:
        keys = {ours: b.get(theirs) for ours, theirs in self.pairs}
        return {name: a[name] if name in a else keys.get(name, b.get(name)) for name in self.names}


class AsOfJoin:
    """The naive definition of an as-of join of two streams, in the global window.

    A row of either side is late, and left out, if its time is behind the watermark by more than the lateness. A left
    row is emitted in the step in which the watermark passes its time by the lateness, with the latest right row of its
    key up to its time; of several at that time, the last by its columns.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], how: str, names: Sequence[str], lateness: int) -> None:
        self.pairs, self.how, self.names, self.lateness = pairs, how, names, lateness
        self.waiting: list[Placed] = []
        self.versions: list[Placed] = []
        self.watermark: float = -math.inf
        self.late = 0

    def step(self, left: Sequence[Placed], right: Sequence[Placed], watermark: float) -> list[Placed]:
        """Takes rows in, moves the watermark, and returns what is emitted, with times."""
        for rows, stored in ((left, self.waiting), (right, self.versions)):
            for row in rows:
                if row[1] + self.lateness < self.watermark:
                    self.late += 1
                else:
                    stored.append(row)
        self.watermark = max(self.watermark, watermark)
        emitted = []
        for row, time in [each for each in self.waiting if each[1] + self.lateness < self.watermark]:
            self.waiting.remove((row, time))
            version = self._version(row, time)
            if version is not None or self.how == "left":
                other = version or {}
                emitted.append(({name: row[name] if name in row else other.get(name) for name in self.names}, time))
        return emitted

    def _version(self, row: Row, time: int) -> Row | None:
        best: Placed | None = None
        for other, since in self.versions:
            valid = since <= time and all(same(row[ours], other[theirs]) for ours, theirs in self.pairs)
            if valid and (best is None or since > best[1] or (since == best[1] and _after(other, best[0]))):
                best = (other, since)
        return None if best is None else best[0]


def _after(a: Row, b: Row) -> bool:
    return next((order > 0 for order in (compare(a[name], b[name]) for name in a) if order), False)
