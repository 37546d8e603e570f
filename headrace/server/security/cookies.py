"""Cookies of the server, taken by their exact form: no other cookie is parsed, here or behind the guard.

Browsers send those of all services of a host, and strangers send what they like. Parsers that unquote values may need
seconds for 30 kB of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

SESSION: Final = "headrace_session"
"""The name of the cookie with the secret of a session."""

SECURE_SESSION: Final = f"__Host-{SESSION}"
"""The name of the same cookie over https: browsers let no other host, and no page without TLS, set one of that name."""

# Each character is looked at a bounded number of times: a match ends at the next semicolon.
_OURS: Final = re.compile(rb"(?:^|;)[ \t]*((?:__Host-)?headrace_[a-z]{1,16}=[\w-]{0,64})(?=[ \t]*(?:;|$))")
_SESSION: Final = re.compile(rf"(?:^|;)[ \t]*(?:__Host-)?{SESSION}=([\w-]{{43}})(?=[ \t]*(?:;|$))", re.ASCII)


def own_cookies(headers: Iterable[bytes], *, https: bool) -> bytes:
    """Returns what Cookie headers say in cookies of this server; of the two names of a session, the scheme's.

    >>> own_cookies([b'theme="\\\\"; headrace_theme=dark', b"headrace_session=abc"], https=False)
    b'headrace_theme=dark; headrace_session=abc'
    >>> own_cookies([b"headrace_session=abc; __Host-headrace_session=def"], https=True)
    b'__Host-headrace_session=def'
    """
    other = f"{SESSION if https else SECURE_SESSION}=".encode()
    found = [cookie for header in headers for cookie in _OURS.findall(header)]
    return b"; ".join(cookie for cookie in found if not cookie.startswith(other))


def session_cookie(header: str) -> str:
    """Returns the session's secret from a Cookie header; empty if it has none, or several.

    >>> session_cookie(f"theme=dark; headrace_session={'x' * 43}") == "x" * 43
    True
    >>> session_cookie("headrace_session=short"), session_cookie(f"headrace_session={'x' * 43};" * 2)
    ('', '')
    """
    found = _SESSION.findall(header)
    return found[0] if len(found) == 1 else ""
