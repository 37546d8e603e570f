"""Inputs of a program: at the end of each interval an input says what came in it, its cut, which is then logged.

A cut is JSON, and whoever has it can read the same elements again: offsets of a topic, names of files, places in a
queue. What cannot be read twice, such as a socket, goes to a topic of the program's own log first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from pyspark import RDD, SparkContext

from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.edges.linereceiver import LineReceiver
from headrace.edges.topicranges import Range, divided_ranges, end_offsets, topic_at
from headrace.engine.spark.files import Folder
from headrace.engine.spark.session import spark_session
from headrace.log import Log, Topic
from headrace.log.values import VALUE, WATERMARK_KEY

Cut = dict[str, Any]
"""What came in an interval; as JSON has it."""

_SPLIT: Final = 4 << 20
"""Bytes of a file for which a task of their own pays off."""
_CUTS: Final = 64
"""Cuts after which one has all names of a directory, so that a new run need not read further back."""
_CODECS: Final = (".gz", ".bz2", ".snappy", ".lz4", ".deflate", ".zst", ".zstd", ".xz")
"""Names of files that Spark decompresses."""


class InputContext(Protocol):
    """What inputs know of the run that they are in."""

    sc: SparkContext
    folder: Path
    """The directory of the program's log and state."""


class Input:
    """A source of elements."""

    failure: Exception | None = None

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        """Begins to receive, at the start of a run. Cuts of earlier runs are given, the last one first."""

    def stop(self) -> None:
        """Stops receiving; what was received stays."""

    def cut(self) -> Cut:
        """Returns what came since the last cut."""
        raise NotImplementedError

    def waiting(self) -> bool:
        """Returns whether something was received that is in no cut."""
        return False

    def size(self, cut: Cut) -> int:
        """Returns the number of elements of a cut; 0 if it is not known without reading."""
        return 0

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        """Returns the elements of a cut."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_run_")}


class TopicInput(Input):
    """Records of a topic of an embedded log: its rows or JSON values; with `column`, the values of one column."""

    def __init__(self, log: str, name: str, start: str = "latest", column: str | None = None) -> None:
        self.log, self.name, self.column, self.first = log, name, column, start

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        topic = self._run_topic = topic_at(self.log, self.name)
        if (last := next(earlier, None)) is not None:
            self._run_at: dict[str, int] = last["until"]
        elif self.first == "latest":
            self._run_at = self._ends()
        else:
            self._run_at = {str(number): each.earliest() for number, each in enumerate(topic.partitions)}

    def cut(self) -> Cut:
        cut = {"from": self._run_at, "until": self._ends()}
        self._run_at = cut["until"]
        return cut

    def waiting(self) -> bool:
        return self._ends() != self._run_at

    def size(self, cut: Cut) -> int:
        return sum(until - cut["from"].get(number, 0) for number, until in cut["until"].items())

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        topic = topic_at(self.log, self.name)
        begin, end = ({int(number): at for number, at in cut[name].items()} for name in ("from", "until"))
        begin = {number: begin.get(number, 0) for number in end}
        shares = divided_ranges(topic, begin, end, context.sc.defaultParallelism)
        return _read(context, shares, _ranges_reader(self.log, self.name, self.column))

    def _ends(self) -> dict[str, int]:
        return {str(number): at for number, at in end_offsets(self._run_topic).items()}


class SocketInput(TopicInput):
    """Lines that a server sends; a thread of the driver writes them to a topic before they count as received."""

    def __init__(self, host: str, port: int, number: int) -> None:
        super().__init__("", f"socket-{number}", "earliest", "value")
        self.host, self.port = host, port

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        self.log = str(context.folder / "log")
        if self.name not in Log(self.log).topics():
            Log(self.log).create(self.name, values="value string")
        super().start(context, earlier)
        receiver = LineReceiver(self._run_topic, self.host, self.port, attempts=1 << 30, failed=self._failed)
        self._run_receiver = receiver
        receiver.start()

    def stop(self) -> None:
        if (receiver := self.__dict__.pop("_run_receiver", None)) is not None:
            receiver.stop()

    def _failed(self) -> None:
        self.failure = self._run_receiver.failure


class FileInput(Input):
    """New files of a directory: lines of text or, with a `length`, records of so many bytes.

    A file is new if it was not there when the stream was made, whatever its time. Names that begin with a dot are left
    alone, so a file that is still being written can have one.
    """

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
            return _read(context, [[path] for path, _ in files], _records_reader(self.length))
        most = max(_SPLIT, -(-sum(size for _, size in files) // context.sc.defaultParallelism))
        parts = [(path, at, min(at + most, size)) for path, size in files for at in range(0, size, most)]
        return _read(context, _shares(parts, most), _read_lines)

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
            sizes = Folder(spark_session(), self.directory).sizes()
            return {path: size for path, size in sizes if not path.rpartition("/")[2].startswith(".")}
        try:
            with os.scandir(local) as entries:
                return {
                    entry.path: entry.stat().st_size
                    for entry in entries
                    if entry.is_file() and not entry.name.startswith(".")
                }
        except FileNotFoundError:  # it may be made later
            return {}


class QueueInput(Input):
    """RDDs of a queue, one for each batch or all for the first; then a default one, or none."""

    def __init__(self, rdds: list[RDD[Any]], one_at_a_time: bool, default: RDD[Any] | None, number: int) -> None:
        self.count, self.one_at_a_time, self.number, self.has_default = len(rdds), one_at_a_time, number, bool(default)
        self._run_rdds: list[RDD[Any]] = [*rdds, *([default] if default is not None else [])]

    def save(self, context: InputContext) -> None:
        """Writes the RDDs to the program's directory, so that another run can read them."""
        for place, rdd in enumerate(self._run_rdds):
            rdd.saveAsPickleFile(self._path(context, place))

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        last = next(earlier, None)
        self._run_next: int = 0 if last is None else last["next"]

    def cut(self) -> Cut:
        first = self._run_next
        self._run_next = min(first + 1, self.count) if self.one_at_a_time else self.count
        return {"items": list(range(first, self._run_next)), "next": self._run_next}

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        places = cut["items"] or ([self.count] if self.has_default else [])
        rdds = [self._rdd(context, place) for place in places]
        return context.sc.emptyRDD() if not rdds else rdds[0] if len(rdds) == 1 else context.sc.union(rdds)

    def _rdd(self, context: InputContext, place: int) -> RDD[Any]:
        if (rdds := self.__dict__.get("_run_rdds")) is not None:
            return rdds[place]  # type: ignore[no-any-return]
        return context.sc.pickleFile(self._path(context, place), 1)

    def _path(self, context: InputContext, place: int) -> str:
        return str(context.folder / "queues" / str(self.number) / str(place))


