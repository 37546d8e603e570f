"""A partition: what was appended is read, whatever happens to the process or the disk in between."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log import CorruptionError, LogError
from headrace.log.partitions import Partition
from headrace.log.retention import Retention
from headrace.log.segments import ENTRY

SCHEMA = pa.schema([("timestamp", pa.int64()), ("value", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([[10 * value for value in values], list(values)], schema=SCHEMA)


def opened(folder: Path, segment_bytes: int = 64 << 20, retention: Retention = Retention()) -> Partition:
    return Partition(folder, SCHEMA, "visits/3", segment_bytes, retention)


def values(partition: Partition, offset: int | None = None, until: int | None = None) -> list[int]:
    start = partition.earliest() if offset is None else offset
    return [value for _, rows in partition.read(start, until) for value in rows.column("value").to_pylist()]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    made = opened(tmp_path / "3")
    made.create()
    return made


def test_offsets_count_records(partition: Partition) -> None:
    assert [partition.append(batch(1, 2)), partition.append(batch(3)), partition.append(batch(4, 5))] == [0, 2, 3]
    assert values(partition) == [1, 2, 3, 4, 5]
    assert values(partition, 1, 4) == [2, 3, 4]
    assert values(partition, 5) == []
    assert partition.append(batch()) == 5  # which has no record of its own


def test_another_process_goes_on_where_one_was(partition: Partition) -> None:
    partition.append(batch(1))
    other = opened(partition.folder)
    assert other.append(batch(2)) == 1
    assert partition.append(batch(3)) == 2
    assert values(other) == values(partition) == [1, 2, 3]


def test_a_segment_is_an_arrow_stream(partition: Partition) -> None:
    partition.append(batch(1, 2))
    partition.append(batch(3))
    (data,) = partition.folder.glob("*.arrow")
    assert pa.ipc.open_stream(data.read_bytes()).read_all().column("value").to_pylist() == [1, 2, 3]


def test_offsets_that_are_not_there(partition: Partition) -> None:
    partition.append(batch(1))
    with pytest.raises(LogError, match=r"visits/3: offset 7 does not exist yet; choose one from 0 to 1"):
        values(partition, 7)


def test_read_by_time(tmp_path: Path) -> None:
    partition = opened(tmp_path / "3", segment_bytes=1)
    partition.create()
    for number in range(1, 8, 2):
        partition.append(batch(number, number + 1))
    assert [partition.offset_at(time) for time in (0, 10, 11, 45, 80, 81)] == [0, 0, 1, 4, 7, 8]


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    segment_bytes=st.sampled_from([1, 1000, 64 << 20]),
    data=st.data(),
)
def test_whatever_the_segments_any_range_reads_as_a_list_would(
    tmp_path_factory: Any, sizes: list[int], segment_bytes: int, data: st.DataObject
) -> None:
    partition = opened(tmp_path_factory.mktemp("log"), segment_bytes)
    partition.create()
    written: list[int] = []
    for size in sizes:
        more = list(range(len(written), len(written) + size))
        assert partition.append(batch(*more), durable=False) == len(written)
        written += more
    start = data.draw(st.integers(0, len(written)))
    until = data.draw(st.integers(start, len(written)))
    again = opened(partition.folder, segment_bytes)
    assert values(again, start, until) == written[start:until]
    assert again.offset_at(10 * start) == start


# Broken appends and broken disks


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_torn_tail_is_cut_and_told(partition: Partition, kept: float, caplog: pytest.LogCaptureFixture) -> None:
    """However far the last append came, what was whole before it stays, and the next one follows it."""
    partition.append(batch(1, 2))
    data, index = (next(partition.folder.glob(f"*.{kind}")) for kind in ("arrow", "index"))
    whole, entries = data.stat().st_size, index.read_bytes()
    partition.append(batch(3, 4))
    cut = whole + int(kept * (data.stat().st_size - whole))
    os.truncate(data, cut)
    index.write_bytes(entries)  # the crash came before the entry was written
    again = opened(partition.folder)
    with caplog.at_level(logging.WARNING):
        assert values(again) == [1, 2]
    assert again.append(batch(5)) == 2
    assert values(opened(partition.folder)) == [1, 2, 5]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (cut > whole)
    assert all(f"visits/3: cut {cut - whole} bytes after offset 1 in" in each for each in told)


@pytest.mark.parametrize("kept", [0, 17, ENTRY.itemsize, ENTRY.itemsize + 40, 2 * ENTRY.itemsize])
@pytest.mark.parametrize("damage", [False, True])
def test_an_index_that_is_behind_or_damaged_is_made_anew(partition: Partition, kept: int, damage: bool) -> None:
    for number in range(3):
        partition.append(batch(number, number), producer=9, sequence=number)
    (index,) = partition.folder.glob("*.index")
    entries = index.read_bytes()
    index.write_bytes(entries[:kept] + (b"\0" * (len(entries) - kept) if damage else b""))
    again = opened(partition.folder)
    assert again.verify() == 6
    assert again.append(batch(2, 2), producer=9, sequence=2) == 4
    assert index.read_bytes() == entries


def test_what_never_reached_the_disk_may_be_sent_again(partition: Partition) -> None:
    """Without fsync the index may be on disk and the data not."""
    partition.append(batch(1), durable=False)
    (data,) = partition.folder.glob("*.arrow")
    size = data.stat().st_size
    partition.append(batch(2, 3), producer=5, sequence=1, durable=False)
    os.truncate(data, size)
    again = opened(partition.folder)
    assert again.append(batch(2, 3), producer=5, sequence=1) == 1
    assert values(again) == [1, 2, 3]


def test_damage_before_whole_batches_is_never_cut(partition: Partition) -> None:
    for number in range(3):
        partition.append(batch(number, number))
    data, index = (next(partition.folder.glob(f"*.{kind}")) for kind in ("arrow", "index"))
    index.write_bytes(b"")
    octets = bytearray(data.read_bytes())
    octets[SCHEMA.serialize().size + (len(octets) - SCHEMA.serialize().size) // 3 - 16] ^= 1
    data.write_bytes(octets)
    with pytest.raises(CorruptionError, match=r"visits/3: the batch at offsets 0 to 1 is damaged"):
        opened(partition.folder).append(batch(9))
    assert data.read_bytes() == octets


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_and_named(tmp_path_factory: Any, place: float, bit: int) -> None:
    partition = opened(tmp_path_factory.mktemp("log"))
    partition.create()
    for number in range(3):
        partition.append(batch(number, number), durable=False)
    (data,) = partition.folder.glob("*.arrow")
    octets = bytearray(data.read_bytes())
    first = SCHEMA.serialize().size
    at = first + int(place * (len(octets) - first))
    octets[at] ^= 1 << bit
    data.write_bytes(octets)
    broken = 2 * ((at - first) * 3 // (len(octets) - first))
    with pytest.raises(CorruptionError, match=rf"visits/3: the batch at offsets {broken} to {broken + 1} is damaged"):
        opened(partition.folder).verify()


# Producers


def test_what_is_sent_again_is_there_once(partition: Partition) -> None:
    assert partition.append(batch(1), producer=7, sequence=0) == 0
    assert partition.append(batch(2), producer=8, sequence=0) == 1
    assert partition.append(batch(3), producer=7, sequence=4) == 2
    assert opened(partition.folder).append(batch(1), producer=7, sequence=0) == 0
    assert partition.append(batch(3), producer=7, sequence=4) == 2
    assert values(partition) == [1, 2, 3]
    with pytest.raises(LogError, match=r"sequence 3 after 4, .* must grow"):
        partition.append(batch(9), producer=7, sequence=3)


def _append_many(folder: Path, producer: int) -> None:
    partition = opened(folder, segment_bytes=2_000)
    for sequence in range(40):
        for _ in range(2):  # each batch twice, as after a lost acknowledgement
            partition.append(batch(producer, sequence), producer=producer, sequence=sequence, durable=False)


def test_several_processes_append_each_batch_once_and_in_order(partition: Partition) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_append_many, args=(partition.folder, producer)) for producer in (1, 2, 3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    read = np.array(values(partition)).reshape(-1, 2)
    for producer in (1, 2, 3):
        assert read[read[:, 0] == producer][:, 1].tolist() == list(range(40))
    assert len(read) == 120


def _append_against_a_limit(folder: Path) -> None:
    """The disk takes only so much more of a file, and part of a write before it refuses the rest."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    partition = opened(folder)
    (data,) = folder.glob("*.arrow")
    for sequence, room in enumerate([0, 1, 8, 300, 600]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (data.stat().st_size + room, resource.RLIM_INFINITY))
        with pytest.raises(OSError, match="File too large"):
            partition.append(batch(*range(100)), producer=5, sequence=sequence)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert partition.append(batch(*range(100)), producer=5, sequence=sequence) == 100 * sequence


