"""Continuous SQL as a server serves it: SELECTs are answered where the server is, others where the session is."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from headrace.dialects.sql import sqlstatements as sql
from headrace.dialects.sql.catalog import Catalog
from headrace.dialects.sql.combinedselect import select_views
from headrace.dialects.sql.pointplans import PointPlans
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.viewchanges import Subscription
from headrace.dialects.sql.viewreads import read_point, view_schema
from headrace.model.errors import HeadraceError
from headrace.model.jsontext import dumps, encode_pieces, rows_of
from headrace.server.http.refusals import Refusal
from headrace.server.limits import Limits
from headrace.server.routes.sql import Sandbox
from headrace.server.service import StatementAnswer, StatementOutcome
from headrace.views.adhoc.sqlrequest import JsonLimits

_NESTED: Final = "the statements are nested too deeply"


class StatementRunner(Protocol):
    """A session in whatever process, which executes one statement at a time."""

    def execute(self, text: str) -> StatementOutcome:
        """Executes a statement."""

    def catch_up(self) -> None:
        """Waits until views have all rows that are in their streams now."""


class ServedSql:
    """The statements, streams and views of the session of a directory, for a server. `database` has its tables."""

    def __init__(self, directory: Path, database: str, runner: StatementRunner, limits: Limits = Limits()) -> None:
        self._file, self._runner = directory / "catalog.json", runner
        self._tables, self._sandbox, self._rows = ResultTables(database), Sandbox(limits.sql), limits.sql.rows
        self._points = PointPlans(self._tables)
        self._lock, self._read = threading.Lock(), (None, Catalog(self._file))

    _read: tuple[tuple[int, int] | None, Catalog]

    def catalog(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the streams and views there are, with their columns and definitions."""
        catalog = self._catalog()
        streams = [
            {"name": name, "columns": _types(stream.columns), "text": stream.text.strip()}
            for name, stream in catalog.streams.items()
        ]
        views = [
            {"name": name, "columns": _types(view.columns), "text": view.statement.text.strip()}
            for name, view in catalog.views.items()
        ]
        return {"streams": streams, "views": views}

    def quick(self, text: str) -> dict[str, Any] | None:
        """Answers a SELECT of one row by its key from a local file; None if it is something else. For one thread."""
        version = self._read[0]
        if version is None or version != self._version():
            return None  # the catalog is to be read first
        point = self._points.quick_answer(self._read[1], text)
        return None if point is None else {"columns": point[0], "rows": point[1], "truncated": False}

    def execute(self, text: str, limits: JsonLimits, *, wait: bool = False) -> list[StatementAnswer]:
        """Executes statements, one after the other; with `wait`, a SELECT has all that was inserted before."""
        point = None if wait else self._points.answer(self._catalog(), text, self._rows + 1)
        if point is not None:
            return [self._encode(*point, limits)]
        try:
            statements = sql.parse_statements(text)
        except SqlError as error:
            raise _refusal(400, error) from None
        except RecursionError:
            raise Refusal(400, _NESTED) from None
        answers: list[StatementAnswer] = []
        for statement in statements:
            try:
                if wait and isinstance(statement, sql.Select):
                    self._runner.catch_up()
                answers.append(self._answer(statement, limits))
            except HeadraceError as error:
                raise _refusal(422, error, done=len(answers)) from None
            except RecursionError:
                raise Refusal(422, _NESTED, done=len(answers)) from None
        return answers

    def subscribe(self, view: str, *, snapshot: bool, most: int) -> Subscription:
        """Follows the changes of a view."""
        try:
            followed = self._catalog().view(view)
        except SqlError as error:
            raise Refusal(404, str(error)) from None
        try:
            return self._tables.subscribe(view, view_schema(followed), followed.part, snapshot=snapshot, most=most)
        except SqlError as error:
            raise _refusal(422, error) from None

    def close(self) -> None:
        """Ends its processes and connections."""
        self._sandbox.close()
        self._tables.close()

    def _answer(self, statement: sql.Statement, limits: JsonLimits) -> StatementAnswer:
        if isinstance(statement, sql.Subscribe):
            raise SqlError(f"changes are followed by GET /sql/views/{statement.view}/changes, or in `headrace sql`")
        if isinstance(statement, sql.Select):
            catalog = self._catalog()
            point = read_point(catalog, self._tables, statement, self._rows + 1)
            if point is not None:
                rows = [row for batch in point.to_batches() for row in rows_of(batch, limits["cells"])]
                return self._encode(point.column_names, rows, limits)
            text, tables = select_views(catalog, self._tables, statement, self._sandbox.query)
            result = self._sandbox.query_json(text, tables, limits)
            return StatementAnswer(columns=result.columns, rows=result.rows, truncated=result.truncated)
        outcome = self._runner.execute(statement.text)
        if "error" in outcome:
            raise _Refused(outcome)
        if "columns" in outcome:
            return StatementAnswer(columns=outcome["columns"], rows=dumps(outcome["rows"]))
        return StatementAnswer(outcome["message"])

    def _encode(self, columns: list[str], rows: list[list[Any]], limits: JsonLimits) -> StatementAnswer:
        """Encodes rows as the sandbox does."""
        pieces = encode_pieces(rows[: self._rows], cells=limits["cells"], size=limits["bytes"])
        return StatementAnswer(columns=columns, rows=b"".join(pieces), truncated=len(rows) > self._rows)

    def _catalog(self) -> Catalog:
        """Returns the catalog, read again if it has changed."""
        version = self._version()
        if version is None:  # nothing was created yet
            return Catalog(self._file)
        with self._lock:
            if self._read[0] != version:
                self._read = version, Catalog(self._file)
            else:
                self._read[1].refresh()
            return self._read[1]

    def _version(self) -> tuple[int, int] | None:
        """Returns what tells the file of the catalog from others; None if there is none."""
        try:
            stat = os.stat(self._file)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns


class _Refused(SqlError):
    """A statement that its session refused."""

    def __init__(self, outcome: StatementOutcome) -> None:
        super().__init__(outcome["error"])
        self.line, self.column = outcome.get("line"), outcome.get("column")


def _refusal(status: int, error: HeadraceError, **details: Any) -> Refusal:
    line, column = (error.line, error.column) if isinstance(error, SqlError) else (None, None)
    return Refusal(status, str(error), line=line, column=column, **details)


def _types(columns: Mapping[str, str]) -> dict[str, str]:
    return {name: kind.lower() for name, kind in columns.items()}
