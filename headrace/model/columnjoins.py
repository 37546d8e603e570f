"""Joins of collections with columns: Join, by the values of columns, as SQL joins tables; AsOfJoin, by time, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from headrace.model.columns import Columnwise
from headrace.model.errors import PipelineError
from headrace.model.knowncolumns import no_column
from headrace.model.pipeline import PCollection, Place
from headrace.model.schema import ROWS, rows_schema
from headrace.model.times import DurationLike, duration, format_duration

How = Literal["inner", "left", "right", "outer"]
On = str | Sequence[str | tuple[str, str]] | Mapping[str, str]
Within = tuple[DurationLike, DurationLike]

_FORMS: Final = "on='id', on=['id', 'day'], or, where names differ, on={'customer_id': 'id'}"


class Join(Columnwise):
    """Joins rows with those of another collection that have the same values in the columns `on`, as SQL joins tables.

    `on` is the name of a column, a list of names or, where names differ, a dict of left and right names. `how` says
    which rows without a match stay, with nulls for the columns of the other side: none ("inner"), those of the "left",
    of the "right", or of both ("outer"). Nulls match nothing, and several matches give several rows. The result has the
    columns of the left and those of the right that are not joined on; a joined column has its left name.

    A row has the time and window of its left row or, without one, of its right row. Rows in windows join with all rows
    of a collection in the global window, or with those in the same window. A stream joins with another in the same
    windows: a match is emitted once, when both rows have come, and a row without one when its window, with the allowed
    lateness, is over. In the global window two streams join by "inner" only, and every row is stored. A bounded
    collection in the global window is a table, which is read when the stream starts, and `how` is "inner" or "left";
    with stream=True it is streamed, too, for instance files that arrive.

    `within=(lower, upper)` joins by time as well, in the global window: two rows match only if
    `left.time + lower <= right.time <= left.time + upper`. A match has the later of the two times. In a stream every
    `how` is possible and both sides are streamed: a row is stored until the watermark has passed its last possible
    match by the allowed lateness, and is then emitted if it is kept and nothing matched it. A row that is itself
    further behind the watermark than the allowed lateness is late, and left out.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     orders = p | "orders" >> hr.Create([{"customer": 7, "item": "book"}], schema="customer long, item string")
    ...     people = p | "people" >> hr.Create([{"id": 7, "name": "amy"}], schema="id long, name string")
    ...     named = orders | hr.Join(people, on={"customer": "id"}, how="left") | hr.Collect()
    >>> list(named)
    [Row(customer=7, item='book', name='amy')]
    """

    output_type: object = None

    def __init__(
        self, other: PCollection, on: On, *, how: How = "inner", within: Within | None = None, stream: bool = False
    ) -> None:
        if not isinstance(other, PCollection):
            raise PipelineError(
                f"Join takes the collection to join with, got {other!r:.80}; write a | Join(b, on='id')"
            )
        if how not in get_args(How):
            raise PipelineError(f"Join: how must be 'inner', 'left', 'right' or 'outer', got {how!r}")
        self.other, self.pairs, self.how, self.stream = other, _pairs(on), how, stream
        self.within = None if within is None else _interval(within)

    def default_label(self) -> str:
        on = ", ".join(left if left == right else f"{left} = {right}" for left, right in self.pairs)
        times = "" if self.within is None else f", {' to '.join(map(format_duration, self.within))}"
        return f"Join({self.other.label} on {on}{times}{'' if self.how == 'inner' else f', {self.how}'})"

    def expand(self, inputs: Any) -> Any:
        name = self.label or self.default_label()
        if not isinstance(inputs, PCollection):
            raise PipelineError(f"{name!r}: on the left of | is one collection; write a | Join(b, on='id')")
        try:
            self.element_type_from((inputs, self.other))
        except PipelineError as error:
            raise PipelineError(f"{name!r} ({Place.of_caller()}): {error}") from None
        return inputs.pipeline.add(self, (inputs, self.other))

    @property
    def keeps_left(self) -> bool:
        """Whether rows of the left stay without a match."""
        return self.how in ("left", "outer")

    @property
    def keeps_right(self) -> bool:
        """Whether rows of the right stay without a match."""
        return self.how in ("right", "outer")

    def columns(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """Returns the names of the result's columns; refuses columns that are missing, or that both sides have."""
        for at_left, at_right in self.pairs:
            for side, name, names in (("left", at_left, left), ("right", at_right, right)):
                if name not in names:
                    raise PipelineError(f"on the {side}, {no_column(name, names)}")
        joined = {name for _, name in self.pairs}
        rest = [name for name in right if name not in joined]
        lower = {name.lower() for name in left}  # Spark does not tell them apart by case
        if twice := [name for name in rest if name.lower() in lower]:
            raise PipelineError(
                f"both collections have a column {twice[0]!r}, and the result can have one only; rename or leave out "
                "one with Select before"
            )
        return [*left, *rest]

    def check(self, left: PCollection, right: PCollection) -> None:
        """Refuses collections whose windows do not join, and streams where there can be none."""
        windows, others = left.windowing.window, right.windowing.window
        if self.within is not None:
            _check_global("within=...", left, right)
            return
        endless = not left.bounded or not right.bounded
        if endless and left.windowing.is_global and (self.keeps_right or (self.keeps_left and not right.bounded)):
            raise PipelineError(
                f"how={self.how!r} keeps rows that nothing matched, and in the global window a stream never knows "
                "which these are; apply the same WindowInto to both, or use 'inner'"
            )
        if right.windowing.is_global and (left.windowing.is_global or self.with_table(right)):
            return
        if right.windowing.is_global and self.keeps_right:
            raise PipelineError(
                f"how={self.how!r} keeps rows of {right.label!r} that nothing matched, but these are in no window of "
                f"{windows!r}; apply the same WindowInto to both"
            )
        if windows != others:
            either = "put the second into GlobalWindows(), or apply" if right.bounded and not self.stream else "apply"
            raise PipelineError(
                f"{left.label!r} is in {windows!r}, and {right.label!r} in {others!r}; {either} the same WindowInto to "
                "both"
            )
        if windows.merging or windows.keyed:
            raise PipelineError(f"{windows!r} are windows of a key, which columns do not have; use CoGroupByKey")

    def with_table(self, right: PCollection) -> bool:
        """Returns whether, in a stream, the right collection is a table, which is read when the stream starts."""
        return (
            self.within is None
            and right.bounded
            and not self.stream
            and right.windowing.is_global
            and not self.keeps_right
        )

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        left, right = (pc.schema for pc in inputs)
        if left is None or right is None:
            return ROWS
        ours, theirs = (pa.schema(list(zip(side.names, side.types, strict=True))) for side in (left, right))
        joined = self.schema(ours, theirs)
        if any(ours.field(a).type != theirs.field(b).type for a, b in self.pairs):
            return ROWS  # Spark decides on a type that both have
        return rows_schema(joined)

    def schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """Returns the columns of the result, those joined on with the types of the left."""
        names = self.columns(left.names, right.names)
        return pa.schema([(name, (left if name in left.names else right).field(name).type) for name in names])


