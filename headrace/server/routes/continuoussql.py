"""`/sql/statements`, `/sql/catalog` and `/sql/views/{name}/changes`: continuous SQL, its views and their changes."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headrace.model.jsontext import dumps
from headrace.server.http.bodies import read_json
from headrace.server.http.jsonresponse import JsonResponse, PiecesResponse, split_text
from headrace.server.http.openapi import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    ERROR,
    STRING,
    Operation,
    Schema,
    array,
    mapping,
    nullable,
    parameter,
    record,
    request_body,
    response,
)
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.routes.changestreams import CHANGES, ChangeStreams
from headrace.server.service import StatementAnswer, Statements
from headrace.views.adhoc.sqlrequest import JsonLimits

_POSITION: Final = nullable({"type": "integer", "minimum": 1})
_REFUSAL: Final = record(
    {"reason": STRING, "line": _POSITION, "column": _POSITION, "done": COUNT}, optional=["line", "column", "done"]
)
_RESULT: Final[Schema] = {
    "oneOf": [
        record({"message": STRING}),
        record({"columns": array(STRING), "rows": array(array(ANYTHING)), "truncated": BOOLEAN}),
    ]
}
_NAME: Final = parameter("name", STRING, "The name of a view", "path")
_SNAPSHOT: Final = parameter("snapshot", {**BOOLEAN, "default": True}, "Whether the rows that are there come first")
_OBJECT: Final = record({"name": STRING, "columns": mapping(STRING), "text": STRING})


def add_statements(app: Application, statements: Statements, limits: Limits, pool: WorkerPool) -> None:
    """Adds the routes."""
    streams = ChangeStreams(limits, pool)

    most: JsonLimits = {"cells": limits.answer_cells, "bytes": limits.answer_bytes}

    def encoded(answers: list[StatementAnswer]) -> PiecesResponse:
        pieces = [b'{"results":[']
        for number, answer in enumerate(answers):
            pieces += [b"," if number else b"", *_pieces(answer)]
        return PiecesResponse([*pieces, b"]}"])

    async def execute(request: Request) -> Response:
        body = await read_json(request, limits, "text", "wait")
        text, wait = body.get("text"), body.get("wait", False)
        if not isinstance(text, str) or type(wait) is not bool:
            raise Refusal(400, 'the body is a JSON object such as {"text": "SELECT * FROM minutes", "wait": false}')
        if not wait and (answer := statements.quick(text)) is not None:
            return JsonResponse({"results": [answer]})
        return await pool.respond(lambda: encoded(statements.execute(text, most, wait=wait)))

    async def changes(request: Request) -> Response:
        snapshot = request.query_params.get("snapshot", "true")
        if snapshot not in ("true", "false"):
            raise Refusal(400, f"snapshot is true or false, got {snapshot!r}")
        name, whole = request.path_params["name"], snapshot == "true"
        return await streams.response(lambda: statements.subscribe(name, snapshot=whole, most=limits.sql_rows))

    async def catalog(request: Request) -> Response:
        return await pool.respond(lambda: PiecesResponse.of(statements.catalog(), limits))

    app.add(
        "POST",
        "/sql/statements",
        execute,
        Operation(
            "Execute statements of continuous SQL",
            {200: response(record({"results": array(_RESULT)}), "What each did, or its rows")},
            body=request_body(
                record({"text": STRING, "wait": {**BOOLEAN, "default": False}}, optional=["wait"]),
                "Statements, which semicolons end. What those before a failing one did stays done: `done` counts them. "
                "With `wait`, a SELECT waits until views have all rows that were inserted before",
            ),
            refusals={400: _REFUSAL, 422: _REFUSAL},
        ),
    )
    listed = response(record({"streams": array(_OBJECT), "views": array(_OBJECT)}), "Their columns and definitions")
    app.add("GET", "/sql/catalog", catalog, Operation("The streams and views of continuous SQL", {200: listed}))
    operation = Operation(
        "Follow the changes of a view", {200: CHANGES}, (_NAME, _SNAPSHOT), refusals={404: ERROR, 422: _REFUSAL}
    )
    app.add("GET", "/sql/views/{name}/changes", changes, operation)


def _pieces(answer: StatementAnswer) -> list[bytes]:
    if answer.columns is None:
        return [dumps({"message": answer.message})]
    head = dumps({"columns": answer.columns})[:-1] + b',"rows":'
    return [head, *split_text(answer.rows), b"," + dumps({"truncated": answer.truncated})[1:]]
