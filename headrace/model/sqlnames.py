"""Finds the columns that SQL expressions read, and the names that they give to their results, without Spark."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlglot import Expr


def columns_read(expression: Any) -> tuple[str, ...]:
    """Returns the columns that an expression names, as far as they can be found: none in what is no text, or no SQL.

    >>> columns_read("upper(city) || `odd.name`"), columns_read("transform(tags, tag -> tag || user.id)")
    (('city', 'odd.name'), ('tags', 'user'))
    >>> columns_read("price <")
    ()
    """
    from sqlglot import exp

    parsed = _parsed(expression) if isinstance(expression, str) else None
    if parsed is None or parsed.find(exp.Query) is not None:
        return ()
    return tuple(dict.fromkeys(column.parts[0].name for column in parsed.find_all(exp.Column, bfs=False)))


def column_of(expression: Any) -> str | None:
    """Returns the column that an expression is, perhaps under another name; None if it is something else.

    >>> column_of("city"), column_of("city AS town"), column_of("n + 1"), column_of("address.city")
    ('city', 'city', None, None)
    """
    from sqlglot import exp

    parsed = _parsed(expression) if isinstance(expression, str) else None
    column = parsed.unalias() if parsed is not None else None
    return column.name if isinstance(column, exp.Column) and len(column.parts) == 1 else None


def result_name(expression: Any) -> str | None:
    """Returns the name of an expression's result; None if Spark makes one up.

    >>> result_name("city"), result_name("city AS town"), result_name("address.city"), result_name("n + 1")
    ('city', 'town', 'city', None)
    """
    from sqlglot import exp

    parsed = _parsed(expression) if isinstance(expression, str) else None
    return parsed.alias_or_name if isinstance(parsed, exp.Column | exp.Alias) else None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Expr | None:
    """Parses one expression of Spark's SQL; None for what sqlglot cannot read, which Spark may."""
    import sqlglot  # here, since only pipelines with expressions need it

    try:
        select = sqlglot.parse_one(f"SELECT {text}", dialect="spark")
    except sqlglot.errors.SqlglotError:
        return None
    if not isinstance(select, sqlglot.exp.Select):
        return None
    parts = [name for name, part in select.args.items() if part]
    return select.selects[0] if parts == ["expressions"] and len(select.selects) == 1 else None
