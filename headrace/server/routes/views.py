"""`/views`: the list of views, their answers and changes, their versions, and rolling back to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headrace.server.http.bodies import read_json
from headrace.server.http.jsonresponse import JsonResponse, PiecesResponse
from headrace.server.http.openapi import COUNT, Operation, event_stream, nullable, record, request_body, response
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.routes.querystring import query_of
from headrace.server.routes.serversentevents import EventStreams
from headrace.server.routes.viewschemas import VIEWS, answer_schema, event_schema, query_parameters, versions_schema
from headrace.views.jsonencoding import encode_answer, encode_layout, encode_provenance, encode_version
from headrace.views.query.queries import Between, Prefix, Query
from headrace.views.stores.store import StoredView

_QUICK_ROWS: Final = 100
_LARGE_ROWS: Final = 1_000
_QUICK_BYTES: Final = 64 << 10  # of accumulators in the store
_QUICK_QUERY: Final = 2_000  # characters, since every row repeats the key


def add_views(
    app: Application, views: Mapping[str, StoredView], limits: Limits, pool: WorkerPool, large: WorkerPool
) -> None:
    """Adds the routes. Each view has its own, so a name that is not declared has none.

    Questions for many rows have threads of their own, so that others need not wait for them, nor for their clients.
    """

    async def list_views(request: Request) -> Response:
        def listed() -> PiecesResponse:
            described = [
                {**encode_layout(view.layout), **encode_provenance(view.provenance())} for view in views.values()
            ]
            return PiecesResponse.of({"views": described}, limits)

        return await pool.respond(listed)

    streams = EventStreams(limits, pool)
    for name, view in views.items():
        _add_view(app, name, view, limits, pool, large, streams)
    app.add("GET", "/views", list_views, Operation("The views", {200: response(VIEWS, "All views")}))


def _add_view(
    app: Application,
    name: str,
    view: StoredView,
    limits: Limits,
    pool: WorkerPool,
    large: WorkerPool,
    streams: EventStreams,
) -> None:
    layout = view.layout

    async def answer(request: Request) -> Response:
        text = _query_string(request)
        query = query_of(layout, text)
        if len(text) <= _QUICK_QUERY and _is_quick(view, query):
            rows = view.small_answer(query, _QUICK_BYTES)
            if rows is not None:
                return JsonResponse(encode_answer(name, rows))
        threads = large if query.limit > _LARGE_ROWS else pool
        return await threads.respond(lambda: PiecesResponse.of(encode_answer(name, view.answer(query)), limits))

    async def changes(request: Request) -> Response:
        return await streams.response(view, query_of(layout, _query_string(request)))

    async def versions(request: Request) -> Response:
        def listed() -> PiecesResponse:
            stored = [encode_version(version) for version in view.versions()]
            return PiecesResponse.of({"view": name, "versions": stored}, limits)

        return await pool.respond(listed)

    async def roll_back(request: Request) -> Response:
        version = (await read_json(request, limits, "version")).get("version")
        if version is not None and type(version) is not int:
            raise Refusal(400, f"a version is a whole number, got {version!r}")
        return JsonResponse({"view": name, "version": await pool.run(lambda: view.rollback(version))})

    path, parameters = f"/views/{name}", query_parameters(layout)
    rows = response(answer_schema(layout), "Rows, and where they come from")
    app.add("GET", path, answer, Operation(f"Rows of {name}", {200: rows}, parameters))
    events = event_stream(event_schema(layout), "All rows, and then each that changes")
    app.add("GET", f"{path}/changes", changes, Operation(f"Rows of {name}, as they change", {200: events}, parameters))
    listed = response(versions_schema(layout), "The batch versions that are kept")
    app.add("GET", f"{path}/versions", versions, Operation(f"Batch versions of {name}", {200: listed}))
    body = request_body(
        record({"version": nullable(COUNT)}, optional=["version"]),
        "The version that is to answer; by default the one before",
    )
    current = response(record({"view": {"const": name}, "version": COUNT}), "The version that answers now")
    app.add(
        "POST", f"{path}/rollback", roll_back, Operation(f"Roll {name} back to a version", {200: current}, body=body)
    )


def _query_string(request: Request) -> str:
    text: bytes = request.scope["query_string"]  # `request.url` would parse the whole URL
    return text.decode("latin-1")


def _is_quick(view: StoredView, query: Query) -> bool:
    """Tells whether an answer takes less time than a thread's start: a few rows of one key, from a local file."""
    return (
        view.database.backend == "sqlite"
        and len(query.key) == len(view.layout.keys)
        and query.limit <= _QUICK_ROWS
        and query.by is None
        and query.top is None
        and not query.across_windows
        and not any(isinstance(value, Prefix | Between) for value in query.key.values())
    )
