"""The batch layer at size: a version of all events, and versions of the one before and what came since.

A section of bench/serving.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from _sections import Bench, Verdict

import headrace as hr
from headrace.log import Log
from headrace.log import Topic as LogTopic
from headrace.views.feeds import feed_of
from headrace.views.layers.batchlayer import BatchLayer
from headrace.views.master.masterdata import Master
from headrace.views.offsets import MicroBatch
from headrace.views.query.queries import Query
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView

HOUR = 3_600_000_000
HOURS, PARTITIONS, ROUNDS = 24, 2, 3
SCHEMA = "user bigint, url string, ts timestamp"

clicks = hr.Topic("clicks", schema=SCHEMA, event_time="ts", partitions=PARTITIONS)


@hr.view(clicks, window=hr.FixedWindows("1 hour"))
def clicked(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("url").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))


class Clicks:
    """A topic of clicks, each on one of many pages in one of the day's hours, and a view that has heard of them all."""

    def __init__(self, folder: Path, view: StoredView, pages: int) -> None:
        self.topic: LogTopic = Log(folder).create("clicks", values=SCHEMA, partitions=PARTITIONS)
        self.view, self.reached, self.batches = view, dict.fromkeys(range(PARTITIONS), 0), 0
        self.urls = pa.array([f"example.com/page/{number}" for number in range(pages)])
        self.chance = np.random.default_rng(1)
        self.counts = np.zeros(pages, np.int64)  # of each page, for a look at the answers

    def happen(self, count: int) -> None:
        """So many clicks, which the speed layer has seen."""
        since = dict(self.reached)
        for partition in self.reached:
            for size in (min(500_000, count // PARTITIONS - at) for at in range(0, count // PARTITIONS, 500_000)):
                pages = self.chance.integers(0, len(self.urls), size)
                self.counts += np.bincount(pages, minlength=len(self.urls))
                times = self.chance.integers(0, HOURS * HOUR, size)
                columns = [
                    pa.array(self.chance.integers(0, 1_000_000, size)),
                    self.urls.take(pa.array(pages)),
                    pa.array(times).cast(pa.timestamp("us", "UTC")),
                ]
                values = pa.StructArray.from_arrays(columns, names=["user", "url", "ts"])
                empty = self.topic.batch([{}] * size, timestamps=times.tolist())
                place = empty.schema.get_field_index("value")
                self.topic.append(partition, empty.set_column(place, empty.schema.field(place), values))
                self.reached[partition] += size
        self.view.add(MicroBatch("speed", self.batches, since, dict(self.reached)), [])
        self.batches += 1


def timed(bench: Bench, what: str, layer: BatchLayer, *, incremental: bool) -> float:
    """What a version takes in seconds, told with where they go."""
    steps: dict[str, float] = {}
    begun = last = time.perf_counter()

    def progress(step: str, done: int | None, of: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        steps[step] = steps.get(step, 0.0) + now - last
        last = now

    rows = layer.compute(incremental=incremental, progress=progress).rows
    ended = time.perf_counter()
    steps["publishing"] = ended - last
    parts = "  ".join(f"{step} {seconds:.1f}" for step, seconds in steps.items())
    bench.say(f"{what:34} {ended - begun:8.1f} s   {rows:,} rows   {parts}")
    return ended - begun


def incremental(bench: Bench) -> Iterator[Verdict]:
    events, pages = (2_000_000, 20_000) if bench.quick else (20_000_000, 200_000)
    view = Store(f"sqlite:///{bench.folder}/views.db").view(clicked.layout())
    data = Clicks(bench.folder / "log", view, pages)
    data.happen(events)
    master = Master(bench.spark, feed_of(bench.folder / "log", clicks), path=str(bench.folder / "master"))
    master.archive()
    layer = BatchLayer(clicked, view, master)
    timed(bench, "all events, the first time", layer, incremental=False)
    few = []
    for number in range(ROUNDS):
        data.happen(events // 100)
        few.append(timed(bench, f"1 % more, {number + 1}", layer, incremental=True))
    _check(view, data)
    whole = timed(bench, "all events", layer, incremental=False)
    _check(view, data)
    remedy = "see which step takes the time"
    yield Verdict("1 % more against all events", statistics.median(few) / whole, 0.15, False, remedy)


def _check(view: StoredView, data: Clicks) -> None:
    for page in data.chance.integers(0, len(data.urls), 50).tolist():
        url = data.urls[page].as_py()
        found = sum(row.values["hits"] for row in view.answer(Query(key={"url": url}, across_windows=True)).rows)
        if found != data.counts[page]:
            raise RuntimeError(f"{url}: {found} clicks, {data.counts[page]} happened")
