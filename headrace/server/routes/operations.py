"""`/status`, `/deadletters` and `POST /views/{name}/batch`: what a running system tells, and is told to do."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.server.http.bodies import JSON, read_json
from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Limits
from headrace.server.routes.viewparameters import body
from headrace.server.service import Operations
from headrace.views.errors import ViewError

_MOST: Final = 1_000  # dead letters and the like
_BATCH: Final = body(
    JSON,
    {"type": "object", "properties": {"incremental": {"type": "boolean", "default": False}}},
    "Whether only what came since the version before is read, and merged into that",
)
LIMIT: Final = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": _MOST, "default": 100},
}
"""How many of something are asked for, which `limit_of` reads."""


def limit_of(request: Request) -> int:
    """How many are asked for."""
    asked = request.query_params.get("limit", "100")
    if not asked.isdecimal() or not 1 <= int(asked) <= _MOST:
        raise Refused(400, f"limit is a whole number from 1 to {_MOST}, got {asked!r}")
    return int(asked)


def add_operations(router: APIRouter, operations: Operations, views: list[str], limits: Limits, worker: Worker) -> None:
    """The routes. Each view has its own for batches."""

    async def status(request: Request) -> Response:
        return Json(await worker.run(operations.status))

    async def letters(request: Request) -> Response:
        limit = limit_of(request)
        return Json({"dead_letters": await worker.run(lambda: operations.dead_letters(limit))})

    for name in views:
        _add_batch(router, operations, name, limits, worker)
    router.add_api_route("/status", status, methods=["GET"], summary="How far everything is")
    router.add_api_route(
        "/deadletters",
        letters,
        methods=["GET"],
        summary="Records that no view could take",
        openapi_extra={"parameters": [LIMIT]},
    )


def _add_batch(router: APIRouter, operations: Operations, view: str, limits: Limits, worker: Worker) -> None:
    async def compute(request: Request) -> Response:
        incremental = (await read_json(request, limits, "incremental")).get("incremental", False)
        if type(incremental) is not bool:
            raise Refused(400, f"incremental is true or false, got {incremental!r}")
        try:
            return Json(await worker.run(lambda: operations.compute(view, incremental=incremental)), 202)
        except ViewError as error:
            raise Refused(409, str(error)) from None

    summary = f"Compute a batch version of {view}"
    router.add_api_route(f"/views/{view}/batch", compute, methods=["POST"], summary=summary, openapi_extra=_BATCH)
