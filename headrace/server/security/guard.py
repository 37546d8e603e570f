"""The guard: middleware that every request passes first, and every response last.

It refuses requests without a token that allows them, requests that pages of other sites send, and, where there are no
tokens, host names that only a hostile resolver would give to this machine. It writes what fails inside to the log of
the process and does not show it to the client.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Request

from headrace.server.http.jsonresponse import JsonResponse
from headrace.server.http.refusals import Refusal
from headrace.server.security.sessions import Sessions, session_cookie
from headrace.server.security.tokens import Scope, Tokens

_log = logging.getLogger("headrace.server")

_OPEN: Final = ("/healthz", "/readyz")
_SIGN_IN: Final = ("/login", "/logout")
_SAFE: Final = ("GET", "HEAD")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")
_NO_STORE: Final = (b"cache-control", b"no-store")

OnResponse = Callable[[str, str, int, float], None]
"""Called after each response with the method, the path of the route, the status and the seconds it took."""


def required_scope(method: str, path: str) -> Scope | None:
    """Returns the scope that a request needs; None if it is open to all. An unknown request needs admin.

    >>> required_scope("GET", "/views"), required_scope("POST", "/sql"), required_scope("POST", "/topics/visits")
    ('read', 'read', 'write')
    >>> required_scope("POST", "/new")
    'admin'
    """
    if path in _SIGN_IN:
        return None
    if method in _SAFE:
        return None if path in _OPEN else "read"
    if method == "POST" and path == "/sql":
        return "read"
    return "write" if method == "POST" and path.startswith("/topics/") else "admin"


class Guard:
    """Wraps an application and checks its requests.

    `live_prefix` is where open pages have their connections, if there is a page: requests of other sites are refused
    there, as are those that change something.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        on_response: OnResponse,
        sessions: Sessions | None = None,
        live_prefix: str | None = None,
    ) -> None:
        self.app, self.tokens, self.sessions = app, tokens, sessions
        self._on_response, self._live_prefix = on_response, live_prefix

    async def __call__(self, request: Request, receive: Receive, send: Send) -> None:
        if request["type"] == "lifespan":
            await self.app(request, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                cached = any(name == b"cache-control" for name, _ in headers)
                message["headers"] = [*headers, _NO_SNIFF] if cached else [*headers, _NO_SNIFF, _NO_STORE]
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        method = request.get("method", "GET")  # a WebSocket begins as one
        try:
            self.check(method, request["path"], Headers(scope=request), request["type"])
            await self.app(request, receive, send_guarded)
        except Refusal as refusal:
            if request["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)})
                return
            await JsonResponse(refusal.body, refusal.status, refusal.headers)(request, receive, send_guarded)
        except Exception:
            # The path without its query, which may hold anything.
            _log.exception("%s %r failed", method, request["path"])
            if status or request["type"] == "websocket":
                raise  # too late for another response
            reason = "this failed inside the server; its log says how"
            await JsonResponse({"reason": reason}, 500)(request, receive, send_guarded)
        finally:
            route = getattr(request.get("route"), "path", "none")
            self._on_response(method, route, status, time.perf_counter() - started)

    def check(self, method: str, path: str, headers: Headers, kind: str = "http") -> None:
        """Refuses a request that is not allowed."""
        if not self.tokens and not _LOOPBACK.fullmatch(headers.get("host", "")):
            raise Refusal(
                421, "without tokens only localhost and addresses of loopback are served; ask for one of these by name"
            )
        if method not in _SAFE or kind == "websocket" or self._is_live(path):
            _refuse_other_sites(headers)
        scope = required_scope(method, path)
        if scope is None or not self.tokens:
            return
        allowed = self.scopes(headers)
        if not allowed:
            if path == "/" and self.sessions is not None:
                raise Refusal(303, "sign in at /login", headers={"Location": "/login"})
            raise Refusal(
                401, "give a token: Authorization: Bearer ...", headers={"WWW-Authenticate": 'Bearer realm="headrace"'}
            )
        if scope not in allowed:
            raise Refusal(403, f"this needs a token for {scope!r}; yours allows {', '.join(sorted(allowed))}")

    def scopes(self, headers: Headers) -> frozenset[Scope]:
        """Returns the scopes of a request's token, or of its browser's session."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.tokens.scopes(secret.strip())
        if self.sessions is not None and "cookie" in headers:
            return self.sessions.scopes(session_cookie(headers["cookie"]))
        return frozenset()

    def _is_live(self, path: str) -> bool:
        return self._live_prefix is not None and path.startswith(self._live_prefix)


def _refuse_other_sites(headers: Headers) -> None:
    """Refuses what a browser sends for a page of another site. Other clients do not send these headers."""
    origin = headers.get("origin")
    elsewhere = origin is not None and (urlsplit(origin).netloc.lower() != headers.get("host", "").lower())
    if elsewhere or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refusal(403, "this comes from a page of another site, which may not change anything here")
