"""Formats of what outlives its process, by number: what another version of Headrace wrote is refused, never misread."""

from __future__ import annotations


def other_format(what: str, found: object, known: int, remedy: str) -> str:
    """Why something of another format is not read, and what to do.

    >>> print(other_format("the checkpoint /data/speed", 2, 1, "run with a new checkpoint"))
    the checkpoint /data/speed has format 2, and this version of Headrace reads format 1: another version made it; \
use that one, or run with a new checkpoint
    """
    has = "a format without a number" if found is None else f"format {found}"
    return (
        f"{what} has {has}, and this version of Headrace reads format {known}: another version made it; use that one, "
        f"or {remedy}"
    )
