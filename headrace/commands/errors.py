"""How commands tell that something is wrong: in one line on standard error, and by their exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console


def fail(message: str, code: int = 1) -> NoReturn:
    """Tells what is wrong, and ends the command."""
    Console(stderr=True).print("[bold red]error:[/]", end=" ")
    print(message, file=sys.stderr)
    raise SystemExit(code)


@contextmanager
def told(*errors: type[Exception]) -> Iterator[None]:
    """Errors of these kinds end the command with their text.

    >>> with told(ValueError):
    ...     int("1")
    1
    """
    try:
        yield
    except errors as error:
        fail(str(error))
