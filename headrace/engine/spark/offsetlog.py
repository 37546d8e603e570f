"""Reads Spark's log of offsets: how far each micro-batch reads each source, and the time of the batch."""

from __future__ import annotations

import json
from typing import Any

from headrace.engine.spark.files import Folder


class OffsetLog:
    """The log of offsets of a checkpoint; Spark writes it before a batch runs."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.folder("offsets")

    def time_of(self, batch_id: int) -> int:
        """Returns the time of a batch, in microseconds."""
        return 1000 * int(json.loads(self._lines(batch_id)[1])["batchTimestampMs"])

    def ends_of(self, batch_id: int) -> list[Any]:
        """Returns where the batch ends in each source, in the source's own form; None before its first data."""
        return [None if line == b"-" else json.loads(line) for line in self._lines(batch_id)[2:]]

    def _lines(self, batch_id: int) -> list[bytes]:
        # A version, what Spark knows of the batch, and a line for each source.
        if (logged := self._folder.read(str(batch_id))) is None:
            raise LookupError(f"batch {batch_id} is not logged in {self._folder}")
        return logged.splitlines()
