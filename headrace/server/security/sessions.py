"""Sessions: who has signed in on the page. A browser shows a secret of its own in a cookie, and never the token.

They are kept in memory, as digests, and end with the process; so a server that starts again asks to sign in again.
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
"""How long a session lasts."""

_MOST: Final = 1_000


class Sessions:
    """The sessions of one server. `clock` tells the time in seconds.

    >>> sessions = Sessions(Tokens.parse("read:correct-horse-battery"))
    >>> secret = sessions.open("correct-horse-battery")
    >>> sorted(sessions.allows(secret)), sessions.open("guess")
    (['read'], None)
    >>> sessions.close(secret); sorted(sessions.allows(secret))
    []
    """

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self.tokens, self.clock = tokens, clock
        self._open: dict[bytes, tuple[float, frozenset[Scope]]] = {}  # oldest first

    def open(self, token: str) -> str | None:
        """The secret of a new session with what a token allows; None if it is no token."""
        allowed = self.tokens.allows(token)
        if not allowed:
            return None
        if len(self._open) >= _MOST:
            del self._open[next(iter(self._open))]
        secret = secrets.token_urlsafe(32)
        self._open[_digest(secret)] = self.clock() + SECONDS, allowed
        return secret

    def allows(self, secret: str) -> frozenset[Scope]:
        """What a session allows; nothing, if there is none. Digests are looked up, so time tells nothing of secrets."""
        ends, allowed = self._open.get(_digest(secret), (0.0, frozenset[Scope]()))
        return allowed if self.clock() < ends else frozenset()

    def close(self, secret: str) -> None:
        """Ends a session."""
        self._open.pop(_digest(secret), None)


def shown(header: str) -> str:
    """The secret that a Cookie header shows; none is empty.

    >>> shown("theme=dark; headrace_session=abc"), shown("a=b"), shown('"')
    ('abc', '', '')
    """
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
