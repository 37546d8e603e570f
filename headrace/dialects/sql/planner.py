"""From a query to collections: WITH, FROM, WHERE, SELECT, DISTINCT, UNION ALL, and tables in windows.

The plan of a query is transforms of columns, as one would write them by hand; expressions go to Spark as text. Groups
are planned in `groupclause`, joins in `joinclause`; the transforms themselves are in `steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sqlglot import exp

from headrace.dialects.sql.aggregates import is_aggregate
from headrace.dialects.sql.emit import emission_of
from headrace.dialects.sql.grammar import Emit, WindowTable
from headrace.dialects.sql.groupclause import Grouping
from headrace.dialects.sql.joinclause import Joining
from headrace.dialects.sql.rankclause import RankClause, limited, over_clauses
from headrace.dialects.sql.relations import (
    BOUNDS,
    ROW_BOUNDS,
    MatchedQueries,
    Relation,
    Scope,
    bound_columns,
    column_named,
    is_bound,
    is_column,
    renamed,
    spelled,
    sql_text,
)
from headrace.dialects.sql.sqlerrors import error_at
from headrace.dialects.sql.steps import SharedSteps, Steps
from headrace.dialects.sql.viewoutput import output_relation, output_view
from headrace.dialects.sql.windowgroups import with_window_table
from headrace.dialects.sql.windowtables import window_fn
from headrace.model.keyed import Flatten
from headrace.model.knowncolumns import nearest_name
from headrace.model.pipeline import PCollection
from headrace.model.windows import CountWindows

_REFUSED: Final = {
    "sort": "SORT BY orders nothing in a stream; leave it out",
    "cluster": "CLUSTER BY orders nothing in a stream; leave it out",
    "distribute": "DISTRIBUTE BY orders nothing in a stream; leave it out",
    "laterals": "LATERAL VIEW is not supported; write explode(...) in SELECT",
    "windows": "names of windows are not supported; write them out in OVER (...)",
    "order": "a continuous query has no ORDER BY, since its rows change; order them in the SELECT that reads the view",
    "limit": "a continuous query has no LIMIT; write it in the SELECT that reads the view",
    "offset": "a continuous query has no OFFSET; write it in the SELECT that reads the view",
}

Tables = Mapping[str, Relation]


@dataclass(frozen=True)
class Planned:
    """A planned query: its collection with plain columns, their names, and those that identify a row, if some do.

    `retracts`: rows may be taken back. `bounds` are the columns that are bounds of windows, with which of them.
    `combinations` say how columns of several rows become one (see `combining`), which needs the `hidden` columns.
    """

    collection: PCollection
    columns: tuple[str, ...]
    key: tuple[str, ...] | None
    retracts: bool
    bounds: Mapping[str, str] = field(default_factory=dict)
    combinations: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()


class Planner:
    """Plans queries over tables, which are relations by name, and over views, which are queries by name.

    What queries have in common is planned once. With `skipping`, rows on which an expression fails are left out.
    `lateness_of` gives how long the windows of a view take late rows, if its ttl says so.
    """

    def __init__(
        self,
        tables: Tables,
        views: Mapping[str, exp.Query] | None = None,
        *,
        skipping: bool = False,
        lateness_of: Callable[[str], int | None] = lambda view: None,
    ) -> None:
        self.tables, self.views, self.lateness_of = dict(tables), dict(views or {}), lateness_of
        self._shared = SharedSteps(skipping=skipping)

    def plan(
        self,
        query: exp.Query,
        text: str,
        queries: MatchedQueries | None = None,
        *,
        lateness: int | None = None,
        combines: bool = False,
    ) -> Planned:
        """Plans a query, a part of `text`; with `queries`, all of these, whose shape it is.

        Windows take late rows no longer than `lateness`, in microseconds, even if EMIT says nothing of it. With
        `combines`, the result has what is needed to combine several of its rows.
        """
        emit = query.args.get("emit")
        for part in query.find_all(Emit):
            if part is not emit:
                raise error_at(part, text, "EMIT is for the whole query; write it at the end")
        for call in query.find_all(exp.Anonymous):
            if call.name.lower() == "combine":
                reason = "combine is for a SELECT that reads a view; in a view, aggregate the rows of the stream itself"
                raise error_at(call, text, reason)
        emission = emission_of(emit, text)
        if lateness is not None:
            emission = replace(emission, lateness=min(emission.lateness, lateness))
        steps = Steps(text, emission, emit is not None, self._shared, queries, combines)
        planned = limited(steps, QueryPlan(steps, query, self, self.tables).relation(), None)
        names = {each: name for bounds in (BOUNDS, ROW_BOUNDS) for name, each in bounds.items()}
        bounds = {name: names[sql_text(each)] for name, each in planned.columns.items() if is_bound(each)}
        relation = steps.materialized(planned)
        return Planned(
            relation.collection,
            tuple(relation.columns),
            relation.key,
            relation.retracts,
            bounds,
            planned.combinations,
            planned.hidden,
        )


class QueryPlan:
    """Plans one query over tables, and the planner's views.

    `inner`: something is computed from its results, so that they are taken back when they change.
    """

    def __init__(self, steps: Steps, query: exp.Expr, planner: Planner, tables: Tables, *, inner: bool = False) -> None:
        self.steps, self.query, self.planner, self.tables, self.inner = steps, query, planner, dict(tables), inner

    def relation(self) -> Relation:
        """Plans a SELECT, a UNION ALL, or one of them in parentheses."""
        query = self.query
        if isinstance(query, exp.Subquery):
            return self._plan(query.this, inner=self.inner).relation()
        self._add_common_tables()
        if isinstance(query, exp.Union):
            return self._union(query)
        if isinstance(query, exp.Select):
            return self._select(query)
        kind = type(query).__name__.upper()
        raise self.steps.error(query, f"a continuous query is a SELECT, or a UNION ALL of several; got {kind}")

    def _plan(self, query: exp.Expr, *, inner: bool) -> QueryPlan:
        return QueryPlan(self.steps, query, self.planner, self.tables, inner=inner)

    def _add_common_tables(self) -> None:
        common = self.query.args.get("with_")
        if common is None:
            return
        if common.args.get("recursive"):
            raise self.steps.error(common.expressions[0], "WITH RECURSIVE is not supported")
        for each in common.expressions:
            relation = self._plan(each.this, inner=True).relation()
            self.tables[each.alias] = self._with_column_names(relation, each)

    # The clauses of a SELECT, in the order in which they act.

    def _select(self, query: exp.Select) -> Relation:
        for name, reason in _REFUSED.items():
            if part := query.args.get(name):
                raise self.steps.error(part[0] if isinstance(part, list) else part, reason)
        if query.args.get("from_") is None:
            raise self.steps.error(query, "a continuous query reads a stream; add FROM")
        query = with_window_table(query, self.steps.text)
        if over := over_clauses(query):
            return self._ranked(RankClause(self.steps, query, over))
        if (qualify := query.args.get("qualify")) is not None:
            raise self.steps.error(qualify, "QUALIFY limits ROW_NUMBER() OVER (...); write WHERE or HAVING")
        distinct = query.args.get("distinct")
        groups = query.args.get("group") is not None or _aggregates(query.expressions)
        scope, relation = self._from(query)
        condition = None
        if (where := query.args.get("where")) is not None:
            self.steps.refuse_aggregates(where.this, "WHERE", "HAVING")
            condition = scope.resolve(where.this)
        relation = limited(self.steps, relation, condition, inner=self.inner or groups or distinct is not None)
        relation = replace(relation, queries=self.steps.queries)
        if groups:
            named = {self._name_of(each, number): each.unalias() for number, each in enumerate(query.expressions)}
            inner = self.inner or distinct is not None
            relation = Grouping(self.steps, query, scope, relation, named, inner=inner).planned()
        elif (having := query.args.get("having")) is not None:
            raise self.steps.error(having, "HAVING is for groups; write WHERE, or add GROUP BY")
        else:
            relation = self._projected(query, scope, relation)
        return relation if distinct is None else self._distinct(distinct, relation)

    def _ranked(self, clause: RankClause) -> Relation:
        """Plans a SELECT with ROW_NUMBER(): first without it, and then what is ranked."""
        rows = self._plan(clause.rows(), inner=True).relation()
        return clause.qualified(clause.ranked(rows), inner=self.inner)

    def _from(self, query: exp.Select) -> tuple[Scope, Relation]:
        source = query.args["from_"].this
        relation = self._source(source)
        scope = Scope(self.steps.text, {_alias(source): relation.columns})
        for join in query.args.get("joins") or ():
            relation, other = self._whole(relation), self._whole(self._source(join.this))
            scope, relation = Joining(self.steps, scope, relation, join, _alias(join.this), other).planned()
        return scope, relation

    def _source(self, source: exp.Expr) -> Relation:
        """Plans what stands in FROM: a table, one in windows, or a query."""
        error = self.steps.error
        if isinstance(source, exp.Subquery):
            relation = self._plan(source.this, inner=True).relation()
        elif not isinstance(source, exp.Table):
            raise error(source, f"FROM takes a stream or a query, got {source.sql(dialect='spark')}")
        elif isinstance(source.this, WindowTable):
            relation = self._windowed(source.this)
        elif (view := output_view(source)) is not None:
            relation = self._output_of(view, source)
        elif not isinstance(source.this, exp.Identifier):
            functions = "TUMBLE, HOP, SESSION and output_of(view)"
            raise error(source, f"there is no table function {source.this.name!r}; there are {functions}")
        elif source.args.get("db") is not None:
            raise error(source, f"{source.sql(dialect='spark')} has a schema; streams and views have plain names")
        elif (name := spelled(source.name, self.tables)) is not None:
            relation = self.tables[name]
        elif (name := spelled(source.name, self.planner.views)) is not None:
            query = self.planner.views[name]
            relation = QueryPlan(self.steps, query, self.planner, self.planner.tables, inner=True).relation()
        else:
            names = [*self.tables, *self.planner.views]
            near = nearest_name(source.name, names)
            hint = "; there are" if near is None else f", did you mean {near!r}? There are"
            raise error(source, f"there is no stream or view {source.name!r}{hint} {', '.join(names) or 'none'}")
        return self._with_column_names(relation, source)

    def _output_of(self, name: str, source: exp.Expr) -> Relation:
        """Plans the changes of a view, which emits as its own EMIT says."""
        known = spelled(name, self.planner.views)
        if known is None:
            names = ", ".join(self.planner.views) or "none"
            raise self.steps.error(source, f"output_of is of a view, and there is no view {name!r}; there are {names}")
        query = self.planner.views[known]
        emit = query.args.get("emit")
        emission = emission_of(emit, self.steps.text)
        if (lateness := self.planner.lateness_of(known)) is not None:  # a row that has expired changes no more
            emission = replace(emission, lateness=min(emission.lateness, lateness))
        steps = replace(self.steps, emission=emission, stated=emit is not None, queries=None, combines=False)
        view = limited(steps, QueryPlan(steps, query, self.planner, self.planner.tables, inner=True).relation(), None)
        return output_relation(steps, query, view, source)

    def _whole(self, relation: Relation) -> Relation:
        """Refuses rows whose rank nobody has limited."""
        return limited(self.steps, relation, None, inner=True)

    def _windowed(self, table: WindowTable) -> Relation:
        relation = self._whole(self._source(table.this))
        time, name = table.args["time"], table.this.alias_or_name
        if spelled(time.name, relation.columns) is None:
            raise self.steps.error(time, f"there is no column {time.name!r} in {name!r}")
        if relation.time is None:
            relation = self.steps.with_times(relation, time.name)
        elif relation.time.lower() != time.name.lower():
            raise self.steps.error(
                time, f"windows are by the event time of {name!r}, which is {relation.time!r}; got {time.name!r}"
            )
        if any(spelled(each, relation.columns) is not None for each in bound_columns()):
            raise self.steps.error(table, f"{name!r} has columns window_start or window_end already; rename them first")
        if relation.windowed:
            raise self.steps.error(
                table, f"the rows of {name!r} are in windows already; group them over all time first"
            )
        windows = window_fn(table, self.steps.text)
        if isinstance(windows, CountWindows) and relation.retracts:
            reason = f"rows of {name!r} may be taken back, and windows of ROWS number what comes; use those of a stream"
            raise self.steps.error(table, reason)
        bounds = bound_columns(ROW_BOUNDS if isinstance(windows, CountWindows) else BOUNDS)
        return replace(relation, columns={**relation.columns, **bounds}, key=None, windows=windows)

    def _projected(self, query: exp.Select, scope: Scope, relation: Relation) -> Relation:
        columns: dict[str, exp.Expr] = {}
        for number, projection in enumerate(query.expressions):
            for name, expression in self._columns_of(projection, number, scope):
                if spelled(name, columns) is not None:
                    raise self.steps.error(projection, f"two columns are called {name!r}; name one of them with AS")
                columns[name] = expression
        key = self.steps.key_in(relation, columns)
        time = next((name for name, each in columns.items() if _is_time(relation, each)), None)
        if relation.queries is not None:
            return self.steps.matched(relation, columns, time)
        if all(is_column(each) or is_bound(each) for each in columns.values()):
            return replace(relation, columns=columns, key=key, time=time)
        return self.steps.select(relation, columns, key, time)

    def _columns_of(self, projection: exp.Expr, number: int, scope: Scope) -> list[tuple[str, exp.Expr]]:
        if isinstance(projection, exp.Star):
            return scope.columns(None, projection)
        if isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star):
            return scope.columns(projection.table, projection)
        return [(self._name_of(projection, number), scope.resolve(projection.unalias()))]

    def _name_of(self, projection: exp.Expr, number: int) -> str:
        named = isinstance(projection, exp.Alias | exp.Column | exp.Dot | exp.Anonymous)
        return str(projection.alias_or_name) if named else f"column{number + 1}"

    def _distinct(self, distinct: exp.Distinct, relation: Relation) -> Relation:
        """Plans the different rows of a relation: groups by all columns."""
        if distinct.args.get("on") is not None:
            raise self.steps.error(distinct, "DISTINCT ON is not supported; use max_by or min_by")
        bounds = {name: each for name, each in relation.columns.items() if is_bound(each)}
        ready = relation if bounds else self.steps.materialized(relation)
        keys = [name for name in ready.columns if name not in bounds]
        ready = self.steps.select(ready, {name: ready.columns[name] for name in keys}, None, None)
        grouped = self.steps.group(ready, keys, {}, windowed=bool(bounds), inner=self.inner, place=distinct)
        columns = {name: bounds.get(name, column_named(name)) for name in relation.columns}
        return replace(grouped, columns=columns, key=tuple(columns))

    def _union(self, query: exp.Union) -> Relation:
        error = self.steps.error
        if query.args.get("distinct"):
            raise error(query.this, "UNION is not supported; write SELECT DISTINCT * FROM (... UNION ALL ...)")
        plans = (self._plan(each, inner=True) for each in (query.this, query.expression))
        first, second = (self.steps.materialized(self._whole(plan.relation())) for plan in plans)
        if len(first.columns) != len(second.columns):
            counts = f"{len(first.columns)} and {len(second.columns)}"
            raise error(query.expression, f"the sides of UNION ALL have {counts} columns; they must have as many")
        second = self.steps.materialized(renamed(second, first.columns))
        if not first.windowed and not second.windowed:
            first, second = self.steps.over_all_time(first), self.steps.over_all_time(second)
        if first.collection.windowing != second.collection.windowing:
            raise error(query.expression, "the sides of UNION ALL are in different windows; use the same")
        collection = self.steps.shared.apply(Flatten(), "union all", first.collection, second.collection)
        time = first.time if first.time == second.time else None
        return replace(first, collection=collection, key=None, time=time, retracts=first.retracts or second.retracts)

    def _with_column_names(self, relation: Relation, source: exp.Expr) -> Relation:
        """Returns a relation with the names that its alias gives to columns, as in `t(a, b)`."""
        alias = source.args.get("alias")
        if alias is None or not alias.args.get("columns"):
            return relation
        names = [each.name for each in alias.args["columns"]]
        if len(names) != len(relation.columns):
            raise self.steps.error(alias, f"it names {len(names)} columns, and there are {len(relation.columns)}")
        return renamed(relation, names)


def _alias(source: exp.Expr) -> str:
    if isinstance(source, exp.Table) and isinstance(source.this, WindowTable) and not source.alias:
        return str(source.this.this.alias_or_name)
    return str(source.alias_or_name)


def _aggregates(expressions: list[exp.Expr]) -> bool:
    return any(is_aggregate(node) for each in expressions for node in each.walk())


def _is_time(relation: Relation, expression: exp.Expr) -> bool:
    return relation.time is not None and sql_text(relation.time_column) == sql_text(expression)
