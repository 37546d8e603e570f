"""Segments: the files of a partition. Record batches in one Arrow IPC stream, and beside it an index of the batches.

`00000000000000000042.arrow` begins at offset 42; its `.index` has an entry of fixed size for each batch: offsets,
place, checksum, times and producer. The data is the truth, and is on disk before its entry is written: each batch
carries its entry as metadata, so that an index that is behind or damaged is made anew.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.local.atomicfile import sync_path
from headrace.log.errors import CorruptionError

ENTRY: Final = np.dtype(
    [
        ("base", "<i8"),  # offset of the first record
        ("count", "<i8"),
        ("producer", "<i8"),  # 0 for none
        ("sequence", "<i8"),
        ("earliest", "<i8"),  # and latest: timestamps of its records
        ("latest", "<i8"),
        ("checksum", "<i8"),  # of the batch's bytes, columns first; as the batch carries it, of the columns alone
        ("position", "<i8"),
        ("length", "<i8"),
        ("own", "<i8"),  # checksum of the entry's other fields
    ]
)
Entries = npt.NDArray[np.void]

_COVERED: Final = ENTRY.itemsize - 8
_CARRIED: Final = 7 * 8  # what a batch carries of its entry: all but its place
_META: Final = b"headrace"
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow stream, which a segment never has."""


