"""Signals that stop a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yields an event that SIGINT and SIGTERM set, and restores the former handlers at the end of the block.

    >>> import os
    >>> with stopped_by_signals() as stop:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stop.wait(10)
    True
    """
    stop = threading.Event()
    handlers = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
