"""Segments, the files of a partition: record batches in one Arrow IPC stream, and an index of the batches.

`00000000000000000042.arrow` begins at offset 42; its `.index` has an entry of fixed size for each batch: offsets,
position, checksum, times and producer. The data is the truth, and is on disk before its entry is written: each batch
has its entry as metadata, so that an index that is behind or damaged can be rebuilt.
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
from headrace.local.privatefile import private_opener
from headrace.log.errors import CorruptionError

ENTRY: Final = np.dtype(
    [
        ("base", "<i8"),  # offset of the first record
        ("count", "<i8"),
        ("producer", "<i8"),  # 0 for none
        ("sequence", "<i8"),
        ("earliest", "<i8"),  # and latest: timestamps of its records
        ("latest", "<i8"),
        ("checksum", "<i8"),  # of the batch's bytes, columns first; in the batch's own metadata, of the columns only
        ("position", "<i8"),
        ("length", "<i8"),
        ("entry_checksum", "<i8"),  # of the entry's other fields
    ]
)
Entries = npt.NDArray[np.void]

DAMAGED: Final = (
    "{place}: the batch at offsets {first} to {last} is damaged: its bytes in {file} do not have the checksum they "
    "were written with; restore the file, or continue from offset {next}"
)
"""The message about a damaged batch, for whoever reads one."""

_COVERED: Final = ENTRY.itemsize - 8
_CARRIED: Final = 7 * 8  # bytes of its entry that a batch has as metadata: all but its position
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
        """The file of the bytes that were cut off its end."""
        return self.folder / f"{self.base:020d}.torn"

    @staticmethod
    def bases(folder: Path, kind: str = "index") -> list[int]:
        """Returns the first offsets of a partition's segments, in order."""
        return sorted(int(path.stem) for path in folder.glob(f"*.{kind}"))

    def create(self) -> None:
        """Creates an empty segment: a schema without batches."""
        for path, start in ((self.data, self.schema.serialize().to_pybytes()), (self.index, b"")):
            with open(path, "wb", opener=private_opener) as file:
                file.write(start)
                os.fsync(file.fileno())
        sync_path(self.folder)

    def remove(self) -> None:
        """Removes its files: the index first, without which a segment does not count, and the data last."""
        for path in (self.index, self.torn, self.data):
            path.unlink(missing_ok=True)

    def entries(self, start: int = 0) -> Entries:
        """Reads the entries of the index from number `start` on, up to the first that is incomplete."""
        with self.index.open("rb") as file:
            file.seek(start * ENTRY.itemsize)
            raw = file.read()
        entries = np.frombuffer(raw, ENTRY, len(raw) // ENTRY.itemsize)
        wrong = [number for number, entry in enumerate(entries) if _entry_checksum(entry) != entry["entry_checksum"]]
        return entries[: wrong[0]] if wrong else entries

    def append(self, batch: pa.RecordBatch, end: int, entry: dict[str, int], *, durable: bool) -> Entries:
        """Writes a batch at `end`, then its entry; returns the entry, in an array of one."""
        entries = np.zeros(1, ENTRY)
        for name, value in {**entry, "count": batch.num_rows}.items():
            entries[name] = value
        carried = entries.tobytes()[:_CARRIED]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            writer.write_batch(batch, custom_metadata={_META: carried})
        head, body = _parts(memoryview(sink.getvalue())[self.start : -len(_END)])
        # Columns are serialized and summed once: their checksum is put into the head afterwards.
        entries["checksum"] = zlib.crc32(body)
        head = memoryview(head.tobytes().replace(carried, entries.tobytes()[:_CARRIED], 1))
        with open(self.data, "r+b", buffering=0, opener=private_opener) as data:
            data.seek(end)
            _write(data, head)
            _write(data, body)
            if durable:
                os.fsync(data.fileno())
        entries = _complete(entries, end, head, body)
        with open(self.index, "ab", buffering=0, opener=private_opener) as index:
            _write(index, memoryview(entries.tobytes()))
        return entries

    def read(self, entry: Any, source: pa.NativeFile | None = None) -> pa.RecordBatch:
        """Reads the batch of an entry; refuses bytes other than those that were written."""
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
        """Returns the error of a damaged batch."""
        first, following = int(entry["base"]), int(entry["base"] + entry["count"])
        numbers = {"first": first, "last": following - 1, "next": following}
        return CorruptionError(DAMAGED.format(place=self.place, file=self.data.name, **numbers))

    @property
    def start(self) -> int:
        """The position of the first batch, after the schema."""
        return int(self.schema.serialize().size)

    def end(self, entries: Entries) -> int:
        """Returns the position of the next batch."""
        return int(entries[-1]["position"] + entries[-1]["length"]) if len(entries) else self.start

    def repair(self) -> str | None:
        """Makes the index agree with the data, and cuts off the rest of an interrupted append.

        Returns a message about what was cut. The caller holds the partition's lock.
        """
        size = self.data.stat().st_size
        entries = self.entries()
        entries = entries[entries["position"] + entries["length"] <= size]
        complete = [entries]
        with pa.memory_map(str(self.data)) as file:
            end = self.end(entries)
            while (entry := self._entry_at(file, end, size)) is not None:
                complete.append(entry)
                end = self.end(entry)
        entries = np.concatenate(complete)
        new = self.index.with_suffix(".new")
        with open(new, "wb", opener=private_opener) as file:
            file.write(entries.tobytes())
        new.rename(self.index)
        if end == size:
            return None
        with self.data.open("rb") as data, open(self.torn, "wb", opener=private_opener) as torn:
            data.seek(end)
            torn.write(data.read())
        os.truncate(self.data, end)
        last = int(entries[-1]["base"] + entries[-1]["count"]) - 1 if len(entries) else self.base - 1
        return (
            f"{self.place}: cut {size - end} bytes after offset {last} in {self.data.name}, the rest of an interrupted "
            f"append; they are saved in {self.torn.name}"
        )

    def _entry_at(self, file: pa.NativeFile, position: int, size: int) -> Entries | None:
        """Rebuilds the entry of the batch at a position of the data; None if there is no complete batch."""
        file.seek(position)
        rest = file.read_buffer(size - position)
        try:
            length = len(_parts(memoryview(rest))[0]) + pa.ipc.read_message(rest).body.size
            message = rest.slice(0, length)
            stream = pa.py_buffer(self.schema.serialize().to_pybytes() + message.to_pybytes())
            carried = pa.ipc.open_stream(stream).read_next_batch_with_custom_metadata().custom_metadata[_META]
        except (EOFError, KeyError, pa.ArrowInvalid, OSError):
            return None
        entries = np.frombuffer(carried + bytes(ENTRY.itemsize - _CARRIED), ENTRY).copy()
        head, body = _parts(memoryview(message))
        if zlib.crc32(body) != entries[0]["checksum"]:
            if position + length < size:
                raise self.damaged(entries[0])
            return None
        return _complete(entries, position, head, body)


def _parts(message: memoryview) -> tuple[memoryview, memoryview]:
    """Splits an Arrow message into its head, which has its own length, and its columns."""
    start = 8 + int.from_bytes(message[4:8], "little")
    return message[:start], message[start:]


def _write(file: FileIO, octets: memoryview) -> None:
    """Writes all bytes: a disk that is nearly full writes a part, and refuses the rest only at the next call."""
    while octets:
        octets = octets[file.write(octets) :]


def _checksum(head: memoryview, body: memoryview) -> int:
    return zlib.crc32(head, zlib.crc32(body))


def _complete(entries: Entries, position: int, head: memoryview, body: memoryview) -> Entries:
    """Completes an entry that has the checksum of the columns with that of the head, and with its position."""
    entries["position"], entries["length"] = position, len(head) + len(body)
    entries["checksum"] = zlib.crc32(head, int(entries[0]["checksum"]))
    entries["entry_checksum"] = _entry_checksum(entries[0])
    return entries


def _entry_checksum(entry: Any) -> int:
    return zlib.crc32(entry.tobytes()[:_COVERED])
