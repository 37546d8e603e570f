"""GroupBy(...).top(...) on Spark: batches and streams give the rows of the naive definition."""

from __future__ import annotations

import pathlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from tests.reference_toprows import top_rows
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Bid(NamedTuple):
    auction: str | None
    price: float | None
    name: str | None
    number: int


BY = ["price DESC NULLS FIRST", "name"]
ORDERS = [("price", True, True), ("name", False, True)]


def bids(seed: int, count: int) -> list[tuple[Bid, int]]:
    draw = random.Random(seed)
    prices, names = [None, 0.0, -0.0, 2.5, 7.0, float("nan")], [None, "a", "é", "z"]
    return [
        (Bid(draw.choice(["x", "y", None]), draw.choice(prices), draw.choice(names), draw.randrange(6)), at)
        for at in (draw.randrange(60) for _ in range(count))
    ]


def shown(row: Any, *more: Any) -> str:
    return repr((tuple(value + 0.0 if isinstance(value, float) else value for value in row), *more))


def naive(rows: list[tuple[Bid, int]], size: int | None, n: int) -> Counter[str]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for bid, at in rows:
        groups.setdefault((bid.auction, None if size is None else at // size * size), []).append(bid._asdict())
    return Counter(
        shown((*row.values(), place), start)
        for (_, start), members in groups.items()
        for place, row in enumerate(top_rows(members, n, ORDERS), 1)
    )


def results(bids: Any) -> dict[str, Any]:
    """The first rows in windows, in all, and of objects; then, of the highest counts, the first."""
    top = hr.GroupBy("auction").top(3, by=BY, rank="place")
    windows = bids | "tens" >> hr.WindowInto(hr.FixedWindows(10), allowed_lateness=60, accumulation="retracting")
    every = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)), accumulation="retracting")
    found = {"tens": windows | "top of tens" >> top}
    always = bids | "every" >> every
    found["all"] = always | "top of all" >> top
    objects = windows | "same" >> hr.Map(lambda bid: bid).with_output_types(Bid)
    found["objects"] = objects | "top of objects" >> top | hr.Select("auction", "price", "name", "number", "place")
    counts = always | "counts" >> hr.GroupBy("name").aggregate(n=hr.count())
    found["most"] = counts | "most" >> hr.GroupBy().top(2, by="n DESC")
    return {name: pc | f"collect {name}" >> hr.Collect() for name, pc in found.items()}


def net(collected: Any, *, windowed: bool) -> Counter[str]:
    """What was given and not taken back."""
    rows: Counter[str] = Counter()
    for each in collected.windowed:
        place = each.window.start // 10**6 if windowed else None
        rows[shown(each.value, place)] += -1 if each.retraction else 1
    assert all(count >= 0 for count in rows.values())
    return +rows


def most(rows: list[tuple[Bid, int]]) -> Counter[str]:
    counts = [{"name": name, "n": n} for name, n in Counter(bid.name for bid, _ in rows).items()]
    return Counter(shown(row.values(), None) for row in top_rows(counts, 2, [("n", True, False)]))


@only_full("the queries of test_queries.py have first rows")
@pytest.mark.slow("a stream of four groupings that is stopped and goes on, and a batch")
def test_streams_and_batches_find_the_first_rows(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    rows = bids(7, 90)
    steps = [rows[at : at + 30] for at in range(0, 90, 30)]
    script = hr.TestStream().with_output_types(Bid)
    for number, step in enumerate(steps):
        script = script.add([hr.TimestampedValue(*each) for each in step]).advance_watermark(20 * number)
    crashed: list[int] = []

    def crash(elements: list[Any], batch: int) -> None:
        if batch == 2 and not crashed:
            crashed.append(batch)
            raise RuntimeError("crash")

    p = hr.Pipeline(spark=spark)
    events = p | "bids" >> script.finish()
    streamed = results(events)
    _ = events | "crash" >> hr.ForEachBatch(crash)
    with pytest.raises(hr.TransformError):
        p.run(checkpoint=str(tmp_path)).wait()
    p.run(checkpoint=str(tmp_path)).wait()
    q = hr.Pipeline(spark=spark)
    batch = results(q | "bids" >> hr.Create([hr.TimestampedValue(*each) for each in rows]).with_output_types(Bid))
    q.run().wait()
    for found in (streamed, batch):
        assert net(found["tens"], windowed=True) == net(found["objects"], windowed=True) == naive(rows, 10, 3)
        assert net(found["all"], windowed=False) == naive(rows, None, 3)
        assert net(found["most"], windowed=False) == most(rows)
    assert any(each.retraction for each in streamed["all"].windowed)
    times = [Counter(each.timestamp for each in found["tens"].windowed if not each.retraction) for found in (batch,)]
    assert set(times[0]) == {10 * 10**6 * (start + 1) - 1 for start in range(6)}


def test_sessions_and_odd_names_in_a_batch(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    rows = [(1, "b", [1], 0), (2, "a", [2], 3), (3, "c", None, 30), (4, "c", [], 34)]
    schema = "`odd id` int, `name x` string, list array<int>, at long"
    named = p | hr.Create(rows, schema=schema, event_time="at") | hr.WindowInto(hr.Sessions(10))
    found = named | hr.GroupBy().top(1, by="`name x`, `odd id` desc") | hr.Collect()
    p.run().wait()
    assert sorted((*each.value, each.window.start // 10**6, each.window.end // 10**6) for each in found.windowed) == [
        (2, "a", [2], 3, 0, 13),
        (4, "c", [], 34, 30, 44),
    ]


def test_what_has_no_order_is_refused(spark: SparkSession) -> None:
    for by, message in [
        ("nmae", "there is no column 'nmae', did you mean 'name'"),
        ("list", "'list' is a list.*, which has no order; take a part of it with Select first"),
    ]:
        for stream in (False, True):
            p = hr.Pipeline(spark=spark)
            rows = p | hr.Create([("a", [1])], schema="name string, list array<int>") | hr.Select("*")
            _ = rows | "top" >> hr.GroupBy("name").top(2, by=by) | hr.Collect()
            with pytest.raises(hr.PipelineError, match=f"'top' .*{message}"):
                p.run(stream=stream).wait()
