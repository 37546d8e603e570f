"""Which changes of a pipeline its checkpoint can go on with, told from the graphs alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import headrace as hr
from headrace.engine.checkpoint.compare import Changes, compare
from headrace.engine.checkpoint.manifest import Manifest
from headrace.engine.plan.lowering import lower

NEW = Manifest("id", shards=2, partitions=2)
EARLY = hr.AfterWatermark(early=hr.AfterCount(2))


def manifest(build: Callable[[hr.Pipeline], Any], held: Manifest = NEW, *, heartbeat: bool = False) -> Manifest:
    p = hr.Pipeline()
    build(p)
    return held.of(lower(p.graph(), shards=2, partitions=2, numbers=held.numbers), heartbeat=heartbeat)


def pipeline(
    p: hr.Pipeline,
    source: Any = None,
    window: Any = hr.FixedWindows(10),
    combine: Any = sum,
    map_: Callable[[Any], Any] = lambda pair: pair,
    **windowing: Any,
) -> Any:
    events = p | "events" >> (source or hr.TestStream())
    windowed = events | "w" >> hr.WindowInto(window, **{"trigger": EARLY, **windowing})
    sums = windowed | "sums" >> hr.CombinePerKey(combine) | "map" >> hr.Map(map_)
    sums | "out" >> hr.Collect()
    return sums


HELD = manifest(pipeline)


def changed(**how: Any) -> Changes:
    return compare(HELD, manifest(lambda p: pipeline(p, **how), HELD))


def grown(more: Callable[[Any], Any]) -> Changes:
    return compare(HELD, manifest(lambda p: more(pipeline(p)), HELD))


def test_the_same_pipeline_differs_in_nothing() -> None:
    assert changed() == Changes()
    assert Manifest.read(HELD.write()) == HELD


def test_a_checkpoint_of_another_format_is_refused() -> None:
    held = json.loads(HELD.write())
    other = json.dumps(held | {"format": 5, "lanes": 3}).encode()
    with pytest.raises(hr.PipelineError, match=r"the checkpoint /c has format 5, .* or run with a new checkpoint"):
        Manifest.read(other, "the checkpoint /c")


@pytest.mark.parametrize("number", [{}, {"format": 1}])
def test_a_checkpoint_of_the_first_format_is_compared_by_its_descriptions(number: dict[str, int]) -> None:
    sums = {
        "number": 0,
        "level": 1,
        "upstream": ["events"],
        "work": "FixedWindows('10 s'), discarding, state of AfterCount, combined by SumFn()",
        "settings": HELD.groupings["sums"].settings,
    }
    entries = {
        "stream": "id",
        "shards": 2,
        "partitions": 2,
        "heartbeat": False,
        "sources": {"events": "TestStream: TestStream(0 steps)"},
        "groupings": {"sums": sums},
        "sinks": {"out": "Collect"},
    }
    first = Manifest.read(json.dumps(number | entries).encode())
    assert first.numbers == {"sums": 0} and first.depth == 1
    assert compare(first, HELD) == Changes()
    assert first.sinks["out"].same_target(HELD.sinks["out"])
    for how, told in (({"combine": max}, "combined by MaxFn()"), ({"source": hr.Rate(5)}, "is Rate(5 a second)")):
        (refusal,) = compare(first, manifest(lambda p, how=how: pipeline(p, **how), first)).refusals  # type: ignore[misc]
        assert told in refusal


def test_functions_may_change() -> None:
    assert changed(map_=lambda pair: (pair[0], -pair[1])) == Changes()


def test_sinks_may_come_and_go() -> None:
    assert grown(lambda sums: sums | "file" >> hr.WriteText("out")) == Changes(
        ["the sink 'file' is new: it gets what comes from here on"]
    )
    assert grown(lambda sums: sums | "more" >> hr.Map(str)) == Changes()
    with_file = manifest(lambda p: pipeline(p) | "file" >> hr.WriteText("out"))
    assert compare(with_file, HELD).notes == ["the sink 'file' is gone"]
    elsewhere = manifest(lambda p: pipeline(p) | "file" >> hr.WriteText("there"))
    assert compare(with_file, elsewhere) == Changes(["the sink 'file' was WriteText('out') and is WriteText('there')"])


def test_a_trigger_may_change_if_it_keeps_the_same_state() -> None:
    more = hr.AfterWatermark(early=hr.AfterCount(7))
    assert changed(trigger=more, allowed_lateness=60).refusals == []
    (note,) = changed(trigger=more).notes
    assert "AfterCount(2)" in note and "AfterCount(7)" in note
    (refusal,) = changed(trigger=hr.DefaultTrigger()).refusals
    assert refusal == (
        "the grouping 'sums' was FixedWindows('10 s'), discarding, state of AfterCount, combined by SumFn() and is "
        "FixedWindows('10 s'), discarding, combined by SumFn()"
    )


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"window": hr.FixedWindows(20)}, r"was FixedWindows\('10 s'\), .* is FixedWindows\('20 s'\)"),
        ({"combine": max}, r"combined by SumFn\(\) and is .*, combined by MaxFn\(\)"),
        ({"accumulation": "accumulating"}, "discarding, .* accumulating"),
        ({"timestamp_combiner": "earliest"}, "is .*timestamps earliest"),
        ({"source": hr.Rate(5)}, r"the source 'events' was TestStream\(0 steps\) and is Rate\(5 a second\)"),
    ],
)
def test_what_state_was_made_of_may_not_change(how: dict[str, Any], told: str) -> None:
    (refusal,) = changed(**how).refusals
    assert re.search(told, refusal)


def test_sources_keep_their_number_and_get_their_order() -> None:
    def two(p: hr.Pipeline, first: str = "a", second: str = "b") -> None:
        both = [p | name >> hr.TestStream() for name in (first, second)]
        _ = both | hr.Flatten() | "w" >> hr.WindowInto(hr.FixedWindows(10)) | "sums" >> hr.CombinePerKey(sum)

    held = manifest(two)
    assert list(held.sources) == ["a", "b"]
    p = hr.Pipeline()
    two(p, "b", "a")
    line = lower(p.graph(), shards=2, partitions=2, numbers=held.numbers)
    assert [tap.name for tap in held.in_order(line.taps)] == ["a", "b"]
    line.taps = held.in_order(line.taps)
    assert compare(held, held.of(line, heartbeat=False)) == Changes()
    assert compare(held, manifest(lambda p: two(p, "a", "c"), held)).refusals == [
        "the source 'b' is gone",
        "the source 'c' is new: a checkpoint keeps the sources it began with",
        "the grouping 'sums' has other inputs",
    ]
    longer = manifest(lambda p: pipeline(p, source=hr.TestStream().add([1])))
    assert compare(HELD, longer) == Changes(["the source 'events' was TestStream(0 steps) and is TestStream(1 steps)"])


def test_groupings_may_be_added_at_levels_that_are_there_and_keep_their_numbers() -> None:
    def more(p: hr.Pipeline) -> None:
        events = p | "events" >> hr.TestStream()
        _ = events | "first" >> hr.GroupByKey()
        windowed = events | "w" >> hr.WindowInto(hr.FixedWindows(10), trigger=EARLY)
        windowed | "sums" >> hr.CombinePerKey(sum) | "map" >> hr.Map(str) | "out" >> hr.Collect()

    new = manifest(more, HELD)
    assert compare(HELD, new) == Changes(["the grouping 'first' is new: it begins empty"])
    assert new.numbers == {"sums": 0, "first": 1}
    assert compare(new, HELD).refusals == [
        "the grouping 'first' is gone, and would leave its state behind: to remove that, say run(forget=['first'])"
    ]


def test_groupings_may_be_forgotten_and_their_numbers_and_levels_stay_taken() -> None:
    def build(p: hr.Pipeline, *labels: str, deep: bool = False) -> None:
        events = p | "events" >> hr.TestStream()
        for label in labels:
            grouped = events | label >> hr.GroupByKey()
        if deep:
            _ = grouped | "deep" >> hr.GroupByKey()
        _ = grouped | "out" >> hr.Collect()

    def after(held: Manifest, *labels: str, deep: bool = False) -> Manifest:
        p = hr.Pipeline()
        build(p, *labels, deep=deep)
        taken = [entry.number for entry in held.forgotten]
        line = lower(p.graph(), shards=2, partitions=2, numbers=held.numbers, taken=taken, levels=held.depth)
        return held.of(line, heartbeat=False)

    reserved = replace(after(NEW, "a"), levels=2)
    assert compare(reserved, after(reserved, "a", deep=True)).refusals == []
    assert compare(after(NEW, "a"), reserved).refusals == [
        "levels is 2: a checkpoint keeps the number of levels it began with, 1"
    ]
    held = after(NEW, "a", "b", deep=True)
    less = after(held, "a")
    assert compare(held, less, forget=["b", "deep"]).notes == [
        "the grouping 'b' is gone, and its state is removed",
        "the grouping 'deep' is gone, and its state is removed",
    ]
    assert compare(held, less, forget=["b"]).refusals == [
        "the grouping 'deep' is gone, and would leave its state behind: to remove that, say run(forget=['deep'])"
    ]
    assert compare(held, less, forget=["a", "b", "deep"]).refusals == [
        "the grouping 'a' is to be forgotten, but the pipeline still has it"
    ]
    assert [(entry.number, entry.level, entry.shards) for entry in less.forgotten] == [(1, 1, 2), (2, 2, 2)]
    assert Manifest.read(less.write()) == less and less.depth == 2
    assert compare(less, after(less, "a"), forget=["b", "deep"]) == Changes()  # once more, after a crash
    again = after(less, "a", "b", deep=True)
    assert again.numbers == {"a": 0, "b": 3, "deep": 4}
    assert compare(less, again) == Changes(
        [f"the grouping {label!r} is new: it begins empty" for label in ("b", "deep")]
    )


def test_columns_are_grouped_by_the_same_and_into_the_same() -> None:
    def rows(p: hr.Pipeline, by: str = "user", total: Any = hr.sum("n")) -> None:
        read = p | "rows" >> hr.ReadJson("data", schema="user string, page string, n long")
        read | "totals" >> hr.GroupBy(by).aggregate(total=total) | "out" >> hr.Collect()

    held = manifest(rows)
    assert compare(held, manifest(rows, held)) == Changes()
    for how in ({"by": "page"}, {"total": hr.max("n")}):
        (refusal,) = compare(held, manifest(lambda p, how=how: rows(p, **how), held)).refusals  # type: ignore[misc]
        assert refusal.startswith("the grouping 'totals' was total by user, ")


def test_levels_cannot_be_added() -> None:
    assert grown(lambda sums: sums | "again" >> hr.CombinePerKey(sum)).refusals == [
        "the grouping 'again' is new and at level 2: a checkpoint keeps the number of levels it began with, 1; one "
        "that begins with run(levels=2) has room"
    ]


def test_a_grouping_keeps_its_level() -> None:
    def two(p: hr.Pipeline, deep: bool) -> None:
        events = p | "events" >> hr.TestStream()
        sums = events | "sums" >> hr.CombinePerKey(sum)
        _ = sums | "deep" >> hr.CombinePerKey(sum)
        _ = (sums if deep else events) | "moved" >> hr.CombinePerKey(max)

    held = manifest(lambda p: two(p, deep=False))
    assert compare(held, manifest(lambda p: two(p, deep=True), held)).refusals == [
        "the grouping 'moved' was at level 1 and is at level 2"
    ]


def test_the_clock_is_a_source_too() -> None:
    timed = manifest(pipeline, heartbeat=True)
    assert compare(HELD, timed).refusals == [
        "something waits for the clock now, which this stream did not need when it began"
    ]
    assert compare(timed, HELD).refusals == ["it waited for the clock, and would not any more"]


def test_what_shards_send_to_each_other_is_a_source_too() -> None:
    def words(p: hr.Pipeline, shards: int) -> None:
        pieces = hr.collection(p | "words" >> hr.TestStream())
        _ = hr.changes(pieces.distinct(), shards=shards) | "out" >> hr.Collect()

    one, two = (manifest(lambda p, shards=shards: words(p, shards)) for shards in (1, 2))  # type: ignore[misc]
    assert (one.rounds, two.rounds) == (False, True)
    assert (
        "shards send to those of the next micro-batch now, which no shard did when it began"
        in compare(one, manifest(lambda p: words(p, 2), one)).refusals
    )
    assert manifest(lambda p: words(p, 1), two).rounds  # it stays among the sources
