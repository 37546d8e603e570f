"""Edits the logs of Spark's checkpoint that name files.

A file source logs the files of a micro-batch before the batch itself is logged. If the process dies in between, Spark
would put the files that follow into the same batch: steps of a script would run into one another. So entries that no
batch has taken are deleted before a stream goes on, and their files are found again.
"""

from __future__ import annotations

import json

from headrace.engine.spark.files import Folder


def forget_untaken(checkpoint: Folder) -> None:
    """Deletes what file sources logged after the last batch in Spark's log of offsets."""
    last = _last_taken(checkpoint.folder("offsets"))
    sources = checkpoint.folder("sources")
    for number in _numbers(sources):
        log = sources.folder(str(number))
        for entry, name in _numbers(log).items():
            if entry > last.get(number, -1) and b'{"path":' in (log.read(name) or b""):
                log.folder(name).delete()


def names_files(name: str) -> bool:
    """Returns whether a file of Spark's checkpoint holds paths: a log of a file source, or a description of state."""
    return name.startswith("sources/") or "/_metadata/" in name


def relocated(log: bytes, source: Folder, target: Folder) -> bytes:
    """Returns the contents of such a file with paths in `target` in place of those in `source`."""
    for before, after in ((source.uri(), target.uri()), (str(source), str(target))):
        log = log.replace(f'"{before}/'.encode(), f'"{after}/'.encode())
    return log


def _last_taken(offsets: Folder) -> dict[int, int]:
    """The last entry of each file source's log that a batch has taken, by the source's number."""
    batches = _numbers(offsets)
    if not batches:
        return {}
    # A version, what Spark knows of the batch, and a line for each source, "-" if it has had nothing yet.
    lines = (offsets.read(batches[max(batches)]) or b"").decode().splitlines()[2:]
    ends = {number: json.loads(line) for number, line in enumerate(lines) if line.startswith("{")}
    return {number: offset["logOffset"] for number, offset in ends.items() if "logOffset" in offset}


def _numbers(folder: Folder) -> dict[int, str]:
    """The files of a log by their numbers; some have a suffix behind it."""
    names = {name.partition(".")[0]: name for name in folder.names()}
    return {int(number): name for number, name in names.items() if number.isdigit()}
