"""GROUP BY: computes keys and inputs, groups, and computes the projections from the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from headrace.dialects.sql.aggregates import AggregateCall, aggregate_call, is_aggregate
from headrace.dialects.sql.combining import Combinations
from headrace.dialects.sql.relations import (
    NUMBER,
    MatchedQueries,
    Relation,
    Scope,
    column_named,
    is_bound,
    is_column,
    sql_text,
)
from headrace.dialects.sql.steps import Steps
from headrace.model.agg import Aggregation


class Grouping:
    """Plans one GROUP BY: computes keys and inputs, groups, and computes the projections from the results."""

    def __init__(
        self,
        steps: Steps,
        query: exp.Select,
        scope: Scope,
        relation: Relation,
        projections: Mapping[str, exp.Expr],
        *,
        inner: bool,
    ) -> None:
        self.steps, self.query, self.scope, self.relation = steps, query, scope, relation
        self.projections, self.inner = projections, inner
        self.inputs: dict[str, exp.Expr] = {}  # the columns that are needed for keys and aggregations
        self.keys: dict[str, str] = {}  # of each key's expression, the name of its column
        self.bounds: dict[str, exp.Expr] = {}
        self.aggregations: dict[str, Aggregation] = {}
        self.results: dict[str, exp.Expr] = {}  # of each call of an aggregate function, its value

    def planned(self) -> Relation:
        """Plans it."""
        for expression in self._group_expressions():
            self._add_key(expression)
        queries = self._queries()
        numbers = [] if queries is None else [NUMBER]
        having = self.query.args.get("having")
        outputs = {name: column_named(name) for name in numbers}
        outputs |= {name: self._output(each, name) for name, each in self.projections.items()}
        condition = None if having is None else self._output(self._with_projections(having.this), None)
        combinations = Combinations(self._combined_aggregate)
        if self.steps.combines and not self.inner and not self.relation.retracts:
            for name, each in self.projections.items():
                combinations.add(name, each, self.steps.text)
        outputs |= combinations.hidden
        ready = self.steps.select(self.relation, self.inputs, None, None) if self._computes() else self.relation
        shown = {sql_text(each) for each in outputs.values()}
        # One bound of a window is as good as both.
        bounds = [name for name, each in self.bounds.items() if sql_text(each) in shown] or list(self.bounds)
        identity = (
            *numbers,
            *self.keys.values(),
            *bounds,
        ) or None  # of all rows as one group, no column says which it is
        identifying = [*map(column_named, self.keys.values()), *(self.bounds[each] for each in bounds)]
        identified = identity is not None and all(sql_text(each) in shown for each in identifying)
        relation = self.steps.group(
            replace(ready, queries=queries),
            list(self.keys.values()),
            self.aggregations,
            windowed=bool(self.bounds),
            inner=self.inner or having is not None or not identified,
            place=self.query,
        )
        relation = replace(relation, columns={**relation.columns, **self.bounds}, key=identity)
        if condition is not None:
            relation = self.steps.where(relation, condition)
        key = self.steps.key_in(relation, outputs)
        if all(is_column(each) or is_bound(each) for each in outputs.values()):
            relation = replace(relation, columns=outputs, key=key)
        else:
            relation = self.steps.select(relation, outputs, key, None)
        return replace(relation, combinations=combinations.texts, hidden=tuple(combinations.hidden))

    def _combined_aggregate(self, call: AggregateCall, aggregation: Aggregation | None) -> exp.Expr:
        """Adds an aggregation that a combination needs; without one, the call's own, which may be there already."""
        columns = [self._column(self.scope.resolve(each), "_value") for each in call.inputs]
        made = call.make(*columns)
        if aggregation is not None:
            made = replace(aggregation, column=made.column, by=made.by)
        name = next((each for each, known in self.aggregations.items() if known == made), None)
        if name is None:
            name = self._free("_accumulator" if aggregation is not None else "_result", self.aggregations)
            self.aggregations[name] = made
        return column_named(name)

    def _queries(self) -> MatchedQueries | None:
        """Returns the queries to match, with the names that the columns they compare have before rows are grouped."""
        queries = self.relation.queries
        if queries is None:
            return None
        columns = [self._column(self.relation.columns[each.column], each.column) for each in queries.parameters]
        named = zip(queries.parameters, columns, strict=True)
        return replace(queries, parameters=tuple(replace(each, column=column) for each, column in named))

    def _computes(self) -> bool:
        """Returns whether something has to be computed before rows are grouped."""
        return any(not is_column(each) or each.name != name for name, each in self.inputs.items()) or not self.inputs

    def _group_expressions(self) -> list[exp.Expr]:
        group = self.query.args.get("group")
        if group is None:
            return []
        if (several := group.find(exp.Rollup, exp.Cube, exp.GroupingSets)) is not None:
            what = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(several), "GROUPING SETS")
            raise self.steps.error(several, f"{what} is not supported; make a view for each set of keys")
        if group.args.get("all"):
            return [each for each in self.projections.values() if not any(map(is_aggregate, each.walk()))]
        names = list(self.projections)
        found = []
        for each in group.expressions:
            if isinstance(each, exp.Literal) and not each.is_string:
                position = int(each.name)
                if not 1 <= position <= len(names):
                    raise self.steps.error(each, f"GROUP BY {position}: there are {len(names)} columns")
                each = self.projections[names[position - 1]]
            elif isinstance(each, exp.Column) and not each.table and not self.scope.has(each.name):
                each = self.projections.get(each.name, each)  # a name that the SELECT gives
            found.append(each)
        return found

    def _add_key(self, expression: exp.Expr) -> None:
        self.steps.refuse_aggregates(expression, "GROUP BY", "HAVING")
        resolved = self.scope.resolve(expression)
        if is_bound(resolved):
            name = next((each for each, it in self.projections.items() if self._same(it, resolved)), None)
            self.bounds[name or f"_{sql_text(resolved)[-7:-1].strip('_')}"] = resolved
            return
        text = sql_text(resolved)
        if text not in self.keys:
            name = next((each for each, it in self.projections.items() if self._same(it, resolved)), None)
            self.keys[text] = self._column(resolved, name or (resolved.name if is_column(resolved) else "_key"))

    def _same(self, projection: exp.Expr, resolved: exp.Expr) -> bool:
        if any(map(is_aggregate, projection.walk())):
            return False
        return sql_text(self.scope.resolve(projection)) == sql_text(resolved)

    def _output(self, expression: exp.Expr, name: str | None) -> exp.Expr:
        """Returns an expression over keys and aggregates."""
        copied = exp.Paren(this=expression.copy())
        for node in list(copied.walk(prune=is_aggregate)):
            if is_aggregate(node) and not isinstance(node.parent, exp.Filter):
                node.replace(self._aggregate(node, name if node.parent is copied else None))
        return self._over_keys(copied.this, expression)

    def _with_projections(self, condition: exp.Expr) -> exp.Expr:
        """Returns a condition with the names that the SELECT gives replaced by what they stand for."""
        copied = exp.Paren(this=condition.copy())
        for column in list(copied.find_all(exp.Column)):
            if not column.table and not self.scope.has(column.name) and column.name in self.projections:
                column.replace(exp.Paren(this=self.projections[column.name].copy()))
        replaced: exp.Expr = copied.this
        return replaced

    def _over_keys(self, node: exp.Expr, whole: exp.Expr) -> exp.Expr:
        """Replaces keys in an expression by their columns; refuses columns that are not grouped by."""
        if node.meta.get("result"):
            return node
        if not any(each.meta.get("result") for each in node.walk()):
            resolved = self.scope.resolve(node)
            if sql_text(resolved) in self.keys:
                return column_named(self.keys[sql_text(resolved)])
            if is_bound(resolved):
                if any(sql_text(each) == sql_text(resolved) for each in self.bounds.values()):
                    return resolved
                raise self.steps.error(whole, f"{node.name} must be in GROUP BY")
            if isinstance(node, exp.Column):
                raise self.steps.error(
                    node, f"the column {node.name!r} is neither in GROUP BY nor in an aggregate function"
                )
        for name, part in list(node.args.items()):
            if isinstance(part, exp.Expr):
                node.set(name, self._over_keys(part, whole))
            elif isinstance(part, list):
                node.set(name, [self._over_keys(each, whole) if isinstance(each, exp.Expr) else each for each in part])
        return node

    def _aggregate(self, node: exp.Expr, name: str | None) -> exp.Expr:
        """Returns the value of an aggregate function as an expression over the results of the grouping."""
        text = sql_text(self.scope.resolve(node))
        if text not in self.results:
            call = aggregate_call(node, self.steps.text)
            columns = [self._column(self.scope.resolve(each), "_value") for each in call.inputs]
            plain = call.result(column_named("x")) == column_named("x")
            result = self._free(name if plain and name is not None else "_result", self.aggregations)
            self.aggregations[result] = call.make(*columns)
            column = column_named(result)
            value = call.result(column)
            value.meta["result"] = True
            self.results[text] = value
        return self.results[text].copy()

    def _column(self, expression: exp.Expr, name: str) -> str:
        """Returns the name of the column in which an expression is computed before rows are grouped."""
        for known, each in self.inputs.items():
            if sql_text(each) == sql_text(expression):
                return known
        name = expression.name if is_column(expression) and name == "_value" else name
        free = self._free(name, self.inputs)
        self.inputs[free] = expression
        return free

    def _free(self, name: str, taken: Mapping[str, Any]) -> str:
        used = {each.lower() for each in (*taken, *self.inputs, *self.aggregations)}
        if name.lower() not in used:
            return name
        return next(each for number in range(len(used) + 1) if (each := f"{name}{number + 1}").lower() not in used)
