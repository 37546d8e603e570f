"""Finds the checkpoints and savepoints in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import SparkSession

from headrace.engine.checkpoint.checkpoint import newest_manifest
from headrace.engine.checkpoint.streamnames import MANIFEST
from headrace.engine.spark.files import Folder
from headrace.engine.state.storedstate import StoredState

_DEPTH: Final = 3
"""How many directories below the one that is given are searched."""


def saved_in(spark: SparkSession, path: str) -> Iterator[tuple[str, StoredState]]:
    """Yields the streams saved in a directory or below, each with its path from there."""
    yield from _saved(Folder(spark, path), "", _DEPTH)


def _saved(folder: Folder, name: str, depth: int) -> Iterator[tuple[str, StoredState]]:
    names = [] if folder.is_file() else folder.names()
    if MANIFEST.format(0) in names:
        yield name or ".", StoredState(folder, newest_manifest(folder))
        return
    for each in names if depth else ():
        if not each.startswith("."):
            yield from _saved(folder.folder(each), f"{name}/{each}".lstrip("/"), depth - 1)
