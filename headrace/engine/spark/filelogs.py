"""The logs in which Spark's file sources note the files of each micro-batch.

A source notes them before the batch itself is logged. If the process dies in between, Spark would put the files that
follow into the same batch: steps of a script would run into one another. So what no batch has taken is forgotten before
a stream goes on, and found again.
"""

from __future__ import annotations

import json

from headrace.engine.spark.files import Folder


def forget_untaken(checkpoint: Folder) -> None:
    """Deletes what file sources noted after the last batch that is logged in Spark's checkpoint."""
    taken = _taken(checkpoint.folder("offsets"))
    sources = checkpoint.folder("sources")
    for number in _numbers(sources):
        log = sources.folder(str(number))
        for entry, name in _numbers(log).items():
            if entry > taken.get(number, -1) and b'{"path":' in (log.read(name) or b""):
                log.folder(name).delete()


def _taken(offsets: Folder) -> dict[int, int]:
    """The last entry of each file source's log that a batch has taken, by the source's number."""
    batches = _numbers(offsets)
    if not batches:
        return {}
    # A version, what Spark knows of the batch, and a line for each source, "-" if it has had nothing yet.
    lines = (offsets.read(batches[max(batches)]) or b"").decode().splitlines()[2:]
    told = {number: json.loads(line) for number, line in enumerate(lines) if line.startswith("{")}
    return {number: offset["logOffset"] for number, offset in told.items() if "logOffset" in offset}


def _numbers(folder: Folder) -> dict[int, str]:
    """The files of a log by their numbers; some have a suffix behind it."""
    names = {name.partition(".")[0]: name for name in folder.names()}
    return {int(number): name for number, name in names.items() if number.isdigit()}
