"""Finds in a SELECT what its database can answer by itself: rows of a view with given values of columns.

Reading only the rows that `WHERE column = constant AND ...` leaves is right whatever else the statement asks for, since
nothing of it sees other rows; and a statement that asks for nothing else needs no engine. Statements in which DuckDB
might read something else than our parser, such as strings with escapes, are left to DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from headrace.dialects.sql.conditions import conjuncts
from headrace.dialects.sql.sqlstatements import Select

# What Spark's SQL and DuckDB's read differently: escapes, strings in double quotes, and comments.
AMBIGUOUS: Final = re.compile("[\\\\\"`\0#$]|''|--|/\\*")
"""What a statement does not have that is answered without DuckDB."""

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00(:00)?)")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_DIGITS: Final = re.compile("[0-9]{1,18}")
_PLAIN: Final = frozenset({"expressions", "from_", "where", "limit"})


@dataclass(frozen=True)
class PointRead:
    """The rows of a view with these values. If a statement asks for no more than columns of them, `columns` are these,
    each with the name that it has in the result, and `limit` the number of rows."""

    view: str
    equal: dict[str, Any]
    columns: tuple[tuple[str, str], ...] | None
    limit: int | None


def table_names(query: exp.Query) -> list[str]:
    """Returns the names of the tables that a query reads, each as often as it does."""
    common = {each.alias for each in query.find_all(exp.CTE)}
    tables = [table for table in query.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    return [table.name for table in tables if table.name not in common]


def point_read(statement: Select, schema_of: Callable[[str], pa.Schema]) -> PointRead | None:
    """Returns the rows that a statement reads; None if it has no condition that a database answers for it."""
    query = statement.query
    if not isinstance(query, exp.Select) or AMBIGUOUS.search(statement.text):
        return None
    source, where = query.args.get("from_"), query.args.get("where")
    if source is None or where is None or not isinstance(source.this, exp.Table):
        return None
    table = source.this
    others = {name for name, value in table.args.items() if value and name not in ("this", "alias")}
    if others or table_names(query) != [table.name] or query.find(exp.CTE, exp.Subquery, exp.Lateral):
        return None
    alias = table.args.get("alias")
    if query.args.get("joins") or query.args.get("laterals") or (alias is not None and alias.args.get("columns")):
        return None
    schema, known = schema_of(table.name), {table.alias_or_name.lower()}
    equal: dict[str, Any] = {}
    rest = False
    for condition in conjuncts(where.this):
        found = _equality(condition, schema, known)
        if found is None or found[0] in equal:
            rest = True
        else:
            equal[found[0]] = found[1]
    aliases = {each.alias.lower() for each in query.expressions if each.alias}
    if not equal or aliases & {name.lower() for name in equal}:  # of which it might mean the other
        return None
    simple = not rest and not {name for name, value in query.args.items() if value} - _PLAIN
    columns = _columns(query, schema, known) if simple else None
    limit = query.args.get("limit")
    if limit is not None and not (isinstance(limit.expression, exp.Literal) and limit.expression.this.isdigit()):
        columns = None
    return PointRead(
        table.name, equal, columns, None if limit is None or columns is None else int(limit.expression.this)
    )


def _equality(condition: exp.Expr, schema: pa.Schema, known: set[str]) -> tuple[str, Any] | None:
    """Returns the column and the value of a condition that says no more than that they are equal."""
    if type(condition) is not exp.EQ:
        return None
    column, literal = condition.this, condition.expression
    if isinstance(column, exp.Literal | exp.Boolean | exp.Neg):
        column, literal = literal, column
    name = _column(column, schema, known)
    if name is None:
        return None
    value = _value(literal, schema.field(name).type)
    return None if value is None else (name, value)


def _column(node: exp.Expr, schema: pa.Schema, known: set[str]) -> str | None:
    """Returns the column of the view that is meant; names are the same in any case."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if node.args.get("db") or (node.table and node.table.lower() not in known):
        return None
    found = [name for name in schema.names if name.lower() == node.name.lower()]
    return found[0] if len(found) == 1 else None


def _value(node: exp.Expr, kind: pa.DataType) -> Any:
    """Returns a constant as a value of a column; None if it is of another type, or one that databases may round."""
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if isinstance(node, exp.Boolean):
        return node.this if pa.types.is_boolean(kind) else None
    if not isinstance(literal, exp.Literal):
        return None
    text = str(literal.this)
    if not literal.is_string:
        whole = _whole(literal) if pa.types.is_integer(kind) else None
        return -whole if negative and whole is not None else whole
    if negative:
        return None
    if pa.types.is_string(kind):
        return text
    try:
        if pa.types.is_timestamp(kind) and kind.tz is not None and _INSTANT.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
        return date.fromisoformat(text) if pa.types.is_date(kind) and _DAY.fullmatch(text) else None
    except ValueError:  # no such day, which DuckDB says better
        return None


def _whole(node: exp.Expr) -> int | None:
    """Returns a constant that is a whole number, as databases have them."""
    if not isinstance(node, exp.Literal) or node.is_string or not _DIGITS.fullmatch(str(node.this)):
        return None
    return int(node.this)


def _columns(query: exp.Select, schema: pa.Schema, known: set[str]) -> tuple[tuple[str, str], ...] | None:
    """Returns the columns of the result, if they are columns of the view."""
    found: list[tuple[str, str]] = []
    for each in query.expressions:
        if isinstance(each, exp.Star) and not any(each.args.values()):
            found += [(name, name) for name in schema.names]
            continue
        column = each.unalias()
        if _column(column, schema, known) != column.name:
            return None
        found.append((column.name, each.alias or column.name))
    return tuple(found) if len({name for _, name in found}) == len(found) else None