class AsOfJoin(Join):
    """Joins each row with the row of another collection that was valid at its time: the latest one of its key.

    That is, of the rows with the same values in the columns `on`, the one with the latest time that is not after the
    row's own; of several at that time, the last in the order of their columns, from left to right (without lists,
    structs and maps; nulls first). `on` and the columns of the result are as those of `Join`. A row that no row is
    before is left out, or stays with nulls if `how` is "left". Nulls match nothing. Both collections are in the global
    window; a row has the time of its left row.

    In a stream both are streamed. A left row is emitted when the watermark of both has passed its time by the allowed
    lateness; a row of either side that is itself further behind than that is late, and left out. Of each key, the
    version is stored that is valid at the watermark, and those that come after it.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     rates = p | "rates" >> hr.Create([("EUR", 1.1, 0), ("EUR", 1.2, 60)],
    ...                                      schema="code string, rate double, since long", event_time="since")
    ...     orders = p | "orders" >> hr.Create([("pen", "EUR", 59), ("ink", "EUR", 60)],
    ...                                        schema="item string, currency string, at long", event_time="at")
    ...     valid = orders | hr.AsOfJoin(rates, on={"currency": "code"}) | hr.Select("item", "rate") | hr.Collect()
    >>> sorted(valid)
    [Row(item='ink', rate=1.2), Row(item='pen', rate=1.1)]
    """

    def __init__(self, other: PCollection, on: On, *, how: Literal["inner", "left"] = "inner") -> None:
        if how not in ("inner", "left"):
            raise PipelineError(f"AsOfJoin: how must be 'inner' or 'left', got {how!r}")
        super().__init__(other, on, how=how, stream=True)

    def default_label(self) -> str:
        return f"AsOf{super().default_label()}"

    def check(self, left: PCollection, right: PCollection) -> None:
        """Refuses collections that are in windows."""
        _check_global("AsOfJoin", left, right)


def _check_global(name: str, *collections: PCollection) -> None:
    for pc in collections:
        if not pc.windowing.is_global:
            raise PipelineError(
                f"{pc.label!r} is in {pc.windowing.window!r}, but {name} is about times and not windows; apply "
                "WindowInto behind the join"
            )


def _interval(within: Any) -> tuple[int, int]:
    """Returns by how much a right row may be later than a left one, from and to, in microseconds."""
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise PipelineError(
            f"Join: within is two durations, from and to, got {within!r}; write for instance within=(0, '10 minutes')"
        )
    lower, upper = map(duration, within)
    if lower > upper:
        raise PipelineError(
            f"Join: in within, lower must not be above upper, got {format_duration(lower)} and "
            f"{format_duration(upper)}; nothing could ever join"
        )
    return lower, upper


def _pairs(on: Any) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of a left and a right column that `on` names."""
    names = list(on.items()) if isinstance(on, Mapping) else [on] if isinstance(on, str) else on
    if not isinstance(names, list | tuple) or not names:
        raise PipelineError(f"Join: on names at least one column, got {on!r}; write {_FORMS}")
    pairs = tuple((name, name) if isinstance(name, str) else name for name in names)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(name, str) and name for name in pair):
            raise PipelineError(f"Join: {pair!r} in on is no name of a column and no pair of names; write {_FORMS}")
    for side in zip(*pairs, strict=True):
        if twice := [name for name in side if side.count(name) > 1]:
            raise PipelineError(f"Join: on has the column {twice[0]!r} twice")
    return pairs
