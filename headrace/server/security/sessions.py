"""Sessions of browsers that have signed in. A browser sends a secret of its own in a cookie, and never the token.

They are in memory, as digests, and end with the process; after a restart one signs in again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from typing import Final

from headrace.server.security.tokens import Scope, Tokens

COOKIE: Final = "headrace_session"
SECONDS: Final = 12 * 3600
"""The lifetime of a session."""

_MAX_SESSIONS: Final = 1_000


class Sessions:
    """The sessions of one server. `clock` returns the time in seconds.

    >>> sessions = Sessions(Tokens.parse("read:correct-horse-battery"))
    >>> secret = sessions.open("correct-horse-battery")
    >>> sorted(sessions.scopes(secret)), sessions.open("guess")
    (['read'], None)
    >>> sessions.close(secret); sorted(sessions.scopes(secret))
    []
    """

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self.tokens, self.clock = tokens, clock
        self._open: dict[bytes, tuple[float, frozenset[Scope]]] = {}  # oldest first

    def open(self, token: str) -> str | None:
        """Opens a session with the scopes of a token and returns its secret; None if the token is not valid."""
        scopes = self.tokens.scopes(token)
        if not scopes:
            return None
        if len(self._open) >= _MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        secret = secrets.token_urlsafe(32)
        self._open[_digest(secret)] = self.clock() + SECONDS, scopes
        return secret

    def scopes(self, secret: str) -> frozenset[Scope]:
        """Returns the scopes of a session; none if there is no such session.

        Digests are looked up, so the time that it takes reveals nothing about secrets.
        """
        ends, scopes = self._open.get(_digest(secret), (0.0, frozenset[Scope]()))
        return scopes if self.clock() < ends else frozenset()

    def close(self, secret: str) -> None:
        """Ends a session."""
        self._open.pop(_digest(secret), None)


def session_cookie(header: str) -> str:
    """Returns the session's secret from a Cookie header; empty if it has none.

    >>> session_cookie("theme=dark; headrace_session=abc"), session_cookie("a=b"), session_cookie('"')
    ('abc', '', '')
    """
    try:
        cookie = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
