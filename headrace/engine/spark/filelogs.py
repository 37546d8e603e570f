"""Edits the logs of Spark's checkpoint that name files.

A file source logs the files of a micro-batch before the batch itself is logged. If the process dies in between, Spark
would put the files that follow into the same batch: steps of a script would run into one another. So entries that no
batch has taken are deleted before a stream goes on, and their files are found again.
"""

from __future__ import annotations

import json
from typing import Any, Final

from headrace.engine.spark.files import Folder

_BEFORE: Final = 10**12
"""In place of the number of an entry: the files were read before this log began. Spark refuses negative ones."""
_READ_BEFORE: Final = f'"batchId":{_BEFORE}'.encode()


def forget_untaken(checkpoint: Folder) -> None:
    """Deletes what file sources logged after the last batch in Spark's log of offsets."""
    last = _last_taken(checkpoint.folder("offsets"))
    sources = checkpoint.folder("sources")
    for number in _numbers(sources):
        log = sources.folder(str(number))
        for entry, name in _numbers(log).items():
            logged = log.read(name) or b""
            if entry > last.get(number, -1) and b'{"path":' in logged and _READ_BEFORE not in logged:
                log.folder(name).delete()


def names_files(name: str) -> bool:
    """Returns whether a file of Spark's checkpoint holds paths: a log of a file source, or a description of state."""
    return name.startswith("sources/") or "/_metadata/" in name


def relocated(log: bytes, source: Folder, target: Folder) -> bytes:
    """Returns the contents of such a file with paths in `target` in place of those in `source`."""
    for before, after in ((source.uri(), target.uri()), (str(source), str(target))):
        log = log.replace(f'"{before}/'.encode(), f'"{after}/'.encode())
    return log


def files_read(log: Folder, last: int) -> dict[str, dict[str, Any]]:
    """Returns the files in the log of a file source up to an entry, by path; none if it is no such log.

    Now and then Spark writes an entry that has all files of those before it.
    """
    files: dict[str, dict[str, Any]] = {}
    for _, name in sorted(_numbers(log).items()):
        _, *lines = (log.read(name) or b"v1").splitlines()
        for line in lines:
            if b'"path":' in line and ((file := json.loads(line))["batchId"] <= last or file["batchId"] == _BEFORE):
                files[file["path"]] = file
    return files


def read_before(files: dict[str, dict[str, Any]]) -> bytes:
    """Makes the first entry of a file source's log: files that Spark takes for read, but in no entry of this log."""
    entries = ({**file, "batchId": _BEFORE} for file in files.values())
    return b"\n".join([b"v1", *(json.dumps(entry, separators=(",", ":")).encode() for entry in entries)])


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
