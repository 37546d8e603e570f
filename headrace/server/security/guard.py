"""The guard: every request passes it first, and every answer passes it last.

It refuses who shows no token that allows the request, what pages of other sites send, and, where no token is asked for,
names of this machine that only a resolver under somebody else's control would give. What fails inside is told to the
log of the process and not to the client.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Request

from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.routes.metrics import Metrics
from headrace.server.security.sessions import Sessions, shown
from headrace.server.security.tokens import Scope, Tokens

_log = logging.getLogger("headrace.server")

_OPEN: Final = ("/healthz", "/readyz")
_SESSION: Final = ("/login", "/logout")
_SOCKET: Final = "/_nicegui_ws/"  # of the page, which a browser may open or poll
_SAFE: Final = ("GET", "HEAD")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_KEPT: Final = ((b"x-content-type-options", b"nosniff"),)  # of what says itself how long it keeps


def needed(method: str, path: str) -> Scope | None:
    """What a request needs; None if it is open to all. What is not known here needs the most.

    >>> needed("GET", "/views"), needed("POST", "/sql"), needed("POST", "/topics/visits"), needed("POST", "/new")
    ('read', 'read', 'write', 'admin')
    """
    if path in _SESSION:
        return None
    if method in _SAFE:
        return None if path in _OPEN else "read"
    if method == "POST" and path == "/sql":
        return "read"
    return "write" if method == "POST" and path.startswith("/topics/") else "admin"


class Guard:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, metrics: Metrics, sessions: Sessions | None = None) -> None:
        self.app, self.tokens, self.metrics, self.sessions = app, tokens, metrics, sessions

    async def __call__(self, request: Request, receive: Receive, send: Send) -> None:
        if request["type"] == "lifespan":
            await self.app(request, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                kept = any(name == b"cache-control" for name, _ in headers)
                message["headers"] = [*headers, *(_KEPT if kept else _HEADERS)]
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        method = request.get("method", "GET")  # a WebSocket begins as one
        try:
            self.admit(method, request["path"], Headers(scope=request), request["type"])
            await self.app(request, receive, sending)
        except Refused as refused:
            if request["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": str(refused)})
                return
            await Json(refused.body, refused.status, refused.headers)(request, receive, sending)
        except Exception:
            # The path without its query, which may hold anything.
            _log.exception("%s %r failed", method, request["path"])
            if status or request["type"] == "websocket":
                raise  # too late to say so
            reason = "this failed inside the server; its log says how"
            await Json({"reason": reason}, 500)(request, receive, sending)
        finally:
            route = getattr(request.get("route"), "path", "none")
            self.metrics.answered(method, route, status, time.perf_counter() - began)

    def admit(self, method: str, path: str, headers: Headers, kind: str = "http") -> None:
        """Refuses a request that may not be made."""
        if not self.tokens and not _LOOPBACK.fullmatch(headers.get("host", "")):
            raise Refused(
                421, "without tokens only localhost and addresses of loopback are served; ask for one of these by name"
            )
        if method not in _SAFE or kind == "websocket" or path.startswith(_SOCKET):
            _refuse_other_sites(headers)
        scope = needed(method, path)
        if scope is None or not self.tokens:
            return
        allowed = self.allowed(headers)
        if not allowed:
            if path == "/" and self.sessions is not None:
                raise Refused(303, "sign in at /login", headers={"Location": "/login"})
            raise Refused(
                401, "give a token: Authorization: Bearer ...", headers={"WWW-Authenticate": 'Bearer realm="headrace"'}
            )
        if scope not in allowed:
            raise Refused(403, f"this needs a token for {scope!r}; yours allows {', '.join(sorted(allowed))}")

    def allowed(self, headers: Headers) -> frozenset[Scope]:
        """What the token of a request allows, or the session that its browser has."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.tokens.allows(secret.strip())
        if self.sessions is not None and "cookie" in headers:
            return self.sessions.allows(shown(headers["cookie"]))
        return frozenset()


def _refuse_other_sites(headers: Headers) -> None:
    """A browser says which page a request comes from; other clients say nothing of the kind."""
    origin = headers.get("origin")
    elsewhere = origin is not None and (urlsplit(origin).netloc.lower() != headers.get("host", "").lower())
    if elsewhere or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "this comes from a page of another site, which may not change anything here")
