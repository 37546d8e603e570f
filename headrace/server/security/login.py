"""`/login` and `/logout`: a browser exchanges a token for a session. The page has no script."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from headrace.server.http.bodies import BodyLimits, read_body
from headrace.server.http.routing import Application
from headrace.server.security.sessions import COOKIE, SECONDS, Sessions, session_cookie

_FORM: Final = "application/x-www-form-urlencoded"  # the guard refuses those of other sites
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}
_PAGE: Final = Template(Path(__file__).with_name("login.html").read_text("utf-8"))
_WRONG_TOKEN: Final = '<p class="bad" role="alert">This is no token for reading on this server.</p>\n'


def add_login(app: Application, sessions: Sessions, limits: BodyLimits) -> None:
    """Adds the routes."""

    async def show(request: Request) -> Response:
        if not sessions.tokens:
            return RedirectResponse("/", 303)
        return HTMLResponse(_PAGE.substitute(note=""), headers=_HEADERS)

    async def login(request: Request) -> Response:
        form = parse_qs((await read_body(request, limits, _FORM)).decode("utf-8", "replace"))
        token = form.get("token", [""])[0].strip()
        secret = sessions.open(token) if "read" in sessions.tokens.scopes(token) else None
        if secret is None:
            return HTMLResponse(_PAGE.substitute(note=_WRONG_TOKEN), 401, headers=_HEADERS)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            COOKIE, secret, max_age=SECONDS, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return response

    async def logout(request: Request) -> Response:
        sessions.close(session_cookie(request.headers.get("cookie", "")))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    app.add("GET", "/login", show)
    app.add("POST", "/login", login)
    app.add("POST", "/logout", logout)
