"""Partitions: an ordered, append-only sequence of records, each with an offset, kept in segments.

Any number of processes may append and read at once: an append holds the partition's lock, and readers go by the index,
which names whole batches only. What is known of the index is kept in memory and read on from where it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.local.filelock import file_lock
from headrace.log.errors import LogError
from headrace.log.retention import Departed, Retention
from headrace.log.segments import ENTRY, Entries, Segment

TIMESTAMP: Final = "timestamp"
"""The column of records' timestamps, in microseconds."""

_log = logging.getLogger("headrace.log")


class _Known:
    """What was read of a segment's index; `last_of` has the last sequence number of each producer in the partition."""

    def __init__(self, segment: Segment, last_of: dict[int, int]) -> None:
        self.segment, self._last_of = segment, last_of
        self._held, self._count = np.zeros(16, ENTRY), 0

    @property
    def entries(self) -> Entries:
        return self._held[: self._count]

    def read_on(self) -> None:
        self.add(self.segment.entries(self._count))

    def add(self, entries: Entries) -> None:
        count = self._count + len(entries)
        if count > len(self._held):
            self._held = np.concatenate([self.entries, np.zeros(max(count, len(self._held)), ENTRY)])
        self._held[self._count : count] = entries
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
        self._known: dict[int, _Known] = {}
        self._last_of: dict[int, int] = {}
        self._first = 0  # what was removed before it is in `_last_of`

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._segment(0).create()

    def append(self, batch: pa.RecordBatch, *, producer: int = 0, sequence: int = 0, durable: bool = True) -> int:
        """Adds records, all or none; returns the offset of the first. Who begins a segment sees to retention.

        What a producer appends twice under one sequence number is there once, at the offset it got the first time.
        """
        if not batch.num_rows:
            return self.next_offset()
        with self.locked():
            held = self._mended()
            if producer and (known := self._appended(held, producer, sequence)) is not None:
                return known
            last = held[-1]
            if len(last.entries) and last.segment.end(last.entries) > self.segment_bytes:
                segment = self._segment(last.next_offset)
                segment.create()
                last = self._known[segment.base] = _Known(segment, self._last_of)
                self._remove([*held, last])
            times = pc.min_max(batch.column(TIMESTAMP)).as_py()
            entry = {
                "base": last.next_offset,
                "producer": producer,
                "sequence": sequence,
                "earliest": times["min"],
                "latest": times["max"],
            }
            made = last.segment.append(batch, last.segment.end(last.entries), entry, durable=durable)
            last.add(made)
            return int(made[0]["base"])

    def earliest(self) -> int:
        """The offset of the first record that is still there."""
        return self._refreshed()[0].segment.base

    def next_offset(self) -> int:
        """The offset the next record will get."""
        return self._refreshed()[-1].next_offset

    def last_sequence(self, producer: int) -> int:
        """The sequence number of the last batch that a producer appended; -1 if there is none.

        It waits for those who are appending: what a process left that died in an append is seen to first, or the
        producer that follows it would send something else under the number of a batch that is there after all.
        """
        with self.locked():
            self._mended()
        return self._last_of.get(producer, -1)

    def read(self, offset: int, until: int | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The records from an offset on, up to `until`, as they were appended: offsets of the first, and batches."""
        held = self._refreshed()
        end = held[-1].next_offset if until is None else until
        first, last = held[0].segment.base, held[-1].next_offset
        if not first <= offset <= last:
            what = "is gone: retention has removed it" if offset < first else "does not exist yet"
            raise LogError(f"{self.place}: offset {offset} {what}; choose one from {first} to {last}")
        for known in held:
            entries = known.entries
            entries = entries[(entries["base"] + entries["count"] > offset) & (entries["base"] < end)]
            if not len(entries):
                continue
            try:
                source = pa.memory_map(str(known.segment.data))
            except FileNotFoundError:
                at = max(offset, known.segment.base)
                raise LogError(
                    f"{self.place}: offset {at} is gone: retention removed it while it was being read; read on from "
                    f"{self.earliest()}"
                ) from None
            with source:
                for entry in entries:
                    base = int(entry["base"])
                    batch = known.segment.read(entry, source)
                    skip = max(offset - base, 0)
                    yield base + skip, batch.slice(skip, min(end - base, batch.num_rows) - skip)

    def borders(self, offset: int, until: int) -> list[int]:
        """The offsets between two others at which batches begin."""
        bases = np.concatenate([known.entries["base"] for known in self._refreshed()])
        return bases[(bases > offset) & (bases < until)].tolist()  # type: ignore[no-any-return]

    def offset_at(self, time: int) -> int:
        """The first offset whose record is not older than a time; that of the next record if there is none."""
        held = self._refreshed()
        for known in held:
            for entry in known.entries[known.entries["latest"] >= time]:
                try:
                    times = np.asarray(known.segment.read(entry).column(TIMESTAMP))
                except FileNotFoundError:  # retention removed it just now
                    return self.offset_at(time)
                return int(entry["base"] + np.flatnonzero(times >= time)[0])
        return held[-1].next_offset

    def spans(self) -> tuple[int, int, int]:
        """The earliest and the latest timestamp, and how many bytes there are."""
        held = self._refreshed()
        entries = np.concatenate([known.entries for known in held])
        if not len(entries):
            return 0, 0, 0
        return int(entries["earliest"].min()), int(entries["latest"].max()), int(entries["length"].sum())

    def retain(self, *, force: bool = False) -> int:
        """Removes whole segments that are not to be kept; returns how many records went.

        The newest stays, and so does what somebody needs, unless it is forced.
        """
        with self.locked():
            return self._remove(self._mended(), force=force)

    def verify(self) -> int:
        """Reads every batch; returns how many records there are, or raises at the first that is damaged."""
        return sum(batch.num_rows for _, batch in self.read(self.earliest()))

    def _segment(self, base: int) -> Segment:
        return Segment(self.folder, base, self.schema, self.place)

    def _remove(self, held: list[_Known], *, force: bool = False) -> int:
        gone = held[: self.retention.removable([known.entries for known in held], force=force)]
        if not gone:
            return 0
        Departed(self.folder).add(known.entries for known in gone)
        first = gone[-1].next_offset
        for base in Segment.bases(self.folder, "arrow"):  # also of those whose removal was cut short
            if base < first:
                self._segment(base).remove()
                self._known.pop(base, None)
        return first - held[0].segment.base

    def _appended(self, held: list[_Known], producer: int, sequence: int) -> int | None:
        """The offset a producer's batch of this sequence has, if it is there; None if it is new."""
        last = self._last_of.get(producer)
        if last is None or sequence > last:
            return None
        for known in reversed(held):
            same = known.entries[(known.entries["producer"] == producer) & (known.entries["sequence"] == sequence)]
            if len(same):
                return int(same[0]["base"])
        if (departed := Departed(self.folder).read().get(producer)) is not None and departed[0] == sequence:
            return departed[1]
        raise LogError(
            f"{self.place}: a producer came with sequence {sequence} after {last}, and what it appended under it is "
            "not there; sequence numbers of a producer must grow"
        )

    def _refreshed(self) -> list[_Known]:
        """What is known of each segment, brought up to date."""
        while True:
            held = self._read_on()
            try:
                behind = self._behind(held)
            except FileNotFoundError:
                continue  # retention removed it meanwhile; there are newer ones
            if behind:
                # Somebody is appending, or died while at it; who gets the lock knows which.
                with self.locked(wait=False) as mine:
                    if mine:
                        return self._mended()
            return held

    def _mended(self) -> list[_Known]:
        """The same, after what a broken append left was seen to. For who holds the lock."""
        held = self._read_on()
        if not self._behind(held):
            return held
        if (torn := held[-1].segment.mend()) is not None:
            _log.warning(torn)
        self._last_of.clear()
        self._known.clear()
        self._first = 0
        return self._read_on()

    def _behind(self, held: list[_Known]) -> bool:
        last = held[-1]
        return last.segment.data.stat().st_size != last.segment.end(last.entries)

    def _read_on(self) -> list[_Known]:
        while True:
            bases = Segment.bases(self.folder)
            if not bases:
                raise LogError(f"{self.place}: there is no such partition in {str(self.folder)!r}")
            if bases[0] != self._first:
                self._first = bases[0]
                for producer, (sequence, _) in Departed(self.folder).read().items():
                    self._last_of[producer] = max(sequence, self._last_of.get(producer, -1))
            self._known = {base: self._known.get(base) or _Known(self._segment(base), self._last_of) for base in bases}
            held = list(self._known.values())
            try:
                for known, following in zip(held, [*bases[1:], None], strict=True):
                    if known.next_offset != following:
                        known.read_on()
                return held
            except FileNotFoundError:
                continue  # retention removed it after it was listed

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """Holds the partition's lock, so that nothing is appended or removed; tells if it is held."""
        with file_lock(self.folder / "lock", wait=wait) as locked:
            yield locked
