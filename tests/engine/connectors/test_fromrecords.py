"""Tests reading records as columns, also by a stream's own program. No Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.topicranges import Range
from headrace.engine.connectors.fromrecords import OFFSET_BITS, PLACE, FromJson, Records, merged_batches, value_columns
from headrace.engine.connectors.topicdatasource import RANGES
from headrace.engine.shard.reports import TaskClocks
from headrace.engine.stream.fromranges import FromRanges
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.columnbundles import ColumnReader
from headrace.engine.worker.hidden import BAD, NOW, TIME
from headrace.engine.worker.operators import WindowOperator
from headrace.log import Log
from headrace.model.times import SECOND
from headrace.model.watermarks import BoundedDisorder
from headrace.model.windows import FixedWindows

VISITS = "user string, n int, ts timestamp"


def visits(log: Log, *times: int, partition: int = 0) -> None:
    topic = log.topic("visits") if "visits" in log.topics() else log.create("visits", partitions=2, values=VISITS)
    rows: list[Any] = [{"user": f"u{time}", "n": time, "ts": time} for time in times]
    topic.append(partition, topic.batch(rows, timestamps=[1000 + time for time in times]))


def rows_of(records: Records, *ranges: Range) -> list[dict[str, Any]]:
    return [row for batch in records.read(ranges) for row in batch.to_pylist()]


def test_columns_times_and_places(log: Log) -> None:
    visits(log, 1, 2, 3)
    visits(log, 4)
    columns = value_columns(VISITS)
    placed = Records(str(log.path), "visits", columns, placed=True)
    [first, *_, last] = rows_of(placed, Range(0, 1, 4))
    assert (first["user"], first["n"], first[TIME], first[PLACE]) == ("u2", 2, 1002, 1)
    assert (last["user"], last[PLACE]) == ("u4", 3)
    visits(log, 5, partition=1)
    assert [row[PLACE] for row in rows_of(placed, Range(1, 0, 1))] == [1 << OFFSET_BITS]
    wide = pa.schema([("n", pa.int64())])
    by_column = Records(str(log.path), "visits", wide, event_time="ts")
    assert rows_of(by_column, Range(0, 2, 4)) == [
        {"n": 3, TIME: 3 * SECOND, BAD: None},
        {"n": 4, TIME: 4 * SECOND, BAD: None},
    ]
    in_seconds = Records(str(log.path), "visits", wide, event_time="n")
    assert rows_of(in_seconds, Range(0, 3, 4)) == [{"n": 4, TIME: 4 * SECOND, BAD: None}]
    for records in (placed, by_column):
        assert all(batch.schema == records.schema() for batch in records.read([Range(0, 0, 4)]))


def test_a_row_without_values_has_nulls(log: Log) -> None:
    topic = log.create("visits", values=VISITS)
    batch = topic.batch([{"user": "a", "ts": 1}], timestamps=[5])
    empty = pa.nulls(1, topic.schema.field("value").type)
    topic.append(0, batch.set_column(3, topic.schema.field("value"), empty))
    records = Records(str(log.path), "visits", value_columns(VISITS), event_time="ts")
    (row,) = rows_of(records, Range(0, 0, 1))
    assert row == {"user": None, "n": None, "ts": None, TIME: None, BAD: row[BAD]}
    assert row[BAD] == {
        "reason": "no event time",
        "message": "the event time 'ts' is missing",
        "position": "visits/0@0",
        "record": "{}",
    }


@given(st.lists(st.integers(0, 30_000), max_size=6))
def test_small_batches_become_large_ones(sizes: list[int]) -> None:
    rows = iter(range(10**6))
    small = [pa.record_batch({"x": pa.array([next(rows) for _ in range(size)], pa.int64())}) for size in sizes]
    got = list(merged_batches(small))
    assert [x for batch in got for x in batch["x"].to_pylist()] == list(range(sum(sizes)))
    assert all(batch.num_rows >= 20_000 for batch in got[:-1])


def test_a_program_reads_its_ranges_and_tells_how_far_each_partition_is(log: Log) -> None:
    visits(log, 5, 65, 62)
    visits(log, 9, partition=1)
    clocks = TaskClocks()
    heads = [ColumnReader(None, (WindowOperator("minutes", FixedWindows(60)),)), ColumnReader(None)]
    records = Records(str(log.path), "visits", pa.schema([("user", pa.string())]), event_time="ts")
    policy = BoundedDisorder(10)
    source = FromRanges("visits", heads, "from times", policy, clocks, label="ReadTopic", records=records)
    ranges = pa.record_batch([[0, 1], [1, 0], [3, 1]], schema=RANGES).append_column(NOW, pa.array([70 * SECOND] * 2))
    bundles = list(source.bundles(iter([ranges])))
    assert [number for number, _ in bundles] == [0, 1, 0, 1]
    windowed = [row for number, bundle in bundles if number == 0 for row in bundle.placed().rows.to_pylist()]  # type: ignore[union-attr]
    assert [(row["user"], row["__start"] // SECOND) for row in windowed] == [("u65", 60), ("u62", 60), ("u9", 0)]
    assert clocks.partitions == {"visits": {"0": 55 * SECOND, "1": -1 * SECOND}}
    assert clocks.now == 70 * SECOND


def test_json_becomes_objects_and_what_is_none_is_named() -> None:
    batch = pa.record_batch({"value": [b'{"a": 1}', b"[2]"], TIME: [7, 8]})
    [bundle] = FromJson("read").bundles(iter([batch]))
    assert bundle.elements == [{"a": 1}, [2]]
    assert bundle.all_times().tolist() == [7, 8]
    bad = pa.record_batch({"value": [b"1", b"oops"], TIME: [7, 8]})
    with pytest.raises(WorkerFailure, match=r"read.*oops"):
        list(FromJson("read").bundles(iter([bad])))
