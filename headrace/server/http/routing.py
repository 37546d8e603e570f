"""Routes whose functions take a request and give a response: OpenAPI knows them, and nothing stands in between."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

Refusals = Mapping[type[Exception], Callable[[Request, Exception], Response]]
"""What is answered to a request that ended in an error."""


class PlainRoute(APIRoute):
    """FastAPI would look for parameters and dependencies to fill in, at a third of the cost of a request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.endpoint


class Application(FastAPI):
    """An application whose own layers come first: what FastAPI has before them is for errors, which they see to."""

    def build_middleware_stack(self) -> ASGIApp:
        first, self.user_middleware = self.user_middleware, []
        app = super().build_middleware_stack()
        for layer, args, options in reversed(first):
            app = layer(app, *args, **options)
        return app


class Direct:
    """Finds plain routes by their path in a table, and leaves the rest to the application: requests for other paths,
    and with methods that a path does not have.

    FastAPI tries one route after the other, within five layers of its own; for most answers that takes longer than to
    find them.
    """

    def __init__(self, app: ASGIApp, *, router: APIRouter, refusals: Refusals) -> None:
        self.app, self._refusals = app, tuple(refusals.items())
        plain = [each for each in router.routes if isinstance(each, PlainRoute) and not each.param_convertors]
        self._routes = {(method, each.path): each for each in plain for method in each.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except Exception as error:
            for kind, refuse in self._refusals:
                if isinstance(error, kind):
                    response = refuse(request, error)
                    break
            else:
                raise
        await response(scope, receive, send)
