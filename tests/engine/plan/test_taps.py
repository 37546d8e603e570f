"""What enters a stream: rows of sources, their watermarks by partition, and several collections read of one source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.catalyst import relational
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.reports import TaskClocks
from headrace.engine.stream.programs import FromSource, Watermarks
from headrace.engine.stream.tapframes import elements_of, frame_of
from headrace.engine.worker.bundles import Bundle, FromColumns
from headrace.model.panes import NO_PANE
from headrace.model.times import MIN_TIME
from headrace.model.watermarks import WatermarkPolicy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR = 10**9


@dataclass
class Rows:
    """What a source brings: a row is its value or, if it is dropped, None; its time; its partition."""

    rows: list[tuple[int | None, int, str | None]]

    def batch(self, *, now: int | None, named: bool, several: bool) -> pa.RecordBatch:
        count = len(self.rows)
        values = pa.array([value for value, _, _ in self.rows], pa.int64())
        columns: dict[str, pa.Array] = {
            "__time": pa.array([time for _, time, _ in self.rows], pa.int64()),
            "__now": pa.array([now] * count, pa.int64()),
            "__low": pa.array([MIN_TIME if value is None else None for value, _, _ in self.rows], pa.int64()),
        }
        if named:
            columns["__part"] = pa.array([part for _, _, part in self.rows], pa.string())
        if not several:
            return pa.record_batch({"n": values, **columns})
        columns["__low"] = pa.nulls(count, pa.int64())
        even = [None if value is None or value % 2 else {"n": value} for value, _, _ in self.rows]
        every = [{"n": value, "m": time} for value, time, _ in self.rows]
        structs = [pa.array(even, pa.struct([("n", pa.int64())])), pa.array(every)]
        return pa.record_batch({**columns, "__tap0": structs[0], "__tap1": structs[1]})


def read(
    batch: pa.RecordBatch, policy: WatermarkPolicy, watermarks: Watermarks = "from times", heads: int = 1
) -> tuple[TaskClocks, list[tuple[int, Bundle]]]:
    clocks = TaskClocks()
    rows: list[Any] = [FromColumns(None, NO_PANE) for _ in range(heads)]
    head = FromSource("events", rows, watermarks, policy, clocks)
    batches: Iterator[pa.RecordBatch] = iter([batch.slice(0, batch.num_rows // 2), batch.slice(batch.num_rows // 2)])
    return clocks, list(head.bundles(batches))


rows = st.builds(
    Rows,
    st.lists(
        st.tuples(st.none() | st.integers(0, 9), st.integers(0, 100) | st.just(FAR), st.sampled_from([None, "a", "b"])),
        min_size=1,
    ),
)


@given(rows, st.booleans(), st.integers(0, 20))
def test_watermarks_are_by_partition_and_dropped_rows_count(source: Rows, named: bool, disorder: int) -> None:
    policy = hr.BoundedDisorder(f"{disorder} us", max_skew="100 us")
    clocks, entered = read(source.batch(now=50, named=named, several=False), policy)
    latest: dict[str | None, int] = {}
    for _, time, partition in source.rows:
        name = partition if named else None
        latest[name] = max(latest.get(name, MIN_TIME), MIN_TIME if time == FAR else time - disorder)
    assert clocks.lows == {"events": latest.pop(None, None)}  # whatever it brings keeps it awake
    assert clocks.partitions == ({"events": latest} if latest else {})
    assert clocks.skewed == sum(time == FAR for _, time, _ in source.rows)
    assert clocks.now == 50
    assert [row.n for _, bundle in entered for row in bundle.elements] == [
        n for n, _, _ in source.rows if n is not None
    ]


@given(rows)
def test_several_collections_of_one_source(source: Rows) -> None:
    batch = source.batch(now=50, named=False, several=True)
    _, entered = read(batch, hr.Monotonic(), heads=2)
    even = [pair for number, bundle in entered if number == 0 for pair in timed(bundle)]
    every = [(row.n, row.m) for number, b in entered if number == 1 for row in b.elements]
    assert even == [(n, time) for n, time, _ in source.rows if n is not None and n % 2 == 0]
    assert every == [(n, time) for n, time, _ in source.rows]
    assert elements_of(batch, 0).schema.names == ["n", "__time"]


def timed(bundle: Bundle) -> list[tuple[int, int]]:
    return [(row.n, time) for row, time in zip(bundle.elements, bundle.all_times().tolist(), strict=True)]


def test_branches_of_one_frame_are_what_each_would_be_alone(spark: SparkSession) -> None:
    """Dropped rows are no elements anywhere, choke no expression, and keep their times."""
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson("data", schema="user string, n long, `odd.name` int", event_time="n")
    some = rows | "some" >> hr.Where("n > 0")
    named = some | "named" >> hr.Select("user as who", inverse="1 / n", checked="assert_true(n > 0) is null")
    readings = {
        "rows": rows,
        "some": some,
        "named": named,
        "few": named | "few" >> hr.Where("inverse > 0.2") | "tens" >> hr.WindowInto(hr.FixedWindows(10)),
        "others": rows | "others" >> hr.Where("user is null") | "odd" >> hr.Select("`odd.name`", "user"),
    }
    for name, pc in readings.items():
        _ = pc | f"collect {name}" >> hr.Collect()
    (tap,) = lower(p.graph(), shards=2, partitions=2).taps
    elements = [("amy", 3, 1, 3, 50, None), ("bob", 0, 2, 0, 50, None), (None, 9, 3, 9, 50, None)]
    clock = (None, None, None, None, 50, 7)
    columns = "user string, n long, `odd.name` int, __time long, __now long, __low long"
    data = spark.createDataFrame([*elements, clock], columns).coalesce(1)
    noted: list[str] = []
    frame = frame_of(tap, data, lambda pc, frame: noted.append(pc.label), lambda node: None, timed=True)
    batch = frame.toArrow().to_batches()[0]
    assert sorted(batch.column("__time").to_pylist(), key=str) == [0, 3, 9, None]
    assert noted == ["some", "some", "named", "some", "named", "few", "others", "odd"]
    alone = data.where("__low is null")
    for number, reading in enumerate(tap.readings):
        frame = alone
        for node in reading.columns:
            frame = relational.apply(node, frame)
        expected = [tuple(row) for row in frame.drop("__now", "__low").collect()]
        rows = elements_of(batch, number)
        names = [name for name in frame.columns if name not in ("__now", "__low")]
        assert sorted(zip(*(rows.column(name).to_pylist() for name in names), strict=True), key=str) == sorted(
            expected, key=str
        ), reading.pc.label


def test_a_script_sets_watermarks_itself() -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([1, None, None, None], pa.int64()),
            "__time": pa.array([7, None, None, None], pa.int64()),
            "__now": pa.array([3] * 4, pa.int64()),
            "__low": pa.array([None, 40, MIN_TIME, 10], pa.int64()),
            "__part": pa.array(["a", "a", "b", None], pa.string()),
        }
    )
    clocks, entered = read(batch, hr.Monotonic(), "given")
    assert clocks.partitions == {"events": {"a": 40, "b": MIN_TIME}} and clocks.lows == {"events": 10}
    assert [(bundle.elements[0].n, np.asarray(bundle.times).tolist()) for _, bundle in entered] == [(1, [7])]
