"""Error messages of commands: one line on standard error, and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console


def fail(message: str, code: int = 1) -> NoReturn:
    """Prints an error message and exits."""
    Console(stderr=True).print("[bold red]error:[/]", end=" ")
    print(message, file=sys.stderr)
    raise SystemExit(code)


@contextmanager
def errors_as_messages(*errors: type[Exception]) -> Iterator[None]:
    """Prints errors of these classes as one line and exits.

    >>> with errors_as_messages(ValueError):
    ...     int("1")
    1
    """
    try:
        yield
    except errors as error:
        fail(str(error))
