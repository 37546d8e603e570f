"""The steps of a plan: transforms of relations, each applied once however many queries ask for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import PurePath
from typing import Final

from sqlglot import exp

from headrace.dialects.sql.aggregates import is_aggregate
from headrace.dialects.sql.emit import Emission
from headrace.dialects.sql.relations import (
    COMPARED,
    NUMBER,
    MatchedQueries,
    Relation,
    column_named,
    is_bound,
    is_column,
    spelled,
    sql_text,
)
from headrace.dialects.sql.sqlerrors import SqlError, error_at
from headrace.model.agg import Aggregation, count
from headrace.model.columns import WINDOW_START, Expressions, GroupBy, Select, Where
from headrace.model.elementwise import WithTimestamps
from headrace.model.errors import PipelineError
from headrace.model.keyed import WindowInto
from headrace.model.matching import MatchQueries
from headrace.model.pipeline import PCollection, PTransform
from headrace.model.triggers import AfterPercentile, AfterWatermark, Trigger
from headrace.model.windows import CountWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn

_ROWS: Final = "_rows"
_ZERO: Final = exp.Literal.number(0)
_COLUMN: Final = re.compile("`[^`]+`")


class SharedSteps:
    """Applies transforms to collections. The same transform of the same collections is one.

    Its label comes from what it does and to what, so that its state is found again whichever queries share it. With
    `skipping`, rows on which an expression fails are left out and counted.
    """

    def __init__(self, *, skipping: bool = False) -> None:
        self._skipping = skipping
        self._applied: dict[tuple[str, ...], PCollection] = {}

    def apply(self, transform: PTransform, signature: str, *inputs: PCollection) -> PCollection:
        """Applies a transform, unless the same was applied to the same collections before."""
        step = (signature, *(f"{each.label}:{each.tag}" for each in inputs))
        if step not in self._applied:
            if self._skipping and isinstance(transform, Expressions) and _may_fail(transform):
                transform = transform.skipping_failures()
            digest = hashlib.blake2b("\0".join(step).encode(), digest_size=4).hexdigest()
            label = f"{transform.default_label()[:60]} {digest}"
            self._applied[step] = (inputs[0] if len(inputs) == 1 else inputs) | label >> transform
        return self._applied[step]


def _may_fail(transform: Expressions) -> bool:
    """Returns whether a transform computes anything: to choose columns never fails."""
    texts = transform.named.values() if isinstance(transform, Select) else ()
    return isinstance(transform, Where) or not all(_COLUMN.fullmatch(text) for text in texts)


@dataclass(frozen=True)
class Steps:
    """The steps of one query, whose text is for errors.

    `emission` says when its groupings emit; it is `stated` if the query has an EMIT. `queries` are those of its shape,
    if they are computed together. With `combines`, its groups have what is needed to combine several of them.
    """

    text: str
    emission: Emission
    stated: bool
    shared: SharedSteps = field(default_factory=SharedSteps)
    queries: MatchedQueries | None = None
    combines: bool = False

    def where(self, relation: Relation, condition: exp.Expr) -> Relation:
        """Returns the rows for which a condition holds."""
        if any(map(is_bound, condition.walk())):
            relation = self.in_windows(relation)
        text = sql_text(condition)
        return replace(relation, collection=self.shared.apply(Where(text), f"where {text}", relation.collection))

    def select(
        self, relation: Relation, columns: Mapping[str, exp.Expr], key: tuple[str, ...] | None, time: str | None
    ) -> Relation:
        """Computes columns; bounds of windows stay what they are."""
        if any(map(is_bound, (part for each in columns.values() if not is_bound(each) for part in each.walk()))):
            relation = self.in_windows(relation)
        computed = {name: sql_text(each) for name, each in columns.items() if not is_bound(each)}
        collection = relation.collection
        if not computed:  # rows of bounds alone
            computed = {"_": "true"}
        signature = "select " + ", ".join(f"{text} AS {name}" for name, text in computed.items())
        collection = self.shared.apply(Select(**computed), signature, collection)
        now = {name: each if is_bound(each) else column_named(name) for name, each in columns.items()}
        return Relation(collection, now, tuple(computed), key, time, relation.windows, relation.retracts)

    def materialized(self, relation: Relation) -> Relation:
        """Returns a relation whose collection has exactly its columns, bounds of windows included."""
        if not any(map(is_bound, relation.columns.values())):
            relation = self._repeated(relation)
        relation = self.in_windows(relation)
        columns = {name: sql_text(each) for name, each in relation.columns.items()}
        if tuple(columns) == relation.stored and all(
            is_column(each) and each.name == name for name, each in relation.columns.items()
        ):
            return relation
        signature = "columns " + ", ".join(f"{text} AS {name}" for name, text in columns.items())
        collection = self.shared.apply(Select(**columns), signature, relation.collection)
        return replace(
            relation,
            collection=collection,
            columns={name: column_named(name) for name in columns},
            stored=tuple(columns),
        )

    def with_times(self, relation: Relation, name: str) -> Relation:
        """Makes a column the event time of rows that have none among their columns."""
        ready = self.materialized(relation)
        column = spelled(name, ready.columns) or name
        timed = self.shared.apply(WithTimestamps(attrgetter(column)), f"times by {column}", ready.collection)
        return replace(ready, collection=timed, time=column)

    def group(
        self,
        relation: Relation,
        keys: list[str],
        aggregations: Mapping[str, Aggregation],
        *,
        windowed: bool,
        inner: bool,
        place: exp.Expr,
    ) -> Relation:
        """Groups the rows of a relation: in its windows, or over all time. `inner`: results are to be taken back.

        If rows of the relation may be taken back, a group is gone when none is left.
        """
        retracts = inner or relation.retracts
        collection = self._for_groups(relation, windowed=windowed, inner=inner, retracts=retracts, place=place)
        if relation.queries is not None:
            inputs = [name for each in aggregations.values() for name in each.columns]
            collection = self._match(relation.queries, collection, dict.fromkeys([*keys, *inputs]))
            keys = [NUMBER, *keys]
        vanishes = relation.retracts and bool(keys)
        computed = {**aggregations, _ROWS: count()} if vanishes or not aggregations else dict(aggregations)
        listed = ", ".join(f"{each} AS {name}" for name, each in computed.items())
        grouped = GroupBy(*keys).aggregate(**computed)
        collection = self.shared.apply(grouped, f"group by {', '.join(keys)}: {listed}", collection)
        stored = (*keys, *computed)
        retracts = collection.windowing.accumulation == "retracting"
        result = Relation(collection, {name: column_named(name) for name in stored}, stored, retracts=retracts)
        return self.where(result, exp.GT(this=column_named(_ROWS), expression=_ZERO)) if vanishes else result

    def first_rows(self, relation: Relation, n: int, *, inner: bool) -> Relation:
        """Returns the first n rows of each partition of a relation whose rows are to be ranked, with their ranks.

        Rows that are partitioned by a bound of their windows are ranked in these; others over all time.
        """
        ranking = relation.ranking
        assert ranking is not None
        rows, place = ranking.rows, ranking.place
        bounds = [name for name in ranking.keys if is_bound(rows.columns[name])]
        rows = self.select(rows, rows.columns, None, None) if bounds else self.materialized(rows)
        keys = [name for name in ranking.keys if name not in bounds]
        collection = self._for_groups(rows, windowed=bool(bounds), inner=inner, retracts=True, place=place)
        orders = [each for each in ranking.by if not is_bound(rows.columns[each.column])]
        by = [str(replace(each, column=sql_text(column_named(each.column)))) for each in orders]
        try:
            top = GroupBy(*keys).top(n, by, rank=ranking.name)
        except PipelineError as error:
            raise self.error(place, str(error)) from None
        signature = f"first {n} of {', '.join(keys)} by {', '.join(by)} as {ranking.name}"
        collection = self.shared.apply(top, signature, collection)
        stored = (*rows.stored, ranking.name)
        retracts = collection.windowing.accumulation == "retracting"
        columns = {**rows.columns, ranking.name: column_named(ranking.name)}
        key = ranking.keys if n == 1 else (*ranking.keys, ranking.name)
        ranked = Relation(collection, columns, stored, key, retracts=retracts)
        return replace(ranked, columns=relation.columns, key=self.key_in(ranked, relation.columns))

    def _for_groups(
        self, relation: Relation, *, windowed: bool, inner: bool, retracts: bool, place: exp.Expr
    ) -> PCollection:
        """Returns the rows of a relation in the windows that they are grouped in, or in the one window of all time."""
        if not windowed and self.stated and _waits_for_watermark(self.emission.trigger):
            raise self.error(
                place,
                "EMIT AFTER WATERMARK waits for the end of a window, and these groups have none; group by "
                "window_start of a TUMBLE, HOP or SESSION, or leave EMIT out",
            )
        if not windowed:
            collection = self._repeated(relation).collection
            emission = replace(self.emission, trigger=self.emission.inner) if inner else self.emission
            return self._into_windows(collection, GlobalWindows(), emission, retracts=retracts)
        collection = relation.collection
        if relation.windows is None:
            return collection
        retracts = retracts or isinstance(relation.windows, Sessions)
        return self._into_windows(collection, relation.windows, self.emission, retracts=retracts)

    def matched(self, relation: Relation, columns: Mapping[str, exp.Expr], time: str | None) -> Relation:
        """Computes columns for each query that a row matches, and the query's number."""
        assert relation.queries is not None
        if any(map(is_bound, (part for each in columns.values() for part in each.walk()))):
            relation = self.in_windows(relation)
        assert relation.queries is not None
        collection, parameters = relation.collection, relation.queries.parameters
        if any(not is_column(each) or each.name != name for name, each in columns.items()):
            compared = {f"{COMPARED}{number}": each.column for number, each in enumerate(parameters)}
            computed = {name: sql_text(each) for name, each in columns.items()}
            computed |= {name: sql_text(relation.columns[column]) for name, column in compared.items()}
            signature = "select " + ", ".join(f"{text} AS {name}" for name, text in computed.items())
            collection = self.shared.apply(Select(**computed), signature, collection)
            named = zip(parameters, compared, strict=True)
            parameters = tuple(replace(each, column=name) for each, name in named)
        collection = self._match(replace(relation.queries, parameters=parameters), collection, columns)
        names = (*columns, NUMBER)
        return Relation(collection, {name: column_named(name) for name in names}, names, time=time)

    def _match(self, queries: MatchedQueries, collection: PCollection, keep: Iterable[str]) -> PCollection:
        transform = MatchQueries(queries.table, queries.parameters, tuple(keep), NUMBER)
        signature = f"match {PurePath(queries.table).name} {transform.parameters} {transform.keep}"
        return self.shared.apply(transform, signature, collection)

    def _repeated(self, relation: Relation) -> Relation:
        """Returns rows of windows that overlap as often as they have windows, also if nobody asks for which."""
        if not isinstance(relation.windows, SlidingWindows):
            return relation
        placed = self.in_windows(relation)
        columns = {name: sql_text(column_named(name)) for name in placed.stored}
        collection = self.shared.apply(Select(**columns, _window=WINDOW_START), "in each window", placed.collection)
        return replace(placed, collection=collection, stored=(*placed.stored, "_window"))

    def in_windows(self, relation: Relation) -> Relation:
        """Assigns the rows of a relation to its windows, if that is still to be done."""
        if relation.windows is None:
            return relation
        if isinstance(relation.windows, CountWindows):
            raise SqlError("rows are numbered where they are grouped; write window_start of ROWS by itself in GROUP BY")
        collection = self._into_windows(relation.collection, relation.windows, self.emission, retracts=True)
        return replace(relation, collection=collection, windows=None)

    def over_all_time(self, relation: Relation) -> Relation:
        """Puts rows into the one window of all time, whose groups are taken back when they change."""
        emission = replace(self.emission, trigger=self.emission.inner)
        return replace(
            relation, collection=self._into_windows(relation.collection, GlobalWindows(), emission, retracts=True)
        )

    def _into_windows(
        self, collection: PCollection, windows: WindowFn, emission: Emission, *, retracts: bool
    ) -> PCollection:
        late = not isinstance(windows, CountWindows | GlobalWindows)
        transform = WindowInto(
            windows,
            trigger=emission.trigger,
            accumulation="discarding" if emission.once else "retracting" if retracts else "accumulating",
            allowed_lateness=emission.lateness / 1_000_000 if late else 0,
        )
        return self.shared.apply(transform, f"windows {transform.windowing!r}", collection)

    def key_in(self, relation: Relation, columns: Mapping[str, exp.Expr]) -> tuple[str, ...] | None:
        """Returns the names that the key of a relation has among other columns; None if a part of it is left out."""
        if relation.key is None:
            return None
        names = {sql_text(each): name for name, each in columns.items()}
        found = [names.get(sql_text(relation.columns[name])) for name in relation.key]
        return None if None in found else tuple(name for name in found if name is not None)

    def refuse_aggregates(self, node: exp.Expr, clause: str, instead: str) -> None:
        """Refuses calls of aggregate functions in a clause."""
        for each in node.walk():
            if is_aggregate(each):
                raise self.error(each, f"{clause} is judged before rows are grouped; write it in {instead}")

    def error(self, node: exp.Expr, reason: str) -> SqlError:
        """Returns the error for a part of the query."""
        return error_at(node, self.text, reason)


def _waits_for_watermark(trigger: Trigger) -> bool:
    return isinstance(trigger, AfterWatermark | AfterPercentile) or any(map(_waits_for_watermark, trigger.children()))
