"""Sessions of browsers that have signed in. A browser sends a secret of its own in a cookie, and never the token.

They are in memory, as digests, and end with the process; after a restart one signs in again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from headrace.server.security.tokens import Grant, Scope, Tokens

SECONDS: Final = 12 * 3600
"""The lifetime of a session."""

_MAX_SESSIONS: Final = 1_000  # of one token


class Sessions:
    """The sessions of one server. `clock` returns the time in seconds.

    Each token has room for a thousand; the next takes the place of its oldest, and never of another token's.

    >>> sessions = Sessions(Tokens.parse("read:correct-horse-battery"))
    >>> secret = sessions.open("correct-horse-battery")
    >>> sorted(sessions.scopes(secret)), sessions.open("guess")
    (['read'], None)
    >>> sessions.close(secret); sorted(sessions.scopes(secret))
    []
    """

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self.tokens, self.clock = tokens, clock
        self._open: dict[bytes, dict[bytes, tuple[float, Grant]]] = {}  # by token, oldest first

    def open(self, token: str) -> str | None:
        """Opens a session with the scopes of a token and returns its secret; None if the token is not valid."""
        grant = self.tokens.grant(token)
        if not grant.scopes:
            return None
        sessions = self._open.setdefault(grant.token, {})
        if len(sessions) >= _MAX_SESSIONS:
            del sessions[next(iter(sessions))]
        secret = secrets.token_urlsafe(32)
        sessions[_digest(secret)] = self.clock() + SECONDS, grant
        return secret

    def grant(self, secret: str) -> Grant:
        """Returns the grant of a session's token; an empty one if there is no such session.

        Digests are looked up, so the time that it takes reveals nothing about secrets.
        """
        digest = _digest(secret)
        for sessions in self._open.values():
            ends, grant = sessions.get(digest, (0.0, Grant()))
            if self.clock() < ends:
                return grant
        return Grant()

    def scopes(self, secret: str) -> frozenset[Scope]:
        """Returns the scopes of a session; none if there is no such session."""
        return self.grant(secret).scopes

    def close(self, secret: str) -> None:
        """Ends a session."""
        for sessions in self._open.values():
            sessions.pop(_digest(secret), None)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
