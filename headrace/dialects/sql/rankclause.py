"""The first rows of groups: ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...), with WHERE or QUALIFY to say how many.

A SELECT with ROW_NUMBER() gives rows that are still to be ranked. Whoever limits the rank makes them the first n rows
of their groups; a rank without a limit would change for every row of a stream, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from headrace.dialects.sql.conditions import conjuncts
from headrace.dialects.sql.relations import Ranking, Relation, Scope, column_named, is_bound, spelled, sql_text
from headrace.dialects.sql.steps import Steps
from headrace.model.knowncolumns import no_column
from headrace.model.sortorder import SortOrder

_ROW_NUMBER: Final = "row_number"
_KEY: Final = "_partition{}"
_ORDER: Final = "_order{}"
_RANK: Final = "_rank"
_REMEDIES: Final = {
    **dict.fromkeys(("rank", "dense_rank", "percent_rank", "ntile", "cume_dist"), "ROW_NUMBER() numbers rows, too"),
    **dict.fromkeys(("lag", "lead", "nth_value"), "write a DoFn with state, which sees rows one after the other"),
}
_GROUP_INSTEAD: Final = "compute it with GROUP BY, in a query of its own"


def over_clauses(query: exp.Select) -> list[exp.Window]:
    """Returns the functions with OVER (...) that a SELECT has among its columns and in QUALIFY."""
    qualify = query.args.get("qualify")
    parts = [*query.expressions, *([] if qualify is None else [qualify])]
    return [each for part in parts for each in part.find_all(exp.Window)]


@dataclass
class RankClause:
    """Plans the ROW_NUMBER() of one SELECT, which `over` are all functions with OVER (...) of."""

    steps: Steps
    query: exp.Select
    over: list[exp.Window]

    def __post_init__(self) -> None:
        self.hidden: dict[str, exp.Expr] = {}  # columns that rows are ranked by and that the SELECT does not have
        self.window = self._checked()
        self.name = self._name()

    def rows(self) -> exp.Select:
        """Returns the SELECT without the rank, with all columns that rows are ranked by."""
        rows = self.query.copy()
        rows.set("qualify", None)
        rows.set("with_", None)  # their tables are known already
        shown = [each.copy() for each in self._shown()]
        self.keys = [self._column(each, _KEY.format(n)) for n, each in enumerate(self.window.args["partition_by"])]
        self.by = [
            (self._column(each.this, _ORDER.format(n)), each)
            for n, each in enumerate(self.window.args["order"].expressions)
        ]
        hidden = [exp.alias_(each.copy(), name, quoted=True) for name, each in self.hidden.items()]
        rows.set("expressions", [*shown, *hidden])
        return rows

    def ranked(self, rows: Relation) -> Relation:
        """Returns the rows of the SELECT, which are still to be ranked."""
        keys = tuple(self._found(name, rows, self.window) for name in self.keys)
        by: dict[str, SortOrder] = {}
        for name, each in self.by:
            column = self._found(name, rows, each)
            by.setdefault(column, SortOrder(column, bool(each.args.get("desc")), bool(each.args.get("nulls_first"))))
        if (same := spelled(self.name, rows.columns)) is not None:
            raise self.steps.error(self.window, f"there is a column {same!r} already; name the rank with another AS")
        names = self._with_rank([name for name in rows.columns if name not in self.hidden])
        # In windows their bounds stay what they are, and are columns otherwise.
        windowed = any(is_bound(rows.columns[key]) for key in keys)
        bounds = {name: each for name, each in rows.columns.items() if windowed and is_bound(each)}
        columns = {name: bounds.get(name, column_named(name)) for name in names}
        ranking = Ranking(rows, self.name, keys, tuple(by.values()), self.window)
        return replace(rows, columns=columns, key=None, ranking=ranking)

    def qualified(self, relation: Relation, *, inner: bool) -> Relation:
        """Returns the rows for which QUALIFY holds; without one, those that are still to be ranked."""
        qualify = self.query.args.get("qualify")
        if qualify is None:
            return relation
        condition = exp.Paren(this=qualify.this.copy())
        for each in list(condition.find_all(exp.Window)):
            each.replace(column_named(self.name))
        resolved = Scope(self.steps.text, {"": relation.columns}).resolve(condition.this)
        relation = limited(self.steps, relation, resolved, inner=inner)
        shown = {name: each for name, each in relation.columns.items() if name != _RANK}
        return replace(relation, columns=shown, key=self.steps.key_in(relation, shown))

    def _checked(self) -> exp.Window:
        error = self.steps.error
        for each in self.over:
            name = each.this.name.lower() if isinstance(each.this, exp.Anonymous) else each.this.sql("spark").lower()
            if name != _ROW_NUMBER:
                remedy = _REMEDIES.get(name, _GROUP_INSTEAD)
                raise error(each, f"{name}(...) OVER (...) is not supported; {remedy}")
            if not each.args.get("order"):
                raise error(each, "ROW_NUMBER() needs an ORDER BY in OVER (...), which says what row is the first")
            if each.args.get("spec") is not None:
                raise error(each, "ROW_NUMBER() takes no ROWS or RANGE; it numbers all rows of its partition")
            if sql_text(each) != sql_text(self.over[0]):
                raise error(each, "a SELECT has one ROW_NUMBER(); put the other into a query of its own")
        if self.query.args.get("distinct") is not None:
            raise error(self.over[0], "ROW_NUMBER() makes rows differ, so DISTINCT has no effect; leave it out")
        window = self.over[0]
        if window.args.get("partition_by") is None:
            window.set("partition_by", [])
        return window

    def _name(self) -> str:
        name = _RANK
        for each in self.query.expressions:
            if each.find(exp.Window) is not None:
                if not isinstance(each, exp.Alias) or not isinstance(each.this, exp.Window) or name != _RANK:
                    raise self.steps.error(
                        each, "ROW_NUMBER() is a column by itself; write ROW_NUMBER() OVER (...) AS rank"
                    )
                name = each.alias
        return name

    def _with_rank(self, names: list[str]) -> list[str]:
        """Returns the names of the columns with that of the rank, where the SELECT has it."""
        places = [each.find(exp.Window) is not None for each in self.query.expressions]
        if True not in places:
            return [*names, self.name]
        before = places.index(True)
        behind = self.query.expressions[before + 1 :]
        if any(each.is_star for each in behind):
            if any(each.is_star for each in self.query.expressions[:before]):
                raise self.steps.error(self.window, "ROW_NUMBER() is between two stars; write it first or last")
            return [*names[:before], self.name, *names[before:]]
        at = len(names) - len(behind)
        return [*names[:at], self.name, *names[at:]]

    def _shown(self) -> list[exp.Expr]:
        return [each for each in self.query.expressions if each.find(exp.Window) is None]

    def _column(self, expression: exp.Expr, name: str) -> str:
        """Returns the column in which the SELECT has an expression; adds it if there is none."""
        shown = self._shown()
        for each in shown:
            if isinstance(each, exp.Alias | exp.Column) and sql_text(each.unalias()) == sql_text(expression):
                return str(each.alias_or_name)
        if isinstance(expression, exp.Column) and any(_has_all(each, expression.table) for each in shown):
            return str(expression.name)
        self.hidden[name] = expression
        return name

    def _found(self, name: str, rows: Relation, place: exp.Expr) -> str:
        found = spelled(name, rows.columns)
        if found is None:
            raise self.steps.error(place, no_column(name, rows.columns))
        return found


def _has_all(projection: exp.Expr, table: str) -> bool:
    """Returns whether a part of a SELECT is all columns, or all of a table."""
    return isinstance(projection, exp.Star) or (
        isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star) and projection.table == table
    )


def limited(steps: Steps, relation: Relation, condition: exp.Expr | None, *, inner: bool = False) -> Relation:
    """Returns the rows for which a condition holds. Rows that are to be ranked need one that limits the rank."""
    if relation.ranking is None:
        return relation if condition is None else steps.where(relation, condition)
    rank = sql_text(column_named(relation.ranking.name))
    conditions = [] if condition is None else list(conjuncts(condition))
    limits = [_limit(each, rank) for each in conditions]
    found = [limit for limit in limits if limit is not None]
    if not found:
        name = relation.ranking.name
        limit = "QUALIFY ROW_NUMBER() OVER (...) <= 10" if name == _RANK else f"WHERE {name} <= 10"
        raise steps.error(
            relation.ranking.place, f"a stream has rows without end, and a rank is of the first; write {limit}"
        )
    n = min(limit for limit, _ in found)
    relation = steps.first_rows(relation, n, inner=inner)
    rest = [each for each, limit in zip(conditions, limits, strict=True) if limit is None or not limit[1]]
    return steps.where(relation, exp.and_(*rest)) if rest else relation


def _limit(condition: exp.Expr, rank: str) -> tuple[int, bool] | None:
    """Returns the greatest rank that a condition allows, and whether it says no more; None if it sets no limit."""
    match condition:
        case exp.Paren():
            return _limit(condition.this, rank)
        case exp.LTE() | exp.LT() | exp.EQ():
            column, limit = condition.this, condition.expression
        case exp.GTE() | exp.GT():
            column, limit = condition.expression, condition.this
        case exp.Between():
            column, limit = condition.this, condition.args["high"]
        case _:
            return None
    if sql_text(column) != rank or not isinstance(limit, exp.Literal) or limit.is_string or not limit.name.isdigit():
        return None
    n = int(limit.name) - isinstance(condition, exp.LT | exp.GT)
    return n, isinstance(condition, exp.LTE | exp.LT | exp.GTE | exp.GT) or (isinstance(condition, exp.EQ) and n == 1)
