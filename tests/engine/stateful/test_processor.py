"""The processor of stateful DoFns, without Spark: life cycle, panes, failures, what is stored and what is freed."""

from __future__ import annotations

import gc
import json
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

import headrace as hr
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.reports import ClockReport, ShardReport
from headrace.engine.shard.rows import PANE
from headrace.engine.shard.stateblocks import read_state
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.state import statecells
from headrace.engine.stateful.processor import DoFnProcessor, StatefulWork
from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.stream import shards
from headrace.engine.stream.shards import ShardCache
from headrace.engine.worker.blame import WorkerFailure, transform_error
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Call
from headrace.engine.worker.shuffle import row_batch, shuffle_schema
from headrace.model.panes import GLOBAL, PaneInfo, Windowing
from headrace.model.times import MAX_TIME, SECOND
from tests.engine.stateful.test_operator import Again, Number
from tests.engine.stream.test_shards import Store
from tests.engine.worker.test_program import created, run, timed


def work_of(fn: hr.DoFn, *args: Any, tags: tuple[str, ...] = (), windowing: Windowing = GLOBAL) -> StatefulWork:
    return StatefulWork(StatefulFn("do", Call(fn.process, args), fn, windowing, tags))


def rows_of(*elements: tuple[Any, Any, float], windowing: Windowing = GLOBAL) -> pa.RecordBatch:
    """Rows of (key, value, second)."""
    keys, values, seconds = zip(*elements, strict=True)
    times = (np.array(seconds) * SECOND).astype(np.int64)
    _, start, end = windowing.window.assign(times, keys)
    bundle = Bundle([None] * len(keys), times, start, end)
    return row_batch(shuffle_schema(windowed=not windowing.is_global, timed=True), keys, values, bundle)


def given(
    work: StatefulWork, processor: DoFnProcessor, *elements: Any, watermark: float = -1e6, now: float = 0
) -> list[Any]:
    """What a step gives, without tags."""
    rows = rows_of(*elements, windowing=work.windowing) if elements else None
    limit = MAX_TIME if watermark == float("inf") else int(watermark * SECOND)
    step = processor.step(rows, Clocks(limit, int(now * SECOND)))
    return [element for _, bundle in work.bundles(step.panes) for element in bundle.elements]


# Elements


def test_elements_of_a_step_come_in_the_order_of_their_times() -> None:
    work = work_of(Number())
    processor = work.processor()
    found = given(work, processor, ("a", "late", 9), ("b", "only", 5), ("a", "early", 1), ("a", "same", 9))
    assert found == [("a", "early", 1), ("b", "only", 1), ("a", "late", 2), ("a", "same", 3)]
    assert given(work, processor, ("a", "next", 0)) == [("a", "next", 4)]


def test_equal_keys_share_state() -> None:
    work = work_of(Number())
    assert [n for *_, n in given(work, work.processor(), (1, "x", 1), (1.0, "y", 2), (True, "z", 3))] == [1, 2, 3]


def test_late_elements_are_told() -> None:
    work = work_of(Number(), windowing=Windowing(hr.FixedWindows(10), allowed_lateness=5))
    processor = work.processor()
    given(work, processor, ("a", 1, 1), watermark=14)
    step = processor.step(rows_of(("a", 2, 9), ("a", 3, 12), windowing=work.windowing), Clocks(15 * SECOND))
    assert (step.late, step.held) == (None, 1)
    step = processor.step(rows_of(("a", 2, 9), ("a", 3, 12), windowing=work.windowing))
    assert step.late is not None
    assert step.late.num_rows == 1


def test_an_element_is_in_the_pane_it_came_in() -> None:
    class Pane(Number):
        def process(
            self, pair: Any, seen: Any = hr.DoFn.StateParam(Number.seen), pane: Any = hr.DoFn.PaneInfoParam
        ) -> Any:
            return [(pair[1], pane.timing, pane.index)]

    work = work_of(Pane())
    panes = [PaneInfo("early", 0, -1, True, False), PaneInfo("late", 3, 1, False, False)]
    told = pa.array([json.dumps(astuple(panes[i % 2])).encode() for i in range(4)], pa.binary())
    rows = rows_of(*[("k", i, i) for i in range(4)]).append_column(PANE, told)
    step = work.processor().step(rows)
    bundles = [(bundle.pane, bundle.elements) for _, bundle in work.bundles(step.panes)]
    assert bundles == [
        (panes[0], [(0, "early", 0), (2, "early", 0)]),
        (panes[1], [(1, "late", 3), (3, "late", 3)]),
    ]


