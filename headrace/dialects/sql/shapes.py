"""Shapes: queries that differ in the constants of their WHERE only are rows of one table, matched in one step.

A parameter is a column of the stream that a condition, joined to the others by AND, compares with constants of its own
type: text with =, IN; whole numbers and doubles also with <, <=, >, >=, BETWEEN. Other conditions are part of a shape.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from headrace.dialects.sql.conditions import conjuncts
from headrace.dialects.sql.grammar import WindowTable
from headrace.dialects.sql.relations import COMPARED, NUMBER, spelled
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream
from headrace.model.matching import GREATEST, LEAST, Constants, Parameter, range_of, sort_key

_INTEGERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_OPERATORS: Final = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_FLIPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNSHARED: Final = ("with_", "joins", "distinct", "laterals", "windows", "qualify", "order", "limit", "offset")


@dataclass(frozen=True)
class Shape:
    """A query without its parameters, and the constants that it has for these. The name is the same for one shape."""

    name: str
    query: exp.Select
    parameters: tuple[Parameter, ...]
    constants: Constants


@dataclass(frozen=True)
class _Comparison:
    """A condition on a column: an operator, and constants of its type."""

    column: str
    operator: str
    constants: tuple[Any, ...]


def shape_of(statement: CreateQuery, streams: Mapping[str, CreateStream]) -> Shape | None:
    """Returns the shape of a view; None if it has none, since it has no parameters or is more than a plain SELECT."""
    query = statement.query
    if not isinstance(query, exp.Select) or statement.kind != "view" or statement.options:
        return None
    nested = len(list(query.find_all(exp.Select))) > 1 or query.find(exp.Window) is not None
    if nested or any(query.args.get(part) for part in _UNSHARED) or query.args.get("where") is None:
        return None
    stream, names = _stream_of(query, streams)
    if stream is None or any(map(_is_reserved, (*stream.columns, *query.named_selects))):
        return None
    comparisons: list[_Comparison] = []
    rest: list[exp.Expr] = []
    for condition in conjuncts(query.args["where"].this):
        found = _comparison(condition, stream.columns, names)
        if found is None:
            rest.append(condition)
        else:
            comparisons.append(found)
    if not comparisons:
        return None
    plain = query.copy()
    plain.set("where", exp.Where(this=exp.and_(*rest, copy=True)) if rest else None)
    for node in plain.walk():
        node.comments = None
    parameters, constants = _parameters(comparisons)
    digest = hashlib.blake2b(f"{plain!r} {parameters}".encode(), digest_size=8).hexdigest()
    return Shape(f"_queries_{digest}", plain, parameters, constants)


def _is_reserved(name: str) -> bool:
    return name.lower().startswith((NUMBER, COMPARED))


def _stream_of(query: exp.Select, streams: Mapping[str, CreateStream]) -> tuple[CreateStream | None, tuple[str, ...]]:
    """Returns the stream that a query reads, perhaps in windows, and the qualifiers of its columns."""
    source = query.args["from_"].this if query.args.get("from_") is not None else None
    if not isinstance(source, exp.Table):
        return None, ()
    table = source.this.this if isinstance(source.this, WindowTable) else source
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or source.args.get("db"):
        return None, ()
    if any(alias.args.get("columns") for alias in query.find_all(exp.TableAlias)):
        return None, ()
    name = spelled(table.name, streams)
    return None if name is None else streams[name], ("", source.alias or table.alias_or_name)


def _comparison(node: exp.Expr, columns: Mapping[str, str], qualifiers: Sequence[str]) -> _Comparison | None:
    """Returns a condition as a comparison of a column with constants; None if it is none."""
    match node:
        case exp.Between() if not node.args.get("symmetric"):
            operator, column, others = "between", node.this, [node.args["low"], node.args["high"]]
        case exp.In() if node.expressions:
            operator, column, others = "=", node.this, node.expressions
        case exp.Binary() if type(node) in _OPERATORS:
            operator, column, others = _OPERATORS[type(node)], node.this, [node.expression]
            if not isinstance(column, exp.Column):
                operator, column, others = _FLIPPED[operator], node.expression, [node.this]
        case _:
            return None
    if not isinstance(column, exp.Column) or len(column.parts) > 2 or column.table not in qualifiers:
        return None
    name = spelled(column.name, columns)
    if name is None or (columns[name] == "STRING" and operator != "="):
        return None
    constants = [_constant(each, columns[name]) for each in others]
    return None if None in constants else _Comparison(name, operator, tuple(constants))


def _constant(node: exp.Expr, kind: str) -> str | int | float | None:
    """Returns a constant as a value of a column's type; None if it is not one that Spark compares as such."""
    node = node.unnest()
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = node.this, -1
    if not isinstance(node, exp.Literal):
        return None
    if kind == "STRING" or node.is_string:
        return node.name if kind == "STRING" and node.is_string and sign == 1 else None
    if kind in _INTEGERS:
        return sign * int(node.name) if node.name.isdecimal() and int(node.name) <= GREATEST else None
    if kind != "DOUBLE":
        return None
    try:
        number = sign * float(node.name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parameters(comparisons: Sequence[_Comparison]) -> tuple[tuple[Parameter, ...], Constants]:
    """Returns the parameters in their order, and the constants of each: what all comparisons of a column leave."""
    found: dict[tuple[str, str], list[Any]] = {}
    for each in comparisons:
        if each.operator == "=":
            values = [value if isinstance(value, str) else sort_key(value) for value in each.constants]
            known = found.get((each.column, "in"), values)
            found[each.column, "in"] = [value for value in known if value in values]
        else:
            low, high = found.get((each.column, "range"), [LEAST, GREATEST])
            operators = (">=", "<=") if each.operator == "between" else (each.operator,)
            for operator, number in zip(operators, each.constants, strict=True):
                least, greatest = range_of(operator, number)
                low, high = max(low, least), min(high, greatest)
            found[each.column, "range"] = [low, high]
    parameters = {Parameter(column, "in" if kind == "in" else "range"): it for (column, kind), it in found.items()}
    ordered = sorted(parameters, key=lambda each: (each.column, each.kind))
    return tuple(ordered), tuple(parameters[each] for each in ordered)
