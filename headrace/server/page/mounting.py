"""Mounts the page in the application: NiceGUI answers `/` and what its script asks for, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.page import nicegui_internals
from headrace.server.page.contentpolicy import content_policy
from headrace.server.page.frame import Frame
from headrace.server.page.openpages import OpenPages
from headrace.server.page.pagesockets import VISITOR, PageSockets
from headrace.server.page.poller import Poller
from headrace.server.page.theme import FAVICON
from headrace.server.routes.topologies import Commands
from headrace.server.security.sessions import Sessions
from headrace.server.security.visitors import visitor_of
from headrace.server.service import Service

_PAGE: Final = "headrace.page"  # of the page in the scope of a request
_SWEEP_PERIOD: Final = 1.0  # seconds
_PATHS: Final = ("/", nicegui_internals.STATIC_PREFIX, nicegui_internals.SOCKET_PREFIX)
_HEADERS: Final = ((b"x-frame-options", b"DENY"), (b"referrer-policy", b"same-origin"))
_FILE_HEADERS: Final = ((b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"), *_HEADERS)


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
        """Runs NiceGUI, the poller and the sweeping of abandoned pages while the server runs."""
        if nicegui_internals.is_started():
            raise RuntimeError("there is a server with a page in this process already; start another process for this")
        async with nicegui_internals.lifespan(_shell()), self.poller.running():
            sweeping = asyncio.create_task(self._sweep())
            yield
            sweeping.cancel()
            nicegui_internals.delete_clients()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_PERIOD)
            self.open_pages.sweep()

    @cached_property
    def open_pages(self) -> OpenPages:
        """The pages that are open."""
        return OpenPages(self.limits, has_tokens=bool(self.sessions.tokens))

    @cached_property
    def sockets(self) -> PageSockets:
        """The connections of open pages."""
        return PageSockets(self.limits)


class PageApp:
    """An ASGI application that answers with the page, under one of its three paths."""

    def __init__(self, page: Page, path: str) -> None:
        self.page, self.path = page, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        visitor = visitor_of(headers, self.page.sessions.tokens, self.page.sessions)
        # A copy: what NiceGUI notes in it, such as its own routes, is not for the metrics.
        scope = {**scope, _PAGE: self.page, VISITOR: visitor, "headers": _trusted(scope["headers"])}
        if self.path == nicegui_internals.SOCKET_PREFIX:
            await self.page.sockets.serve(_shell(), visitor, scope, receive, send)
            return
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            raise Refusal(405, "the page is to be read", headers={"Allow": "GET, HEAD"})
        if self.path == nicegui_internals.STATIC_PREFIX:
            if not nicegui_internals.STATIC_PATH.fullmatch(scope["path"]):
                raise Refusal(404, f"Not Found: {scope['method']} {scope['path']}")
        elif scope["method"] == "HEAD":
            await Response()(scope, receive, send)
            return
        else:
            _refuse_parts_of_others(headers)
            self.page.open_pages.make_room(visitor)
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        client_left = False

        async def receive_noting() -> Message:
            nonlocal client_left
            received = await receive()
            client_left = client_left or received["type"] == "http.disconnect"
            return received

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *(_HEADERS if self.path == "/" else _FILE_HEADERS)]
            await send(message)

        try:
            await _shell()(scope, receive_noting, send_with_headers)
        except RuntimeError:  # Starlette has no response for a client that left before it came, nor need it have one
            if not client_left:
                raise


def mount_page(app: Application, page: Page) -> None:
    """Adds the page to an application."""
    for path in _PATHS:
        app.mount(path, PageApp(page, path))


def _trusted(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Leaves out the header by which NiceGUI would let anybody choose where its scripts come from."""
    return [(name, value) for name, value in headers if name.lower() != b"x-forwarded-prefix"]


def _refuse_parts_of_others(headers: Headers) -> None:
    """Refuses the page to who does not look at it: as an image or a frame of another page, or loaded in advance."""
    if headers.get("sec-fetch-dest", "document") != "document":
        raise Refusal(403, "the page is to be looked at, not to be part of another")
    if "prefetch" in headers.get("sec-purpose", "") + headers.get("purpose", ""):
        raise Refusal(503, "the page is not loaded in advance")


def _build(request: Request) -> None:
    Frame(request.scope[_PAGE], request).build()


def _page_headers(html: str) -> dict[str, str]:
    return {"Content-Security-Policy": content_policy(html)}


def _shell() -> FastAPI:
    return nicegui_internals.shell(_build, _page_headers, FAVICON)
