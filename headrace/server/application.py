"""The application: all routes of a service, behind the guard, and the responses to errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headrace.model.jsontext import TooLarge, dumps
from headrace.server.http import openapi
from headrace.server.http.gate import Gate
from headrace.server.http.jsonresponse import JsonResponse, PiecesResponse, shorten, split_text
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application, ErrorHandlers
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.routes.continuoussql import add_statements
from headrace.server.routes.health import add_health
from headrace.server.routes.metrics import Metrics, add_metrics
from headrace.server.routes.operations import add_operations
from headrace.server.routes.sql import Sandbox, add_sql
from headrace.server.routes.topics import add_topics
from headrace.server.routes.topologies import Commands, add_topologies
from headrace.server.routes.views import add_views
from headrace.server.security.guard import Guard, required_scope
from headrace.server.security.login import add_login
from headrace.server.security.sessions import Sessions
from headrace.server.security.tokens import Tokens
from headrace.server.service import Service
from headrace.views.adhoc.sqlrequest import Engine
from headrace.views.errors import ViewError

_log = logging.getLogger("headrace.server")

_STATEMENT_SECONDS: Final = 120


def application(
    service: Service,
    *,
    tokens: Tokens = Tokens(),
    limits: Limits = Limits(),
    page: bool = False,
    https: bool = False,
    metrics: Metrics | None = None,
) -> Guard:
    """Builds the ASGI application of a service.

    With tokens, every request but those for health needs one. With `page`, there is a web page at `/`, where one signs
    in with a token. Without tokens it must be reachable from this machine only: `Server` sees to that. With `https`,
    every request counts as one over https.

    >>> sorted(path for _, path in application(Service({}, {})).app.operations)
    ['/healthz', '/metrics', '/readyz', '/sql', '/views']
    """
    metrics = metrics or Metrics(service)
    # As many threads as the database has connections, less some for its other users.
    unsent = Gate(limits.unsent_bytes, "bytes of unsent answers")
    queries = WorkerPool("queries", 8, limits.queries, limits.query_seconds, unsent)
    # One after the other: two would keep the event loop waiting for Python's lock twice as long.
    large = WorkerPool("large queries", 1, limits.queries, limits.query_seconds, unsent)
    posts = WorkerPool("appends", 4, limits.posts, limits.query_seconds)
    bulk = WorkerPool("large appends", 2, limits.posts, limits.query_seconds)
    seconds = limits.query_seconds + limits.sql.seconds
    statements = WorkerPool("statements", limits.statements, limits.statements, seconds, unsent)
    engines: dict[str, tuple[WorkerPool, Sandbox | Engine]] = {"duckdb": (statements, Sandbox(limits.sql))}
    if service.spark is not None:
        # One after the other; the first waits for Spark to start.
        seconds = limits.query_seconds + 120 + service.spark.limits.seconds
        engines["spark"] = (WorkerPool("statements on Spark", 1, 1, seconds, unsent), service.spark)
    # A statement may wait for Spark to start a stream.
    continuous = WorkerPool("continuous SQL", 4, limits.queries, limits.query_seconds + _STATEMENT_SECONDS, unsent)
    sessions = Sessions(tokens) if page else None
    commands = None if service.topologies is None else Commands(service.topologies)
    page_lifespan: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    live_prefix: str | None = None

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with page_lifespan():
            yield
        for pool in (queries, large, posts, bulk, continuous):
            pool.close()
        if service.statements is not None:
            service.statements.close()
        if commands is not None:
            commands.close()
        for pool, engine in engines.values():
            pool.close()
            engine.close()

    app = Application(_ERROR_HANDLERS, lifespan)
    add_views(app, service.views, limits, queries, large)
    add_health(app, service, queries)
    add_topics(app, service.topics, limits, posts, bulk, metrics)
    add_sql(app, service.views, service.archives, limits, engines)
    if service.operations is not None:
        add_operations(app, service.operations, list(service.views), limits, queries)
    if service.topologies is not None and commands is not None:
        add_topologies(app, service.topologies, commands, limits, queries)
    if service.statements is not None:
        add_statements(app, service.statements, limits, continuous)
    add_metrics(app, metrics, queries)
    if sessions is not None:
        # Only where it is asked for: NiceGUI takes a second to import, and is one for the whole process.
        from headrace.server.page import SOCKET_PREFIX, Page, Poller, mount_page

        add_login(app, sessions, limits)
        shown = Page(service, queries, sessions, limits, Poller(service, limits.query_seconds), commands)
        mount_page(app, shown)
        page_lifespan, live_prefix = shown.lifespan, SOCKET_PREFIX
    document = dumps(openapi.document("Headrace", app.operations, required_scope, has_tokens=bool(tokens)))

    async def openapi_document(request: Request) -> Response:
        return PiecesResponse(split_text(document))

    app.add("GET", "/openapi.json", openapi_document)
    return Guard(
        app,
        tokens=tokens,
        sessions=sessions,
        on_response=metrics.count_response,
        https=https,
        live_prefix=live_prefix,
        live_limit=2 * limits.listeners,  # a page that is loaded again has two for a moment
    )


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JsonResponse({**error.body, "reason": shorten(str(error))}, error.status, error.headers)


def _bad_request(request: Request, error: Exception) -> Response:
    return JsonResponse({"reason": shorten(str(error))}, 400)


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    hint = "GET /views lists what there is" if error.status_code == 404 else "GET /openapi.json lists what can be asked"
    reason = f"{error.detail}: {request.method} {request.scope['path']}; {hint}"
    return JsonResponse({"reason": shorten(reason)}, error.status_code, error.headers)


def _client_left(request: Request, error: Exception) -> Response:
    return JsonResponse({"reason": "the client left before its body had arrived"}, 400)


def _store_unavailable(request: Request, error: Exception) -> Response:
    # The message may name the host and the user of the database: that is for the log.
    _log.error("the store does not answer %s %r", request.method, request.scope["path"], exc_info=error)
    return JsonResponse({"reason": "the store does not answer now; ask again, /readyz says when it does"}, 503)


_ERROR_HANDLERS: Final[ErrorHandlers] = {
    Refusal: _refuse,
    OperationalError: _store_unavailable,
    PoolTimeout: _store_unavailable,
    ViewError: _bad_request,
    TooLarge: _bad_request,
    HTTPException: _no_route,
    ClientDisconnect: _client_left,
}
