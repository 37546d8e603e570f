"""`POST /sql`: one SELECT over views, as tables of their answers, and topics, as tables of their archived events."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from headrace.model.jsontext import dumps
from headrace.server.http.bodies import read_json
from headrace.server.http.jsonresponse import PiecesResponse, split_text
from headrace.server.http.openapi import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    STRING,
    TIME,
    Operation,
    Schema,
    array,
    mapping,
    record,
    request_body,
    response,
)
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.routes.viewschemas import PROVENANCE
from headrace.server.routes.viewtables import table, table_of
from headrace.views import adhoc, jsonencoding
from headrace.views.adhoc.sqlrequest import Engine
from headrace.views.archive.archivetable import Archive
from headrace.views.offsets import Offsets
from headrace.views.stores.store import StoredView

_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PARTITION: Final = re.compile("[0-9]{1,9}")
_EXAMPLE: Final = 'the body is a JSON object such as {"sql": "SELECT ...", "from": "2026-01-31", "engine": "spark"}'
_ASOF: Final[Schema] = {**mapping(COUNT), "propertyNames": {"pattern": "^[0-9]{1,9}$"}}
_RESULT: Final = record(
    {
        "columns": array(STRING),
        "rows": array(array(ANYTHING)),
        "truncated": BOOLEAN,
        "views": mapping(PROVENANCE),
        "topics": mapping(record({"archived": mapping(COUNT)})),
    }
)
_OFFSETS: Final = '"asof" is topics with their offsets, such as {"visits": {"0": 1200}}'


@dataclass(frozen=True)
class SqlRequest:
    """A statement, the times and offsets of the events that its tables have, and the engine that is to run it."""

    sql: str
    since: str | None = None
    until: str | None = None
    asof: Mapping[str, Offsets] = field(default_factory=dict)
    engine: str = "duckdb"

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> SqlRequest:
        """Reads the body of a request.

        >>> SqlRequest.of({"sql": "SELECT 1", "asof": {"visits": {"0": 5}}}).asof
        {'visits': {0: 5}}
        """
        texts = {name: value for name, value in body.items() if name != "asof"}
        if "sql" not in body or not all(isinstance(value, str) for value in texts.values()):
            raise Refusal(400, _EXAMPLE)
        if texts.get("engine", "duckdb") not in ("duckdb", "spark"):
            raise Refusal(400, f"the engine is duckdb or spark, got {texts['engine']!r}")
        return cls(
            texts["sql"],
            texts.get("from"),
            texts.get("to"),
            _offsets(body.get("asof", {})),
            texts.get("engine", "duckdb"),
        )


def _offsets(asof: Any) -> dict[str, Offsets]:
    if not isinstance(asof, dict) or not all(isinstance(offsets, dict) for offsets in asof.values()):
        raise Refusal(400, _OFFSETS)
    for offsets in asof.values():
        if not all(_PARTITION.fullmatch(n) and type(offset) is int and offset >= 0 for n, offset in offsets.items()):
            raise Refusal(400, _OFFSETS)
    return {name: {int(n): offset for n, offset in offsets.items()} for name, offsets in asof.items()}


class Sandbox:
    """The sandbox of ad-hoc SQL, started with the first statement: until then its process would only take memory."""

    def __init__(self, limits: adhoc.Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._adhoc: adhoc.AdHoc | None = None

    def query(self, sql: str, tables: adhoc.Tables) -> adhoc.SqlResult:
        """Runs a statement."""
        return self._started().query(sql, tables)

    def query_json(self, sql: str, tables: adhoc.Tables, limits: adhoc.JsonLimits) -> adhoc.JsonResult:
        """Runs a statement; its result is JSON."""
        return self._started().query_json(sql, tables, limits)

    def _started(self) -> adhoc.AdHoc:
        with self._lock:
            self._adhoc = self._adhoc or adhoc.AdHoc(self._limits)
            return self._adhoc

    def close(self) -> None:
        """Ends its process."""
        with self._lock:
            if self._adhoc is not None:
                self._adhoc.close()


def add_sql(
    app: Application,
    views: Mapping[str, StoredView],
    archives: Mapping[str, Archive],
    limits: Limits,
    engines: Mapping[str, tuple[WorkerPool, Sandbox | Engine]],
) -> None:
    """Adds the route. A statement reads the views and topics whose names occur in it; of the same name, the view."""
    # Names are the same in any case, as they are in SQL.
    taken = {name.lower() for name in views}
    topics = {name: archive for name, archive in archives.items() if name.lower() not in taken}

    def run(asked: SqlRequest, engine: Sandbox | Engine) -> PiecesResponse:
        words = {word.lower() for word in _WORD.findall(asked.sql)}
        since, until = asked.since, asked.until
        read = {
            name: table_of(view, since, until, limits.sql_rows) for name, view in views.items() if name.lower() in words
        }
        archived = {
            name: topic.table(since, until, asof=asked.asof.get(name))
            for name, topic in topics.items()
            if name.lower() in words
        }
        if unknown := asked.asof.keys() - archived.keys():
            raise Refusal(400, f"asof: {min(unknown)!r} is not a topic that the statement reads")
        # The sandbox refuses unknown names, and lists those that there are.
        tables = {
            **{name: read[name][0] if name in read else table(view.layout, []) for name, view in views.items()},
            **{name: archived[name][0] if name in archived else topic.empty() for name, topic in topics.items()},
        }
        result = engine.query_json(asked.sql, tables, {"cells": limits.answer_cells, "bytes": limits.answer_bytes})
        rest = {
            "truncated": result.truncated,
            "views": {name: jsonencoding.encode_provenance(where) for name, (_, where) in read.items()},
            "topics": {name: {"archived": offsets} for name, (_, offsets) in archived.items()},
        }
        columns = dumps({"columns": result.columns})[:-1] + b',"rows":'
        return PiecesResponse([columns, *split_text(result.rows), b"," + dumps(rest)[1:]])

    async def ask(request: Request) -> Response:
        asked = SqlRequest.of(await read_json(request, limits, "sql", "from", "to", "asof", "engine"))
        if asked.engine not in engines:
            raise Refusal(400, "this server has no Spark; leave engine out")
        pool, engine = engines[asked.engine]
        return await pool.respond(lambda: run(asked, engine))

    operation = Operation("Query in SQL", {200: response(_RESULT, "The rows")}, body=_body(list(engines)))
    app.add("POST", "/sql", ask, operation)


def _body(engines: list[str]) -> Schema:
    schema = record(
        {
            "sql": STRING,
            "from": TIME,
            "to": TIME,
            "asof": {**mapping(_ASOF), "examples": [{"visits": {"0": 1200}}]},
            "engine": {"enum": engines, "default": "duckdb"},
        },
        optional=["from", "to", "asof", "engine"],
    )
    return request_body(
        schema,
        "One SELECT. Each view is a table of its keys, window_start, window_end and answers; of the windows that begin "
        "at or after `from` and before `to`, if these are given. Each topic is a table of its archived events between "
        "these times; `asof` maps topics to the offsets before which their events are read",
    )
