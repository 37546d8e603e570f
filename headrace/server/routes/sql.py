"""`POST /sql`: one SELECT over views, as tables of their answers, and topics, as tables of what is archived of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.server.http.bodies import JSON, read_json
from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Limits
from headrace.server.routes.viewparameters import body
from headrace.server.routes.viewtables import table, table_of
from headrace.views import adhoc, jsonencoding
from headrace.views.adhoc.sqlrequest import Engine
from headrace.views.archive.archivetable import Archive
from headrace.views.offsets import Offsets
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
            "asof": {"type": "object", "example": {"visits": {"0": 1200}}},
            "engine": {"enum": ["duckdb", "spark"], "default": "duckdb"},
        },
    },
    "One SELECT. Each view is a table of its keys, window_start, window_end and answers; of the windows that begin at "
    "or after `from` and before `to`, if these are given. Each topic is a table of its archived events, between these "
    "times; `asof` are topics and the offsets before which their events are meant",
)
_EXAMPLE: Final = 'the body is a JSON object such as {"sql": "SELECT ...", "from": "2026-01-31", "engine": "spark"}'
_OFFSETS: Final = '"asof" is topics with their offsets, such as {"visits": {"0": 1200}}'


@dataclass(frozen=True)
class Question:
    """What is asked: a statement, the times and offsets that its tables are of, and who is to answer."""

    sql: str
    since: str | None = None
    until: str | None = None
    asof: Mapping[str, Offsets] = field(default_factory=dict)
    engine: str = "duckdb"

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Question:
        """The question of a body.

        >>> Question.of({"sql": "SELECT 1", "asof": {"visits": {"0": 5}}}).asof
        {'visits': {0: 5}}
        """
        texts = {name: value for name, value in asked.items() if name != "asof"}
        if "sql" not in asked or not all(isinstance(value, str) for value in texts.values()):
            raise Refused(400, _EXAMPLE)
        if texts.get("engine", "duckdb") not in ("duckdb", "spark"):
            raise Refused(400, f"the engine is duckdb or spark, got {texts['engine']!r}")
        return cls(
            texts["sql"],
            texts.get("from"),
            texts.get("to"),
            _offsets(asked.get("asof", {})),
            texts.get("engine", "duckdb"),
        )


def _offsets(given: Any) -> dict[str, Offsets]:
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise Refused(400, _OFFSETS)
    found = {name: {n: at for n, at in each.items()} for name, each in given.items()}
    for each in found.values():
        if not all(
            n.isascii() and n.isdigit() and len(n) < 10 and type(at) is int and at >= 0 for n, at in each.items()
        ):
            raise Refused(400, _OFFSETS)
    return {name: {int(n): at for n, at in each.items()} for name, each in found.items()}


class Sandbox:
    """The sandbox of ad-hoc SQL, from the first statement on: until then its process would only take memory."""

    def __init__(self, limits: adhoc.Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._adhoc: adhoc.AdHoc | None = None

    def query(self, sql: str, tables: adhoc.Tables) -> adhoc.SqlResult:
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
    router: APIRouter,
    views: Mapping[str, StoredView],
    archives: Mapping[str, Archive],
    limits: Limits,
    engines: Mapping[str, tuple[Worker, Sandbox | Engine]],
) -> None:
    """The route. A statement reads the views and topics whose names occur in it; of one name, the view."""
    # Names are the same in any case, as they are in SQL.
    topics = {name: each for name, each in archives.items() if name.lower() not in {view.lower() for view in views}}

    def run(question: Question, engine: Sandbox | Engine) -> dict[str, Any]:
        words = {word.lower() for word in _WORD.findall(question.sql)}
        since, until = question.since, question.until
        read = {
            name: table_of(view, since, until, limits.sql_rows) for name, view in views.items() if name.lower() in words
        }
        archived = {
            name: topic.table(since, until, asof=question.asof.get(name))
            for name, topic in topics.items()
            if name.lower() in words
        }
        if unknown := question.asof.keys() - archived.keys():
            raise Refused(400, f"asof: {min(unknown)!r} is not a topic that the statement reads")
        # A name that is none must be refused by the sandbox with those that there are.
        tables = {
            **{name: read[name][0] if name in read else table(view.layout, []) for name, view in views.items()},
            **{name: archived[name][0] if name in archived else topic.empty() for name, topic in topics.items()},
        }
        found = engine.query(question.sql, tables)
        return {
            "columns": found.table.column_names,
            "rows": [list(row) for row in zip(*(column.to_pylist() for column in found.table.columns), strict=True)],
            "truncated": found.truncated,
            "views": {name: jsonencoding.encode_provenance(where) for name, (_, where) in read.items()},
            "topics": {name: {"archived": offsets} for name, (_, offsets) in archived.items()},
        }

    async def ask(request: Request) -> Response:
        question = Question.of(await read_json(request, limits, "sql", "from", "to", "asof", "engine"))
        if question.engine not in engines:
            raise Refused(400, "this server has no Spark; leave engine out")
        worker, engine = engines[question.engine]
        return Json(await worker.run(lambda: run(question, engine)))

    router.add_api_route("/sql", ask, methods=["POST"], summary="Ask in SQL", openapi_extra=_BODY)
