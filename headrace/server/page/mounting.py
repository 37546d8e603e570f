"""How the page lives inside the application: NiceGUI answers `/` and what its script asks for, and nothing else.

NiceGUI keeps its clients in the process, on one event loop; so a process has one server with a page at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

from fastapi import FastAPI, Request
from nicegui import Client, app, ui
from starlette.routing import BaseRoute, Match
from starlette.types import Message, Receive, Scope, Send

from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Limits
from headrace.server.page.frame import Frame
from headrace.server.page.poller import Watch
from headrace.server.page.theme import FAVICON
from headrace.server.routes.topologies import Commands
from headrace.server.security.sessions import Sessions
from headrace.server.service import Service

_PLACE: Final = "headrace.page"  # of the page in the scope of a request
_PATHS: Final = ("/_nicegui/", "/_nicegui_ws/")
_POLICY: Final = (
    (
        b"content-security-policy",
        # Vue compiles its templates in the browser, which counts as evaluating them.
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        b"img-src 'self' data:; font-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; "
        b"form-action 'self'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
)


@dataclass(frozen=True)
class Page:
    """The page of one server: what it shows, and who may see it."""

    service: Service
    worker: Worker
    sessions: Sessions
    limits: Limits
    watch: Watch
    commands: Commands | None = None

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """For as long as the server runs."""
        if not app.is_stopped:
            raise RuntimeError("there is a server with a page in this process already; start another process for this")
        shell = _shell()
        async with shell.router.lifespan_context(shell), self.watch.running():
            yield
            for client in list(Client.instances.values()):
                client.delete()


class PageRoute(BaseRoute):
    """A route for each of the three places where NiceGUI answers; all others belong to the API."""

    def __init__(self, page: Page, path: str) -> None:
        self.page, self.path = page, path

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] not in ("http", "websocket"):
            return Match.NONE, {}
        path: str = scope["path"]
        here = path == "/" if self.path == "/" else path.startswith(self.path)
        return (Match.FULL, {"route": self, "endpoint": self.page}) if here else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = False

        async def receiving() -> Message:
            nonlocal left
            message = await receive()
            left = left or message["type"] == "http.disconnect"
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_POLICY]
            await send(message)

        if self.path == "/" and len(Client.instances) >= self.page.limits.listeners:
            most = self.page.limits.listeners
            raise Refused(
                429, f"{most} pages are open, as many as there may be; close one", headers={"Retry-After": "10"}
            )
        # A copy: what NiceGUI notes in it, such as its own routes, is not for the metrics.
        try:
            await _shell()({**scope, _PLACE: self.page}, receiving, sending)
        except RuntimeError:  # Starlette has no response for somebody who left before it came, and nor need it have one
            if not left:
                raise


def add_page(routes: list[BaseRoute], page: Page) -> None:
    """Adds the page to the routes of an application."""
    routes += [PageRoute(page, path) for path in ("/", *_PATHS)]


@cache
def _shell() -> FastAPI:
    """NiceGUI as an application of its own. It can be set up only once in a process; pages are told apart by scope."""

    @ui.page("/", title="Headrace", favicon=FAVICON, dark=None, language="en-US")
    def show(request: Request) -> None:
        page: Page = request.scope[_PLACE]
        Frame(page, request).build()

    shell = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(
        shell,
        favicon=FAVICON,
        reconnect_timeout=30,  # seconds; a third of it is how long a busy browser may be silent
        message_history_length=30,
        binding_refresh_interval=None,
        tailwind=False,
        show_welcome_message=False,
    )
    return shell
