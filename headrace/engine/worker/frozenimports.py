"""Prepares a Python worker of Spark, once, in its first task."""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_imports() -> None:
    """Excludes what a worker has imported from garbage collection.

    Spark collects garbage in a worker after every task, and the worker's next task waits for that: 50 ms for modules,
    which never are garbage, and a micro-batch has several tasks one after another. For the same reason Python itself
    need not look for garbage so often.
    """
    import pandas  # noqa: F401  Arrow imports it later

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # or every few hundred elements of a bundle are searched for cycles
