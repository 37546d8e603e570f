"""`/views`: what views there are, their answers and changes, their versions, and going back to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.server.http.bodies import read_json
from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Limits
from headrace.server.routes.querystring import query_of
from headrace.server.routes.serversentevents import Changes
from headrace.server.routes.viewparameters import parameters
from headrace.views.jsonencoding import encode_answer, encode_layout, encode_provenance, encode_version
from headrace.views.query.queries import Between, Prefix, Query
from headrace.views.stores.store import StoredView

_QUICK: Final = 100  # rows


def add_views(router: APIRouter, views: Mapping[str, StoredView], limits: Limits, worker: Worker) -> None:
    """Each view has its own routes: a name that is not declared leads nowhere."""

    async def listed(request: Request) -> Response:
        found = await worker.run(lambda: [(view.layout, view.provenance()) for view in views.values()])
        return Json({"views": [{**encode_layout(each), **encode_provenance(where)} for each, where in found]})

    changes = Changes(limits, worker)
    for name, view in views.items():
        _add_view(router, name, view, limits, worker, changes)
    router.add_api_route("/views", listed, methods=["GET"], summary="The views", response_class=Json)


def _add_view(router: APIRouter, name: str, view: StoredView, limits: Limits, worker: Worker, changes: Changes) -> None:
    layout = view.layout

    async def answer(request: Request) -> Response:
        query = query_of(layout, _query_string(request))
        found = view.answer(query) if _is_quick(view, query) else await worker.run(lambda: view.answer(query))
        return Json(encode_answer(name, found))

    async def listen(request: Request) -> Response:
        return await changes.response(view, query_of(layout, _query_string(request)))

    async def versions(request: Request) -> Response:
        found = await worker.run(view.versions)
        return Json({"view": name, "versions": [encode_version(each) for each in found]})

    async def rollback(request: Request) -> Response:
        wanted = (await read_json(request, limits, "version")).get("version")
        if wanted is not None and type(wanted) is not int:
            raise Refused(400, f"a version is a whole number, got {wanted!r}")
        return Json({"view": name, "version": await worker.run(lambda: view.rollback(wanted))})

    path, asked = f"/views/{name}", {"parameters": parameters(layout)}
    router.add_api_route(path, answer, methods=["GET"], summary=f"Rows of {name}", openapi_extra=asked)
    router.add_api_route(
        f"{path}/changes", listen, methods=["GET"], summary=f"Rows of {name}, as they change", openapi_extra=asked
    )
    router.add_api_route(f"{path}/versions", versions, methods=["GET"], summary=f"Batch versions of {name}")
    router.add_api_route(f"{path}/rollback", rollback, methods=["POST"], summary=f"Answer {name} from another version")


def _query_string(request: Request) -> str:
    text: bytes = request.scope["query_string"]  # `request.url` would take the whole address apart
    return text.decode("latin-1")


def _is_quick(view: StoredView, query: Query) -> bool:
    """Whether an answer takes less time than handing it to a thread: a few rows of one key, from a local file."""
    return (
        view.database.backend == "sqlite"
        and len(query.key) == len(view.layout.keys)
        and query.limit <= _QUICK
        and query.by is None
        and query.top is None
        and not query.across_windows
        and not any(isinstance(each, Prefix | Between) for each in query.key.values())
    )
