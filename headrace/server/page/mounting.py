"""Mounts the page in the application: NiceGUI answers `/` and what its script asks for, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.page import nicegui_internals
from headrace.server.page.frame import Frame
from headrace.server.page.poller import Poller
from headrace.server.page.theme import FAVICON
from headrace.server.routes.topologies import Commands
from headrace.server.security.sessions import Sessions
from headrace.server.service import Service

_PAGE: Final = "headrace.page"  # of the page in the scope of a request
_PATHS: Final = ("/", nicegui_internals.STATIC_PREFIX, nicegui_internals.SOCKET_PREFIX)
_HEADERS: Final = (
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
    pool: WorkerPool
    sessions: Sessions
    limits: Limits
    poller: Poller
    commands: Commands | None = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Runs NiceGUI and the poller while the server runs."""
        if nicegui_internals.is_started():
            raise RuntimeError("there is a server with a page in this process already; start another process for this")
        async with nicegui_internals.lifespan(_shell()), self.poller.running():
            yield
            nicegui_internals.delete_clients()


class PageApp:
    """An ASGI application that answers with the page, under one of its three paths."""

    def __init__(self, page: Page, path: str) -> None:
        self.page, self.path = page, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client_left = False

        async def receive_noting() -> Message:
            nonlocal client_left
            received = await receive()
            client_left = client_left or received["type"] == "http.disconnect"
            return received

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        limit = self.page.limits.listeners
        if self.path == "/" and nicegui_internals.count_clients() >= limit:
            raise Refusal(
                429, f"{limit} pages are open, as many as there may be; close one", headers={"Retry-After": "10"}
            )
        # A copy: what NiceGUI notes in it, such as its own routes, is not for the metrics.
        try:
            await _shell()({**scope, _PAGE: self.page}, receive_noting, send_with_headers)
        except RuntimeError:  # Starlette has no response for a client that left before it came, nor need it have one
            if not client_left:
                raise


def mount_page(app: Application, page: Page) -> None:
    """Adds the page to an application."""
    for path in _PATHS:
        app.mount(path, PageApp(page, path))


def _build(request: Request) -> None:
    Frame(request.scope[_PAGE], request).build()


def _shell() -> FastAPI:
    return nicegui_internals.shell(_build, FAVICON)
