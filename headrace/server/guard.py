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

from headrace.server.encoding import Json
from headrace.server.errors import Refused
from headrace.server.metrics import Metrics
from headrace.server.tokens import Scope, Tokens

_log = logging.getLogger("headrace.server")

_OPEN: Final = ("/healthz", "/readyz")
_SAFE: Final = ("GET", "HEAD")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


def needed(method: str, path: str) -> Scope | None:
    """What a request needs; None if it is open to all. What is not known here needs the most.

    >>> needed("GET", "/views"), needed("POST", "/sql"), needed("POST", "/topics/visits"), needed("POST", "/new")
    ('read', 'read', 'write', 'admin')
    """
    if method in _SAFE:
        return None if path in _OPEN else "read"
    if method == "POST" and path == "/sql":
        return "read"
    return "write" if method == "POST" and path.startswith("/topics/") else "admin"


class Guard:
    """Wraps an application."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, metrics: Metrics) -> None:
        self.app, self.tokens, self.metrics = app, tokens, metrics

    async def __call__(self, request: Request, receive: Receive, send: Send) -> None:
        if request["type"] == "lifespan":
            await self.app(request, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
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
        if method not in _SAFE or kind == "websocket":
            _refuse_other_sites(headers)
        scope = needed(method, path)
        if scope is None or not self.tokens:
            return
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        allowed = self.tokens.allows(secret.strip()) if scheme.lower() == "bearer" else frozenset()
        if not allowed:
            raise Refused(
                401, "give a token: Authorization: Bearer ...", headers={"WWW-Authenticate": 'Bearer realm="headrace"'}
            )
        if scope not in allowed:
            raise Refused(403, f"this needs a token for {scope!r}; yours allows {', '.join(sorted(allowed))}")


def _refuse_other_sites(headers: Headers) -> None:
    """A browser says which page a request comes from; other clients say nothing of the kind."""
    origin = headers.get("origin")
    elsewhere = origin is not None and (urlsplit(origin).netloc.lower() != headers.get("host", "").lower())
    if elsewhere or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "this comes from a page of another site, which may not change anything here")