def _read(context: InputContext, shares: list[Any], reader: Callable[[Iterable[Any]], Iterator[Any]]) -> RDD[Any]:
    """Returns an RDD with a partition for each share, which a task reads; without partitions if there is nothing."""
    return context.sc.parallelize(shares, len(shares)).mapPartitions(reader) if shares else context.sc.emptyRDD()


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


def _ranges_reader(log: str, name: str, column: str | None) -> Callable[[Iterable[list[Range]]], Iterator[Any]]:
    def read(shares: Iterable[list[Range]]) -> Iterator[Any]:
        topic = topic_at(log, name)
        for wanted in (each for share in shares for each in share):
            for _, batch in topic.partition(wanted.partition).read(wanted.first, wanted.until):
                yield from values_of(topic, batch, column)

    return read


def values_of(topic: Topic, batch: Any, column: str | None) -> list[Any]:
    """Returns the values of a record batch; watermarks of a stream that wrote it are none."""
    keys = batch.column("key")
    if keys.null_count < len(keys):
        own = [key is None or not key.startswith(WATERMARK_KEY) for key in keys.to_pylist()]
        if not all(own):
            batch = batch.filter(own)
    values = batch.column(VALUE)
    return values.field(column).to_pylist() if column is not None else topic.values.decode(values)  # type: ignore[no-any-return]


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