# Life cycle


class Framed(Number):
    torn_down: ClassVar[list[int]] = []

    def setup(self) -> None:
        self.calls = ["setup"]

    def start_bundle(self) -> None:
        self.calls.append("start")

    def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(Number.seen)) -> None:
        self.calls.append(pair[1])

    def finish_bundle(self) -> Any:
        yield hr.TaggedOutput("calls", " ".join(self.calls))

    def teardown(self) -> None:
        Framed.torn_down.append(len(self.calls))


def test_the_life_cycle_frames_the_steps() -> None:
    work = pickle.loads(pickle.dumps(work_of(Framed(), tags=("calls",))))
    first, second = work.processor(), work.processor()
    step = first.step(rows_of(("k", "x", 0)))
    assert [(tag, bundle.elements) for tag, bundle in work.bundles(step.panes)] == [("calls", ["setup start x"])]
    assert first.step(None, Clocks(5)).panes.num_rows == 0  # nothing to do: no bundle
    assert given(work, second, ("k", "y", 0)) == ["setup start x start y"]
    Framed.torn_down.clear()
    del work, first, second
    gc.collect()
    assert Framed.torn_down == [5]


def test_failures_name_the_element_or_the_key() -> None:
    class Fails(Again):
        def process(self, pair: Any, due: Any = hr.DoFn.TimerParam(Again.due)) -> Any:
            due.set(1)
            return [1 / pair[1]]

        @hr.on_timer(Again.due)
        def ring(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no bell")

    work = work_of(Fails())
    processor = work.processor()
    with pytest.raises(WorkerFailure) as failed:
        given(work, processor, ("k", 1, 0), ("k", 0, 1))
    assert "'do' failed on the element ('k', 0): ZeroDivisionError" in str(transform_error(failed.value))
    with pytest.raises(WorkerFailure) as failed:
        given(work, processor, watermark=2)
    assert "'do' failed on the element 'k': RuntimeError: no bell" in str(transform_error(failed.value))


# What is kept


class Cached(hr.DoFn):
    """Changes a value in place, without writing it again."""

    box = hr.ValueState("box")

    def process(self, pair: Any, box: Any = hr.DoFn.StateParam(box)) -> Iterator[Any]:
        if box.read() is None:
            box.write([])
        box.read().append(pair[1])
        yield list(box.read())
        if pair[1] == "clear":
            box.clear()


def test_values_changed_in_place_are_stored() -> None:
    work = work_of(Cached())
    processor = work.processor()
    blocks = processor.dump()
    for value in "ab":
        given(work, processor, ("k", value, 0))
        blocks += processor.changes()
    again = work.processor()
    again.load(blocks)
    assert given(work, again, ("k", "c", 0)) == [["a", "b", "c"]]


def test_only_what_changed_is_stored_and_what_is_empty_is_freed() -> None:
    work = work_of(Cached())
    processor = work.processor()
    given(work, processor, *[(f"k{i}", i, 0) for i in range(1000)])
    processor.dump()
    assert processor.step(rows_of(("k7", "x", 1), ("k8", "clear", 1), ("new", "clear", 1))).held == 999
    state = read_state(processor.changes())
    assert state.windows.num_rows == 1
    assert state.gone.seq.tolist() == [8]


class Expiring(hr.DoFn):
    """Counts what comes, and forgets after ten seconds."""

    seen = hr.CombiningState("seen", sum, expires="10 seconds")

    def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(seen)) -> Iterator[Any]:
        seen.add(1)
        yield pair[1], seen.read()


