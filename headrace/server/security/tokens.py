"""Tokens: secrets that clients show, and what each allows."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, get_args

Scope = Literal["read", "write", "admin"]
"""To ask views; to append to topics; to change which version answers. Who may do the last may do all."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# Of the letters that a header takes as they are; long enough that nobody guesses it.
_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_RULE: Final = (
    "tokens are SCOPES:SECRET, separated by spaces or lines: scopes are read, write or admin, joined by +, and a "
    "secret has 16 to 512 letters, digits or . _ ~ + / = -"
)


@dataclass(frozen=True)
class Tokens:
    """The tokens that a server takes. They are kept as digests, and never shown.

    >>> tokens = Tokens.parse("read:correct-horse-battery read+write:staple-0123456789")
    >>> sorted(tokens.allows("staple-0123456789")), sorted(tokens.allows("guess"))
    (['read', 'write'], [])
    >>> tokens
    Tokens(2)
    >>> Tokens.parse("read:secret")
    Traceback (most recent call last):
        ...
    ValueError: tokens are SCOPES:SECRET, separated by spaces or lines: scopes are read, write or admin, joined by +, \
and a secret has 16 to 512 letters, digits or . _ ~ + / = -; the one in place 1 is not
    """

    granted: tuple[tuple[bytes, frozenset[Scope]], ...] = field(default=())

    @staticmethod
    def parse(text: str) -> Tokens:
        """Tokens as a file or an environment variable has them."""
        granted = []
        for place, each in enumerate(text.split(), 1):
            named, _, secret = each.partition(":")
            scopes = frozenset(scope for scope in SCOPES if scope in named.split("+"))
            if not set(named.split("+")) <= set(SCOPES) or not _SECRET.fullmatch(secret):
                raise ValueError(f"{_RULE}; the one in place {place} is not")  # which may hold a secret all the same
            granted.append((_digest(secret), frozenset(SCOPES) if "admin" in scopes else scopes))
        return Tokens(tuple(granted))

    def allows(self, secret: str) -> frozenset[Scope]:
        """What a token allows; nothing, if it is none. Takes as long for any."""
        shown = _digest(secret)
        allowed: frozenset[Scope] = frozenset()
        for digest, scopes in self.granted:
            if hmac.compare_digest(digest, shown):
                allowed = allowed | scopes
        return allowed

    def dump(self) -> list[tuple[str, list[str]]]:
        """The digests and what they allow, for another process of the same server.

        >>> tokens = Tokens.parse("read:correct-horse-battery")
        >>> Tokens.load(tokens.dump()) == tokens
        True
        """
        return [(digest.hex(), sorted(scopes)) for digest, scopes in self.granted]

    @staticmethod
    def load(dumped: list[tuple[str, list[Scope]]]) -> Tokens:
        """What `dump` gave."""
        return Tokens(tuple((bytes.fromhex(digest), frozenset(scopes)) for digest, scopes in dumped))

    def __bool__(self) -> bool:
        return bool(self.granted)

    def __repr__(self) -> str:
        return f"Tokens({len(self.granted)})"


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
