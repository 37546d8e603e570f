"""A stream under control: drained, watched, held to a pace, changed between runs, and refused a bad checkpoint."""

from __future__ import annotations

import json
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.wire import WIRE, pack, sink_dest
from headrace.engine.spark.counters import Counters
from headrace.engine.stream.delivery import Delivery
from headrace.engine.stream.handle import StreamHandle
from headrace.engine.stream.query import _SETTINGS
from headrace.engine.worker.bundles import Bundle
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


class Draining:
    """Numbers at a rate, counted when they come, and rows of files that arrive, summed by the minute."""

    def __init__(self, spark: SparkSession, folder: pathlib.Path) -> None:
        self.checkpoint, self.fails = str(folder / "checkpoint"), False
        self.summed, self.counted = threading.Event(), threading.Event()
        self.sums: dict[int, list[Any]] = {}
        self.counts: dict[int, list[Any]] = {}
        self.rows: dict[int, list[Any]] = {}
        self.pipeline = p = hr.Pipeline(spark=spark)
        (folder / "in").mkdir()
        (folder / "in" / "1.json").write_text('{"user": "amy", "n": 1, "ts": 3}\n{"user": "bob", "n": 2, "ts": 65}\n')
        source = hr.ReadJson(str(folder / "in"), schema="user string, n long, ts double", event_time="ts")
        minutes = p | "visits" >> source | "minutes" >> hr.WindowInto(hr.FixedWindows("1 minute"))
        minutes | "rows" >> hr.ForEachBatch(lambda elements, batch: self.rows.update({batch: elements}))
        keyed = minutes | "by user" >> hr.Map(lambda row: (row.user, row.n))
        keyed | "sums" >> hr.CombinePerKey(sum) | "take sums" >> hr.ForEachBatch(self._sum)
        often = hr.Repeatedly(hr.AfterProcessingTime("1 hour"))
        numbers = p | "numbers" >> hr.Rate(50) | "hours" >> hr.WindowInto(hr.GlobalWindows(), trigger=often)
        numbers | "see" >> hr.ForEachBatch(lambda elements, batch: self.counted.set())
        numbers | "count" >> hr.Count.globally() | "take counts" >> hr.ForEachBatch(self._count)

    def _sum(self, elements: list[Any], batch: int) -> None:
        self.sums[batch] = [(each.window.start // SECOND, *each.value) for each in elements]
        self.summed.set()

    def _count(self, elements: list[Any], batch: int) -> None:
        self.counts[batch] = [each.value for each in elements]
        if self.fails:
            raise ValueError("the store is away")

    def start(self) -> Any:
        return self.pipeline.run(checkpoint=self.checkpoint, trigger="200 ms")


def test_a_drained_stream_fires_all_windows_and_is_done(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Also if its sinks fail at that moment: run again, it is drained again. After that it cannot be run."""
    run = Draining(spark, tmp_path)
    handle = run.start()
    assert run.summed.wait(120) and run.counted.wait(120)
    status = handle.status()
    assert run.sums == {min(run.sums): [(0, "amy", 1)]} and not run.counts
    assert status.exchanges["sums"].watermark == 65 * SECOND
    assert status.exchanges["sums"].output_watermark <= 120 * SECOND
    assert status.exchanges["sums"].held == 1
    assert status.sources["visits"].watermark == 65 * SECOND
    waiting = status.exchanges["sums"].waiting
    assert (waiting.key, waiting.window) == ("'bob'", "1970-01-01T00:01:00Z to 1970-01-01T00:02:00Z")
    assert waiting.why.startswith("waits for the watermark to pass 1970-01-01T00:02:00Z, which is at")
    assert "sums has not fired 1970-01-01T00:01:00Z" in str(status)
    (counting,) = [each for label, each in status.exchanges.items() if label.startswith("count")]
    assert "waits for processing time to reach" in counting.waiting.why and counting.lag is not None
    assert "2 windows held" in status.line
    run.fails = True
    with pytest.raises(hr.TransformError, match="'take counts' failed: ValueError: the store is away"):
        handle.stop(drain=True)
    assert handle.status().state == "failed" and handle.status().batch_seconds > 0

    run.fails = False
    again = run.start()
    assert again.wait().state == "done"
    assert sorted(row for rows in run.sums.values() for row in rows) == [(0, "amy", 1), (60, "bob", 2)]
    (count,) = [count for counts in run.counts.values() for count in counts]
    assert count > 0 and count % 50 == 0
    with pytest.raises(hr.PipelineError, match=r"the stream of the checkpoint .* was drained"):
        run.start()


def test_a_pipeline_without_groupings_is_drained_by_the_end_of_its_batch(p: hr.Pipeline) -> None:
    some = threading.Event()
    p | hr.Rate(20) | hr.ForEachBatch(lambda elements, batch: some.set())
    handle = p.run()
    assert some.wait(120)
    handle.stop(drain=True)
    assert handle.status().state == "done"


def test_a_burst_of_files_is_read_bit_by_bit(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Two streams start at once, and leave the session's settings as they were."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    batches: dict[str, list[int]] = {"paced": [], "bounded": []}
    for number in range(12):
        (tmp_path / f"{number:02d}.txt").write_text(f"{number}\n")

    def run(name: str, **options: Any) -> None:
        p = hr.Pipeline(spark=spark)
        lines = p | hr.ReadText(f"{tmp_path}/*.txt")
        lines | hr.ForEachBatch(lambda elements, batch: batches[name].append(len(elements)))
        p.run(stream=True, **options).wait()

    with ThreadPoolExecutor() as pool:
        both = [
            pool.submit(run, "paced", batch_time="1 hour", max_files_per_batch=4),
            pool.submit(run, "bounded", max_files_per_batch=5),
        ]
        for each in both:
            each.result()
    assert batches == {"paced": [1, 2, 4, 4, 1], "bounded": [5, 5, 2]}
    assert {name: spark.conf.get(name, None) for name in _SETTINGS} == before


def test_a_changed_pipeline_goes_on(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """A function, a trigger and the allowed lateness change; a sink, a grouping and a transform are new."""
    script = hr.TestStream().add([hr.TimestampedValue(("a", 1), 1), hr.TimestampedValue(("b", 2), 2)])
    longer = script.add([hr.TimestampedValue(("a", 4), 3)]).advance_watermark(10)
    longer = longer.add([hr.TimestampedValue(("b", 5), 4)]).finish()
    given: list[Any] = []

    def run(script: hr.TestStream, sign: int, early: int, lateness: int = 0, *, more: bool = False) -> StreamHandle:
        p = hr.Pipeline(spark=spark)
        trigger = hr.AfterWatermark(early=hr.AfterCount(early), late=hr.AfterCount(1))
        windowing = {"trigger": trigger, "accumulation": "accumulating", "allowed_lateness": lateness}
        events = p | "events" >> script
        if more:
            windowed = events | "w more" >> hr.WindowInto(hr.FixedWindows(10))
            windowed | "counts" >> hr.Count.per_key() | "file" >> hr.WriteText(str(tmp_path / "out"))
        sums = events | "w" >> hr.WindowInto(hr.FixedWindows(10), **windowing) | "sums" >> hr.CombinePerKey(sum)
        signed = sums | "sign" >> hr.Map(lambda pair: (pair[0], sign * pair[1]))
        signed | "take" >> hr.ForEachBatch(lambda elements, batch: given.extend(each.value for each in elements))
        handle: Any = p.run(checkpoint=str(tmp_path / "checkpoint"))
        handle.wait()
        return handle  # type: ignore[no-any-return]

    run(script, sign=1, early=5)
    assert given == []
    handle = run(longer, sign=-1, early=2, lateness=60, more=True)
    assert sorted(given) == [("a", -5), ("a", -5), ("b", -7), ("b", -2)]
    written = [line for part in (tmp_path / "out").glob("*/part-*") for line in part.read_text().splitlines()]
    assert [line.split("\t")[-1] for line in written] == [
        "('a', 1)"
    ]  # it began empty, and what is late for it is not for the other
    assert handle.metrics()["counts"]["late"] == 1 and handle.metrics()["sums"]["late"] == 0
    notes = handle.status().notes
    assert [note.split(" was ")[0] for note in notes] == [
        "the source 'events'",
        "the grouping 'sums'",
        "the grouping 'counts' is new: it begins empty",
        "the sink 'file' is new: it gets what comes from here on",
    ]
    assert str(handle.status()).endswith(notes[-1])
    with pytest.raises(hr.PipelineError) as refused:
        run(longer, sign=1, early=2, lateness=60)
    assert str(refused.value).splitlines() == [
        f"the pipeline has changed, and cannot go on from the checkpoint file:{tmp_path}/checkpoint:",
        "  the grouping 'counts' is gone, and would leave its state behind: to remove that, say run(forget=['counts'])",
        "run it as it was, or with a new checkpoint",
    ]


def test_a_checkpoint_that_cannot_be_written(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    _ = p | hr.Create([1]) | hr.Collect()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(hr.PipelineError, match=r"the checkpoint .*/file is a file; give the path of a directory"):
        p.run(stream=True, checkpoint=str(file))
    for path in (file / "below", pathlib.Path("/proc/headrace")):
        with pytest.raises(hr.PipelineError, match=rf"the checkpoint file:{path} cannot be written: .*; give another"):
            p.run(stream=True, checkpoint=str(path))


def test_a_sink_that_cannot_be_written_is_named(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    p = hr.Pipeline()
    p | hr.Create(["a"]) | "out" >> hr.WriteText("/proc/headrace/out")
    line = lower(p.graph(), shards=1, partitions=1)
    (outlet,) = line.outlets
    (batch,) = [*outlet.output.add(Bundle(["a"])), *outlet.output.finish()]
    frame = spark.createDataFrame([(sink_dest(outlet.number, 0), bytearray(pack({}, batch)))], "dest long, body binary")
    assert frame.columns == WIRE.names
    with pytest.raises(Exception, match='"label": "out"'):
        Delivery(line, Counters(spark.sparkContext), lambda batch: 0)(frame, 0)


def test_options_of_streams(p: hr.Pipeline) -> None:
    _ = p | hr.Create([1]) | hr.Collect()
    with pytest.raises(hr.PipelineError, match="a batch has no savepoint and no batch_time; say run"):
        p.run(savepoint="there", batch_time=5)
    with pytest.raises(hr.PipelineError, match="max_files_per_batch is a number of files, at least 1, got 0"):
        p.run(stream=True, max_files_per_batch=0)
    handle = p.run()
    with pytest.raises(hr.PipelineError, match="a batch has no savepoints, got 'there'"):
        handle.savepoint("there")
    handle.stop(drain=True)
    assert handle.status().state == "done"


def test_the_line_of_a_stream_is_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"n": 1}))
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson(str(tmp_path), schema="n long")
    many = rows | "many" >> hr.Where("n > 5") | "pair" >> hr.Map(lambda row: (row.n, 1))
    sums = many | "w" >> hr.WindowInto(hr.FixedWindows(60)) | "sums" >> hr.CombinePerKey(sum)
    sums | "total" >> hr.CombineGlobally(max) | "show" >> hr.Collect()
    assert p.explain(stream=True).splitlines() == [
        f"read  rows: ReadJson({str(tmp_path)!r})",
        "   columns  many",
        "   python  pair · w",
        "level 1  sums: FixedWindows('1 min'), discarding, combined by SumFn()",
        "   python  total/pair",
        "level 2  total/combine: FixedWindows('1 min'), discarding, combined by MaxFn()",
        "   python  total/unpair/Map(_second)",
        "write  show: Collect",
    ]
    assert p.explain().startswith("write  show")
    unbounded = hr.Pipeline()
    unbounded | hr.Rate(5) | "say" >> hr.ForEach(print)
    assert unbounded.explain() == "read  Rate(5 a second)\n   python  say"