SEEN = [("k", "a", 0), ("k", "b", 9), ("k", "c", 18), ("k", "d", 28), ("k", "e", 37.999999), ("k", "f", 48)]


def test_state_expires_in_a_stream_as_in_a_batch() -> None:
    expected = [("a", 1), ("b", 2), ("c", 3), ("d", 1), ("e", 2), ("f", 1)]
    work = work_of(Expiring())
    assert given(work, work.processor(), *SEEN) == expected
    p = hr.Pipeline()
    batch = created(p, timed(*[((key, value), second) for key, value, second in SEEN])) | hr.ParDo(Expiring())
    found = batch | hr.Collect()
    run(p)
    assert list(found) == expected


def test_the_watermark_frees_what_expired() -> None:
    work = work_of(Expiring())
    processor = work.processor()
    given(work, processor, *[(f"k{i}", i, i) for i in range(20)])
    assert processor.step(None, Clocks(20 * SECOND)).held == 9
    assert processor.step(None, Clocks(29 * SECOND)).held == 0


class Ticking(hr.DoFn):
    """Sets its timer again, a second after it fired."""

    due = hr.TimerSpec("due")
    seen = hr.ValueState("seen", expires="3 seconds")

    def process(self, pair: Any, due: Any = hr.DoFn.TimerParam(due), seen: Any = hr.DoFn.StateParam(seen)) -> None:
        due.after("1 second")

    @hr.on_timer(due)
    def ring(
        self,
        at: Any = hr.DoFn.TimestampParam,
        due: Any = hr.DoFn.TimerParam(due),
        seen: Any = hr.DoFn.StateParam(seen),
    ) -> Iterator[Any]:
        yield at // SECOND, seen.read()
        if at == SECOND:
            seen.write("at 1")
        if at < 5 * SECOND:
            due.after("1 second")


def test_a_timer_counts_from_the_one_before_and_so_does_the_life_of_what_it_writes() -> None:
    work = work_of(Ticking())
    processor = work.processor()
    given(work, processor, ("k", 0, 0))
    assert given(work, processor, watermark=9) == [(1, None), (2, "at 1"), (3, "at 1"), (4, None), (5, None)]


class Moved(hr.DoFn):
    """A timer that moves on with every element."""

    due = hr.TimerSpec("due")

    def process(self, pair: Any, due: Any = hr.DoFn.TimerParam(due)) -> None:
        due.set(pair[1])

    @hr.on_timer(due)
    def ring(self, at: Any = hr.DoFn.TimestampParam) -> Iterator[Any]:
        yield at // SECOND


class Clocked(hr.DoFn):
    """Says what it knows of its watermark and its timers."""

    due = hr.TimerSpec("due")
    nap = hr.TimerSpec("nap", "processing")

    def process(
        self,
        pair: Any,
        low: Any = hr.DoFn.WatermarkParam,
        due: Any = hr.DoFn.TimerParam(due),
        nap: Any = hr.DoFn.TimerParam(nap),
    ) -> Iterator[Any]:
        before = due.read()
        due.set(due.time_after("5 seconds"))
        yield int(low) // SECOND, before and before // SECOND, due.read() // SECOND, nap.time_after(1) // SECOND
        nap.clear()

    @hr.on_timer(due)
    def ring(self, low: Any = hr.DoFn.WatermarkParam, due: Any = hr.DoFn.TimerParam(due)) -> Iterator[Any]:
        yield "rang", int(low) // SECOND, due.read()

    @hr.on_timer(nap)
    def wake(self) -> None: ...


def test_a_dofn_knows_the_watermark_and_its_timers() -> None:
    work = work_of(Clocked())
    processor = work.processor()
    given(work, processor, watermark=3, now=100)
    found = given(work, processor, ("k", 0, 4), ("k", 0, 6), watermark=7, now=100)
    assert found == [(3, None, 9, 101), (3, 9, 11, 101)]
    assert given(work, processor, watermark=20, now=100) == [("rang", 7, None)]


