"""Rules for statements that come over the network: they reach what statements made, and nothing else.

No file, no other system, no function but those that depend on nothing but their arguments and those that whoever runs
the session has registered. A file of statements and a
shell on the machine itself are not held to them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlglot import exp

from headrace.dialects.sql import aggregates
from headrace.dialects.sql import sqlstatements as sql
from headrace.dialects.sql.catalog import Catalog
from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.sqlerrors import SqlError, error_at
from headrace.views.sparksql.sparkfunctions import FUNCTIONS

_STATEMENTS: Final = (
    *(sql.CreateStream, sql.CreateQuery, sql.Drop, sql.Show, sql.Describe, sql.Insert, sql.Select, sql.Explain),
    sql.SetRunning,
)
# Those of Spark that depend on nothing but their arguments, ours, and what the parser has classes for.
_FUNCTIONS: Final = FUNCTIONS | aggregates.NAMES | {"tumble", "hop", "session", "descriptor", "output_of", "try_cast"}


def check_from_network(statement: sql.Statement, catalog: Catalog, registered: Collection[str] = ()) -> None:
    """Refuses a statement that reaches beyond the streams and views of a catalog, and the registered functions."""
    if not isinstance(statement, _STATEMENTS):
        words = " ".join(statement.text.split()[:2]).upper()
        position = len(statement.text) - len(statement.text.lstrip())
        reason = f"{words:.40} ... is not for statements over the network; use `headrace sql`, or a file, where it runs"
        raise SqlError(reason, statement.text, position)
    if isinstance(statement, sql.CreateStream | sql.CreateQuery):
        for name, value in statement.options.items():
            if "://" in str(value):
                raise SqlError(
                    f"the {name} {value!r} is of another system, which no statement over the network may name; create "
                    f"{statement.name} in the file that `headrace up` runs, or with `headrace sql`"
                )
    if isinstance(statement, sql.CreateQuery | sql.Explain):
        _check_tables(statement.query, statement.text, catalog)
        _check_functions(statement.query, statement.text, _FUNCTIONS.union(registered))


def _check_tables(query: exp.Query, text: str, catalog: Catalog) -> None:
    """Refuses tables that are neither streams nor views."""
    known = {*catalog.streams, *catalog.tables, *catalog.views, *(each.alias for each in query.find_all(exp.CTE))}
    for table in query.find_all(exp.Table):
        if table.args.get("db") is not None or (isinstance(table.this, exp.Identifier) and table.name not in known):
            raise error_at(
                table,
                text,
                f"{table.sql(dialect=ContinuousSql)} is no stream or view of this session, and no other"
                " tables are read for statements over the network",
            )


def _check_functions(query: exp.Query, text: str, allowed: Collection[str]) -> None:
    """Refuses functions that may do more than compute."""
    for node in query.find_all(exp.Func):
        names = {node.name} if isinstance(node, exp.Anonymous) else set(node.sql_names())
        if not {name.lower() for name in names} & set(allowed):
            raise error_at(
                node, text, f"the function {min(names).lower()} is not allowed in statements over the network"
            )
