"""Files of a directory as an input: lines of text, or records of a fixed length."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark import RDD, SparkContext

from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.graph.inputs import Cut, Input, InputContext, read_shares
from headrace.engine.spark.files import Folder
from headrace.engine.spark.session import spark_session

_SPLIT: Final = 4 << 20
"""Bytes of a file for which a task of their own pays off."""
_CUTS: Final = 64
"""Cuts after which one has all names of a directory, so that a new run need not read further back."""
_CODECS: Final = (".gz", ".bz2", ".snappy", ".lz4", ".deflate", ".zst", ".zstd", ".xz")
"""Names of files that Spark decompresses."""


class FileInput(Input):
    """New files of a directory: lines of text or, with a `length`, records of so many bytes.

    A file is new if it was not there when the stream was made, whatever its time. Names that begin with a dot are left
    alone, so a file that is still being written can have one.
    """

    lasting = False  # others may move files away

    def __init__(self, directory: str, length: int | None = None) -> None:
        self.directory, self.length = directory, length
        self.old = sorted(self._listed())

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        since: list[Cut] = []
        seen = set(self.old)
        for cut in earlier:
            if cut["seen"] is not None:
                seen = set(cut["seen"])
                break
            since.append(cut)
        for cut in reversed(since):
            seen -= set(cut["gone"])
            seen |= {path for path, _ in cut["files"]}
        self._run_seen, self._run_cuts = seen, 0

    def cut(self) -> Cut:
        """Returns the new files, those that are gone, which may come again, and from time to time all."""
        listed = self._listed()
        new, gone = sorted(listed.keys() - self._run_seen), sorted(self._run_seen - listed.keys())
        self._run_seen = set(listed)
        self._run_cuts += 1
        all_files = sorted(listed) if self._run_cuts % _CUTS == 1 else None
        return {"files": [[path, listed[path]] for path in new], "gone": gone, "seen": all_files}

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        files = [(path, size) for path, size in cut["files"] if size]
        if self._local is None or any(path.endswith(_CODECS) for path, _ in files):
            return self._read_by_spark(context.sc, [path for path, _ in files])
        if self.length is not None:
            return read_shares(context, [[path] for path, _ in files], _records_reader(self.length))
        most = max(_SPLIT, -(-sum(size for _, size in files) // context.sc.defaultParallelism))
        parts = [(path, at, min(at + most, size)) for path, size in files for at in range(0, size, most)]
        return read_shares(context, _shares(parts, most), _read_lines)

    def _read_by_spark(self, sc: SparkContext, paths: list[str]) -> RDD[Any]:
        if not paths:
            return sc.emptyRDD()
        if self.length is not None:
            return sc.union([sc.binaryRecords(path, self.length) for path in paths])
        return sc.textFile(",".join(path.replace(",", "\\,") for path in paths))

    @property
    def _local(self) -> str | None:
        """The directory as a path of this machine; None if Spark has to look."""
        parts = urlsplit(self.directory)
        path = parts.path if parts.scheme == "file" else self.directory if not parts.scheme else None
        return None if path is None or any(c in path for c in "*?[{") else os.path.abspath(path)

    def _listed(self) -> dict[str, int]:
        """Lists files with their sizes."""
        if (local := self._local) is None:
            sizes = Folder(spark_session(), self.directory).matching_files()
            return {path: size for path, size in sizes if not path.rpartition("/")[2].startswith(".")}
        listed: dict[str, int] = {}
        try:
            entries = os.scandir(local)
        except FileNotFoundError:  # it may be made later
            return listed
        with entries:
            for entry in entries:
                if entry.is_file() and not entry.name.startswith("."):
                    with suppress(FileNotFoundError):  # moved away just now; the others are still there
                        listed[entry.path] = entry.stat().st_size
        return listed


def _shares(parts: list[tuple[str, int, int]], most: int) -> list[list[tuple[str, int, int]]]:
    """Deals parts of files out to tasks, about so many bytes each."""
    shares: list[list[tuple[str, int, int]]] = []
    room = 0
    for part in parts:
        size = part[2] - part[1]
        if size > room:
            shares.append([])
            room = most
        shares[-1].append(part)
        room -= size
    return shares


def _read_lines(shares: Iterable[list[tuple[str, int, int]]]) -> Iterator[str]:
    for path, begin, end in (part for share in shares for part in share):
        with open(path, "rb") as file:
            if begin:
                file.seek(begin - 1)
                file.readline()  # it belongs to the part before, or ends right there
            length = end - file.tell()
            if length <= 0:
                continue
            data = file.read(length)
            if not data.endswith(b"\n"):
                data += file.readline()
        yield from lines_of(data)


def lines_of(data: bytes) -> list[str]:
    """Splits bytes into lines, at the ends that Hadoop knows: \\n, \\r and both.

    >>> lines_of(b"a\\nb\\r\\nc\\x0bd")
    ['a', 'b', 'c\\x0bd']
    """
    if b"\r" in data:
        return [line.decode("utf-8", "replace") for line in data.splitlines()]
    lines = data.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _records_reader(length: int) -> Callable[[Iterable[list[str]]], Iterator[bytes]]:
    def read(shares: Iterable[list[str]]) -> Iterator[bytes]:
        for path in (path for share in shares for path in share):
            data = Path(path).read_bytes()
            if len(data) % length:
                raise StreamingContextError(
                    f"binaryRecordsStream: {path} has {len(data)} bytes, which is not a multiple of the record length "
                    f"{length}; write whole records, under a name that begins with a dot until they are complete"
                )
            yield from (data[at : at + length] for at in range(0, len(data), length))

    return read
