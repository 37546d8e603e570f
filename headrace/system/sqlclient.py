"""A client of continuous SQL: executes statements in a system that runs, over HTTP."""

from __future__ import annotations

from itertools import starmap
from typing import Any, BinaryIO

import pyarrow as pa

from headrace.dialects.sql.sqlsession import Result
from headrace.dialects.sql.sqlstatements import Statement, Subscribe, parse_statements
from headrace.dialects.sql.viewchanges import Change
from headrace.system.client import HttpClient


class SqlClient:
    """Executes statements as a session does."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def execute(self, text: str) -> list[Result]:
        """Executes statements, one after the other."""
        return [self.run(statement) for statement in parse_statements(text)]

    def run(self, statement: Statement, *, wait: bool = False, stdin: BinaryIO | None = None) -> Result:
        """Executes a statement; with `wait`, a SELECT has all that was inserted before. COPY is refused there."""
        if isinstance(statement, Subscribe):
            return Result(changes=starmap(Change, self._client.changes(statement.view)))
        (answered,) = self._client.execute(statement.text, wait=wait)
        return _result(answered)

    def names(self) -> list[str]:
        """Returns the names of streams and views, and those of the columns of streams."""
        listed = self._client.catalog()
        names = [each["name"] for each in (*listed["streams"], *listed["views"])]
        return [*names, *(column for stream in listed["streams"] for column in stream["columns"])]


def _result(answered: dict[str, Any]) -> Result:
    if "message" in answered:
        return Result(answered["message"])
    rows = answered["rows"]
    columns = zip(*rows, strict=True) if rows else [()] * len(answered["columns"])
    return Result(table=pa.table([_array(list(each)) for each in columns], names=answered["columns"]))


def _array(cells: list[Any]) -> pa.Array:
    """Returns the cells of a column, as text if they are of several types."""
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if cell is None else str(cell) for cell in cells])
