"""`combine(column)` in a SELECT: the aggregate of a view's column over several of its rows, as over all their values.

Where columns can be combined by DuckDB, they are. Accumulators are merged here: one statement gathers those of each
group, and the one that was asked for is run over the view's rows joined with what they have become.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from itertools import count
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.combining import MERGED, accumulator_of, merging_fn
from headrace.dialects.sql.pointreads import table_names
from headrace.dialects.sql.relations import NUMBER, spelled
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import Select
from headrace.dialects.sql.viewreads import arrow_type, read_views, view_schema
from headrace.model.sketches import HeavyHittersFn
from headrace.views.adhoc.sqlrequest import SqlResult, Tables

Ask = Callable[[str, Tables], SqlResult]
"""Runs a SELECT of DuckDB over tables."""

_CAST: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "string")
"""Types that DuckDB may have computed as others, such as sums of whole numbers."""


def select_views(catalog: Catalog, tables: ResultTables, statement: Select, ask: Ask) -> tuple[str, dict[str, Any]]:
    """Returns a SELECT as DuckDB runs it, and the tables that it reads, all as of one moment."""
    if not any(map(_is_combine, statement.query.walk())):
        return statement.text.strip(), read_views(catalog, tables, statement)
    try:
        query = sqlglot.parse_one(statement.text.strip(), read="duckdb")
    except SqlglotError as error:
        raise SqlError(str(error).splitlines()[0]) from None
    return CombinedSelect(catalog, tables, query).planned(ask)


class CombinedSelect:
    """A query of DuckDB's SQL with calls of combine, over views."""

    def __init__(self, catalog: Catalog, tables: ResultTables, query: exp.Expr) -> None:
        self._catalog, self._query = catalog, query
        if any(map(_is_merged, query.walk())):  # ours alone: what it is given is read outside the sandbox
            raise SqlError(f"there is no function {MERGED!r}; combine(column) merges what a view has")
        self._calls: dict[int, tuple[exp.Select, list[exp.Anonymous]]] = {}
        for call in [each for each in query.walk() if _is_combine(each)]:
            assert isinstance(call, exp.Anonymous)
            select = call.find_ancestor(exp.Select)
            if select is None or isinstance(call.parent, exp.Filter):
                raise SqlError("combine(column) stands in a SELECT, without FILTER; write the condition in WHERE")
            self._calls.setdefault(id(select), (select, []))[1].append(call)
        self._views = {at: self._view_of(select) for at, (select, _) in self._calls.items()}
        names = sorted(set(table_names(query)))  # type: ignore[arg-type]
        plain = {catalog.view(name).name: view_schema(catalog.view(name)) for name in names}
        stored = {view.stored: view for view in self._views.values()}
        if len(stored) < len({view.name for view in self._views.values()}):
            raise SqlError("combine: two of these views have their rows in one table; combine them in two statements")
        schemas = {**plain, **{name: _stored_schema(view) for name, view in stored.items()}}
        numbers = {name: {NUMBER: view.number} for name, view in stored.items() if view.number is not None}
        read = tables.read(schemas, numbers)
        self._tables = {name: read[name] for name in plain}
        taken = {each.lower() for each in (*catalog.views, *(cte.alias for cte in query.find_all(exp.CTE)))}
        self._free = (name for number in count() if (name := f"combined_rows_{number}") not in taken)
        self._rows = {view.name: next(self._free) for view in stored.values()}
        self._tables |= {self._rows[view.name]: read[view.stored] for view in stored.values()}

    def planned(self, ask: Ask) -> tuple[str, dict[str, pa.Table]]:
        """Returns the query and its tables, with accumulators merged."""
        for at, (select, calls) in self._calls.items():
            view = self._views[at]
            source = select.args["from_"].this
            name = source.alias_or_name
            source.replace(exp.Table(this=exp.to_identifier(self._rows[view.name], quoted=True), alias=_alias(name)))
            for call in calls:
                call.replace(_combination(view, call))
            merged = [each for each in select.walk() if _is_merged(each) and each.find_ancestor(exp.Select) is select]
            if merged:
                self._merge(select, view, merged, next(self._free), ask)
        return self._query.sql("duckdb"), self._tables

    def _merge(self, select: exp.Select, view: View, merged: list[exp.Expr], name: str, ask: Ask) -> None:
        """Merges accumulators group by group, and joins the results to the rows of the groups."""
        keys = _keys(select, view)
        texts = list(dict.fromkeys(each.sql("duckdb") for each in merged))
        gathering = exp.Select()
        gathering.set("from_", select.args["from_"].copy())
        for clause in ("where", "group"):
            if (part := select.args.get(clause)) is not None:
                gathering.set(clause, part.copy())
        if keys:
            gathering.set("group", exp.Group(expressions=[each.copy() for each in keys]))
        lists = {text: next(each for each in merged if each.sql("duckdb") == text) for text in texts}
        chosen = [exp.alias_(each.copy(), f"_k{n}", quoted=True) for n, each in enumerate(keys)]
        gathered = [
            exp.alias_(exp.Anonymous(this="list", expressions=[each.expressions[0].copy()]), f"_c{n}", quoted=True)
            for n, each in enumerate(lists.values())
        ]
        gathering.set("expressions", [*chosen, *gathered])
        found = ask(gathering.sql("duckdb"), self._tables)
        if found.truncated:
            raise SqlError(f"combine merges more than {found.table.num_rows:,} groups; ask for fewer, by WHERE")
        columns: dict[str, Any] = {f"_k{n}": found.table.column(f"_k{n}") for n in range(len(keys))}
        for n, each in enumerate(lists.values()):
            columns[f"_c{n}"] = _merged_values(each, found.table.column(f"_c{n}").to_pylist())
        self._tables[name] = pa.table(columns)
        conditions = [
            exp.NullSafeEQ(this=each.copy(), expression=exp.column(f"_k{n}", name)) for n, each in enumerate(keys)
        ]
        on = exp.and_(*conditions) if conditions else exp.Boolean(this=True)
        select.set("joins", [exp.Join(this=exp.to_table(name), side="LEFT", on=on)])
        for each in merged:
            value = exp.column(f"_c{texts.index(each.sql('duckdb'))}", name)
            each.replace(exp.Anonymous(this="any_value", expressions=[value]))

    def _view_of(self, select: exp.Select) -> View:
        """Returns the view that a SELECT with combine reads, which is all that it reads."""
        source = select.args.get("from_")
        common = {each.alias for each in self._query.find_all(exp.CTE)}
        table = None if source is None else source.this
        if not isinstance(table, exp.Table) or select.args.get("joins") or table.name in common:
            raise SqlError("combine(column) is of a view; write it in a SELECT that has the view alone in FROM")
        return self._catalog.view(table.name)


