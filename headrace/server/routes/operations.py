"""`/status`, `/deadletters` and `POST /views/{name}/batch`: the status of a running system, and its batches."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headrace.server.http.bodies import read_json
from headrace.server.http.jsonresponse import PiecesResponse
from headrace.server.http.openapi import (
    BOOLEAN,
    ERROR,
    Operation,
    Schema,
    array,
    mapping,
    parameter,
    record,
    request_body,
    response,
)
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.service import Operations
from headrace.views.errors import ViewError

_MAX_LIMIT: Final = 1_000  # dead letters and the like
_OBJECT: Final[Schema] = {"type": "object"}
_STATUS: Final[Schema] = {
    "type": "object",
    "properties": {
        "topics": mapping(_OBJECT),
        "views": mapping(_OBJECT),
        "jobs": array(_OBJECT),
        "pipelines": mapping(_OBJECT),
    },
}
_BATCH: Final = request_body(
    record({"incremental": {**BOOLEAN, "default": False}}, optional=["incremental"]),
    "Whether only the events since the version before are read, and merged into that",
)
LIMIT: Final = parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": 100}, "How many to return"
)
"""The parameter that `limit_of` reads."""


def limit_of(request: Request) -> int:
    """Reads how many of something a request asks for."""
    text = request.query_params.get("limit", "100")
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= _MAX_LIMIT:
        raise Refusal(400, f"limit is a whole number from 1 to {_MAX_LIMIT}, got {text!r}")
    return int(text)


def add_operations(
    app: Application, operations: Operations, views: list[str], limits: Limits, pool: WorkerPool
) -> None:
    """Adds the routes. Each view has its own for batches."""

    async def status(request: Request) -> Response:
        return await pool.respond(lambda: PiecesResponse.of(operations.status(), limits))

    async def dead_letters(request: Request) -> Response:
        limit = limit_of(request)
        return await pool.respond(lambda: PiecesResponse.of({"dead_letters": operations.dead_letters(limit)}, limits))

    for name in views:
        _add_batch(app, operations, name, limits, pool)
    app.add("GET", "/status", status, Operation("How far everything is", {200: response(_STATUS, "The status")}))
    newest = response(record({"dead_letters": array(_OBJECT)}), "The newest first")
    app.add("GET", "/deadletters", dead_letters, Operation("Records that no view could take", {200: newest}, (LIMIT,)))


def _add_batch(app: Application, operations: Operations, view: str, limits: Limits, pool: WorkerPool) -> None:
    async def compute(request: Request) -> Response:
        incremental = (await read_json(request, limits, "incremental")).get("incremental", False)
        if type(incremental) is not bool:
            raise Refusal(400, f"incremental is true or false, got {incremental!r}")
        try:
            return await pool.respond(
                lambda: PiecesResponse.of(operations.compute(view, incremental=incremental), limits, 202)
            )
        except ViewError as error:
            raise Refusal(409, str(error)) from None

    operation = Operation(
        f"Compute a batch version of {view}",
        {202: response(_OBJECT, "The job, which has begun")},
        body=_BATCH,
        refusals={409: ERROR},
    )
    app.add("POST", f"/views/{view}/batch", compute, operation)