def test_only_dofns_with_state_know_the_watermark() -> None:
    p = hr.Pipeline()
    created(p, [1]) | "ask" >> hr.Map(lambda x, low=hr.DoFn.WatermarkParam: low) | hr.Collect()
    with pytest.raises(hr.TransformError, match="only a DoFn with state or timers has one; declare a state"):
        run(p)


def test_timers_that_move_leave_nothing_behind() -> None:
    work = work_of(Moved())
    processor = work.processor()
    for i in range(0, 20_000, 1000):
        given(work, processor, *[("k", 100_000 - j, 0) for j in range(i, i + 1000)])
    assert len(processor.calls.event._heap) < 3000
    assert processor.step(None, Clocks(80_000 * SECOND)).panes.num_rows == 0
    assert given(work, processor, watermark=80_001) == [80_001]
    assert processor.step(None, Clocks(10**6 * SECOND)).held == 0


# Timers


class Loop(hr.DoFn):
    """Rings every ten seconds of the clock, for ever."""

    tick = hr.TimerSpec("tick", "processing")

    def process(self, pair: Any, tick: Any = hr.DoFn.TimerParam(tick)) -> None:
        tick.after("10 seconds")

    @hr.on_timer(tick)
    def ring(self, at: Any = hr.DoFn.TimestampParam, tick: Any = hr.DoFn.TimerParam(tick)) -> Iterator[Any]:
        yield at // SECOND
        tick.set(at + "10 seconds")


def test_a_loop_by_the_clock_catches_up_and_ends_with_the_input() -> None:
    work = work_of(Loop())
    processor = work.processor()
    assert given(work, processor, ("k", "x", 3), now=5) == []
    assert processor.step(None, Clocks(50 * SECOND)).watermark == 3 * SECOND  # its output would have this time
    step = processor.step(None, Clocks(60 * SECOND, 37 * SECOND))
    ((_, bundle),) = work.bundles(step.panes)
    assert (bundle.elements, bundle.all_times().tolist()) == ([15, 25, 35], [3 * SECOND, 50 * SECOND, 50 * SECOND])
    assert step.watermark == 50 * SECOND
    assert given(work, processor, watermark=float("inf"), now=37) == [45]
    assert processor.step(None).held == 0


def test_a_timer_beyond_its_window_rings_when_that_ends() -> None:
    windowing = Windowing(hr.FixedWindows(10), allowed_lateness=5)
    work = work_of(Moved(), windowing=windowing)
    processor = work.processor()
    assert given(work, processor, ("k", 99, 1), watermark=14) == []
    assert given(work, processor, watermark=15) == [99]
    assert processor.step(None).held == 0


# What a stream refuses


def test_refusals() -> None:
    def refused(pairs: Any, match: str) -> None:
        _ = pairs | "number" >> hr.ParDo(Number())
        with pytest.raises(hr.PipelineError, match=match):
            lower(pairs.pipeline.graph(), shards=2, partitions=2)

    for window in (hr.Sessions(5), hr.CountWindows(3)):
        pairs = hr.Pipeline() | hr.TestStream() | hr.WindowInto(window)
        refused(pairs, r"'number' .*: a DoFn with state or timers needs windows that are known .* GroupByKey first")
    retracting = hr.WindowInto(hr.FixedWindows(5), trigger=hr.Always(), accumulation="retracting")
    pairs = hr.Pipeline() | hr.TestStream() | retracting | hr.CombinePerKey(sum)
    refused(pairs, r"'number' .*: its input takes panes back .* accumulation='accumulating'")


# The example of the MillWheel paper


