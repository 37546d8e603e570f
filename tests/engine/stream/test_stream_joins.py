"""Join of two streams on Spark: the same rows as a batch gives, in any order of arrival, and after a restart."""

from __future__ import annotations

import pathlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.times import SECOND
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOWS = ("inner", "left", "right", "outer")


class Event(NamedTuple):
    kind: str
    id: int | None
    code: str | None
    text: str


def at(kind: str, id: int | None, code: str | None, text: str, second: int) -> hr.TimestampedValue:
    return hr.TimestampedValue(Event(kind, id, code, text), second)


SCRIPT: list[list[hr.TimestampedValue]] = [
    [at("l", 1, "a", "l1", 1), at("l", 1, None, "l2", 2), at("r", 1, "a", "r1", 3), at("r", 2, "b", "r2", 14)],
    [at("r", 1, "a", "r3", 4), at("l", 2, "b", "l3", 15), at("l", 2, "b", "l4", 5), at("r", None, "a", "r4", 6)],
    [at("l", 1, "a", "l5", 7), at("l", 2, "b", "l6", 16), at("r", 2, "b", "r5", 17), at("l", None, "a", "l7", 18)],
]


def results(events: Any) -> dict[str, Any]:
    """Joins in windows: of columns, of Python objects, and behind a grouping; then counts what was joined.

    Joins by time, and as of a time, are of the same rows in the global window.
    """
    windows = events | hr.WindowInto(hr.FixedWindows(10), allowed_lateness=20)
    left = windows | "left" >> hr.Where("kind = 'l'") | hr.Select("id", "code", l="text")
    right = windows | "right" >> hr.Where("kind = 'r'") | hr.Select(key="id", mark="code", r="text")
    on = [("id", "key"), ("code", "mark")]
    found = {how: left | f"{how} join" >> hr.Join(right, on=on, how=how) for how in HOWS}
    named = windows | "named" >> hr.Map(lambda e: e._replace(text=e.text.upper())).with_output_types(Event)
    lefts = named | "lefts" >> hr.Where("kind = 'l'") | "of lefts" >> hr.Select("id", upper="text")
    found["python"] = lefts | "python join" >> hr.Join(right, on={"id": "key"})
    found["counted"] = found["outer"] | hr.GroupBy("id").aggregate(n=hr.count())
    lenient = events | "global" >> hr.WindowInto(hr.GlobalWindows(), allowed_lateness=20)
    ours = lenient | "ours" >> hr.Where("kind = 'l'") | "of ours" >> hr.Select("id", "code", l="text")
    theirs = lenient | "theirs" >> hr.Where("kind = 'r'") | "of theirs" >> hr.Select(key="id", mark="code", r="text")
    for how in HOWS:
        found[f"{how} within"] = ours | f"{how} by time" >> hr.Join(theirs, on=on, how=how, within=(-3, 2))
        if how in ("inner", "left"):
            found[f"{how} as of"] = ours | f"{how} at its time" >> hr.AsOfJoin(theirs, on=on, how=how)
    return {name: pc | f"collect {name}" >> hr.Collect() for name, pc in found.items()}


def shown(collected: Any) -> Counter[Any]:
    return Counter((each.window.start // SECOND, *each.value) for each in collected.windowed)


class Crash(Exception):
    pass


CRASHES = (2, 3) if FULL else (2,)


@only_full("test_interval_join.py joins streams on Spark")
@pytest.mark.slow("a stream of several joins that crashes, and a batch")
def test_streams_join_as_batches_do(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """The stream crashes after rows have come to wait, and goes on from its checkpoint."""
    p = hr.Pipeline(spark=spark)
    batches: list[int] = []

    def crash(elements: list[Any], batch: int) -> None:
        if batch not in batches:
            batches.append(batch)
            if len(batches) in CRASHES:
                raise Crash

    script = hr.TestStream().with_output_types(Event)
    for number, elements in enumerate(SCRIPT):
        script = script.add(elements).advance_watermark(8 + 6 * number)
    late = [at("l", 1, "a", "too late", 1)]
    events = p | "events" >> script.advance_watermark(45).add(late).advance_watermark(50).finish()
    streamed = results(events)
    _ = events | "crash" >> hr.ForEachBatch(crash)
    for _ in CRASHES:
        with pytest.raises(hr.TransformError):
            p.run(checkpoint=str(tmp_path)).wait()
    handle = p.run(checkpoint=str(tmp_path))
    handle.wait()
    p = hr.Pipeline(spark=spark)
    create = hr.Create([each for elements in SCRIPT for each in elements]).with_output_types(Event)
    expected = results(p | "events" >> create)
    p.run().wait()
    within = [*(f"{how} within" for how in HOWS), "inner as of", "left as of"]
    for name in (*HOWS, *within, "python"):
        assert shown(streamed[name]) == shown(expected[name]) and shown(expected[name]), name
    for name in (*HOWS, *within):
        times = [Counter((*e.value, e.timestamp) for e in found[name].windowed) for found in (streamed, expected)]
        assert times[0] == times[1], name
    # A late match may come behind the pane of its window; all panes together count all.
    counts: Counter[Any] = Counter()
    for start, key, n in shown(streamed["counted"]).elements():
        counts[start, key] += n
    assert counts == {(start, key): n for start, key, n in shown(expected["counted"])}
    assert handle.metrics()["outer join"]["late"] == handle.metrics()["outer by time"]["late"] == 1
    assert handle.metrics()["left at its time"]["late"] == 1


def test_what_does_not_join_is_refused_before_a_job_runs(spark: SparkSession) -> None:
    for right, message in [
        ("cast(value as string)", "'value' on the left is int64, and 'key' on the right string; .* of one type"),
        ("array(value)", "'value' on the left is int64, and 'key' on the right list"),
    ]:
        p = hr.Pipeline(spark=spark)
        numbers = p | "numbers" >> hr.Rate(1) | hr.Select("value")
        _ = numbers | "join" >> hr.Join(numbers | "other" >> hr.Select(key=right), on={"value": "key"}) | hr.Collect()
        with pytest.raises(hr.PipelineError, match=f"'join' .*{message}"):
            p.run()
