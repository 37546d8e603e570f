"""The guard: middleware that every request passes first, and every response last.

It refuses requests without a token that allows them, requests that pages of other sites send, heads that can be read in
two ways, and, where there are no tokens, host names that only a hostile resolver would give to this machine. It writes
what fails inside to the log of the process and does not show it to the client.

What it does before a token is found valid takes time in proportion to the head, which the protocol limits.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Request

from headrace.server.http.gate import Gate
from headrace.server.http.jsonresponse import JsonResponse
from headrace.server.http.refusals import Refusal
from headrace.server.security.cookies import own_cookies
from headrace.server.security.sessions import Sessions
from headrace.server.security.tokens import Grant, Scope, Tokens
from headrace.server.security.visitors import visitor_of

_log = logging.getLogger("headrace.server")

_OPEN: Final = ("/healthz", "/readyz")
_SIGN_IN: Final = ("/login", "/logout")
_SAFE: Final = ("GET", "HEAD")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_HOST: Final = re.compile(r"([\w.~-]{0,255}|\[[0-9a-f:.]{2,45}\])(:\d{0,5})?", re.IGNORECASE | re.ASCII)
# Of two of a kind, one program would believe the first and the next one the last.
_ONCE: Final = frozenset(
    (
        b"host",
        b"authorization",
        b"origin",
        b"sec-fetch-site",
        b"content-type",
        b"idempotency-key",
        b"idempotency-sequence",
    )
)
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")
_NO_STORE: Final = (b"cache-control", b"no-store")

GRANT: Final = "headrace.grant"
"""The key of a request's grant in its scope."""

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
    there, as are those that change something, and more than `live_limit` at once. With
    `https`, every request counts as one over https.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        on_response: OnResponse,
        sessions: Sessions | None = None,
        live_prefix: str | None = None,
        live_limit: int = 200,
        https: bool = False,
    ) -> None:
        self.app, self.tokens, self.sessions, self.https = app, tokens, sessions, https
        self._on_response, self._live_prefix = on_response, live_prefix
        self._live = Gate(live_limit, "connections of pages")

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
            if self.https:
                request["scheme"] = "wss" if request["type"] == "websocket" else "https"
            https = request.get("scheme") in ("https", "wss")
            needs_host = request.get("http_version") == "1.1"
            request["headers"] = _unambiguous(request["headers"], https=https, needs_host=needs_host)
            headers = Headers(scope=request)
            request[GRANT] = self.check(method, request["path"], headers, request["type"], https=https)
            live = request["type"] == "websocket" or self._is_live(request["path"])
            with self._live.entered() if live else nullcontext():
                await self.app(request, receive, send_guarded)
        except Refusal as refusal:
            if request["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": str(refusal)})
                return
            await JsonResponse(refusal.body, refusal.status, refusal.headers)(request, receive, send_guarded)
        except asyncio.CancelledError:
            # The server ends before this is answered. A connection that is closed already takes no response.
            if not status and request["type"] == "http":
                with suppress(RuntimeError):
                    await JsonResponse({"reason": "the server is ending"}, 503)(request, receive, send_guarded)
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

    def check(self, method: str, path: str, headers: Headers, kind: str = "http", *, https: bool = False) -> Grant:
        """Refuses a request that is not allowed; returns what its token grants, if it needs one."""
        if not self.tokens and not _LOOPBACK.fullmatch(headers.get("host", "")):
            raise Refusal(
                421, "without tokens only localhost and addresses of loopback are served; ask for one of these by name"
            )
        if method not in _SAFE or kind == "websocket" or self._is_live(path):
            _refuse_other_sites(headers, https=https)
        scope = required_scope(method, path)
        if scope is None or not self.tokens:
            return Grant()
        grant = self.grant(headers)
        if not grant.scopes:
            if path == "/" and self.sessions is not None:
                raise Refusal(303, "sign in at /login", headers={"Location": "/login"})
            raise Refusal(
                401, "give a token: Authorization: Bearer ...", headers={"WWW-Authenticate": 'Bearer realm="headrace"'}
            )
        if scope not in grant.scopes:
            raise Refusal(403, f"this needs a token for {scope!r}; yours allows {', '.join(sorted(grant.scopes))}")
        return grant

    def grant(self, headers: Headers) -> Grant:
        """Returns what the token of a request grants, or that of its browser's session."""
        return visitor_of(headers, self.tokens, self.sessions).grant()

    def _is_live(self, path: str) -> bool:
        return self._live_prefix is not None and path.startswith(self._live_prefix)


def _unambiguous(headers: Iterable[tuple[bytes, bytes]], *, https: bool, needs_host: bool) -> list[tuple[bytes, bytes]]:
    """Returns the headers of a request, with the cookies of this server alone; refuses what can be read in two ways."""
    passed, cookies, seen = [], [], set()
    for name, value in headers:
        if name == b"cookie":
            cookies.append(value)
            continue
        if name in _ONCE:
            if name in seen:
                raise Refusal(400, f"the header {name.decode().title()} is given twice; give it once")
            seen.add(name)
            if name == b"host" and not _HOST.fullmatch(value.decode("latin-1")):
                raise Refusal(400, "the header Host is a name or an address, with or without a port")
        passed.append((name, value))
    if needs_host and b"host" not in seen:
        raise Refusal(400, "the header Host is missing; HTTP/1.1 requires it")
    if cookies:
        passed.append((b"cookie", own_cookies(cookies, https=https)))
    return passed


def _refuse_other_sites(headers: Headers, *, https: bool) -> None:
    """Refuses what a browser sends for a page of another site. Other clients do not send these headers."""
    host = headers.get("host", "")
    own = f"{'https' if https else 'http'}://{host}".lower()
    origin = headers.get("origin", own).lower()
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") or origin != own:
        remedy = ""
        if not https and origin == f"https://{host}".lower():
            remedy = "; if a proxy with TLS is in front of the server, give the server its address"
        raise Refusal(403, f"this comes from a page of another site, which may not change anything here{remedy}")
