"""Partitions: an ordered, append-only sequence of records, each with an offset, stored in segments.

Any number of processes may append and read at once: an append holds the partition's lock, and readers use the index,
which names complete batches only. The entries read from an index stay in memory; only new ones are read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.local.filelock import file_lock
from headrace.local.privatefolder import make_folder
from headrace.log.errors import LogError
from headrace.log.fences import Fence
from headrace.log.retention import RemovedBatches, Retention
from headrace.log.segments import ENTRY, Entries, Segment

TIMESTAMP: Final = "timestamp"
"""The column of records' timestamps, in microseconds."""

_log = logging.getLogger("headrace.log")


class _IndexedSegment:
    """A segment with its index in memory; adds to `last_of`, the last sequence number of each producer.

    Any number of threads may use it at once.
    """

    def __init__(self, segment: Segment, last_of: dict[int, int]) -> None:
        self.segment, self._last_of = segment, last_of
        self._buffer, self._count = np.zeros(16, ENTRY), 0
        self._lock = threading.Lock()

    @property
    def entries(self) -> Entries:
        return self._buffer[: self._count]

    def read_new(self) -> None:
        """Reads the entries that were added to the index since."""
        place = self._count
        self.add(self.segment.entries(place), place)

    def add(self, entries: Entries, place: int) -> None:
        """Adds the entries from a place of the index on to those in memory, but for what another thread has added."""
        with self._lock:
            entries = entries[self._count - place :]
            count = self._count + len(entries)
            if count > len(self._buffer):
                self._buffer = np.concatenate([self.entries, np.zeros(max(count, len(self._buffer)), ENTRY)])
            self._buffer[self._count : count] = entries
            self._count = count
            self._last_of |= zip(entries["producer"].tolist(), entries["sequence"].tolist(), strict=True)

    @property
    def next_offset(self) -> int:
        return int(self.entries[-1]["base"] + self.entries[-1]["count"]) if len(self.entries) else self.segment.base


