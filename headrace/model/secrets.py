"""URLs of databases without what is secret in them, to be shown and written down."""

from __future__ import annotations

from sqlalchemy.engine import URL


def redact_url(url: URL) -> str:
    """A URL as messages have it.

    >>> from sqlalchemy import make_url
    >>> redact_url(make_url("postgresql://ann:hunter2@db/views"))
    'postgresql://ann:***@db/views'
    >>> redact_url(make_url("postgresql://ann@db/views?password=hunter2&connect_timeout=3"))
    'postgresql://ann@db/views?connect_timeout=3'
    """
    return url.difference_update_query(_secret(url)).render_as_string(hide_password=True)


def strip_passwords(url: URL) -> str:
    """A URL without its passwords, which opens the database where these are not needed.

    >>> from sqlalchemy import make_url
    >>> strip_passwords(make_url("postgresql://ann:hunter2@db/views?sslpassword=hunter2"))
    'postgresql://ann@db/views'
    """
    return url._replace(password=None).difference_update_query(_secret(url)).render_as_string(hide_password=False)


def redact_text(text: str, url: URL) -> str:
    """Text that others wrote, without the passwords of a URL."""
    found = [url.query[name] for name in _secret(url)]
    for each in [url.password or "", *(value for values in found for value in _each(values))]:
        text = text.replace(each, "***") if each else text
    return text


def _secret(url: URL) -> list[str]:
    """Parameters of a URL that are passwords: libpq takes them there, too."""
    return [name for name in url.query if "password" in name.lower()]


def _each(values: str | tuple[str, ...]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else values