def test_a_write_that_comes_to_part_of_its_bytes_is_no_append(partition: Partition) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_append_against_a_limit, args=(partition.folder,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert values(partition) == 5 * list(range(100))


# Retention


def five(folder: Path, retention: Retention) -> Partition:
    """Five segments of two records each, of times 0 to 90."""
    made = opened(folder / "3", 1)
    made.create()
    for number in range(0, 10, 2):
        made.append(batch(number, number + 1))
    return opened(folder / "3", 1, retention)


def test_retention_by_age_removes_whole_segments(tmp_path: Path) -> None:
    full = five(tmp_path, Retention(age=100, clock=lambda: 135))
    assert full.retain() == 4
    assert full.earliest() == 4
    assert values(opened(full.folder)) == list(range(4, 10))
    with pytest.raises(LogError, match=r"offset 0 is removed by retention; choose one from 4 to 10"):
        values(full, 0)


def test_retention_by_size_never_removes_the_newest_nor_what_is_needed(tmp_path: Path) -> None:
    full = five(tmp_path, Retention(size=0, needed=lambda: 5))
    assert full.retain() == 4
    assert full.earliest() == 4
    assert full.retain(force=True) == 4
    assert values(full) == [8, 9]
    assert full.append(batch(10)) == 10


def test_retention_comes_by_itself_with_every_segment(tmp_path: Path) -> None:
    time, needed = 1000, 0
    partition = opened(tmp_path / "3", 1, Retention(age=100, needed=lambda: needed, clock=lambda: time))
    partition.create()
    for number in range(5):
        partition.append(batch(number))
    assert values(partition) == [0, 1, 2, 3, 4]
    needed = 2
    partition.append(batch(100))
    assert values(partition) == [2, 3, 4, 100]
    needed = 9
    partition.append(batch(101))
    assert values(partition) == [100, 101]
    time = 1101
    assert values(partition) == [100, 101]  # and not before
    partition.append(batch(102))
    assert values(partition) == [101, 102]
    assert sorted(path.suffix for path in partition.folder.iterdir()) == [
        "",
        "",
        ".arrow",
        ".arrow",
        ".index",
        ".index",
    ]


@pytest.mark.parametrize("again", ["the same", "a new one"])
def test_who_sends_again_what_retention_has_removed_is_recognised(tmp_path: Path, again: str) -> None:
    partition = opened(tmp_path / "3", 1, Retention(size=0))
    partition.create()
    partition.append(batch(1), producer=7, sequence=3)
    same = opened(tmp_path / "3", 1)
    assert same.last_sequence(7) == 3
    partition.append(batch(2), producer=-8, sequence=3)
    for number in range(3, 6):
        partition.append(batch(number), producer=9, sequence=number)
    assert values(partition) == [5]
    resumed = same if again == "the same" else opened(tmp_path / "3", 1)
    assert resumed.last_sequence(7) == 3
    assert resumed.append(batch(1), producer=7, sequence=3) == 0
    assert resumed.append(batch(6), producer=7, sequence=4) == 5
    assert resumed.append(batch(4), producer=9, sequence=4) == 3
    assert values(resumed) == [5, 6]
    assert opened(tmp_path / "3").last_sequence(-8) == -1  # without a name nobody comes again


def test_what_a_removal_left_goes_with_the_next(tmp_path: Path) -> None:
    full = five(tmp_path, Retention(size=0, needed=lambda: 4))
    (full.folder / f"{0:020d}.index").unlink()  # killed right after it
    assert opened(full.folder).earliest() == 2
    assert full.retain() == 2
    assert sorted(int(path.stem) for path in full.folder.glob("*.arrow")) == [4, 6, 8]


def test_what_is_removed_while_it_is_read_is_told(tmp_path: Path) -> None:
    full = five(tmp_path, Retention(size=0))
    reading = full.read(0)
    next(reading)
    assert opened(full.folder, 1, Retention(size=0)).retain() == 8
    with pytest.raises(LogError, match=r"offset 2 was removed by retention while it was being read; .* from 8"):
        next(reading)


def test_what_is_removed_while_somebody_looks_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = five(tmp_path, Retention())
    read_on, looks = reader._read_new, []

    def overtaken() -> Any:
        held = read_on()
        looks.append(len(held))
        if len(looks) == 1:
            other = opened(reader.folder, 1, Retention(size=0))
            other.append(batch(10, 11))
            other.retain()
        return held

    monkeypatch.setattr(reader, "_read_new", overtaken)
    assert reader.next_offset() == 12
    assert looks == [5, 1]
    assert values(reader) == [10, 11]


def test_threads_append_and_read_through_one_object(partition: Partition) -> None:
    """Or what one thread has just appended and another reads would be there twice."""
    appends, over, wrong = 100, threading.Event(), list[list[int]]()

    def read() -> None:
        while not over.is_set():
            offsets = [offset for offset, _ in partition.read(0)]
            if offsets != list(range(len(offsets))):
                wrong.append(offsets)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for reader in readers:
            reader.start()
        for _ in range(appends):
            partition.append(batch(1), durable=False)
    finally:
        sys.setswitchinterval(interval)
        over.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert [offset for offset, _ in partition.read(0)] == list(range(appends))
