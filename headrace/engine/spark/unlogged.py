"""Calls the JVM without a trace in Python's logs, for arguments that are secret."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOGGERS: Final = [logging.getLogger(name) for name in ("py4j.clientserver", "py4j.java_gateway")]


@contextmanager
def unlogged_calls() -> Iterator[None]:
    """Silences py4j, which logs each call with its arguments if the level is DEBUG.

    >>> with unlogged_calls():
    ...     logging.getLogger("py4j.clientserver").disabled
    True
    """
    before = [logger.disabled for logger in _LOGGERS]
    for logger in _LOGGERS:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(_LOGGERS, before, strict=True):
            logger.disabled = disabled
