"""Clocks of streams on real Spark: partitions, idleness, disorder, skew, and what dropped rows still tell."""

from __future__ import annotations

import json
import pathlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.model.times import SECOND
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model.times import Int64Array

at = hr.TimestampedValue
TEN = hr.FixedWindows(10)


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def fired(collected: Any) -> dict[int, list[int]]:
    """By micro-batch: the starts of the windows that fired."""
    return {
        batch: sorted(each.window.start // SECOND for each in elements)
        for batch, elements in collected.batches.items()
        if elements
    }


def test_the_slowest_partition_holds_the_watermark_until_it_is_idle(p: hr.Pipeline) -> None:
    script = (
        hr.TestStream(idle_after=60)
        .add([at("x", 5)], partition="a")
        .advance_watermark(20, partition="a")  # a is all there is: 0 to 10 fires
        .add([at("x", 22)], partition="b")
        .advance_watermark(50, partition="a")  # b holds it back
        .advance_watermark(30, partition="b")  # 20 to 30 fires
        .add([at("x", 35)], partition="a")
        .advance_clock(59)
        .advance_watermark(51, partition="a")
        .advance_clock(60)  # b is idle: 30 to 40 fires
    )
    windowed = p | script | hr.WindowInto(TEN)
    counts = windowed | "count" >> hr.Count.per_element() | hr.Collect()
    # The same where a second stage hears of it from the first.
    again = windowed | "inner" >> hr.Count.per_element() | hr.Keys() | "outer" >> hr.Count.per_element()
    later = again | "collect later" >> hr.Collect()
    handle = p.run()
    handle.wait()
    assert fired(counts) == fired(later) == {1: [0], 4: [20], 8: [30]}
    metrics = handle.metrics()
    assert metrics["count/count"]["late"] == 0
    assert metrics["TestStream"]["idle"] == 1


def test_files_arrive_by_path_and_what_a_condition_drops_still_moves_the_watermark(
    p: hr.Pipeline, tmp_path: pathlib.Path
) -> None:
    """Two directories are two partitions; the source is read once, though its columns fork."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def arrive(name: str, *rows: tuple[str, float]) -> None:
        new = tmp_path / name.replace("/", "-")
        new.write_text("".join(json.dumps({"user": user, "ts": ts}) + "\n" for user, ts in rows))
        new.rename(tmp_path / name)

    panes: list[Any] = []
    seen: list[Any] = []
    some = threading.Event()

    def take(elements: list[Any], batch: int) -> None:
        panes.extend((each.value.user, each.value.n, each.window.start // SECOND) for each in elements)
        some.set()

    policy = hr.BoundedDisorder("5 seconds", max_skew="10 days")
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    rows = p | hr.ReadJson(paths, schema="user string, ts double", event_time="ts", watermark=policy)
    amy = rows | hr.Where("user = 'amy'") | hr.Where("1 / (ts - 40) is not null") | hr.WindowInto(TEN)
    amy | hr.GroupBy("user").aggregate(n=hr.count()) | hr.ForEachBatch(take)
    rows | "users" >> hr.Map(lambda row: row.user) | "see" >> hr.ForEachBatch(lambda e, _: seen.extend(e))
    bobs = rows | "bobs" >> hr.Where("user = 'bob'") | "sliding" >> hr.WindowInto(hr.SlidingWindows(20, 10))
    collected = bobs | "count bobs" >> hr.GroupBy("user").aggregate(n=hr.count()) | hr.Collect()
    arrive("a/1.json", ("amy", 3), ("amy", 4), ("bob", 40))
    arrive("b/1.json", ("bob", 14))  # 14 - 5 does not pass the end of 0 to 10
    handle = p.run(stream=True, trigger="100 ms")
    assert hasattr(handle, "query")
    try:
        handle.query.processAllAvailable()
        assert not panes
        arrive("b/2.json", ("bob", 15), ("eve", 1e9 * 30))  # and one whose clock is wrong
        handle.query.processAllAvailable()
        assert some.wait(60)
        arrive("b/3.json", ("bob", 26))
        handle.query.processAllAvailable()
        sources = handle.query.lastProgress["sources"]
    finally:
        handle.stop()
    assert panes == [("amy", 2, 0)]
    assert sorted(each.value for each in seen) == ["amy", "amy", *["bob"] * 4, "eve"]
    assert handle.metrics()[rows.label]["skewed"] == 1
    assert [(each.window.start // SECOND, each.value.n) for each in collected.windowed] == [(0, 2)]
    read = [source["description"] for source in sources if "/control/" not in source["description"]]
    files = [description for description in read if "FileStreamSource" in description]
    assert len(files) == len(paths)


class Earliest(hr.WatermarkPolicy):
    """What comes in a micro-batch is never older than what came in the one before."""

    def low_watermark(self, times: Int64Array) -> int:
        return int(times.min())


@only_full("the slowest partition holds the watermark")
@pytest.mark.slow("several streams")
def test_policies_see_each_partition_by_itself(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    """One query with a source for each policy; `text` has no column of times, and goes by those a function set."""
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for name in ("a", "b", "text"):
        (tmp_path / name).mkdir()

    def arrive(name: str, *rows: tuple[float, float | None]) -> None:
        new = tmp_path / "new"
        new.write_text("".join(json.dumps({"ts": ts, "mark": mark}) + "\n" for ts, mark in rows))
        new.rename(tmp_path / name)

    panes: dict[str, list[tuple[int, int]]] = {}

    def counted(name: str, windowed: hr.PCollection) -> None:
        def take(elements: list[Any], batch: int) -> None:
            panes.setdefault(name, []).extend((each.window.start // SECOND, each.value) for each in elements)

        windowed | f"count {name}" >> hr.Count.globally() | f"take {name}" >> hr.ForEachBatch(take)

    policies: dict[str, hr.WatermarkPolicy] = {
        "percentile": hr.Percentile(0.6),
        "punctuated": hr.Punctuated("mark"),
        "custom": Earliest(),
    }
    for name, policy in policies.items():
        source = hr.ReadJson(paths, schema="ts double, mark double", event_time="ts", watermark=policy)
        rows = p | name >> source | f"of elements {name}" >> hr.Where("ts <> 14")
        counted(name, rows | f"w {name}" >> hr.WindowInto(TEN))
    lines = p | "text" >> hr.ReadText(str(tmp_path / "text"), watermark=hr.Percentile(0.6))
    timed = lines | "by hand" >> hr.WithTimestamps(lambda line: json.loads(line)["ts"])
    counted("text", timed | "w text" >> hr.WindowInto(TEN))

    def after(**files: list[tuple[float, float | None]]) -> dict[str, list[tuple[int, int]]]:
        for name, rows in files.items():
            arrive(name.replace("_", "/"), *rows)
        handle.query.processAllAvailable()
        fired = dict(panes)
        panes.clear()
        return fired

    first = [(3, None), (14, None), (12, None)]  # of three delays, 0, 0 and 2 s, more than 0.6 are none
    (tmp_path / "text" / "1").write_text("".join(json.dumps({"ts": ts}) + "\n" for ts, _ in first))
    arrive("a/1", *first)
    arrive("b/1", (4, None), (16, 10))
    handle = p.run(stream=True, trigger="100 ms")
    assert hasattr(handle, "query")
    try:
        assert after() == {"percentile": [(0, 2)], "text": [(0, 1)]}
        assert after(a_2=[(15, 12)], b_2=[(13, None)]) == {"custom": [(0, 2)], "punctuated": [(0, 2)]}
        assert after(a_3=[(31, None)], b_3=[(17, None), (30, None)]) == {"percentile": [(10, 5)]}
        assert after(a_4=[(32, 20)], b_4=[(3, 21)]) == {"punctuated": [(10, 5)]}
        metrics = handle.metrics()
    finally:
        handle.stop()
    assert metrics["count percentile/combine"]["late"] == 1
