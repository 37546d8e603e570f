"""Calls functions of clients that may wait for ever, and waits for them for a limited time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Returns what a function returns; raises TimeoutError after so many seconds, and abandons the thread it runs in.

    >>> within(10, lambda: "soon")
    'soon'
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)
