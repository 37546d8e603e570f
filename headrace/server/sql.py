"""`POST /sql`: one SELECT over the views, as tables of their answers, in the sandbox of ad-hoc SQL."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.server import encoding
from headrace.server.bodies import JSON, read_json
from headrace.server.documents import body
from headrace.server.encoding import Json
from headrace.server.errors import Refused
from headrace.server.limits import Limits
from headrace.server.tables import table, table_of
from headrace.server.workers import Worker
from headrace.views import adhoc
from headrace.views.stores.store import StoredView

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BODY: Final = body(
    JSON,
    {
        "type": "object",
        "required": ["sql"],
        "properties": {
            "sql": {"type": "string"},
            "from": {"type": "string", "format": "date-time"},
            "to": {"type": "string", "format": "date-time"},
        },
    },
    "One SELECT. Each view is a table of its keys, window_start, window_end and answers; of the windows that begin at "
    "or after `from` and before `to`, if these are given",
)


class Sandbox:
    """The sandbox of ad-hoc SQL, from the first statement on: until then its process would only take memory."""

    def __init__(self, limits: adhoc.Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._adhoc: adhoc.AdHoc | None = None

    def query(self, sql: str, tables: adhoc.Tables) -> adhoc.Found:
        """The rows of a statement."""
        with self._lock:
            self._adhoc = self._adhoc or adhoc.AdHoc(self._limits)
        return self._adhoc.query(sql, tables)

    def close(self) -> None:
        """Ends its process."""
        with self._lock:
            if self._adhoc is not None:
                self._adhoc.close()


def add_sql(
    router: APIRouter, views: Mapping[str, StoredView], limits: Limits, worker: Worker, sandbox: Sandbox
) -> None:
    """The route. A statement reads the views whose names occur in it."""

    def run(sql: str, since: str | None, until: str | None) -> dict[str, Any]:
        words = {word.lower() for word in _WORD.findall(sql)}
        read = {
            name: table_of(view, since, until, limits.sql_rows) for name, view in views.items() if name.lower() in words
        }
        # A name that is none must be refused by the sandbox with those that there are.
        tables = {name: read[name][0] if name in read else table(view.layout, []) for name, view in views.items()}
        found = sandbox.query(sql, tables)
        return {
            "columns": found.table.column_names,
            "rows": [list(row) for row in zip(*(column.to_pylist() for column in found.table.columns), strict=True)],
            "truncated": found.truncated,
            "views": {name: encoding.provenance(where) for name, (_, where) in read.items()},
        }

    async def ask(request: Request) -> Response:
        asked = await read_json(request, limits, "sql", "from", "to")
        if not all(isinstance(value, str) for value in asked.values()) or "sql" not in asked:
            raise Refused(400, 'the body is a JSON object such as {"sql": "SELECT ...", "from": "2026-01-31"}')
        return Json(await worker.run(lambda: run(asked["sql"], asked.get("from"), asked.get("to"))))

    router.add_api_route("/sql", ask, methods=["POST"], summary="Ask in SQL", openapi_extra=_BODY)