@dataclass(frozen=True)
class Segment:
    """One segment, by its directory and first offset. `place` names the partition in errors."""

    folder: Path
    base: int
    schema: pa.Schema
    place: str

    @property
    def data(self) -> Path:
        return self.folder / f"{self.base:020d}.arrow"

    @property
    def index(self) -> Path:
        return self.folder / f"{self.base:020d}.index"

    @property
    def torn(self) -> Path:
        """What was cut off its end."""
        return self.folder / f"{self.base:020d}.torn"

    @staticmethod
    def bases(folder: Path, kind: str = "index") -> list[int]:
        """The first offsets of a partition's segments, in order."""
        return sorted(int(path.stem) for path in folder.glob(f"*.{kind}"))

    def create(self) -> None:
        """An empty segment: a schema without batches."""
        for path, start in ((self.data, self.schema.serialize().to_pybytes()), (self.index, b"")):
            with path.open("wb") as file:
                file.write(start)
                os.fsync(file.fileno())
        sync_path(self.folder)

    def remove(self) -> None:
        """Removes its files: without its index a segment is none, and while there is data, somebody has to go on."""
        for path in (self.index, self.torn, self.data):
            path.unlink(missing_ok=True)

    def entries(self, start: int = 0) -> Entries:
        """The entries of the index from number `start` on, as far as they are whole."""
        with self.index.open("rb") as file:
            file.seek(start * ENTRY.itemsize)
            raw = file.read()
        entries = np.frombuffer(raw, ENTRY, len(raw) // ENTRY.itemsize)
        wrong = [number for number, entry in enumerate(entries) if _own(entry) != entry["own"]]
        return entries[: wrong[0]] if wrong else entries

    def append(self, batch: pa.RecordBatch, end: int, entry: dict[str, int], *, durable: bool) -> Entries:
        """Writes a batch at `end`, then its entry; returns the entry, as one of one."""
        made = np.zeros(1, ENTRY)
        for name, value in {**entry, "count": batch.num_rows}.items():
            made[name] = value
        carried = made.tobytes()[:_CARRIED]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            writer.write_batch(batch, custom_metadata={_META: carried})
        head, body = _parts(memoryview(sink.getvalue())[self.start : -len(_END)])
        # Columns are written and summed up once: their checksum takes its place in the head afterwards.
        made["checksum"] = zlib.crc32(body)
        head = memoryview(head.tobytes().replace(carried, made.tobytes()[:_CARRIED], 1))
        with self.data.open("r+b", buffering=0) as data:
            data.seek(end)
            _write(data, head)
            _write(data, body)
            if durable:
                os.fsync(data.fileno())
        made = _placed(made, end, head, body)
        with self.index.open("ab", buffering=0) as index:
            _write(index, memoryview(made.tobytes()))
        return made

    def read(self, entry: Any, source: pa.NativeFile | None = None) -> pa.RecordBatch:
        """The batch of an entry, if its bytes are those that were written."""
        if source is None:
            with pa.memory_map(str(self.data)) as file:
                return self.read(entry, file)
        length = int(entry["length"])
        source.seek(int(entry["position"]))
        message = source.read_buffer(length)  # of the mapped file: nothing is copied
        if message.size != length or _checksum(*_parts(memoryview(message))) != entry["checksum"]:
            raise self.damaged(entry)
        return pa.ipc.read_record_batch(message, self.schema)

    def damaged(self, entry: Any) -> CorruptionError:
        last = int(entry["base"] + entry["count"] - 1)
        return CorruptionError(
            f"{self.place}: the batch at offsets {entry['base']} to {last} is damaged: its bytes in {self.data.name} "
            f"do not have the checksum they were written with; restore the file, or read on from offset {last + 1}"
        )

    @property
    def start(self) -> int:
        """Where the first batch is: behind the schema."""
        return int(self.schema.serialize().size)

    def end(self, entries: Entries) -> int:
        """Where the next batch goes."""
        return int(entries[-1]["position"] + entries[-1]["length"]) if len(entries) else self.start

    def mend(self) -> str | None:
        """Makes the index agree with the data, and cuts off what an append left that did not come to its end.

        Returns what was cut. Only for who may append.
        """
        size = self.data.stat().st_size
        entries = self.entries()
        entries = entries[entries["position"] + entries["length"] <= size]
        found = [entries]
        with pa.memory_map(str(self.data)) as file:
            end = self.end(entries)
            while (made := self._found(file, end, size)) is not None:
                found.append(made)
                end = self.end(made)
        entries = np.concatenate(found)
        new = self.index.with_suffix(".new")
        new.write_bytes(entries.tobytes())
        new.rename(self.index)
        if end == size:
            return None
        with self.data.open("rb") as data:
            data.seek(end)
            self.torn.write_bytes(data.read())
        os.truncate(self.data, end)
        last = int(entries[-1]["base"] + entries[-1]["count"]) - 1 if len(entries) else self.base - 1
        return (
            f"{self.place}: cut {size - end} bytes after offset {last} in {self.data.name}, the rest of an append that "
            f"was cut short; they are kept in {self.torn.name}"
        )

    def _found(self, file: pa.NativeFile, at: int, size: int) -> Entries | None:
        """The entry of the batch at a place of the data; None where there is no whole one."""
        file.seek(at)
        rest = file.read_buffer(size - at)
        try:
            length = len(_parts(memoryview(rest))[0]) + pa.ipc.read_message(rest).body.size
            message = rest.slice(0, length)
            stream = pa.py_buffer(self.schema.serialize().to_pybytes() + message.to_pybytes())
            carried = pa.ipc.open_stream(stream).read_next_batch_with_custom_metadata().custom_metadata[_META]
        except (EOFError, KeyError, pa.ArrowInvalid, OSError):
            return None
        made = np.frombuffer(carried + bytes(ENTRY.itemsize - _CARRIED), ENTRY).copy()
        head, body = _parts(memoryview(message))
        if zlib.crc32(body) != made[0]["checksum"]:
            if at + length < size:
                raise self.damaged(made[0])
            return None
        return _placed(made, at, head, body)


def _parts(message: memoryview) -> tuple[memoryview, memoryview]:
    """The head of an Arrow message, which says how long it is itself, and its columns."""
    start = 8 + int.from_bytes(message[4:8], "little")
    return message[:start], message[start:]


def _write(file: FileIO, octets: memoryview) -> None:
    """Writes all of it: a disk that is nearly full takes a part, and refuses the rest only when it is asked again."""
    while octets:
        octets = octets[file.write(octets) :]


def _checksum(head: memoryview, body: memoryview) -> int:
    return zlib.crc32(head, zlib.crc32(body))


def _placed(made: Entries, position: int, head: memoryview, body: memoryview) -> Entries:
    """The entry of a message at a place; as it is made, it has the checksum of the columns."""
    made["position"], made["length"] = position, len(head) + len(body)
    made["checksum"] = zlib.crc32(head, int(made[0]["checksum"]))
    made["own"] = _own(made[0])
    return made


def _own(entry: Any) -> int:
    return zlib.crc32(entry.tobytes()[:_COVERED])
