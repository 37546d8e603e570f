"""Keeps the rows of a DataFrame while they are read several times or piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame) -> Iterator[None]:
    """Persists the rows that the first job computes, until the end of the block."""
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


@contextmanager
def computed(frame: DataFrame) -> Iterator[None]:
    """Computes all rows first, and persists them until the end of the block."""
    with persisted(frame):
        frame.write.format("noop").mode("overwrite").save()
        yield
