"""Cookies of the server, taken by their exact form: no other cookie is parsed, here or behind the guard.

Browsers send those of all services of a host, and strangers send what they like. Parsers that unquote values may need
seconds for 30 kB of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

SESSION: Final = "headrace_session"
"""The name of the cookie with the secret of a session."""

SECURE_SESSION: Final = f"__Host-{SESSION}"
"""The name of the same cookie over https: browsers let no other host, and no page without TLS, set one of that name."""

_MOST: Final = 8  # of our cookies in a request; a browser has three at most
_HOST_PREFIX: Final = b"__Host-"
# It begins with letters, which are searched for as fast as memory is read: what is before them is looked at then.
_OURS: Final = re.compile(rb"headrace_[a-z]{1,16}=[\w-]{0,64}(?=[ \t]*(?:;|$))")
_SESSION: Final = re.compile(rf"(?:^|;)[ \t]*(?:__Host-)?{SESSION}=([\w-]{{43}})(?=[ \t]*(?:;|$))", re.ASCII)


def own_cookies(headers: Iterable[bytes], *, https: bool) -> bytes:
    """Returns what Cookie headers say in cookies of this server; of the two names of a session, the scheme's.

    >>> own_cookies([b'theme="\\\\"; headrace_theme=dark', b"headrace_session=abc"], https=False)
    b'headrace_theme=dark; headrace_session=abc'
    >>> own_cookies([b"headrace_session=abc; __Host-headrace_session=def"], https=True)
    b'__Host-headrace_session=def'
    """
    other = f"{SESSION if https else SECURE_SESSION}=".encode()
    found = islice(((header, match) for header in headers for match in _OURS.finditer(header)), _MOST)
    cookies = (_whole(header[: match.start()], match[0]) for header, match in found)
    return b"; ".join(cookie for cookie in cookies if cookie is not None and not cookie.startswith(other))


def _whole(before: bytes, cookie: bytes) -> bytes | None:
    """Returns a cookie with the prefix of its name; None if it is a part of another, given what is before it."""
    if before.endswith(_HOST_PREFIX):
        before, cookie = before.removesuffix(_HOST_PREFIX), _HOST_PREFIX + cookie
    return cookie if before.rstrip(b" \t")[-1:] in (b"", b";") else None


def session_cookie(header: str) -> str:
    """Returns the session's secret from a Cookie header; empty if it has none, or several.

    >>> session_cookie(f"theme=dark; headrace_session={'x' * 43}") == "x" * 43
    True
    >>> session_cookie("headrace_session=short"), session_cookie(f"headrace_session={'x' * 43};" * 2)
    ('', '')
    """
    found = _SESSION.findall(header)
    return found[0] if len(found) == 1 else ""
