"""Visitors: the senders of requests. The scopes of one are asked anew each time, since sessions end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from headrace.server.security.cookies import session_cookie
from headrace.server.security.sessions import Sessions
from headrace.server.security.tokens import SCOPES, Grant, Scope, Tokens


@dataclass(frozen=True)
class Visitor:
    """A sender of requests: a browser's session, a token, or anybody where there are no tokens.

    Visitors are equal if they come with the same session, or with the same token. `grant` returns what is granted now.
    """

    digest: bytes = field(repr=False)
    grant: Callable[[], Grant] = field(repr=False, compare=False)

    def scopes(self) -> frozenset[Scope]:
        """Returns the scopes that the visitor has now."""
        return self.grant().scopes


def visitor_of(headers: Mapping[str, str], tokens: Tokens, sessions: Sessions | None) -> Visitor:
    """Returns the visitor who sends a request with these headers.

    >>> tokens = Tokens.parse("read:correct-horse-battery")
    >>> reader = visitor_of({"authorization": "Bearer correct-horse-battery"}, tokens, None)
    >>> sorted(reader.scopes()), reader == visitor_of({}, tokens, None)
    (['read'], False)
    >>> sorted(visitor_of({}, Tokens(), None).scopes())
    ['admin', 'read', 'write']
    """
    if not tokens:
        everything = Grant(scopes=frozenset(SCOPES))
        return Visitor(b"", lambda: everything)
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        granted = tokens.grant(secret.strip())
        return Visitor(_digest("token", secret.strip()), lambda: granted)
    secret = session_cookie(headers.get("cookie", "")) if sessions is not None else ""
    if sessions is None or not secret:
        return Visitor(_digest("nobody", ""), Grant)
    return Visitor(_digest("session", secret), lambda: sessions.grant(secret))


def _digest(kind: str, secret: str) -> bytes:
    return sha256(f"{kind} {secret}".encode(errors="surrogatepass")).digest()
