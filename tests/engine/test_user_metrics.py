"""Metrics that users' functions record: where they are recorded, and that what is done again counts once."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine.batch.execution import Batch
from headrace.engine.plan import plan
from headrace.engine.spark.counters import Counters
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle, FromBlocks, to_block
from headrace.engine.worker.operators import Call, MapOperator
from headrace.engine.worker.program import Program, Readers, Step
from headrace.model.metriccells import (
    Cells,
    GaugeResult,
    current_recorder,
    dump_cells,
    load_cells,
    merge_cells,
    recording,
)
from headrace.model.metrics import DistributionResult

seen = hr.metrics.counter("seen")


def noted(x: Any) -> Any:
    """A function that counts its calls, and measures its element."""
    seen.inc()
    hr.metrics.distribution("size").update(x if isinstance(x, int) else len(x))
    return x


class CountingFn(hr.CombineFn[int, int, int]):
    """A sum that counts its additions."""

    def zero(self) -> int:
        return 0

    def add(self, acc: int, value: int) -> int:
        hr.metrics.counter("added").inc()
        return acc + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def finish(self, acc: int) -> int:
        return acc


class Running(hr.DoFn):
    """The number of elements of a key so far, which a gauge has as well."""

    number = hr.CombiningState("number", sum)

    def setup(self) -> None:
        hr.metrics.counter("set up").inc()

    def process(self, pair: tuple[Any, int], number: Any = hr.DoFn.StateParam(number)) -> Iterator[Any]:
        number.add(1)
        seen.inc()
        hr.metrics.gauge("last").set(number.read())
        yield pair[0], number.read()


def own(metrics: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The metrics without the engine's."""
    kept = {
        label: {name: value for name, value in each.items() if name not in hr.metrics.RESERVED}
        for label, each in metrics.items()
    }
    return {label: each for label, each in kept.items() if each}


def test_every_kind_of_function_of_a_batch_records(spark: SparkSession, tmp_path: Path) -> None:
    def parse(text: str) -> int:
        seen.inc()
        return int(text)

    def threaded(x: int) -> int:
        import threading

        thread = threading.Thread(target=seen.inc, args=(x,))
        thread.start()
        thread.join()
        return x

    p = hr.Pipeline(spark=spark)
    texts = p | hr.Create(["1", "2", "x", "4"])
    parsed = texts | "parse" >> hr.Map(parse).with_exception_handling()
    numbers = parsed.main | "note" >> hr.Map(noted)
    numbers | "threads" >> hr.Map(threaded) | "each" >> hr.ForEach(lambda x: seen.inc())
    pairs = numbers | "odd" >> hr.KeyBy(lambda x: seen.inc() or x % 2)
    pairs | "sum" >> hr.CombinePerKey(CountingFn()) | hr.WriteText(str(tmp_path / "out"))
    pairs | "running" >> hr.ParDo(Running()) | hr.Collect()
    numbers | "flat" >> hr.FlatMap(lambda x: (seen.inc() or y for y in range(x))) | "after" >> hr.Map(noted)
    numbers | "driver" >> hr.ForEachBatch(lambda elements, batch: seen.inc(len(elements)))
    handle = p.run()
    handle.wait()
    metrics = own(handle.metrics())
    running = metrics.pop("running")
    assert running.pop("set up") >= 1 and running.pop("last") in (1, 2) and running == {"seen": 3}
    assert metrics == {
        "parse": {"seen": 4},
        "note": {"seen": 3, "size": DistributionResult(3, 7, 1, 4)},
        "threads": {"seen": 7},
        "each": {"seen": 3},
        "odd": {"seen": 3},
        "sum": {"added": 3},
        "flat": {"seen": 7},
        "after": {"seen": 7, "size": DistributionResult(7, 7, 0, 3)},
        "driver": {"seen": 3},
    }