class Zeitgeist(hr.DoFn):
    """Counts a query in buckets of a second, and tells those that are far from what its history makes one expect."""

    counts = hr.MapState("counts")
    expected = hr.ValueState("expected")
    bucket = hr.TimerSpec("bucket")

    def process(
        self,
        pair: Any,
        time: Any = hr.DoFn.TimestampParam,
        counts: Any = hr.DoFn.StateParam(counts),
        bucket: Any = hr.DoFn.TimerParam(bucket),
    ) -> None:
        second = time // SECOND
        if not counts.items():
            bucket.set(second + 1)
        counts.put(second, counts.get(second, 0) + 1)

    @hr.on_timer(bucket)
    def compare(
        self,
        query: Any = hr.DoFn.ElementParam,
        time: Any = hr.DoFn.TimestampParam,
        counts: Any = hr.DoFn.StateParam(counts),
        expected: Any = hr.DoFn.StateParam(expected),
        bucket: Any = hr.DoFn.TimerParam(bucket),
    ) -> Iterator[Any]:
        second = time // SECOND - 1
        count, usual = counts.get(second, 0), expected.read()
        if usual is not None and count >= 2 * usual:
            yield query, second, "spike"
        elif usual is not None and 2 * count <= usual:
            yield query, second, "dip"
        counts.put(second, 0)
        counts.remove(second - 1)
        expected.write(count if usual is None else 0.75 * usual + 0.25 * count)
        if expected.read() < 1:  # forgotten
            counts.clear()
            expected.clear()
        else:
            bucket.set(time + 1)


HISTORY = {"mill": [4, 4, 4, 5, 12, 4, 4, 1, 4, 0, 0, 0, 0, 0, 0, 0], "wheel": [2, 2, 2, 2, 2]}
FOUND = [
    ("mill", 4, "spike"),
    *(("mill", second, "dip") for second in (7, 9, 10, 11, 12, 13)),
    *(("wheel", second, "dip") for second in (5, 6, 7)),  # until it is forgotten
]


def test_zeitgeist_in_batch_and_stream() -> None:
    """The answer of a batch, and of a stream whose records come up to three seconds late and out of order."""
    chance = random.Random(5)
    records = [
        (query, i, second + i / 100)
        for query, counts in HISTORY.items()
        for second, count in enumerate(counts)
        for i in range(count)
    ]
    p = hr.Pipeline()
    batch = created(p, timed(*[((query, i), second) for query, i, second in records])) | hr.ParDo(Zeitgeist())
    found = batch | hr.Collect()
    run(p)
    arriving = sorted(records, key=lambda record: record[2] + 3 * chance.random())
    work = work_of(Zeitgeist())
    processor, streamed, blocks = work.processor(), [], work.processor().dump()
    while arriving:
        step, arriving = arriving[:5], arriving[5:]
        low = min((record[2] for record in arriving), default=30)
        streamed += given(work, processor, *step, watermark=low)
        blocks += processor.changes()
        processor = work.processor()
        processor.load(blocks)
    streamed += given(work, processor, watermark=float("inf"))
    assert Counter(streamed) == Counter(found)
    assert sorted(streamed) == FOUND


# In shards, with workers that remember different things


def test_what_a_worker_remembers_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three workers take turns, or one does it all: with small deltas, parts, older copies and new ones."""
    monkeypatch.setattr(statecells, "_WORTH", 2000)
    chance = random.Random(3)
    batches = [
        [(f"k{chance.randint(0, 40)}", chance.choice(["a", "b", "clear"]), number + chance.random()) for _ in range(9)]
        for number in range(60)
    ]

    def played(turns: list[int]) -> tuple[list[Any], dict[str, int]]:
        store, workers = Store(), [ShardCache() for _ in range(3)]
        work = work_of(Cached())
        given, copies = [], {}
        for number, (elements, turn) in enumerate(zip(batches, turns, strict=True)):
            monkeypatch.setattr(shards, "_cache", workers[turn])
            made = shards.ShardOperator("stream", {5: shards.ShardSpec("0/0", "do", work, ("events",))}, {})
            made.init(store)  # type: ignore[arg-type]
            clocks = ClockReport(now=number, lows={"events": number * SECOND})
            rows = iter([Row(dest=5, body=pack(clocks.dump(), rows_of(*elements)))])
            (row,) = made.handleInputRows((5,), rows, None)
            header, body = unpack(row.body)
            report = ShardReport.load(header)
            copies = dict(report.copies)
            given.append((report.held, [bundle.elements for _, bundle in work.bundles(body)]))
        return given, copies

    alone, _ = played([0] * 60)
    together, copies = played([chance.randint(0, 2) for _ in range(60)])
    assert together == alone
    assert min(copies.values()) > 0