def _is_combine(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == "combine"


def _is_merged(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == MERGED


def _combination(view: View, call: exp.Anonymous) -> exp.Expr:
    """Returns what a call of combine stands for."""
    arguments = call.expressions
    if len(arguments) != 1 or not isinstance(arguments[0], exp.Column):
        raise SqlError(f"combine takes a column of a view, got {call.sql('duckdb')}")
    name = spelled(arguments[0].name, view.columns)
    if name is None:
        raise SqlError(f"combine: there is no column {arguments[0].name!r} in {view.name}")
    if name not in view.combinations:
        able = ", ".join(view.combinations) or "none"
        raise SqlError(
            f"combine: the column {name!r} of {view.name} is no aggregate that can be combined; there are {able}"
        )
    combined: exp.Expr = sqlglot.parse_one(view.combinations[name], read="duckdb")
    kind = view.columns[name]
    if _is_merged(combined):
        combined.append("expressions", exp.Literal.string(kind))
    if kind.partition("(")[0] in _CAST:
        combined = exp.Cast(this=combined, to=exp.DataType.build(kind, dialect="spark"))
    return exp.Paren(this=combined)


def _merged_values(call: exp.Expr, lists: list[list[Any] | None]) -> pa.Array:
    """Returns the results of merged accumulators, one for each list of them, of the type that is known or inferred."""
    _, signature, *kind = call.expressions
    fn = merging_fn(signature.name)
    values = []
    for each in lists:
        parts = [accumulator_of(fn, cell) for cell in each or () if cell is not None]
        result = fn.finish(reduce(fn.merge, parts, fn.zero()))
        if isinstance(fn, HeavyHittersFn):  # as Spark has them
            result = [{"item": item, "count": number} for item, number in result]
        values.append(result)
    return pa.array(values, arrow_type(exp.DataType.build(kind[0].name, "spark")) if kind else None)


def _keys(select: exp.Select, view: View) -> list[exp.Expr]:
    """Returns the expressions that a SELECT is grouped by; a name is a column of the view before it is an alias."""
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all") or group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
        raise SqlError("combine: write the columns of GROUP BY one by one")
    by_name: Mapping[str, exp.Expr] = {each.alias: each.unalias() for each in select.expressions if each.alias}
    keys = []
    for each in group.expressions:
        if isinstance(each, exp.Literal) and not each.is_string:
            each = select.expressions[int(each.name) - 1].unalias()
        elif isinstance(each, exp.Column) and not each.table and spelled(each.name, view.columns) is None:
            each = by_name.get(each.name, each)
        keys.append(each)
    return keys


def _stored_schema(view: View) -> pa.Schema:
    """Returns the columns of a view's table, hidden ones included, and the number of a query among others."""
    hidden = [(name, arrow_type(exp.DataType.build(kind, "spark"))) for name, kind in view.hidden.items()]
    hidden += [] if view.number is None else [(NUMBER, pa.int64())]
    return pa.schema([*view_schema(view), *(pa.field(*each) for each in hidden)])


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))
