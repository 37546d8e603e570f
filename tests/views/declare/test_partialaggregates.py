"""Accumulators that pipelines give, in a batch and in a stream: kept and merged, they are the answers of all events."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.views.declare.partialaggregates import partial_of
from headrace.views.offsets import MicroBatch
from headrace.views.query.queries import Query
from headrace.views.stores import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "page string, user string, n bigint, price double, at timestamp"
VISITS = hr.Topic("visits", schema=SCHEMA, event_time="at")


class Visit(NamedTuple):
    page: str | None
    user: str | None
    n: int | None
    price: float | None
    at: dt.datetime | None


@hr.view(VISITS, window=hr.FixedWindows(10), allowed_lateness="1 day")
def stats(events: Any) -> Any:
    return events | hr.GroupBy("page").aggregate(
        hits=hr.count(),
        total=hr.sum("n"),
        paid=hr.sum("price"),
        mean=hr.mean("price"),
        spread=hr.variance("price"),
        least=hr.min("user"),
        latest=hr.max("at"),
        first=hr.first("user"),
        last=hr.last("user"),
        dearest=hr.max_by("user", "price"),
        earliest=hr.min_by("price", "at"),
        best=hr.top("n", 2),
        every=hr.collect("n"),
        quartiles=hr.quantiles("price", 5),
        people=hr.approx_distinct("user"),
        common=hr.heavy_hitters("user", 2),
        visitors=hr.theta("user"),
        frequencies=hr.count_min("user"),
        ones=hr.frequency("n", of=[1, 2]),
        uneven=hr.second_moment("user"),
        seen=hr.bloom("user", items=50),
        cheap=hr.rank("price", of=1),
        spans=hr.histogram("price", bins=[-2, 0, 2]),
        some=hr.sample("user", 50),
        users=hr.count_distinct("user"),
        prices=hr.count_distinct("price"),
        soon=hr.count_distinct("user", speed=hr.approx_distinct("user")),
    )


def visits() -> list[hr.TimestampedValue]:
    draw = random.Random(3)

    def some(value: Any) -> Any:
        return None if draw.random() < 0.2 else value

    made = []
    for second in range(40):
        time = dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.UTC)
        values = (draw.choice("uvw"), draw.randint(-5, 5), draw.randint(-8, 8) / 4, time)
        made.append(hr.TimestampedValue(Visit(draw.choice(["a", "b", None]), *map(some, values)), second))
    return made


def expected(events: list[hr.TimestampedValue]) -> dict[Any, dict[str, Any]]:
    """By the CombineFns themselves. As in SQL, nulls do not count, but to first and last."""
    groups: dict[Any, list[hr.TimestampedValue]] = {}
    for event in events:
        groups.setdefault((event.value.page, event.timestamp // 10_000_000 * 10_000_000), []).append(event)
    answers: dict[Any, dict[str, Any]] = {}
    for place, group in groups.items():
        answers[place] = {}
        for name, aggregation in stats.aggregate.aggregations.items():
            fn, names = aggregation.fn, aggregation.columns
            read = [tuple(getattr(each.value, name) for name in names) for each in group]
            values = [
                (each.timestamp, parts if len(parts) > 1 else parts[0] if parts else 1)
                for each, parts in zip(group, read, strict=True)
            ]
            bare = [value for _, value in values if value is not None]
            answers[place][name] = fn.finish(fn.add_all(fn.zero(), values if fn.timed else bare))
    return answers


def compared(found: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """In a form that rounding and order do not change."""

    def form(name: str, value: Any) -> Any:
        if name in ("spread", "cheap"):
            return pytest.approx(value, nan_ok=True)
        return sorted(value) if name in ("every", "some") else value

    return {place: {name: form(name, value) for name, value in values.items()} for place, values in found.items()}


def test_batch_and_stream_give_accumulators_that_merge(spark: SparkSession, tmp_path: Path) -> None:
    events = visits()
    store = Store(f"sqlite:///{tmp_path}/views.db")
    view = store.view(stats.layout())

    batch = hr.Pipeline(spark=spark)
    rows = stats.partials(batch | hr.Create(events[:25])) | hr.Collect()
    batch.run().wait()
    view.add(MicroBatch("before", 0, {}, {0: 25}), [])
    with view.build(view.cut()) as version:
        version.load(partial_of(view.layout, element) for element in rows.windowed)
        version.publish()

    def add(elements: list[Any], number: int) -> None:
        reached = view.provenance().reached
        until = {0: reached[0] + 1}  # a stream of this test does not know its offsets
        stream = "before" if number < 0 else "speed"
        batch_of = MicroBatch(stream, number, reached, until)
        assert view.add(batch_of, [partial_of(view.layout, element) for element in elements])

    stream = hr.Pipeline(spark=spark)
    script = hr.TestStream().add(events[25:30]).add(events[30:38]).add(events[38:]).finish().with_output_types(Visit)
    deltas = stats.partials(stream | script, trigger=hr.Always())
    _ = deltas | hr.ForEachBatch(add)
    stream.run().wait()

    answer = view.answer(Query())
    found = {(row.key["page"], row.window.start): row.values for row in answer.rows}
    assert compared(found) == compared(expected(events))
    assert answer.provenance.batch >= 2
    sketches = {"quartiles", "people", "common", "cheap", "spans", "seen"}  # the others are exact of few values
    both = {event.value.page for event in events[25:]}
    for row in answer.rows:  # a row that the speed layer has a part of is approximate, others are not
        mixed = row.window.start >= 20_000_000 and row.key["page"] in both
        assert {*row.approximate} - {"soon"} == sketches
        assert mixed or "soon" not in row.approximate
    assert any("soon" in row.approximate for row in answer.rows)
    batch_only = view.answer(Query(layer="batch"))
    assert all({*row.approximate} == sketches for row in batch_only.rows)
    store.close()
