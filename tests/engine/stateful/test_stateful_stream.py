"""Stateful DoFns in streams on real Spark: state and timers of one query, across restarts, and one after the other."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.model.times import SECOND, Instant
from tests.engine.stateful.test_operator import Number, Remember, Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model.collected import Collected


def timed(*pairs: tuple[Any, float]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue(value, time) for value, time in pairs]


def by_batch(collected: Collected) -> dict[int, list[Any]]:
    return {batch: sorted((e.value for e in each), key=repr) for batch, each in collected.batches.items() if each}


class Flush(hr.DoFn):
    """Hands on what came ten seconds after the first of it, by the clock."""

    waiting = hr.ListState("waiting")
    flush = hr.TimerSpec("flush", "processing")

    def process(
        self, pair: Any, waiting: Any = hr.DoFn.StateParam(waiting), flush: Any = hr.DoFn.TimerParam(flush)
    ) -> None:
        if not waiting.read():
            flush.after("10 seconds")
        waiting.add(pair[1])

    @hr.on_timer(flush)
    def hand_on(self, key: Any = hr.DoFn.ElementParam, waiting: Any = hr.DoFn.StateParam(waiting)) -> Iterator[Any]:
        yield key, waiting.read()
        waiting.clear()


class Total(hr.DoFn):
    """The sum of a key's values when its window ends."""

    total = hr.CombiningState("total", sum)
    end = hr.TimerSpec("end")

    def process(
        self,
        pair: Any,
        window: Any = hr.DoFn.WindowParam,
        total: Any = hr.DoFn.StateParam(total),
        end: Any = hr.DoFn.TimerParam(end),
    ) -> None:
        total.add(pair[1])
        end.set(Instant(window.end))

    @hr.on_timer(end)
    def give(self, key: Any = hr.DoFn.ElementParam, total: Any = hr.DoFn.StateParam(total)) -> Iterator[Any]:
        yield key, total.read()


@pytest.mark.slow("several streams")
def test_state_and_timers_of_every_kind(spark: SparkSession) -> None:
    script = (
        hr.TestStream()
        .add(timed((("a", 2), 1), (("a", 3), 2), (("b", 2), 3)))
        .add(timed((("a", 4), 4), (("b", 9), 2)))
        .advance_clock(10)
        .advance_watermark(10)
        .add(timed((("a", 0), 3), (("a", 1), 12)))
        .advance_clock(30)
        .finish()
    )
    p = hr.Pipeline(spark=spark)
    pairs = p | script
    limit = p | "limit" >> hr.Create([2])
    numbered = pairs | "number" >> hr.ParDo(Number()) | "numbers" >> hr.Collect()
    states = pairs | "remember" >> hr.ParDo(Remember()) | "states" >> hr.Collect()
    flushed = pairs | "flush" >> hr.ParDo(Flush()) | "flushed" >> hr.Collect()
    split = pairs | "split" >> hr.ParDo(Split(), hr.AsSingleton(limit)).with_outputs("more", main="few")
    few, more = split.few | "few" >> hr.Collect(), split.more | "more" >> hr.Collect()
    windowed = pairs | "windows" >> hr.WindowInto(hr.FixedWindows(10))
    totals = windowed | "total" >> hr.ParDo(Total())
    total = totals | "totals" >> hr.Collect()
    # Three exchanges in a row: a timer's output is not late for a grouping, nor the grouping's for another DoFn.
    summed = totals | "sum" >> hr.CombinePerKey(sum) | "again" >> hr.ParDo(Number()) | "summed" >> hr.Collect()
    handle = p.run()
    assert handle.wait().state == "done"

    assert by_batch(numbered) == {
        0: [("a", 2, 1), ("a", 3, 2), ("b", 2, 1)],
        1: [("a", 4, 3), ("b", 9, 2)],
        4: [("a", 0, 4), ("a", 1, 5)],
    }
    assert by_batch(states)[4] == [
        ("a", [0, 1], {0, 1}, [(0, 0), (1, 1)], "none", 1),
        ("a", [0], {0}, [(0, 0)], "none", 0),
    ]
    assert by_batch(flushed) == {2: [("a", [2, 3, 4]), ("b", [2, 9])], 5: [("a", [0, 1])]}
    assert [e.timestamp // SECOND for e in flushed.batches[5]] == [3]
    assert by_batch(few) == {0: [("a", 2), ("a", 3), ("b", 2)], 1: [("b", 9)]}
    assert by_batch(more) == {1: [("a", 4)], 4: [("a", 0), ("a", 1)]}
    assert by_batch(total) == {3: [("a", 9), ("b", 11)], 6: [("a", 1)]}
    assert {e.timestamp // SECOND for e in total.batches[3]} == {10}
    assert by_batch(summed) == {3: [("a", 9, 1), ("b", 11, 1)], 6: [("a", 1, 1)]}
    assert {e.pane.timing for e in summed.batches[3]} == {"on_time"}
    metrics = handle.metrics()
    assert (metrics["total"]["late"], metrics["number"]["late"], metrics["sum"]["late"]) == (1, 0, 0)
    assert {status.held for status in handle.status().exchanges.values()} == {0}


def test_timers_ring_after_a_restart(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    script = (
        hr.TestStream()
        .add(timed((("a", 2), 1), (("b", 3), 2)))
        .add(timed((("a", 4), 3)))
        .advance_clock(10)
        .advance_watermark(10)
        .finish()
    )
    crashes = [1]

    def crash(elements: list[Any], batch: int) -> None:
        if batch in crashes:
            crashes.remove(batch)
            raise RuntimeError("power failure")

    p = hr.Pipeline(spark=spark)
    pairs = p | script
    flushed = pairs | "flush" >> hr.ParDo(Flush()) | "flushed" >> hr.Collect()
    total = pairs | hr.WindowInto(hr.FixedWindows(10)) | "total" >> hr.ParDo(Total()) | "totals" >> hr.Collect()
    _ = pairs | hr.ForEachBatch(crash)
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(hr.TransformError, match="power failure"):
        p.run(checkpoint=checkpoint).wait()
    assert p.run(checkpoint=checkpoint).wait().state == "done"
    assert by_batch(flushed) == {2: [("a", [2, 4]), ("b", [3])]}
    assert by_batch(total) == {3: [("a", 6), ("b", 3)]}


class Soon(Flush):
    """Flush, but sooner."""

    def process(
        self, pair: Any, waiting: Any = hr.DoFn.StateParam(Flush.waiting), flush: Any = hr.DoFn.TimerParam(Flush.flush)
    ) -> None:
        waiting.add(pair[1])
        flush.after("1 second")


def test_the_clock_rings_timers_while_no_data_comes(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    (tmp_path / "words.txt").write_text("mill\nwheel\n")
    some = threading.Event()
    given: list[Any] = []

    def take(elements: list[Any], batch: int) -> None:
        given.extend((*each.value, batch) for each in elements)
        some.set()

    p = hr.Pipeline(spark=spark)
    words = p | hr.ReadText(str(tmp_path)) | hr.Map(lambda word: ("k", word))
    words | hr.ParDo(Soon()) | hr.ForEachBatch(take)
    handle = p.run(stream=True, trigger="200 ms")
    try:
        assert some.wait(120)
    finally:
        handle.stop()
    ((key, values, batch),) = given
    assert (key, sorted(values)) == ("k", ["mill", "wheel"])
    assert batch > 0
