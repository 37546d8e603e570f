"""Views in every kind of windows, with every column transform before their aggregation."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace.engine.stream.query import Stream
from headrace.log import Log
from headrace.model.windows import Assigned, Int64Array
from headrace.views.declare.declarations import View
from headrace.views.feeds import feed_of
from headrace.views.layers.batchlayer import BatchLayer
from headrace.views.layers.speedlayer import SpeedLayer
from headrace.views.master.masterdata import Master
from headrace.views.query.queries import Query
from headrace.views.stores import Store
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = hr.Topic("visits", schema="page string, n bigint, at timestamp", event_time="at")


class Visit(NamedTuple):
    page: str
    n: int
    at: dt.datetime


class Around(hr.WindowFn):
    """Two windows around each element: a kind that only its user knows."""

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        index = np.repeat(np.arange(len(times)), 2)
        start = np.stack([times // 10**12 * 10**12, times // 10**12 * 10**12 - 10**12], axis=1).ravel()
        return Assigned(index, start, start + 2 * 10**12)


WINDOWS: dict[str, hr.WindowFn] = {
    "global": hr.GlobalWindows(),
    "fixed": hr.FixedWindows("1 hour"),
    "sliding": hr.SlidingWindows("2 hours", "1 hour"),
    "calendar": hr.CalendarWindows("day", timezone="Europe/Berlin"),
    "custom": Around(),
}


class Case(NamedTuple):
    """A transform before the aggregation by page, and the pages and numbers it makes of a visit in a window."""

    transform: Callable[[Any], Any]
    expected: Callable[[Visit, int], list[tuple[Any, int]]]
    windowed: bool = False  # it reads the bounds of windows


TRANSFORMS: dict[str, Case] = {
    "where": Case(lambda events: events | hr.Where("n > 2"), lambda v, start: [(v.page, v.n)] if v.n > 2 else []),
    "select": Case(lambda events: events | hr.Select("page", n="n * 2"), lambda v, start: [(v.page, 2 * v.n)]),
    "both": Case(
        lambda events: events | hr.Where("n > 2") | hr.Select("n", page="upper(page)") | hr.Where("page < 'C'"),
        lambda v, start: [(v.page.upper(), v.n)] if v.n > 2 and v.page.upper() < "C" else [],
    ),
    "explode": Case(
        lambda events: events | hr.Select("n", page="explode(array(page, 'all'))"),
        lambda v, start: [(v.page, v.n), ("all", v.n)],
    ),
    "bounds": Case(
        lambda events: events | hr.Select("page", n=f"n + unix_seconds({hr.WINDOW_START})"),
        lambda v, start: [(v.page, v.n + start // 10**6)],
        windowed=True,
    ),
    "function": Case(
        lambda events: (
            events | hr.Map(lambda v: Visit(v.page, v.n + 1, v.at)).with_output_types(Visit) | hr.Where("n > 2")
        ),
        lambda v, start: [(v.page, v.n + 1)] if v.n + 1 > 2 else [],
    ),
}


def view_of(window: str, transform: str) -> View:
    def made(events: Any) -> Any:
        return TRANSFORMS[transform].transform(events) | hr.GroupBy("page").aggregate(
            hits=hr.count(), total=hr.sum("n")
        )

    made.__name__ = f"{window}_{transform}"
    types = {"page": "string", "n": "bigint"}
    return hr.view(TOPIC, window=WINDOWS[window], allowed_lateness="99 days", types=types)(made)


def cases() -> Iterator[tuple[str, str]]:
    """Every window and transform that fit together; without FULL, each window with two, and each transform."""
    for (row, window), (column, transform) in itertools.product(enumerate(WINDOWS), enumerate(TRANSFORMS)):
        fit = window != "global" or not TRANSFORMS[transform].windowed
        if fit and (FULL or (row + column) % 3 == 0):
            yield window, transform


def visits() -> list[Visit]:
    first = dt.datetime(2026, 3, 28, 21, 30, tzinfo=dt.UTC)
    return [Visit("abcd"[i % 4], i % 7, first + dt.timedelta(minutes=37 * i)) for i in range(12)]


def recount(window: str, transform: str) -> dict[tuple[str, int], tuple[int, int]]:
    """By the windows' own function, an event at a time."""
    hits: Counter[tuple[str, int]] = Counter()
    total: Counter[tuple[str, int]] = Counter()
    for visit in visits():
        for start, _ in WINDOWS[window].windows_of(micros(visit.at), None):
            for page, n in TRANSFORMS[transform].expected(visit, start):
                hits[page, start] += 1
                total[page, start] += n
    return {place: (hits[place], total[place]) for place in hits}


