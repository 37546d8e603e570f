"""The application: all routes, and how their refusals are told. What each does is in a file of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

from fastapi import FastAPI, Request
from fastapi.telemetry import TelemetryConfig
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.http.routing import Application, Direct, PlainRoute, Refusals
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Limits
from headrace.server.routes.health import add_health
from headrace.server.routes.metrics import Metrics
from headrace.server.routes.operations import add_operations
from headrace.server.routes.sql import Sandbox, add_sql
from headrace.server.routes.topics import add_topics
from headrace.server.routes.topologies import Commands, add_topologies
from headrace.server.routes.views import add_views
from headrace.server.security.guard import Guard
from headrace.server.security.login import add_login
from headrace.server.security.sessions import Sessions
from headrace.server.security.tokens import Tokens
from headrace.server.service import Service
from headrace.views.adhoc.sqlrequest import Engine
from headrace.views.errors import ViewError

_log = logging.getLogger("headrace.server")


def application(
    service: Service, *, tokens: Tokens = Tokens(), limits: Limits = Limits(), page: bool = False
) -> FastAPI:
    """The ASGI application of a service. With tokens, every request but those for health needs one. With `page`, it
    has a web page at `/`, where one signs in with a token.

    Without, it must be reachable from this machine only: `Server` sees to that.

    >>> app = application(Service({}, {}))
    >>> sorted(app.openapi()["paths"])
    ['/healthz', '/metrics', '/readyz', '/sql', '/views']
    """
    metrics = Metrics(service)
    # As many threads as the database has connections, less some for who else uses it.
    queries = Worker("questions", 8, limits.queries, limits.query_seconds)
    posts = Worker("appends", 4, limits.posts, limits.query_seconds)
    statements = Worker("statements", limits.statements, limits.statements, limits.query_seconds + limits.sql.seconds)
    sandbox = Sandbox(limits.sql)
    engines: dict[str, tuple[Worker, Sandbox | Engine]] = {"duckdb": (statements, sandbox)}
    if service.spark is not None:
        # One after the other; the first waits for Spark to start.
        seconds = limits.query_seconds + 120 + service.spark.limits.seconds
        engines["spark"] = (Worker("statements on Spark", 1, 1, seconds), service.spark)
    sessions = Sessions(tokens) if page else None
    living: Callable[[], AbstractAsyncContextManager[None]] = nullcontext

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with living():
            yield
        for worker in (queries, posts):
            worker.close()
        if commands is not None:
            commands.close()
        for worker, engine in engines.values():
            worker.close()
            engine.close()

    # The pages of documentation would load scripts from elsewhere.
    app = Application(
        title="Headrace", docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan, telemetry=_NONE
    )
    router = app.router
    router.route_class = PlainRoute
    add_views(router, service.views, limits, queries)
    add_health(router, service, queries)
    add_topics(router, service.topics, limits, posts, metrics)
    add_sql(router, service.views, service.archives, limits, engines)
    if service.operations is not None:
        add_operations(router, service.operations, list(service.views), limits, queries)
    commands = None
    if service.topologies is not None:
        commands = Commands(service.topologies)
        add_topologies(router, service.topologies, commands, limits, queries)

    async def measured(request: Request) -> Response:
        return Response(await queries.run(metrics.text), media_type=CONTENT_TYPE_LATEST)

    router.add_api_route("/metrics", measured, methods=["GET"], summary="Metrics for Prometheus")
    if sessions is not None:
        # Only where it is asked for: NiceGUI takes a second to import, and is one for the whole process.
        from headrace.server.page import Page, Watch, add_page

        add_login(router, sessions, limits)
        shown = Page(service, queries, sessions, limits, Watch(service, limits.query_seconds), commands)
        add_page(router.routes, shown)
        living = shown.living
    for kind, refuse in _REFUSALS.items():
        app.add_exception_handler(kind, refuse)
    app.add_middleware(Direct, router=router, refusals=_REFUSALS)
    app.add_middleware(Guard, tokens=tokens, metrics=metrics, sessions=sessions)
    return app


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return Json(error.body, error.status, error.headers)


def _wrong(request: Request, error: Exception) -> Response:
    return Json({"reason": str(error)}, 400)


def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    there = (
        "GET /views tells what there is" if error.status_code == 404 else "GET /openapi.json tells what can be asked"
    )
    return Json({"reason": f"{error.detail}: {request.method} {request.url.path}; {there}"}, error.status_code)


def _gone(request: Request, error: Exception) -> Response:
    return Json({"reason": "the client left before its body had come"}, 400)


def _away(request: Request, error: Exception) -> Response:
    # What it says may name the host and the user of the database: that is for the log.
    _log.error("the store does not answer %s %r", request.method, request.url.path, exc_info=error)
    return Json({"reason": "the store does not answer now; ask again, /readyz tells when it does"}, 503)


_REFUSALS: Final[Refusals] = {
    Refused: _refused,
    OperationalError: _away,
    PoolTimeout: _away,
    ViewError: _wrong,
    HTTPException: _not_found,
    ClientDisconnect: _gone,
}
# OpenTelemetry, which FastAPI would look for at every request: there is /metrics.
_NONE: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False}