class Partition:
    """One partition of a topic, in a directory.

    >>> import tempfile
    >>> schema = pa.schema([("timestamp", pa.int64()), ("value", pa.binary())])
    >>> partition = Partition(Path(tempfile.mkdtemp()), schema, "visits/0")
    >>> partition.create()
    >>> batch = pa.record_batch([[100, 200], [b"a", b"b"]], schema=schema)
    >>> partition.append(batch), partition.append(batch), partition.next_offset()
    (0, 2, 4)
    >>> [(offset, rows.num_rows) for offset, rows in partition.read(1)]
    [(1, 1), (2, 2)]
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        place: str,
        segment_bytes: int = 64 << 20,
        retention: Retention = Retention(),
    ) -> None:
        self.folder, self.schema, self.place, self.segment_bytes = folder, schema, place, segment_bytes
        self.retention = retention
        self._segments: dict[int, _IndexedSegment] = {}
        self._last_of: dict[int, int] = {}
        self._first = 0  # batches that were removed before this offset are in `_last_of`

    def create(self) -> None:
        make_folder(self.folder)
        self._segment(0).create()

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        producer: int = 0,
        sequence: int = 0,
        durable: bool = True,
        fence: Fence | None = None,
    ) -> int:
        """Appends records, all or none; returns the offset of the first. Applies retention when it begins a segment.

        A batch that a producer appends twice with one sequence number is stored once, at its first offset. With a
        `fence`, the append is refused if another process has taken it over.
        """
        if not batch.num_rows:
            return self.next_offset()
        with self.locked():
            if fence is not None:
                fence.check(self.place)
            segments = self._repaired()
            if producer and (offset := self._appended(segments, producer, sequence)) is not None:
                return offset
            last = segments[-1]
            if len(last.entries) and last.segment.end(last.entries) > self.segment_bytes:
                segment = self._segment(last.next_offset)
                segment.create()
                last = self._segments[segment.base] = _IndexedSegment(segment, self._last_of)
                self._remove([*segments, last])
            times = pc.min_max(batch.column(TIMESTAMP)).as_py()
            entry = {
                "base": last.next_offset,
                "producer": producer,
                "sequence": sequence,
                "earliest": times["min"],
                "latest": times["max"],
            }
            place = len(last.entries)
            entries = last.segment.append(batch, last.segment.end(last.entries), entry, durable=durable)
            last.add(entries, place)
            return int(entries[0]["base"])

    def earliest(self) -> int:
        """Returns the offset of the first record that is not removed."""
        return self._refreshed()[0].segment.base

    def next_offset(self) -> int:
        """Returns the offset that the next record will get."""
        return self._refreshed()[-1].next_offset

    def last_sequence(self, producer: int) -> int:
        """Returns the sequence number of the last batch that a producer appended; -1 if there is none.

        It waits for appends under way, and repairs what a process left that died in one. Without that, the producer
        that replaces it would send other records with the number of a batch that is in the log after all.
        """
        with self.locked():
            self._repaired()
        return self._last_of.get(producer, -1)

    def read(self, offset: int, until: int | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Reads the batches from an offset on, up to `until`; yields each with the offset of its first record."""
        for segment, entries in self.entries(offset, until):
            try:
                source = pa.memory_map(str(segment.data))
            except FileNotFoundError:
                removed = max(offset, segment.base)
                raise LogError(
                    f"{self.place}: offset {removed} was removed by retention while it was being read; continue from "
                    f"{self.earliest()}"
                ) from None
            with source:
                for entry in entries:
                    base = int(entry["base"])
                    batch = segment.read(entry, source)
                    skip, end = max(offset - base, 0), batch.num_rows if until is None else until - base
                    yield base + skip, batch.slice(skip, min(end, batch.num_rows) - skip)

    def read_back(self, producer: int) -> Iterator[pa.RecordBatch]:
        """Reads the batches that a producer appended, the last one first.

        >>> import tempfile
        >>> schema = pa.schema([("timestamp", pa.int64()), ("value", pa.binary())])
        >>> partition = Partition(Path(tempfile.mkdtemp()), schema, "visits/0")
        >>> partition.create()
        >>> for number, (producer, value) in enumerate([(7, b"a"), (8, b"b"), (7, b"c")]):
        ...     batch = pa.record_batch([[0], [value]], schema=schema)
        ...     assert partition.append(batch, producer=producer, sequence=number) == number
        >>> [batch["value"].to_pylist() for batch in partition.read_back(7)]
        [[b'c'], [b'a']]
        """
        for known in reversed(self._refreshed()):
            entries = known.entries
            for entry in entries[entries["producer"] == producer][::-1]:
                yield known.segment.read(entry)

    def entries(self, offset: int, until: int | None = None) -> Iterator[tuple[Segment, Entries]]:
        """Yields the segments that have records from an offset on, up to `until`, with the entries of their batches."""
        segments = self._refreshed()
        end = segments[-1].next_offset if until is None else until
        first, last = segments[0].segment.base, segments[-1].next_offset
        if not first <= offset <= last:
            what = "is removed by retention" if offset < first else "does not exist yet"
            raise LogError(f"{self.place}: offset {offset} {what}; choose one from {first} to {last}")
        for known in segments:
            entries = known.entries
            entries = entries[(entries["base"] + entries["count"] > offset) & (entries["base"] < end)]
            if len(entries):
                yield known.segment, entries

    def batch_starts(self, offset: int, until: int) -> list[int]:
        """Returns the offsets between two others at which batches begin."""
        bases = np.concatenate([known.entries["base"] for known in self._refreshed()])
        return bases[(bases > offset) & (bases < until)].tolist()  # type: ignore[no-any-return]

    def offset_at(self, time: int) -> int:
        """Returns the first offset whose record is not older than a time; that of the next record if there is none."""
        segments = self._refreshed()
        for known in segments:
            for entry in known.entries[known.entries["latest"] >= time]:
                try:
                    times = np.asarray(known.segment.read(entry).column(TIMESTAMP))
                except FileNotFoundError:  # removed by retention just now
                    return self.offset_at(time)
                return int(entry["base"] + np.flatnonzero(times >= time)[0])
        return segments[-1].next_offset

    def spans(self) -> tuple[int, int, int]:
        """Returns the earliest and the latest timestamp, and the size in bytes."""
        entries = np.concatenate([known.entries for known in self._refreshed()])
        if not len(entries):
            return 0, 0, 0
        return int(entries["earliest"].min()), int(entries["latest"].max()), int(entries["length"].sum())

    def retain(self, *, force: bool = False) -> int:
        """Removes whole segments beyond the limits of retention; returns the number of removed records.

        The newest segment stays, and so do records that a group needs, unless `force`.
        """
        with self.locked():
            return self._remove(self._repaired(), force=force)

    def verify(self) -> int:
        """Reads every batch; returns the number of records, or raises an error at the first batch that is damaged."""
        return sum(batch.num_rows for _, batch in self.read(self.earliest()))

    def _segment(self, base: int) -> Segment:
        return Segment(self.folder, base, self.schema, self.place)

    def _remove(self, segments: list[_IndexedSegment], *, force: bool = False) -> int:
        removable = segments[: self.retention.removable([known.entries for known in segments], force=force)]
        if not removable:
            return 0
        RemovedBatches(self.folder).add(known.entries for known in removable)
        first = removable[-1].next_offset
        for base in Segment.bases(self.folder, "arrow"):  # including those whose removal was interrupted
            if base < first:
                self._segment(base).remove()
                self._segments.pop(base, None)
        return first - segments[0].segment.base

    def _appended(self, segments: list[_IndexedSegment], producer: int, sequence: int) -> int | None:
        """Returns the offset of a producer's batch with this sequence number; None if it is new."""
        last = self._last_of.get(producer)
        if last is None or sequence > last:
            return None
        for known in reversed(segments):
            same = known.entries[(known.entries["producer"] == producer) & (known.entries["sequence"] == sequence)]
            if len(same):
                return int(same[0]["base"])
        if (removed := RemovedBatches(self.folder).read().get(producer)) is not None and removed[0] == sequence:
            return removed[1]
        raise LogError(
            f"{self.place}: a producer sent sequence {sequence} after {last}, but no batch with that number exists; "
            "sequence numbers of a producer must grow"
        )

    def _refreshed(self) -> list[_IndexedSegment]:
        """Reads new entries of the indices; returns all segments. Repairs an append if its process died."""
        while True:
            segments = self._read_new()
            try:
                behind = self._is_behind(segments)
            except FileNotFoundError:
                continue  # retention removed it meanwhile; there are newer ones
            if behind:
                # Another process is appending, or died while it did: whoever gets the lock knows that it died.
                with self.locked(wait=False) as locked:
                    if locked:
                        return self._repaired()
            return segments

    def _repaired(self) -> list[_IndexedSegment]:
        """Repairs what an interrupted append left; returns all segments. The caller holds the lock."""
        segments = self._read_new()
        if not self._is_behind(segments):
            return segments
        if (warning := segments[-1].segment.repair()) is not None:
            _log.warning(warning)
        self._last_of.clear()
        self._segments.clear()
        self._first = 0
        return self._read_new()

    def _is_behind(self, segments: list[_IndexedSegment]) -> bool:
        """Returns whether the last index does not cover all of its data."""
        last = segments[-1]
        return last.segment.data.stat().st_size != last.segment.end(last.entries)

    def _read_new(self) -> list[_IndexedSegment]:
        """Reads new segments and new entries of indices; returns all segments."""
        while True:
            bases = Segment.bases(self.folder)
            if not bases:
                raise LogError(f"{self.place}: there is no partition in {str(self.folder)!r}")
            if bases[0] != self._first:
                self._first = bases[0]
                for producer, (sequence, _) in RemovedBatches(self.folder).read().items():
                    self._last_of[producer] = max(sequence, self._last_of.get(producer, -1))
            self._segments = {
                base: self._segments.get(base) or _IndexedSegment(self._segment(base), self._last_of) for base in bases
            }
            segments = list(self._segments.values())
            try:
                for known, following in zip(segments, [*bases[1:], None], strict=True):
                    if known.next_offset != following:
                        known.read_new()
                return segments
            except FileNotFoundError:
                continue  # retention removed it after it was listed

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """Holds the partition's lock, so that nothing is appended or removed; yields whether it is held."""
        with file_lock(self.folder / "lock", wait=wait) as locked:
            yield locked