def micros(time: dt.datetime) -> int:
    return int(time.timestamp()) * 10**6


@pytest.mark.slow("29 views, in a batch and in a stream")
@pytest.mark.parametrize("stream", [False, True])
def test_batch_and_stream_are_a_recount(spark: SparkSession, stream: bool) -> None:
    p = hr.Pipeline(spark=spark)
    timed = [hr.TimestampedValue(visit, visit.at) for visit in visits()]
    source = hr.TestStream().add(timed[:5]).add(timed[5:]).finish() if stream else hr.Create(timed)
    events = p | source.with_output_types(Visit)
    trigger = hr.Always() if stream else None  # as the layers have it; what it gives adds up
    found = {case: view_of(*case)(events, trigger=trigger) | hr.Collect() for case in cases()}
    p.run().wait()
    for case, rows in found.items():
        hits, total = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for row in rows.windowed:
            hits[row.value.page, row.window.start] += row.value.hits
            total[row.value.page, row.window.start] += row.value.total
        assert {place: (hits[place], total[place]) for place in hits} == recount(*case), case


class Analysed(Exception):
    """Raised in place of the start of a query."""


@pytest.mark.slow("29 plans")
def test_every_speed_layer_is_analysed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Log(tmp_path / "log").create("visits", values=TOPIC.schema)

    def analyse(stream: Stream, data: DataFrame) -> None:
        assert data.isStreaming
        raise Analysed

    monkeypatch.setattr(Stream, "_started", analyse)
    store = Store(f"sqlite:///{tmp_path}/views.db")
    for number, case in enumerate(cases()):
        view, feed = view_of(*case), feed_of(tmp_path / "log", TOPIC)
        layer = SpeedLayer(
            view,
            store.view(view.layout()),
            feed,
            checkpoint=f"{tmp_path}/{number}",
            spark=spark,
            dead_letters=store.dead_letters,
        )
        with pytest.raises(Analysed):
            layer.start()
    store.close()


@pytest.mark.slow("layers of a view on Spark")
@pytest.mark.parametrize(
    "case",
    [
        ("sliding", "explode"),
        pytest.param(("calendar", "where"), marks=only_full("sliding windows are several for each event, too")),
        pytest.param(("calendar", "bounds"), marks=only_full("sliding windows are several for each event, too")),
    ],
)
def test_layers_of_a_view_agree(spark: SparkSession, tmp_path: Path, case: tuple[str, str]) -> None:
    topic = Log(tmp_path / "log").create("visits", values=TOPIC.schema)
    view, feed, store = view_of(*case), feed_of(tmp_path / "log", TOPIC), Store(f"sqlite:///{tmp_path}/views.db")
    stored = store.view(view.layout())

    def answers() -> dict[tuple[str, int], tuple[int, int]]:
        rows = stored.answer(Query()).rows
        return {(row.key["page"], row.window.start): (row.values["hits"], row.values["total"]) for row in rows}

    layer = SpeedLayer(view, stored, feed, checkpoint=f"{tmp_path}/speed", spark=spark, dead_letters=store.dead_letters)
    stream = layer.start()
    for part in (visits()[:7], visits()[7:]):
        topic.append(0, topic.batch([visit._asdict() for visit in part], timestamps=[0] * len(part)))
        stream.query.processAllAvailable()
    assert answers() == recount(*case)
    # One reader of the topic, however many collections are read of it, and one of the ends of sources.
    assert stream.query.lastProgress is not None and len(stream.query.lastProgress["sources"]) == 2
    BatchLayer(view, stored, Master(spark, feed, path=f"{tmp_path}/master")).compute()
    assert answers() == recount(*case)
    stream.stop()
    store.close()
