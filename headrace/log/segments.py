"""Segments: the files of a partition. Record batches in one Arrow IPC stream, and beside it an index of the batches.

`00000000000000000042.arrow` begins at offset 42; its `.index` has an entry of fixed size for each batch: offsets,
place, checksum, times and producer. A batch is in the log when its entry is: the data is on disk before the entry is
written, so whatever follows the last whole entry is the rest of an append that did not come to its end.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.log.errors import CorruptionError

ENTRY: Final = np.dtype(
    [
        ("base", "<i8"),  # offset of the first record
        ("count", "<i8"),
        ("position", "<i8"),
        ("length", "<i8"),
        ("checksum", "<i8"),  # of the batch's bytes
        ("producer", "<i8"),  # 0 for none
        ("sequence", "<i8"),
        ("earliest", "<i8"),  # and latest: timestamps of its records
        ("latest", "<i8"),
        ("own", "<i8"),  # checksum of the entry's other fields
    ]
)
Entries = npt.NDArray[np.void]

_COVERED: Final = ENTRY.itemsize - 8


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

    @staticmethod
    def bases(folder: Path) -> list[int]:
        """The first offsets of a partition's segments, in order."""
        return sorted(int(path.stem) for path in folder.glob("*.index"))

    def create(self) -> None:
        """An empty segment: a schema without batches."""
        for path, start in ((self.data, self.schema.serialize().to_pybytes()), (self.index, b"")):
            with path.open("wb") as file:
                file.write(start)
                os.fsync(file.fileno())
        sync_folder(self.folder)

    def remove(self) -> None:
        self.index.unlink()
        self.data.unlink(missing_ok=True)

    def entries(self, start: int = 0) -> Entries:
        """The whole entries of the index from number `start` on."""
        with self.index.open("rb") as file:
            file.seek(start * ENTRY.itemsize)
            raw = file.read()
        entries = np.frombuffer(raw, ENTRY, len(raw) // ENTRY.itemsize)
        wrong = np.flatnonzero(np.array([_own(entry) for entry in entries], np.int64) != entries["own"])
        if len(wrong):
            number = start + int(wrong[0])
            before = entries[wrong[0] - 1] if wrong[0] else None
            offset = self.base if before is None else int(before["base"] + before["count"])
            raise CorruptionError(
                f"{self.place}: the index entry of the batch at offset {offset} is damaged ({self.index.name}, entry "
                f"{number}); restore the file, or read on from the segment after it"
            )
        return entries

    def append(self, batch: pa.RecordBatch, end: int, entry: dict[str, int], *, durable: bool) -> Entries:
        """Writes a batch at `end`, then its entry; returns the entry, as one of one."""
        body = batch.serialize()
        made = np.zeros(1, ENTRY)
        for name, value in {
            **entry,
            "count": batch.num_rows,
            "position": end,
            "length": body.size,
            "checksum": zlib.crc32(body),
        }.items():
            made[name] = value
        made["own"] = _own(made[0])
        for path, place, content in (
            (self.data, end, memoryview(body)),
            (self.index, None, made.tobytes()),
        ):
            with path.open("r+b" if place is not None else "ab") as file:
                if place is not None:
                    file.seek(place)
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
        return made

    def read(self, entry: Any, source: pa.NativeFile | None = None) -> pa.RecordBatch:
        """The batch of an entry, if its bytes are those that were written."""
        if source is None:
            with pa.memory_map(str(self.data)) as file:
                return self.read(entry, file)
        length = int(entry["length"])
        source.seek(int(entry["position"]))
        body = source.read_buffer(length)  # of the mapped file: nothing is copied
        if body.size != length or zlib.crc32(body) != entry["checksum"]:
            last = int(entry["base"] + entry["count"] - 1)
            raise CorruptionError(
                f"{self.place}: the batch at offsets {entry['base']} to {last} is damaged: its bytes in "
                f"{self.data.name} do not have the checksum they were written with; restore the file, or read on from "
                f"offset {last + 1}"
            )
        return pa.ipc.read_record_batch(body, self.schema)

    def end(self, entries: Entries) -> int:
        """Where the next batch goes."""
        return int(entries[-1]["position"] + entries[-1]["length"]) if len(entries) else self.schema.serialize().size

    def mend(self) -> str | None:
        """Cuts off what an append left that did not come to its end; returns what it was. Only for who may append."""
        entries = self.entries()
        size = self.data.stat().st_size
        whole = [self.end(entries[: n + 1]) <= size for n in range(len(entries))]
        kept = entries[: whole.index(False)] if False in whole else entries
        end = self.end(kept)
        torn = max(size - end, 0), self.index.stat().st_size - len(kept) * ENTRY.itemsize
        if torn == (0, 0):
            return None
        os.truncate(self.data, end)
        os.truncate(self.index, len(kept) * ENTRY.itemsize)
        next_offset = int(kept[-1]["base"] + kept[-1]["count"]) if len(kept) else self.base
        lost = int(entries[len(kept) :]["count"].sum())
        what = f"{lost} records that never reached the disk" if lost else "the rest of an append that was cut short"
        return f"{self.place}: cut {torn[0]} bytes after offset {next_offset - 1} in {self.data.name}: {what}"


def sync_folder(folder: Path) -> None:
    """Makes new names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _own(entry: Any) -> int:
    return zlib.crc32(entry.tobytes()[:_COVERED])
