"""How commands that run until they are told to stop hear of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set.

    >>> import os
    >>> with stopped_by_signals() as stop:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stop.wait(10)
    True
    """
    stop = threading.Event()
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
