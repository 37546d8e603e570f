"""JOIN: of streams in the same windows, over all time, near in time or as of a time, and of a stream with a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from headrace.dialects.sql.conditions import conjuncts
from headrace.dialects.sql.intervals import interval_of
from headrace.dialects.sql.relations import Relation, Scope, column_named, is_bound, sql_text
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.steps import Steps
from headrace.model.columnjoins import AsOfJoin, How, Join, Within
from headrace.model.errors import PipelineError

_HOW: Final[dict[str, How]] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "outer"}
_COMPARED: Final = "_join{}"


@dataclass
class Joining:
    """Plans one JOIN: of what the scope has so far, with another relation, which `name` qualifies."""

    steps: Steps
    scope: Scope
    left: Relation
    join: exp.Join
    name: str
    right: Relation

    def planned(self) -> tuple[Scope, Relation]:
        """Returns the scope with the columns of both, and the joined rows."""
        how = self._how()
        if self.name in self.scope.tables:
            raise self.steps.error(self.join.this, f"two tables are called {self.name!r}; name one of them with AS")
        other = Scope(self.steps.text, {self.name: self.right.columns})
        pairs, rest = self._conditions(other)
        if not pairs:
            raise self.steps.error(self.join, "a JOIN compares a column of each side for being equal; add ON a.x = b.y")
        as_of = self._as_of()
        bounds, rest = (None, rest) if as_of else self._within(other, rest)
        if rest and how != "inner":
            raise self.steps.error(
                rest[0], "a LEFT, RIGHT or FULL JOIN takes conditions of the form a.x = b.y; filter before it"
            )
        left = {name: column_named(name) for name in self.left.stored}
        for number, (expression, _) in enumerate(pairs):
            left[_COMPARED.format(number)] = expression
        names = self._free_names(left)
        right = {names[name]: each for name, each in self.right.columns.items() if not is_bound(each)}
        keys = {_COMPARED.format(number): f"_other{number}" for number in range(len(pairs))}
        right |= {f"_other{number}": expression for number, (_, expression) in enumerate(pairs)}
        ready = self.steps.in_windows(self.steps.select(self.left, left, None, None))
        others = self.steps.in_windows(self.steps.select(self.right, right, None, None))
        table = others.collection
        both_streamed = as_of or bounds is not None or not table.bounded
        if both_streamed and not (ready.collection.bounded and table.bounded):
            self._refuse_changes()
        try:
            transform = (
                AsOfJoin(table, on=keys, how="left" if how == "left" else "inner")
                if as_of
                else Join(table, on=keys, how=how, within=bounds, stream=not table.bounded)
            )
            transform.check(ready.collection, table)
            times = "as of its time" if as_of else f"within {bounds}"
            signature = f"{how} join with {table.label} on {keys} {times}"
            collection = self.steps.shared.apply(transform, signature, ready.collection)
        except PipelineError as error:
            raise self.steps.error(self.join, str(error)) from None
        columns = {
            name: each if is_bound(each) else column_named(names[name]) for name, each in self.right.columns.items()
        }
        stored = (*left, *(name for name in right if not name.startswith("_other")))
        scope = Scope(self.steps.text, {**self.scope.tables, self.name: columns})
        relation = Relation(collection, {}, stored, None, self.left.time, retracts=self.left.retracts)
        if rest:
            relation = self.steps.where(relation, scope.resolve(exp.and_(*rest)))
        return scope, relation

    def _how(self) -> How:
        join, error = self.join, self.steps.error
        if join.args.get("method") or join.kind in ("SEMI", "ANTI", "CROSS"):
            word = join.args.get("method") or join.kind
            raise error(join.this, f"{word} JOIN is not supported; write JOIN ... ON a.x = b.y")
        how = _HOW[join.side]
        if join.this.args.get("version") is not None and how not in ("inner", "left"):
            raise error(join.this, f"a {join.side} JOIN has no FOR SYSTEM_TIME AS OF; write JOIN or LEFT JOIN")
        return how

    def _as_of(self) -> bool:
        """Returns whether each row is joined with the version that was valid at its time."""
        version, error = self.join.this.args.get("version"), self.steps.error
        if version is None:
            return False
        named = version.expression
        if version.args["kind"] != "AS OF" or not isinstance(named, exp.Column):
            raise error(self.join.this, "it is JOIN name FOR SYSTEM_TIME AS OF a.at AS b ON a.x = b.y")
        resolved = self.scope.resolve(named)
        if self.left.time is None:
            self.left = self.steps.with_times(self.left, resolved.name)
        elif sql_text(resolved) != sql_text(self.left.time_column):
            raise error(
                named, f"rows are joined as of their event time, which is {self.left.time!r}; got {named.name!r}"
            )
        if self.right.time is None:
            raise error(self.join.this, f"{self.name!r} has no event time, from which on a row is valid; give it one")
        return True

    def _refuse_changes(self) -> None:
        """Refuses rows that may be taken back: a join of streams would have to find what it made of them."""
        for relation in (self.left, self.right):
            if relation.retracts:
                raise self.steps.error(
                    self.join,
                    "a JOIN of streams takes rows that stay, and results of groups change; join first and group then, "
                    "or add EMIT AFTER WATERMARK to groups in windows",
                )

    def _conditions(self, other: Scope) -> tuple[list[tuple[exp.Expr, exp.Expr]], list[exp.Expr]]:
        """Returns the pairs of expressions that must be equal, of the left and of the right, and other conditions."""
        pairs: list[tuple[exp.Expr, exp.Expr]] = []
        rest = []
        for each in self.join.args.get("using") or ():
            column = exp.column(each.copy())
            pairs.append((self.scope.resolve(column), other.resolve(column)))
        on = self.join.args.get("on")
        for condition in () if on is None else conjuncts(on):
            pair = self._pair(condition, other) if isinstance(condition, exp.EQ) else None
            if pair is None:
                rest.append(condition)
            elif not all(map(is_bound, pair)):
                pairs.append(pair)
            elif sql_text(pair[0]) != sql_text(pair[1]):
                raise self.steps.error(condition, "windows join by the same bound of both: window_start, window_end")
        return pairs, rest

    def _pair(self, condition: exp.EQ, other: Scope) -> tuple[exp.Expr, exp.Expr] | None:
        """Returns the two sides of an equation, that of the left first; None if they are not of the two sides."""
        for one, two in ((condition.this, condition.expression), (condition.expression, condition.this)):
            try:
                return self.scope.resolve(one), other.resolve(two)
            except SqlError:
                continue
        Scope(self.steps.text, {**self.scope.tables, **other.tables}).resolve(condition)  # are all names known?
        return None

    def _within(self, other: Scope, conditions: list[exp.Expr]) -> tuple[Within | None, list[exp.Expr]]:
        """Returns how far apart the times of two rows may be, in seconds, if conditions say so; and the rest."""
        lower: list[int] = []
        upper: list[int] = []
        rest = []
        for condition in conditions:
            low, high = self._time_bounds(condition, other)
            lower, upper = lower + low, upper + high
            if not low and not high:
                rest.append(condition)
        if not lower and not upper:
            return None, conditions
        if not lower or not upper:
            raise self.steps.error(
                self.join,
                "the times of two rows need a bound on either side; write b.at BETWEEN a.at AND a.at + INTERVAL ...",
            )
        return (max(lower) / 1_000_000, min(upper) / 1_000_000), rest

    def _time_bounds(self, condition: exp.Expr, other: Scope) -> tuple[list[int], list[int]]:
        """Returns what a condition says about the right time minus the left: at least and at most so much."""
        if isinstance(condition, exp.Paren):
            return self._time_bounds(condition.this, other)
        if isinstance(condition, exp.Between):
            pairs = [(condition.this, condition.args["low"], 0), (condition.args["high"], condition.this, 0)]
        elif isinstance(condition, exp.GTE | exp.GT):
            pairs = [(condition.this, condition.expression, int(isinstance(condition, exp.GT)))]
        elif isinstance(condition, exp.LTE | exp.LT):
            pairs = [(condition.expression, condition.this, int(isinstance(condition, exp.LT)))]
        else:
            return [], []
        lower, upper = [], []
        for greater, less, strict in pairs:
            one, two = self._time(greater, other), self._time(less, other)
            if one is None or two is None or one[0] == two[0]:
                return [], []
            if one[0] == "right":
                lower.append(two[1] - one[1] + strict)
            else:
                upper.append(one[1] - two[1] - strict)
        return lower, upper

    def _time(self, node: exp.Expr, other: Scope) -> tuple[str, int] | None:
        """Returns whose event time an expression is, and what is added to it, in microseconds; None if it is none."""
        if isinstance(node, exp.Paren):
            return self._time(node.this, other)
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            found = self._time(node.this, other)
            by = interval_of(node.expression, self.steps.text)
            return None if found is None else (found[0], found[1] + (by if isinstance(node, exp.Add) else -by))
        if isinstance(node, exp.Column):
            for side, scope, relation in (("left", self.scope, self.left), ("right", other, self.right)):
                try:
                    resolved = scope.resolve(node)
                except SqlError:
                    continue
                if relation.time is not None and sql_text(resolved) == sql_text(relation.time_column):
                    return side, 0
        return None

    def _free_names(self, taken: Mapping[str, exp.Expr]) -> dict[str, str]:
        """Returns names for the columns of the right that the left does not have."""
        used = {name.lower() for name in taken}
        names = {}
        for name in self.right.columns:
            free = name
            while free.lower() in used:
                free = f"{self.name}_{free}"
            used.add(free.lower())
            names[name] = free
        return names