def test_functions_of_a_stream_record_in_programs_shards_sides_and_sinks(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    bounded = p | hr.Create([10, 20]) | "side" >> hr.Map(noted)
    events = hr.TestStream().add([hr.TimestampedValue(("a", n), n) for n in (1, 2)]).advance_watermark(5)
    events = events.add([hr.TimestampedValue(("b", 7), 7)]).finish()
    pairs = (
        p
        | events
        | "pairs"
        >> hr.MapTuple(lambda key, n, most: seen.inc() or (key, n), most=hr.AsSingleton(bounded | hr.Max.globally()))
    )
    sums = pairs | "running" >> hr.ParDo(Running()) | hr.WindowInto(hr.FixedWindows(10))
    sums = sums | "sum" >> hr.CombinePerKey(CountingFn()) | "after" >> hr.MapTuple(lambda k, n: (k, noted(n)))
    sums | "driver" >> hr.ForEachBatch(lambda elements, batch: seen.inc(len(elements)))
    handle = p.run()
    handle.wait()
    metrics = own(handle.metrics())
    running = metrics.pop("running")
    assert running.pop("set up") >= 1 and running.pop("last") == 1 and running == {"seen": 3}
    assert metrics == {
        "side": {"seen": 2, "size": DistributionResult(2, 30, 10, 20)},
        "pairs": {"seen": 3},
        "sum": {"added": 3},
        "after": {"seen": 2, "size": DistributionResult(2, 4, 1, 3)},
        "driver": {"seen": 2},
    }


def test_a_micro_batch_that_a_sink_refuses_does_not_count(spark: SparkSession, tmp_path: Path) -> None:
    def write(elements: list[Any], batch: int, *, fails: bool) -> None:
        seen.inc()
        if fails and any(each.value == 3 for each in elements):
            raise OSError("disk full")

    def run(*, fails: bool) -> dict[str, Any]:
        p = hr.Pipeline(spark=spark)
        numbers = p | hr.TestStream().add([1, 2]).add([3]).add([4, 5, 6])
        numbers | "note" >> hr.Map(noted) | "out" >> hr.ForEachBatch(functools.partial(write, fails=fails))
        handle = p.run(checkpoint=str(tmp_path / "checkpoint"))
        if fails:
            with pytest.raises(hr.TransformError, match="disk full"):
                handle.wait()
        else:
            handle.wait()
        return own(handle.metrics())

    aborted = run(fails=True)
    assert aborted == {"note": {"seen": 2, "size": DistributionResult(2, 3, 1, 2)}, "out": {"seen": 1}}
    again = run(fails=False)
    assert again == {"note": {"seen": 4, "size": DistributionResult(4, 18, 3, 6)}, "out": {"seen": 2}}


def test_what_spark_computes_twice_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """Both sinks and both branches read what a column transform made of a function's rows."""
    p = hr.Pipeline(spark=spark)
    rows = p | hr.Create([("a", 1), ("b", 2), ("c", 3)]) | "note" >> hr.Map(noted).with_output_types(tuple[str, int])
    rows = rows | hr.Select(word="_1", n="_2")
    some = rows | hr.Where("n > 1")
    out = (some, rows | hr.Where("n < 3")) | hr.Flatten() | hr.Collect()
    some | hr.WriteJson(str(tmp_path / "out"))
    handle = p.run()
    handle.wait()
    assert sorted(row.n for row in out) == [1, 2, 2, 3]
    assert own(handle.metrics()) == {"note": {"seen": 3, "size": DistributionResult(3, 6, 2, 2)}}


def test_a_task_that_is_run_again_takes_the_place_of_itself(spark: SparkSession) -> None:
    """As after a lost executor: the same tasks succeed once more in another job."""
    p = hr.Pipeline()
    p | hr.Create(range(10)) | "note" >> hr.Map(noted) | hr.Collect()
    counters = Counters(spark.sparkContext)
    batch = Batch(spark, plan(p.graph()), counters, lambda stage: None)
    data = batch.data(batch.plan.ends()[0].inputs[0])
    for _ in range(2):
        data.toArrow()
        assert counters.recorded()["note", "seen"] == 10
    assert counters.metrics()["note"]["in"] == 20  # the engine's own count what was attempted


@dataclass
class Reports:
    """Counters of a driver, of which only metrics matter here."""

    cells: list[Cells] = field(default_factory=list)

    def add(self, counts: object) -> None: ...

    def report_metrics(self, place: object, cells: Cells) -> None:
        self.cells.append(cells)


def test_an_attempt_that_fails_reports_nothing_and_leaves_nothing_to_the_next() -> None:
    fails = [True]

    def once(x: int) -> int:
        if x == 3 and fails.pop():
            raise OSError("gone")
        return int(noted(x))

    reports = Reports()
    program = Program(FromBlocks(), Readers([Step(MapOperator("note", Call(once)), {None: Readers([], [])})]))
    program = program.bind(lambda side: pytest.fail("no side inputs"), [], counters=reports)  # type: ignore[arg-type]
    task = pa.record_batch([pa.array([to_block(Bundle([1, 2, 3]))], pa.binary())], schema=BLOCK_SCHEMA)
    with pytest.raises(WorkerFailure, match="gone"):
        list(program(iter([task])))
    assert reports.cells == [] and current_recorder() is None
    fails.append(False)
    list(program(iter([task])))
    assert reports.cells == [{("note", "seen"): 3, ("note", "size"): DistributionResult(3, 6, 1, 3)}]


def test_outside_of_a_run_nothing_is_recorded_and_nothing_fails() -> None:
    assert noted(3) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hr.metrics.counter("bad").inc(-1), "counter 'bad' grows by a whole number from 0 on, got -1"),
        (lambda: hr.metrics.counter("bad").inc(0.5), "counter 'bad' grows by a whole number from 0 on, got 0.5"),
        (lambda: hr.metrics.gauge("load").set(float("nan")), "gauge 'load' takes numbers, got nan"),
        (lambda: hr.metrics.distribution("size").update("3"), "distribution 'size' takes numbers, got '3'"),
        (lambda: hr.metrics.counter(""), "the name of a metric is a text such as 'bad', got ''"),
        (lambda: hr.metrics.gauge("in"), "'in' is one of Headrace's own metrics"),
    ],
)
def test_what_is_no_metric_is_refused(call: Any, message: str) -> None:
    with pytest.raises(hr.PipelineError, match=re.escape(message)):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    with recording() as recorder:
        seen.inc(np.int64(3))
        seen.inc(True)
        hr.metrics.distribution("size").update(np.float32(0.5))
        hr.metrics.gauge("load").set(np.int8(7))
    load = recorder.cells.pop(("", "load"))
    assert recorder.cells == {("", "seen"): 4, ("", "size"): DistributionResult(1, 0.5, 0.5, 0.5)}
    assert isinstance(load, GaugeResult) and (load.value, type(load.value)) == (7, int)


def test_a_name_is_of_one_kind() -> None:
    with recording(), pytest.raises(hr.PipelineError, match="metric 'x' of '' is a counter and a gauge"):
        hr.metrics.counter("x").inc()
        hr.metrics.gauge("x").set(1)


def test_cells_merge_and_cross_json() -> None:
    one: Cells = {("a", "n"): 2, ("a", "d"): DistributionResult(2, 3, 1, 2), ("a", "g"): GaugeResult(5, 1.5)}
    other: Cells = {("a", "n"): 3, ("a", "d"): DistributionResult(1, 7, 7, 7), ("a", "g"): GaugeResult(4, 9)}
    assert load_cells(dump_cells(one)) == one
    merged = merge_cells(merge_cells({}, one), other)
    assert merged == merge_cells(merge_cells({}, other), one)
    assert merged == {("a", "n"): 5, ("a", "d"): DistributionResult(3, 10, 1, 7), ("a", "g"): GaugeResult(5, 1.5)}
