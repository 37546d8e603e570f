"""What a stream tells about itself: which window waits for what, and how what shards told becomes a status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.columns.cells import encode_cells
from headrace.engine.handle import ExchangeStatus, SourceStatus, StreamStatus
from headrace.engine.plan.line import Exchange, Line
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import ShardProcessor
from headrace.engine.shard.reports import ShardReport, WaitingWindow
from headrace.engine.stream.status import exchange_status, source_statuses
from headrace.model.keys import encode_keys
from headrace.model.panes import Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND


def waiting(windowing: Windowing, times: list[int], clocks: Clocks) -> WaitingWindow | None:
    """What a shard waits for that got elements of these times, in seconds, all under the key "k"."""
    keys, _ = encode_keys(["k"] * len(times))
    columns = {
        "key": keys,
        "spelling": pa.nulls(len(times), pa.binary()),
        "__time": pa.array([time * SECOND for time in times], pa.int64()),
        "value": encode_cells(times),
    }
    if isinstance(windowing.window, hr.FixedWindows):
        starts = [time // 10 * 10 * SECOND for time in times]
        columns |= {"__start": pa.array(starts), "__end": pa.array([start + 10 * SECOND for start in starts])}
    return ShardProcessor(windowing).step(pa.record_batch(columns), clocks).waiting


EARLY = hr.AfterWatermark(early=hr.AfterCount(5))
LATE = hr.AfterWatermark(late=hr.AfterCount(3))


@pytest.mark.parametrize(
    ("windowing", "times", "clocks", "window", "why"),
    [
        (
            Windowing(hr.FixedWindows(10), EARLY),
            [15, 3],
            Clocks(watermark=4 * SECOND),
            "1970-01-01T00:00:00Z to 1970-01-01T00:00:10Z",
            "waits for the watermark to pass 1970-01-01T00:00:10Z, which is at 1970-01-01T00:00:04Z; for an early "
            "pane, needs 4 more elements",
        ),
        (
            Windowing(hr.FixedWindows(10), EARLY),
            [15, 3],  # the earlier one fires
            Clocks(watermark=12 * SECOND),
            "1970-01-01T00:00:10Z to 1970-01-01T00:00:20Z",
            "waits for the watermark to pass 1970-01-01T00:00:20Z, which is at 1970-01-01T00:00:12Z; for an early "
            "pane, needs 4 more elements",
        ),
        (Windowing(hr.CountWindows(3)), [1], Clocks(), "elements 0 to 2", "needs 2 more elements to be full"),
        (
            Windowing(hr.GlobalWindows(), hr.Repeatedly(hr.AfterProcessingTime(60))),
            [1],
            Clocks(now=0),
            "the global window",
            "waits for processing time to reach 1970-01-01T00:01:00Z, which is at 1970-01-01T00:00:00Z",
        ),
    ],
)
def test_why_the_earliest_window_has_not_fired(
    windowing: Windowing, times: list[int], clocks: Clocks, window: str, why: str
) -> None:
    found = waiting(windowing, times, clocks)
    assert found is not None
    assert (found.key, found.window, found.why) == ("'k'", window, why)


def test_what_has_fired_waits_for_nothing() -> None:
    assert waiting(Windowing(hr.FixedWindows(10)), [3], Clocks(watermark=MAX_TIME)) is None
    assert waiting(Windowing(hr.FixedWindows(10), LATE, "discarding", 60), [3], Clocks(watermark=20 * SECOND)) is None
    assert ShardProcessor(Windowing(hr.FixedWindows(10))).step().waiting is None


def line() -> tuple[Line, Exchange]:
    p = hr.Pipeline()
    visits = p | "visits" >> hr.ReadText(["a", "b"])
    clicks = p | "clicks" >> hr.Rate(5)
    _ = [visits, clicks] | hr.Flatten() | "sums" >> hr.Count.per_element()
    lowered = lower(p.graph(), shards=2, partitions=2)
    return lowered, lowered.exchanges[0]


def report(name: str, **changed: Any) -> ShardReport:
    made = ShardReport(name, 100 * SECOND, 40 * SECOND, input_watermark=60 * SECOND, held=1, late=2, refused=3)
    return replace(made, **changed)


def test_a_grouping_is_as_far_as_its_last_shard() -> None:
    _, exchange = line()
    first, second = (WaitingWindow(key, "w", "why", deadline) for key, deadline in (("x", 90), ("y", 70)))
    shards = {
        "0/0": report("0/0", waiting=first),
        "0/1": report("0/1", input_watermark=50 * SECOND, watermark=45 * SECOND, waiting=second),
    }
    assert exchange_status(exchange, shards) == ExchangeStatus(
        50 * SECOND, 40 * SECOND, 50 * SECOND, held=2, late=4, refused=6, waiting=second
    )
    assert exchange_status(exchange, {}) == ExchangeStatus()
    for end in (MIN_TIME, MAX_TIME):
        assert exchange_status(exchange, {"0/0": report("0/0", input_watermark=end)}).lag is None


def test_sources_are_told_by_shards_and_by_spark() -> None:
    lowered, _ = line()
    shards = {"0/0": report("0/0", lows={"visits": 5, "clicks": 7}), "0/1": report("0/1")}
    inputs = [{"numInputRows": rows, "processedRowsPerSecond": rows / 2} for rows in (10, 20, 5, 0)]
    progress = {"sources": inputs, "durationMs": {"triggerExecution": 2000}}
    assert source_statuses(lowered, shards, progress, {}) == {
        "visits": SourceStatus(5, 30, 15.0),  # two paths are two sources to Spark
        "clicks": SourceStatus(7, 5, 2.5),
    }
    assert source_statuses(lowered, {}, None, {}) == {"visits": SourceStatus(), "clicks": SourceStatus()}


def test_a_status_prints_as_a_table_and_as_a_line() -> None:
    status = StreamStatus(
        "running",
        batches=1200,
        batch_seconds=0.5,
        sources={"visits": SourceStatus(60 * SECOND, 1500, 3000.0), "clicks": SourceStatus()},
        exchanges={"sums": ExchangeStatus(60 * SECOND, MIN_TIME, 12_345_678, 7, 1, 0)},
        notes=["the sink 'out' is gone"],
    )
    assert str(status).splitlines() == [
        "running, 1,200 batches, the last in 0.50 s",
        "source  watermark              rows  rows/s",
        "visits  1970-01-01T00:01:00Z  1,500   3,000",
        "clicks  ?                         ?       ?",
        "grouping  watermark             output   lag  held  late  refused",
        "sums      1970-01-01T00:01:00Z  -inf    12 s     7     1        0",
        "note: the sink 'out' is gone",
    ]
    assert repr(status) == str(status)
    assert status.line == "1,200 batches · 0.50 s · 3,000 rows/s · 7 windows held · 12 s behind"
    assert StreamStatus().line == "0 batches"


def test_a_stream_of_old_data_reads_history_and_is_not_behind() -> None:
    january = 1_767_225_600 * SECOND
    old = ExchangeStatus(january, january, 318 * 24 * 3600 * SECOND)
    status = StreamStatus("running", batches=2, exchanges={"sums": old, "counts": ExchangeStatus(lag=3 * SECOND)})
    assert status.line == "2 batches · 0 windows held · at 2026-01-01, reading history"
    assert [line.split()[3] for line in str(status).splitlines()[1:]] == ["lag", "history", "3"]


def test_taps_of_one_source_share_what_spark_reports_of_it() -> None:
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson("data", schema="tags array<string>")
    _ = rows | hr.Select(tag="explode(tags)") | hr.Collect()
    lowered = lower(p.graph(), shards=1, partitions=1)
    inputs = [{"numInputRows": rows, "processedRowsPerSecond": rows / 2} for rows in (10, 99)]
    progress = {"sources": inputs, "durationMs": {"triggerExecution": 2000}}
    assert source_statuses(lowered, {}, progress, {}) == {
        "rows": SourceStatus(None, 10, 5.0),
        "rows (2)": SourceStatus(None, 10, 5.0),
    }
