"""A system on real Spark: it counts each event once, through batches, a restart and a failing layer."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.log import Log
from headrace.model.times import SECOND
from headrace.system.home import Home
from headrace.system.system import Schedule, System
from headrace.views.declare.app import App
from headrace.views.master.masterdata import Master
from headrace.views.query.queries import Query
from headrace.views.stores import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60 * SECOND
visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url", partitions=2)


@hr.view(visits, window=hr.FixedWindows("1 hour"), allowed_lateness="2 days")
def hits(events: Any) -> Any:
    return events | hr.GroupBy("url").aggregate(n=hr.count(), people=hr.approx_distinct("user"))


class World:
    """A system, the clock it goes by, and all events so far."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.home, self.draw, self.time = spark, Home(path), random.Random(7), 0
        self.store = Store(self.home.store, clock=lambda: self.time)
        self.seen: Counter[str] = Counter()
        self.system = self.started()

    def started(self) -> System:
        return System(
            App.of({"hits": hits}),
            self.home,
            spark=self.spark,
            store=self.store,
            log=self.home.log,
            schedule=Schedule(archive=MINUTE, batch=10 * MINUTE),
            clock=lambda: self.time,
        )

    def happen(self, count: int) -> None:
        """Sends events, and waits until the speed layer has them."""
        sent = [{"user": "ann", "url": self.draw.choice("abc"), "ts": "2026-03-01T09:30:00Z"} for _ in range(count)]
        self.seen.update(each["url"] for each in sent)
        self.system.service.topics["visits"].append("\n".join(map(json.dumps, sent)).encode())
        self.system.catch_up()

    def answer(self) -> Counter[str]:
        return Counter(
            {row.key["url"]: row.values["n"] for row in self.system.service.views["hits"].answer(Query()).rows}
        )


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path)
    yield made
    made.system.close()
    made.store.close()


@pytest.mark.slow("a system on Spark")
def test_each_event_counts_once_whatever_happens(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.happen(200)
    assert world.answer() == world.seen

    pools, context, write = [], world.spark.sparkContext, Master._write

    def noted(*step: Any) -> Any:
        pools.append(context.getLocalProperty("spark.scheduler.pool"))
        return write(*step)

    monkeypatch.setattr(Master, "_write", noted)
    world.time += 10 * MINUTE  # the archive and the batches are due
    world.system.poll()
    world.system.jobs.wait(120)
    assert pools == ["batch"]  # in which no micro-batch waits
    status = world.system.status()
    assert [(job["state"], job["version"]) for job in status["jobs"]] == [("done", 1)]
    assert status["topics"]["visits"]["archived"] == status["views"]["hits"]["provenance"]["reached"]
    assert world.answer() == world.seen

    world.happen(50)
    line = b'{"user": "bob", "url": "a", "ts": "0000-01-01T00:00:00Z"}'
    _refused(world, line)
    world.system.close()
    world.system = world.started()  # another process would do the same
    world.happen(30)
    assert world.answer() == world.seen

    world.system.compute("hits", incremental=True)
    world.system.jobs.wait(120)
    status = world.system.status()
    assert [(job["state"], job["version"]) for job in status["jobs"]] == [("done", 2)]
    assert world.answer() == world.seen
    layers = [world.system.answer("hits", Query(layer=each)).rows for each in ("batch", "speed")]
    assert sum(row.values["n"] for row in layers[0]) == sum(world.seen.values())
    assert layers[1] == []
    _is_told(world, status)


def _refused(world: World, line: bytes) -> None:
    with pytest.raises(ValueError, match="no event"):
        world.system.service.topics["visits"].append(line)


def _is_told(world: World, status: dict[str, Any]) -> None:
    """What the status says is what is there, and can be written as JSON."""
    json.dumps(status)
    topic, view = status["topics"]["visits"], status["views"]["hits"]
    assert sum(each["end"] for each in topic["partitions"]) == sum(world.seen.values()) == 280
    assert topic["groups"]["hits"]["lag"] == topic["groups"]["archive"]["lag"] == 0
    assert set(topic["groups"]) == {"hits", "archive"}
    assert (view["state"], view["lag"], view["error"], view["topic"]) == ("running", 0, None, "visits")
    assert [each["label"] for each in view["stages"]] == ["GroupBy(url)"]
    edges = {(each["from"], each["to"]): each["elements"] for each in view["graph"]["edges"]}
    grouped = next(count for (_, to), count in edges.items() if to == "GroupBy(url)")
    assert grouped == 30  # of this run


def test_records_that_are_no_events_are_kept_as_dead_letters_and_a_new_store_is_filled(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.happen(3)
    topic = Log(world.home.log).topic("visits")
    rows = [{"user": "ann", "url": "a", "ts": None}]
    topic.append(0, topic.batch(rows, timestamps=[0]))
    world.system.catch_up()
    assert world.answer() == world.seen
    letters = world.system.dead_letters(10)
    assert [(each["view"], each["reason"], each["position"].startswith("visits/0@")) for each in letters] == [
        ("hits", "no event time", True)
    ]
    status = world.system.status()
    assert status["dead_letters"] == {"hits": 1}
    edges = {each["to"]: each["elements"] for each in status["views"]["hits"]["graph"]["edges"]}
    assert (edges["dead letters"], edges["GroupBy(url)"]) == (1, 3)

    def away() -> Any:
        raise hr.PipelineError("no broker answers")

    monkeypatch.setattr(world.system.service.topics["visits"], "offsets", away)
    world.system.poll()  # a log that is away for a while is no reason to stop

    world.system.close()
    world.store.close()
    Path(world.home.path, "views.db").rename(tmp_path / "moved.db")
    world.store = Store(world.home.store)
    world.system = world.started()  # it fills the new store with what the other had
    world.happen(2)
    assert world.answer() == world.seen
