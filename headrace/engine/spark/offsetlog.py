"""The log in which Spark notes, before a micro-batch runs, up to where it reads each source, and its time."""

from __future__ import annotations

import json
from typing import Any

from headrace.engine.spark.files import Folder


class OffsetLog:
    """The log of a checkpoint, which is Spark's own."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint.folder("offsets")

    def time_of(self, batch_id: int) -> int:
        """The time of a batch, in microseconds."""
        return 1000 * int(json.loads(self._lines(batch_id)[1])["batchTimestampMs"])

    def ends_of(self, batch_id: int) -> list[Any]:
        """Of each source, where the batch ends, as the source says it; None if it has had nothing yet."""
        return [None if line == b"-" else json.loads(line) for line in self._lines(batch_id)[2:]]

    def _lines(self, batch_id: int) -> list[bytes]:
        # A version, what Spark knows of the batch, and a line for each source.
        if (logged := self._folder.read(str(batch_id))) is None:
            raise LookupError(f"batch {batch_id} is not logged in {self._folder}")
        return logged.splitlines()
