"""`/login` and `/logout`: where a browser changes a token for a session. The page it shows has no script."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from headrace.server.http.bodies import read_body
from headrace.server.limits import Limits
from headrace.server.security.sessions import COOKIE, SECONDS, Sessions, shown

_FORM: Final = "application/x-www-form-urlencoded"  # the guard refuses those of other sites
_POLICY: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Sign in · Headrace</title>
<style>
:root { color-scheme: light dark; --page: #f5f6f8; --card: #fff; --line: #e2e6eb; --text: #18212c; --muted: #5d6979;
  --accent: #0b7285; --bad: #c92a2a; }
@media (prefers-color-scheme: dark) { :root { --page: #0e1318; --card: #161c23; --line: #29323c; --text: #e4e9ef;
  --muted: #95a1b0; --accent: #3bc9db; --bad: #ff8787; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--page); color: var(--text);
  font: 15px/1.5 Roboto, system-ui, sans-serif; }
form { width: min(24rem, calc(100vw - 2rem)); padding: 2rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
h1 { margin: 0 0 .25rem; font-size: 1.25rem; font-weight: 600; }
p { margin: 0 0 1.25rem; color: var(--muted); }
p.bad { color: var(--bad); }
label { display: block; margin-bottom: .35rem; font-size: .85rem; color: var(--muted); }
input { width: 100%; padding: .6rem .75rem; border: 1px solid var(--line); border-radius: 8px; background: var(--page);
  color: inherit; font: inherit; }
button { width: 100%; margin-top: 1rem; padding: .6rem; border: 0; border-radius: 8px; background: var(--accent);
  color: var(--card); font: inherit; font-weight: 600; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
</style>
</head>
<body>
<form method="post" action="/login">
<h1>Headrace</h1>
<p>This server asks for a token. One for reading shows everything; buttons need one for admin.</p>
NOTE<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Sign in</button>
</form>
</body>
</html>
"""
_WRONG: Final = '<p class="bad" role="alert">This is no token for reading on this server.</p>\n'


def _page(note: str) -> str:
    return _PAGE.replace("NOTE", note)


def add_login(router: APIRouter, sessions: Sessions, limits: Limits) -> None:
    """The routes."""

    async def asked(request: Request) -> Response:
        if not sessions.tokens:
            return RedirectResponse("/", 303)
        return HTMLResponse(_page(""), headers=_POLICY)

    async def login(request: Request) -> Response:
        body = parse_qs((await read_body(request, limits, _FORM)).decode("utf-8", "replace"))
        token = body.get("token", [""])[0].strip()
        secret = sessions.open(token) if "read" in sessions.tokens.allows(token) else None
        if secret is None:
            return HTMLResponse(_page(_WRONG), 401, headers=_POLICY)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, secret, max_age=SECONDS, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return answer

    async def logout(request: Request) -> Response:
        sessions.close(shown(request.headers.get("cookie", "")))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    router.add_api_route("/login", asked, methods=["GET"], include_in_schema=False)
    router.add_api_route("/login", login, methods=["POST"], include_in_schema=False)
    router.add_api_route("/logout", logout, methods=["POST"], include_in_schema=False)
