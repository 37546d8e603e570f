"""Master data, batch versions and the speed layer, on real Spark: whatever happens, answers are a recount's."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.stream.handle import StreamHandle
from headrace.log import Log
from headrace.model.times import SECOND
from headrace.views.declare.declarations import View
from headrace.views.feeds import Feed, feed_of
from headrace.views.layers.batchlayer import BatchLayer
from headrace.views.layers.speedlayer import SpeedLayer
from headrace.views.master.masterdata import Master
from headrace.views.query.queries import Layer, Query
from headrace.views.stores import Store
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "page string, user string, n bigint, at timestamp"
VISITS = hr.Topic("visits", schema=SCHEMA, event_time="at", partitions=2)
AGGREGATES = hr.GroupBy("page").aggregate(hits=hr.count(), total=hr.sum("n"), people=hr.approx_distinct("user"))
Answers = dict[tuple[Any, int], dict[str, int]]


class Visit(NamedTuple):
    page: str | None
    user: str
    n: int
    at: dt.datetime


@hr.view(VISITS, window=hr.FixedWindows("1 hour"), allowed_lateness="30 days")
def visitors(events: Any) -> Any:
    return events | AGGREGATES


@hr.view(VISITS, window=hr.FixedWindows("1 hour"), allowed_lateness="30 days")
def doubled(events: Any) -> Any:
    return events | hr.FlatMap(lambda row: [Visit(*row)] * 2).with_output_types(Visit) | AGGREGATES


class World:
    """A topic, a store, the layers of a view, and all events so far."""

    def __init__(self, spark: SparkSession, path: Path, feed: Feed) -> None:
        self.spark, self.path, self.draw = spark, path, random.Random(5)
        feed.create()
        self.feed = feed
        self.store = Store(f"sqlite:///{path}/views.db")
        self.stored = self.store.view(visitors.layout())
        self.master = Master(spark, feed, path=str(path / "master"))
        self.events: list[Visit] = []
        self.stream: StreamHandle | None = None

    def happen(self, count: int) -> None:
        """Appends events, in no order of time, and waits for the speed layer if it runs."""
        for partition in range(2):
            made = [self.visit() for _ in range(count)]
            self.events += made
            self.append(partition, made)
        self.catch_up()

    def append(self, partition: int, made: list[Visit]) -> None:
        """Appends events to a partition."""
        topic = Log(self.path / "log").topic("visits")
        topic.append(partition, topic.batch([each._asdict() for each in made], timestamps=[0] * len(made)))

    def start(self, view: View = visitors, checkpoint: str = "speed") -> None:
        if self.stream is not None:
            self.stop()
        layer = SpeedLayer(view, self.stored, self.feed, checkpoint=f"{self.path}/{checkpoint}", spark=self.spark)
        handle = layer.start()
        assert isinstance(handle, StreamHandle)
        self.stream = handle
        self.catch_up()

    def catch_up(self) -> None:
        if self.stream is not None:
            self.stream.query.processAllAvailable()

    def stop(self) -> None:
        assert self.stream is not None
        self.stream.stop()
        self.stream = None

    def forget_the_last_commit(self) -> None:
        """As if the process had died after the store had the last micro-batch, and before Spark noted that."""
        commits = self.path / "speed/spark/commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()

    def batch(self, view: View = visitors) -> BatchLayer:
        return BatchLayer(view, self.stored, self.master)

    def answers(self, layer: Layer = "merged") -> Answers:
        rows = self.stored.answer(Query(limit=10_000, layer=layer)).rows
        return {(row.key["page"], row.window.start): row.values for row in rows}

    def recount(self) -> Answers:
        return recount(self.events)

    def visit(self) -> Visit:
        """An event."""
        at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=self.draw.randrange(3 * 24 * 60))
        page, user = self.draw.choice(["a", "b", None]), self.draw.choice("uvwxyz")
        return Visit(page, user, self.draw.randint(-9, 9), at)


def recount(events: list[Visit]) -> Answers:
    groups: dict[tuple[Any, int], list[Visit]] = {}
    for event in events:
        hour = int(event.at.timestamp()) // 3600 * 3600 * SECOND
        groups.setdefault((event.page, hour), []).append(event)
    return {
        place: {"hits": len(group), "total": sum(e.n for e in group), "people": len({e.user for e in group})}
        for place, group in groups.items()
    }


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path, feed_of(tmp_path / "log", VISITS))
    yield made
    if made.stream is not None:
        made.stop()
    made.store.close()


@pytest.mark.slow("layers of a view on Spark")
def test_whatever_happens_merged_answers_are_a_recount_of_all_events(world: World) -> None:
    world.happen(30)
    world.start()
    assert world.answers() == world.answers("speed") == world.recount()

    first = world.batch().compute()  # while the stream runs
    assert (first.number, first.boundary, first.base) == (1, {0: 30, 1: 30}, None)
    assert world.answers() == world.answers("batch") == world.recount()
    assert world.answers("speed") == {}

    world.happen(20)
    assert world.answers() == world.recount()
    assert world.answers("speed") == recount(world.events[60:])

    heard: list[tuple[str, int | None, int | None]] = []
    second = world.batch().compute(incremental=True, progress=lambda *told: heard.append(told))
    assert (second.number, second.boundary, second.base) == (2, {0: 50, 1: 50}, 1)
    assert world.answers() == world.answers("batch") == world.recount()
    assert [step.until for step in world.master.steps()] == [{0: 30, 1: 30}, {0: 50, 1: 50}]
    assert world.batch().compute(incremental=True) == second  # nothing has come
    rows = len(recount(world.events[60:]))
    assert heard[:4] == [("archiving", 0, 40), ("archiving", 40, 40), ("computing", 0, 40), ("computing", 40, 40)]
    assert heard[-2:] == [("loading", rows, None), ("publishing", None, None)]

    world.stop()
    world.forget_the_last_commit()
    world.happen(10)
    world.start()  # from its checkpoint, with a micro-batch that the store has already
    world.happen(5)
    assert world.answers() == world.recount()
    provenance = world.stored.provenance()
    assert (provenance.version, provenance.reached) == (2, {0: 65, 1: 65})
    assert provenance.watermark is not None

    assert world.stored.rollback() == 1
    assert world.answers() == world.recount()
    world.start(checkpoint="another")  # as if the first were lost
    world.happen(5)
    assert world.answers() == world.recount()
    assert world.stream is not None
    world.stream.stop(drain=True)  # all windows close
    assert world.answers() == world.recount()


@only_full("test_up.py and test_view_examples.py repair the same fault")
@pytest.mark.slow("layers of a view on Spark")
def test_a_view_that_counts_double_is_seen_wrong_fixed_recomputed_and_right_again(world: World) -> None:
    world.happen(20)
    world.start()
    world.batch().compute()
    assert world.answers() == world.recount()

    world.start(doubled)
    world.happen(20)
    world.batch(doubled).compute()
    hits = {place: values["hits"] for place, values in world.answers().items()}
    assert hits == {place: 2 * values["hits"] for place, values in world.recount().items()}

    world.start(visitors)  # the fix stops the damage
    world.happen(20)
    assert world.answers() != world.recount()
    world.batch().compute()  # and this heals it
    assert world.answers() == world.recount()
