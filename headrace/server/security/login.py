"""`/login` and `/logout`: a browser exchanges a token for a session. The page has no script."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from headrace.server.http.bodies import BodyLimits, read_body
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.security.cookies import SECURE_SESSION, SESSION, session_cookie
from headrace.server.security.sessions import SECONDS, Sessions

_FORM: Final = "application/x-www-form-urlencoded"  # the guard refuses those of other sites
_MAX_BYTES: Final = 2_048  # of the form; a token has at most 512 characters, each of which may be written as %XX
_MAX_FIELDS: Final = 4
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
        token = _token(await read_body(request, limits, _FORM, at_most=_MAX_BYTES))
        secret = sessions.open(token) if "read" in sessions.tokens.scopes(token) else None
        if secret is None:
            return HTMLResponse(_PAGE.substitute(note=_WRONG_TOKEN), 401, headers=_HEADERS)
        response = RedirectResponse("/", 303)
        name, https = _cookie(request)
        response.set_cookie(name, secret, max_age=SECONDS, httponly=True, samesite="strict", secure=https)
        return response

    async def logout(request: Request) -> Response:
        sessions.close(session_cookie(request.headers.get("cookie", "")))
        response = RedirectResponse("/login", 303)
        name, https = _cookie(request)
        response.delete_cookie(name, httponly=True, samesite="strict", secure=https)
        return response

    app.add("GET", "/login", show)
    app.add("POST", "/login", login)
    app.add("POST", "/logout", logout)


def _token(form: bytes) -> str:
    try:
        fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Refusal(400, f"the form has at most {_MAX_FIELDS} fields; it needs one, the token") from None
    return fields.get("token", [""])[0].strip()


def _cookie(request: Request) -> tuple[str, bool]:
    """Returns the name of the session's cookie, and whether it is for https alone."""
    https = request.scope["scheme"] == "https"
    return (SECURE_SESSION if https else SESSION), https
