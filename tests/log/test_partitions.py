"""A partition: what was appended is read, whatever happens to the process or the disk in between."""

from __future__ import annotations

import logging
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log import CorruptionError, LogError
from headrace.log.partitions import Partition
from headrace.log.segments import ENTRY

SCHEMA = pa.schema([("timestamp", pa.int64()), ("value", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([[10 * value for value in values], list(values)], schema=SCHEMA)


def opened(folder: Path, segment_bytes: int = 64 << 20) -> Partition:
    return Partition(folder, SCHEMA, "visits/3", segment_bytes)


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


# Retention


@pytest.fixture
def full(tmp_path: Path) -> Partition:
    """Five segments of two records each, of times 0 to 90."""
    made = opened(tmp_path / "3", segment_bytes=1)
    made.create()
    for number in range(0, 10, 2):
        made.append(batch(number, number + 1))
    return made


def test_retention_by_age_removes_whole_segments(full: Partition) -> None:
    assert full.retain(since=35) == 4
    assert full.earliest() == 4
    assert values(opened(full.folder)) == list(range(4, 10))
    with pytest.raises(LogError, match=r"offset 0 is gone: retention has removed it; choose one from 4 to 10"):
        values(full, 0)


def test_retention_by_size_never_removes_the_newest_nor_what_is_needed(full: Partition) -> None:
    assert full.retain(size=0, needed=5) == 4
    assert full.earliest() == 4
    assert full.retain(size=0) == 4
    assert values(full) == [8, 9]
    assert full.append(batch(10)) == 10
