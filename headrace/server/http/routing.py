"""Routes requests to handlers by path and method, and answers the errors that end them.

Paths are looked up in a table: Starlette would try one route after the other, within layers of middleware, and for most
answers that takes longer than to find them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from headrace.server.http.openapi import Operation

Handler = Callable[[Request], Awaitable[Response]]
ErrorHandlers = Mapping[type[Exception], Callable[[Request, Exception], Response]]
"""The responses to requests that end in an error, by its class."""


@dataclass(frozen=True)
class Route:
    """A path and what answers there: a handler for each method, or an application for all of them."""

    path: str
    handlers: dict[str, Handler]
    app: ASGIApp | None = None


class Application:
    """An ASGI application: a table of routes, and the operations of those that the OpenAPI document describes.

    >>> application = Application({})
    >>> application.add("GET", "/views/{name}", None)
    >>> route, parameters = application.find("/views/visitors")
    >>> route.path, parameters
    ('/views/{name}', {'name': 'visitors'})
    """

    def __init__(
        self,
        error_handlers: ErrorHandlers,
        lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
    ) -> None:
        self.operations: dict[tuple[str, str], Operation] = {}
        self._error_handlers = tuple(error_handlers.items())
        self._lifespan = Router(lifespan=lifespan)  # speaks ASGI's protocol of starting and stopping
        self._routes: dict[str, Route] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        self._prefixes: list[Route] = []

    def add(self, method: str, path: str, handler: Handler, operation: Operation | None = None) -> None:
        """Adds a handler. A path may have parameters, as in /topologies/{name}."""
        if path not in self._routes:
            self._routes[path] = Route(path, {})
            if "{" in path:
                self._patterns.append((compile_path(path)[0], self._routes[path]))
        self._routes[path].handlers[method] = handler
        if operation is not None:
            self.operations[method, path] = operation

    def mount(self, path: str, app: ASGIApp) -> None:
        """Adds an application that answers a path, and all paths below if it ends with a slash."""
        route = Route(path, {}, app)
        if path != "/" and path.endswith("/"):
            self._prefixes.append(route)
        else:
            self._routes[path] = route

    def find(self, path: str) -> tuple[Route | None, dict[str, str]]:
        """Finds the route of a path, and the values of its parameters."""
        if (route := self._routes.get(path)) is not None:
            return route, {}
        for pattern, route in self._patterns:
            if (match := pattern.match(path)) is not None:
                return route, match.groupdict()
        return next((route for route in self._prefixes if path.startswith(route.path)), None), {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        route, scope["path_params"] = self.find(scope["path"])
        if route is not None:
            scope["route"] = route
            if route.app is not None:
                await route.app(scope, receive, send)
                return
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await _handler(route, scope["method"])(request)
        except Exception as error:
            for kind, answer in self._error_handlers:
                if isinstance(error, kind):
                    response = answer(request, error)
                    break
            else:
                raise
        await response(scope, receive, send)


def _handler(route: Route | None, method: str) -> Handler:
    if route is None:
        raise HTTPException(404)
    if method not in route.handlers:
        raise HTTPException(405, headers={"Allow": ", ".join(route.handlers)})
    return route.handlers[method]
