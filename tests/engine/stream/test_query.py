"""Streams on real Spark: what `play` says of a script, TestStream gives in a pipeline, pane by pane and batch by batch.

One query serves many tests: each kind of window is a branch of it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.stream.handle import StreamHandle
from headrace.engine.stream.query import Stream
from headrace.model.collected import Collected
from headrace.model.panes import Pane
from headrace.model.sinks import WindowedValue
from headrace.model.times import SECOND
from headrace.model.windows import GLOBAL_WINDOW
from headrace.testing import play
from tests.engine.batch.test_execution_properties import Bursts
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Script = list[tuple[str, Any]]


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def stream_of(script: Script) -> hr.TestStream:
    """The TestStream of a script for `play`, whose inputs are (key, value, timestamp)."""
    stream = hr.TestStream()
    for action, what in script:
        if action == "input":
            stream = stream.add([hr.TimestampedValue((key, value), time) for key, value, time in what])
        elif action == "watermark":
            stream = stream.advance_watermark(what)
        else:
            stream = stream.advance_clock(what)
    return stream


def as_played(element: WindowedValue, *, combined: bool, counted: bool) -> Pane:
    """An element as the Pane that `play` would show."""
    key, value = element.value
    window = element.window
    bounds = (-math.inf, math.inf) if window == GLOBAL_WINDOW else (window.start / SECOND, window.end / SECOND)
    if counted:
        bounds = (window.start, window.end)
    pane = element.pane
    far = element.timestamp == GLOBAL_WINDOW.max_timestamp()
    return Pane(
        key,
        bounds,
        [value] if combined else list(value),
        math.inf if far else element.timestamp / SECOND,
        pane.timing,
        pane.index,
        pane.on_time_index,
        pane.is_first,
        pane.is_last,
        element.retraction,
    )


def multiset(panes: list[Pane]) -> Counter[str]:
    return Counter(map(repr, (normal(pane) for pane in panes)))


def normal(pane: Pane) -> tuple[Any, ...]:
    times = [float(time) for time in (*pane.window, pane.timestamp)]
    flags = (pane.timing, pane.index, pane.on_time_index, pane.is_first, pane.is_last, pane.retraction)
    return pane.key, times, list(pane.values), flags


@dataclass(frozen=True)
class Case:
    name: str
    windowing: dict[str, Any]
    combine: Any = None

    @property
    def counted(self) -> bool:
        return isinstance(self.windowing["window"], hr.CountWindows)


class Around(hr.WindowFn):
    """Two overlapping windows for each element."""

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        start = time - time % (4 * SECOND)
        return [(start, start + 4 * SECOND), (start, start + 9 * SECOND)]


EARLY_AND_LATE = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))
CASES = [
    Case("fixed", {"window": hr.FixedWindows(10)}),
    Case("fixed sum", {"window": hr.FixedWindows(10), "allowed_lateness": 30}, sum),
    *(
        Case(
            f"{name} {mode} {'sum' if combine else 'group'}",
            {"window": window, "trigger": EARLY_AND_LATE, "accumulation": mode, "allowed_lateness": 20},
            combine,
        )
        for name, window in [("fixed", hr.FixedWindows(10)), ("sessions", hr.Sessions(5))]
        for mode in ("discarding", "accumulating", "retracting")
        for combine in (None, sum)
    ),
    Case("sliding", {"window": hr.SlidingWindows(10, 5), "accumulation": "accumulating"}),
    Case("sliding latest", {"window": hr.SlidingWindows(10, 5), "timestamp_combiner": "latest"}, max),
    Case("fixed earliest", {"window": hr.FixedWindows(10), "timestamp_combiner": "earliest"}, sum),
    Case("count", {"window": hr.CountWindows(3)}),
    Case("count sum", {"window": hr.CountWindows(2)}, sum),
    Case(
        "global by count",
        {"window": hr.GlobalWindows(), "trigger": hr.Repeatedly(hr.AfterCount(3)), "accumulation": "accumulating"},
    ),
    Case(
        "global by the clock",
        {"window": hr.GlobalWindows(), "trigger": hr.Repeatedly(hr.AfterProcessingTime(10))},
        sum,
    ),
    Case(
        "nested",
        {
            "window": hr.FixedWindows(20),
            "trigger": hr.Repeatedly(hr.AfterAny(hr.AfterCount(3), hr.AfterProcessingTime(15))),
            "accumulation": "retracting",
            "allowed_lateness": 100,
        },
        sum,
    ),
    Case(
        "always closing",
        {"window": hr.FixedWindows(10), "trigger": EARLY_AND_LATE, "closing": "always", "allowed_lateness": 10},
    ),
    Case(
        "percentile",
        {
            "window": hr.FixedWindows(10),
            "trigger": hr.Repeatedly(hr.AfterPercentile(0.5)),
            "accumulation": "accumulating",
            "allowed_lateness": 20,
        },
    ),
    Case("never", {"window": hr.FixedWindows(10), "trigger": hr.Never()}, sum),
    Case("calendar", {"window": hr.CalendarWindows("day"), "trigger": EARLY_AND_LATE}, sum),
    Case("unaligned", {"window": hr.UnalignedWindows(10), "trigger": EARLY_AND_LATE, "allowed_lateness": 5}),
    Case("custom", {"window": Around(), "trigger": EARLY_AND_LATE, "accumulation": "accumulating"}, sum),
    Case("custom merging", {"window": Bursts(), "trigger": EARLY_AND_LATE, "accumulation": "retracting"}, sum),
    *(
        Case(name, {"window": hr.FixedWindows(20), "trigger": trigger, "allowed_lateness": 30}, sum)
        for name, trigger in {
            "default": hr.DefaultTrigger(),
            "always": hr.Always(),
            "early by the clock": hr.AfterWatermark(early=hr.AfterProcessingTime(5)),
            "all": hr.Repeatedly(hr.AfterAll(hr.AfterCount(2), hr.AfterProcessingTime(20))),
            "each": hr.AfterEach(hr.AfterCount(1), hr.Repeatedly(hr.AfterCount(2))),
            "or finally": hr.OrFinally(hr.Repeatedly(hr.AfterCount(1)), hr.AfterCount(3)),
        }.items()
    ),
]
SCRIPT: Script = [
    ("input", [("a", 1, 1), ("a", 2, 3), ("b", 3, 4), ("a", 4, 12)]),
    ("clock", 7),
    ("input", [("b", 5, 8), ("c", 6, 9), ("a", 7, 16)]),
    ("watermark", 10),
    ("input", [("a", 8, 5), ("b", 9, 2), ("b", 10, 14), ("a", 11, 20)]),
    ("clock", 40),
    ("watermark", 27),
    ("input", [("a", 12, 9), ("c", 13, 28), ("b", 14, 11)]),
    ("watermark", math.inf),
]


def check_panes(p: hr.Pipeline, cases: list[Case], script: Script) -> StreamHandle:
    """Asserts that a stream gives the panes of `play` in every case; returns its handle."""
    events = p | stream_of(script)
    collected: list[Collected] = []
    for case in cases:
        windowing = dict(case.windowing)
        windowed = events | f"window {case.name}" >> hr.WindowInto(windowing.pop("window"), **windowing)
        grouping = hr.GroupByKey() if case.combine is None else hr.CombinePerKey(case.combine)
        collected.append(windowed | case.name >> grouping | f"collect {case.name}" >> hr.Collect())
    handle = p.run()
    assert handle.wait().state == "done"
    for case, results in zip(cases, collected, strict=True):
        expected = play(**case.windowing, combine=case.combine, script=script)
        assert any(expected), case.name
        for step, panes in enumerate(expected):
            given = results.batches.get(step, [])
            shown = [as_played(e, combined=case.combine is not None, counted=case.counted) for e in given]
            assert multiset(shown) == multiset(panes), (case.name, script[step])
    assert isinstance(handle, StreamHandle)
    return handle


@pytest.mark.slow("a stream for each kind of window")
def test_every_window_gives_the_panes_of_play(p: hr.Pipeline) -> None:
    handle = check_panes(p, CASES, SCRIPT)
    late = handle.metrics()
    assert late["fixed"]["late"] == 4
    assert late["fixed sum"]["late"] == 0
    assert {status.held for status in handle.status().exchanges.values()} == {0}


# The worked examples


def seconds(clock: str) -> int:
    """Seconds after noon of "12:03:06"."""
    _, minutes, rest = clock.split(":")
    return 60 * int(minutes) + int(rest)


SCORES = [
    (5, "12:00:26", "12:05:19"),
    (9, "12:01:26", "12:08:19"),
    (7, "12:02:26", "12:05:39"),
    (8, "12:03:06", "12:07:06"),
    (3, "12:03:39", "12:06:13"),
    (4, "12:04:19", "12:06:39"),
    (3, "12:06:39", "12:07:19"),
    (8, "12:07:26", "12:08:39"),
    (1, "12:07:46", "12:09:00"),
]
ARRIVALS = [(score, seconds(event)) for score, event, _ in sorted(SCORES, key=lambda each: seconds(each[2]))]


def test_the_scores_of_the_dataflow_paper(p: hr.Pipeline) -> None:
    stream = hr.TestStream()
    for score, event in ARRIVALS:
        if score == 9:
            stream = stream.advance_watermark(seconds("12:02:00"))
        stream = stream.add([hr.TimestampedValue(("team", score), event)])
    events = p | stream.finish()
    two_minutes = hr.FixedWindows("2 minutes")
    late = hr.AfterWatermark(late=hr.AfterCount(1))
    strict = events | "w1" >> hr.WindowInto(two_minutes) | "strict" >> hr.CombinePerKey(sum)
    lenient = (
        events
        | "w2" >> hr.WindowInto(two_minutes, trigger=late, accumulation="accumulating", allowed_lateness="1 hour")
        | "lenient" >> hr.CombinePerKey(sum)
    )
    sessions = (
        events
        | "w3"
        >> hr.WindowInto(
            hr.Sessions(61),
            trigger=hr.Repeatedly(hr.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="1 hour",
        )
        | "sessions" >> hr.CombinePerKey(sum)
    )
    dropped, kept, merged = (pc | f"collect {pc.label}" >> hr.Collect() for pc in (strict, lenient, sessions))
    handle = p.run()
    handle.wait()

    def totals(results: Collected) -> list[tuple[float, int, str]]:
        shown = [(e.window.end / 60 / SECOND, e.value[1], e.pane.timing) for e in results.windowed]
        return sorted(shown, key=lambda each: each[0])

    assert totals(dropped) == [(2, 5, "on_time"), (4, 18, "on_time"), (6, 4, "on_time"), (8, 12, "on_time")]
    assert handle.metrics()["strict"]["late"] == 1
    first_window = [each[1:] for each in totals(kept) if each[0] == 2]
    assert first_window == [(5, "on_time"), (14, "late")]
    assert [each[1] for each in totals(kept)][2:] == [18, 4, 12]
    assert handle.metrics()["lenient"]["late"] == 0

    by_batch = [
        sorted((-e.value[1] if e.retraction else e.value[1]) for e in merged.batches[batch])
        for batch in sorted(merged.batches)
    ]
    assert by_batch[: len(ARRIVALS)] == [[5], [7], [3], [-3, 7], [-7, -7, 22], [3], [-22, -5, 36], [-3, 11], [-11, 12]]


# The last pane of a window is what a batch says


@only_full("every window gives the panes of play")
def test_last_panes_are_the_batch_answer(p: hr.Pipeline, spark: SparkSession) -> None:
    rng = random.Random(7)
    elements = [hr.TimestampedValue((rng.choice("abcd"), rng.randrange(100)), rng.randrange(120)) for _ in range(150)]
    windows = [hr.FixedWindows(20), hr.SlidingWindows(30, 15), hr.Sessions(4), hr.GlobalWindows()]
    trigger = hr.Repeatedly(hr.AfterCount(1))

    def built(pipeline: hr.Pipeline, source: Any) -> list[Collected]:
        events = pipeline | source
        collected = []
        for number, window in enumerate(windows):
            windowed = events | f"w{number}" >> hr.WindowInto(
                window, trigger=trigger, accumulation="accumulating", allowed_lateness=1000
            )
            sums = windowed | f"sum{number}" >> hr.CombinePerKey(sum)
            groups = (
                windowed
                | f"group{number}" >> hr.GroupByKey()
                | f"sorted{number}" >> hr.MapTuple(lambda key, values: (key, sorted(values)))
            )
            collected += [each | f"collect {each.label}" >> hr.Collect() for each in (sums, groups)]
        return collected

    shuffled = rng.sample(elements, len(elements))
    script = hr.TestStream()
    while shuffled:
        count = rng.randrange(20, 60)
        script, shuffled = script.add(shuffled[:count]), shuffled[count:]
        if rng.random() < 0.5:
            low = int(script.steps[-1].watermark) if script.steps[-1].watermark > 0 else 0
            script = script.advance_watermark(low / SECOND + rng.randrange(40))
    streamed = built(p, script.finish())
    p.run().wait()
    batch = hr.Pipeline(spark=spark)
    expected = built(batch, hr.Create(elements))
    batch.run().wait()
    for got, wanted in zip(streamed, expected, strict=True):
        last: dict[Any, Any] = {}
        for each in got.windowed:
            last[each.value[0], each.window] = each.value[1]
        answer = {(each.value[0], each.window): each.value[1] for each in wanted.windowed}
        if "sum2" in got.label or "sorted2" in got.label:  # sessions also leave the panes of those they grew from
            last = {place: value for place, value in last.items() if place in answer}
        assert last == answer, got.label


# Graphs


def test_groupings_in_a_row_and_across_levels(p: hr.Pipeline) -> None:
    """A sum of sums stays right under retractions; a flatten joins branches of different depth; several sinks."""
    stream = (
        hr.TestStream()
        .add([hr.TimestampedValue(("a", 1), 1), hr.TimestampedValue(("b", 10), 2)])
        .advance_watermark(10)
        .add([hr.TimestampedValue(("a", 5), 3)])
        .finish()
    )
    late = hr.AfterWatermark(late=hr.AfterCount(1))
    retracting: dict[str, Any] = {"trigger": late, "accumulation": "retracting", "allowed_lateness": 100}
    events = p | stream
    sums = events | hr.WindowInto(hr.FixedWindows(10), **retracting) | "sums" >> hr.CombinePerKey(sum)
    total = sums | "no keys" >> hr.Values() | "total" >> hr.CombineGlobally(sum)
    largest = sums | "one key" >> hr.Map(lambda pair: (0, pair[1])) | "largest" >> hr.CombinePerKey(max)
    plain = events | "w" >> hr.WindowInto(hr.FixedWindows(10), allowed_lateness=100)
    both = (
        (plain, plain | "inner" >> hr.CombinePerKey(sum) | "mark" >> hr.MapTuple(lambda k, v: (k, ("sum", v))))
        | hr.Flatten()
        | "outer" >> hr.GroupByKey()
    )
    amy = p | "names" >> hr.Create([hr.TimestampedValue(("a", "Amy"), 1)])
    names = amy | "w2" >> hr.WindowInto(hr.FixedWindows(10))
    joined = {"sum": plain, "name": names} | hr.CoGroupByKey()
    seen: list[tuple[int, Any, bool]] = []
    totals, tops, together, people = (
        pc | f"collect {pc.label}" >> hr.Collect() for pc in (total, largest, both, joined)
    )
    total | hr.ForEachBatch(lambda elements, batch: seen.extend((batch, e.value, e.retraction) for e in elements))
    p.run().wait()
    assert [(e.value, e.retraction) for e in totals.windowed] == [(11, False), (11, True), (16, False)]
    assert [(e.value[1], e.retraction) for e in tops.windowed] == [(10, False), (10, True), (10, False)]
    assert [each[1:] for each in seen] == [(11, False), (11, True), (16, False)]
    grouped = Counter({key: 0 for key in "ab"})
    for key, values in together:
        for value in values:
            grouped[key] += value[1] if isinstance(value, tuple) else value
    assert grouped == {"a": 12, "b": 20}
    assert sorted((key, list(found["sum"]), list(found["name"])) for key, found in people) == [
        ("a", [1], ["Amy"]),
        ("a", [5], []),
        ("b", [10], []),
    ]


@pytest.mark.parametrize("in_shards", [True, False])
def test_a_program_behind_shards_runs_with_them_or_by_itself(
    p: hr.Pipeline, monkeypatch: pytest.MonkeyPatch, in_shards: bool
) -> None:
    """Two levels of one grouping each: answers, counts and metrics are the same, also where a batch brings nothing."""
    asked: list[bool] = []
    decided = Stream._runs_in_shards

    def runs_in_shards(stream: Stream, level: int) -> bool:
        asked.append(decided(stream, level))
        return asked[-1] and in_shards

    monkeypatch.setattr(Stream, "_runs_in_shards", runs_in_shards)
    rows = [hr.TimestampedValue((number % 7, number), number) for number in range(30)]
    script = hr.TestStream().add(rows[:20]).advance_watermark(5).add(rows[20:]).advance_watermark(20).finish()

    def by_rest(pair: tuple[int, int]) -> tuple[int, int]:
        hr.metrics.counter("seen").inc()
        return pair[0] % 2, pair[1]

    windowed = p | script.with_output_types(tuple[int, int]) | hr.WindowInto(hr.FixedWindows(10))
    sums = windowed | "sums" >> hr.CombinePerKey(sum) | "by rest" >> hr.Map(by_rest).with_output_types(tuple[int, int])
    largest = sums | "largest" >> hr.CombinePerKey(max) | hr.Collect()
    each = sums | "each" >> hr.Collect()
    handle = p.run()
    handle.wait()
    assert asked == [True, True]
    starts = (0, 10, 20)
    in_window = {
        start: [pair for at, pair in enumerate(r.value for r in rows) if start <= at < start + 10] for start in starts
    }
    totals = {
        (start, user): sum(n for of, n in pairs if of == user)
        for start, pairs in in_window.items()
        for user, _ in pairs
    }
    assert Counter(each) == Counter((user % 2, total) for (_, user), total in totals.items())
    expected = {
        (start, rest): max(total for (begin, user), total in totals.items() if begin == start and user % 2 == rest)
        for start in starts
        for rest in (0, 1)
    }
    assert {(e.window.start // SECOND, e.value[0]): e.value[1] for e in largest.windowed} == expected
    metrics = handle.metrics()
    assert metrics["by rest"] == {"in": len(totals), "out": len(totals), "seen": len(totals)}
    assert metrics["sums"]["out"] == len(totals) and metrics["largest"]["out"] == len(expected)


def test_columns_and_side_inputs(p: hr.Pipeline) -> None:
    rows = [hr.TimestampedValue(("a", 2), 1), hr.TimestampedValue(("b", 9), 2), hr.TimestampedValue(("a", 4), 3)]
    script = hr.TestStream().add(rows).advance_watermark(10).add([hr.TimestampedValue(("a", 7), 12)]).finish()
    table = p | script.with_output_types(tuple[str, int]) | "named" >> hr.Select(user="_1", n="_2")
    windowed = table | "small" >> hr.Where("n < 8") | hr.WindowInto(hr.FixedWindows(10))
    stats = windowed | hr.GroupBy("user").aggregate(n=hr.count(), total=hr.sum("n"), last=hr.last("n")) | hr.Collect()
    titles = p | "titles" >> hr.Create([("a", "Amy"), ("b", "Bob")])
    named = (
        table | hr.Map(lambda row, titles: (titles[row.user], row.n), hr.AsDict(titles)) | "named out" >> hr.Collect()
    )
    p.run().wait()
    assert [(e.window.start // SECOND, tuple(e.value)) for e in stats.windowed] == [
        (0, ("a", 2, 6, 4)),
        (10, ("a", 1, 7, 7)),
    ]
    assert stats[0].total == 6
    assert sorted(named) == [("Amy", 2), ("Amy", 4), ("Amy", 7), ("Bob", 9)]


def test_a_failing_function_is_named(p: hr.Pipeline) -> None:
    events = p | hr.TestStream().add([("a", 1), ("b", 0)])
    _ = events | "invert" >> hr.Map(lambda pair: 1 / pair[1]) | hr.Collect()
    with pytest.raises(hr.TransformError, match=r"'invert' failed on the element \('b', 0\): ZeroDivisionError"):
        p.run().wait()


def test_a_failing_combiner_is_named(p: hr.Pipeline) -> None:
    events = p | hr.TestStream().add([hr.TimestampedValue(("a", 1), 1), hr.TimestampedValue(("a", "x"), 1)])
    grouped = events | hr.WindowInto(hr.FixedWindows(10), timestamp_combiner="latest")
    _ = grouped | "total" >> hr.CombinePerKey(sum) | hr.Collect()
    with pytest.raises(hr.TransformError, match="'total' failed"):
        p.run().wait()
