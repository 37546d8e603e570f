"""Tokens: secrets that clients send, and the scopes of each."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Final, Literal, NamedTuple, get_args

Scope = Literal["read", "write", "admin"]
"""What a token allows: to query views, to append to topics, or to change which version answers (which allows all)."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# Characters that a header may have as they are; long enough that nobody guesses it.
_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
_RULE: Final = (
    "tokens are SCOPES:SECRET, separated by spaces or lines: scopes are read, write or admin, joined by +, and a "
    "secret has 16 to 512 letters, digits or . _ ~ + / = -"
)


class Grant(NamedTuple):
    """The scopes that a token grants, and its digest; without either, no valid token was given."""

    scopes: frozenset[Scope] = frozenset()
    token: bytes = b""

    @property
    def owner(self) -> str:
        """The name of the token in what its clients store, such as keys of requests; empty without a token.

        It is a digest of a digest, and the same after a restart.
        """
        return blake2b(self.token, digest_size=8, person=b"headrace owner").hexdigest() if self.token else ""


@dataclass(frozen=True)
class Tokens:
    """The tokens that a server accepts, as digests. They are never printed.

    >>> tokens = Tokens.parse("read:correct-horse-battery read+write:staple-0123456789")
    >>> sorted(tokens.scopes("staple-0123456789")), sorted(tokens.scopes("guess"))
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
        """Reads tokens as a file or an environment variable has them."""
        granted = []
        for place, token in enumerate(text.split(), 1):
            names, _, secret = token.partition(":")
            scopes = frozenset(scope for scope in SCOPES if scope in names.split("+"))
            if not set(names.split("+")) <= set(SCOPES) or not _SECRET.fullmatch(secret):
                raise ValueError(f"{_RULE}; the one in place {place} is not")  # the text may hold a secret all the same
            granted.append((_digest(secret), frozenset(SCOPES) if "admin" in scopes else scopes))
        return Tokens(tuple(granted))

    def grant(self, secret: str) -> Grant:
        """Returns what a token grants: nothing if it is not valid. Takes the same time for any secret."""
        presented = _digest(secret)
        granted: frozenset[Scope] = frozenset()
        for digest, scopes in self.granted:
            if hmac.compare_digest(digest, presented):
                granted = granted | scopes
        return Grant(granted, presented) if granted else Grant()

    def scopes(self, secret: str) -> frozenset[Scope]:
        """Returns the scopes of a token; none if it is not valid."""
        return self.grant(secret).scopes

    def dump(self) -> list[tuple[str, list[str]]]:
        """Returns the digests and their scopes, for another process of the same server.

        >>> tokens = Tokens.parse("read:correct-horse-battery")
        >>> Tokens.load(tokens.dump()) == tokens
        True
        """
        return [(digest.hex(), sorted(scopes)) for digest, scopes in self.granted]

    @staticmethod
    def load(dumped: list[tuple[str, list[Scope]]]) -> Tokens:
        """Makes tokens of what `dump` returned."""
        return Tokens(tuple((bytes.fromhex(digest), frozenset(scopes)) for digest, scopes in dumped))

    def __bool__(self) -> bool:
        return bool(self.granted)

    def __repr__(self) -> str:
        return f"Tokens({len(self.granted)})"


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogatepass")).digest()
