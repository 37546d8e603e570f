"""Removes passwords from URLs of databases, before they are printed or stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.engine import URL


def redact_url(url: URL) -> str:
    """Formats a URL for messages, without its passwords.

    >>> from sqlalchemy import make_url
    >>> redact_url(make_url("postgresql://ann:hunter2@db/views"))
    'postgresql://ann:***@db/views'
    >>> redact_url(make_url("postgresql://ann@db/views?password=hunter2&connect_timeout=3"))
    'postgresql://ann@db/views?connect_timeout=3'
    """
    return url.difference_update_query(_secret(url)).render_as_string(hide_password=True)


def strip_passwords(url: URL) -> str:
    """Formats a URL without its passwords, so that it still opens a database that needs none.

    >>> from sqlalchemy import make_url
    >>> strip_passwords(make_url("postgresql://ann:hunter2@db/views?sslpassword=hunter2"))
    'postgresql://ann@db/views'
    """
    return url._replace(password=None).difference_update_query(_secret(url)).render_as_string(hide_password=False)


def redact_text(text: str, url: URL) -> str:
    """Replaces the passwords of a URL in a text, for instance in a driver's error message."""
    values = [url.query[name] for name in _secret(url)]
    passwords = [url.password or "", *(password for value in values for password in _as_tuple(value))]
    for password in filter(None, passwords):
        text = text.replace(password, "***")
    return text


def _secret(url: URL) -> list[str]:
    """Returns the names of a URL's parameters that are passwords: libpq accepts them there, too."""
    return [name for name in url.query if "password" in name.lower()]


def _as_tuple(values: str | tuple[str, ...]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else values
