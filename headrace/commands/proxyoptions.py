"""Options of commands that start a server which stands behind a proxy."""

from __future__ import annotations

from typing import Annotated

import typer

ProxyAddresses = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy",
        envvar="HEADRACE_PROXIES",
        help="The address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-For are believed.",
        show_default=False,
    ),
]
"""The proxies in front of a server; the option may be repeated."""

Https = Annotated[
    bool, typer.Option("--https", help="Browsers reach the server by https alone: a proxy with TLS is in front of it.")
]
"""Whether browsers reach a server by https alone."""
