"""Small programs with state on disk: the first half of each leaves the state, and the second half goes on from it.

`make.py` runs the first halves with the version whose state is to be archived; `test_golden.py` runs the second halves
with the version at hand. Answers are JSON values that do not depend on where the state is.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace import storm
from headrace.log import Consumer, Group, Log, Producer
from headrace.system.system import System
from headrace.views.declare.app import App
from headrace.views.layers.batchlayer import BatchLayer
from headrace.views.query.queries import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model.sinks import WindowedValue

BEGIN: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA: Final = "user string, page string, n bigint, at timestamp"


def events(part: int) -> list[dict[str, Any]]:
    """The input, in three parts: ten events each, out of order, the later ones of each part in the next minute."""
    made = []
    for number in range(10):
        seconds = part * 60 + number * 9 - (number % 3) * 7
        user, page = "abc"[(number * 5 + part) % 3], "xy"[(number + part) % 2]
        at = BEGIN + dt.timedelta(seconds=seconds)
        made.append({"user": user, "page": page, "n": part * 10 + number, "at": at.isoformat()})
    return made


def plain(element: WindowedValue) -> list[Any]:
    """An element as JSON has it, with all it carries."""
    window = [element.window.start, element.window.end]
    return [repr(element.value), element.timestamp, window, asdict(element.pane), element.retraction]


class Files:
    """A sink that writes a file for each micro-batch, which holds its elements."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, elements: list[WindowedValue], batch: int) -> None:
        (self.folder / f"{batch:06d}.json").write_text(json.dumps([plain(each) for each in elements]))


def process(handle: Any) -> None:
    """Waits until a stream has read all there is; raises what it failed with in short."""
    try:
        handle.query.processAllAvailable()
    except StreamingQueryException:
        handle.wait()


def written(root: Path) -> dict[str, list[Any]]:
    """What the sinks of a stream have, micro-batch by micro-batch, in an order that does not depend on tasks."""
    return {
        sink.name: [sorted(json.loads(file.read_text()), key=json.dumps) for file in sorted(sink.glob("*.json"))]
        for sink in sorted((root / "out").iterdir())
    }


class Point(NamedTuple):
    """An element with columns, which is also a value in state."""

    user: str
    n: int


class Spread(hr.CombineFn[int, list[int], int]):
    """The difference of the greatest and the least number, with a list as its accumulator."""

    def zero(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], value: int) -> list[int]:
        return self.merge(accumulator, [value])

    def merge(self, accumulator: list[int], other: list[int]) -> list[int]:
        numbers = accumulator + other
        return [min(numbers), max(numbers)] if numbers else []

    def finish(self, accumulator: list[int]) -> int:
        return accumulator[-1] - accumulator[0]


LATE: Final = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))


class OfFiles:
    """A stream that reads files: groupings by objects and by columns, sessions, two levels, columns in between."""

    @staticmethod
    def pipeline(root: Path, spark: SparkSession) -> hr.Pipeline:
        p = hr.Pipeline(spark=spark)
        read = hr.ReadJson(
            str(root / "in"), schema=SCHEMA, event_time="at", watermark=hr.BoundedDisorder("10 seconds"), bad="fail"
        )
        rows = p | "rows" >> read
        minutes = hr.WindowInto(
            hr.FixedWindows("1 minute"), trigger=LATE, accumulation="retracting", allowed_lateness=90
        )
        in_minutes = rows | "minutes" >> minutes
        by_columns = in_minutes | "columns" >> hr.GroupBy("page").aggregate(
            hits=hr.count(), total=hr.sum("n"), mean=hr.mean("n"), spread=hr.variance("n"), least=hr.min("n")
        )
        by_columns | "columns out" >> hr.ForEachBatch(Files(root / "out/columns"))
        by_objects = in_minutes | "sketches" >> hr.GroupBy("page").aggregate(
            people=hr.approx_distinct("user"), often=hr.heavy_hitters("user", 2), most=hr.top("n", 2),
            quarters=hr.quantiles("n", 4), all=hr.collect("n"), first=hr.first("user"), last=hr.last("user")
        )  # fmt: skip
        by_objects | "sketches out" >> hr.ForEachBatch(Files(root / "out/sketches"))
        pairs = rows | "pairs" >> hr.Map(lambda row: (row.user, row.n))
        sums = pairs | "again minutes" >> minutes | "sums" >> hr.CombinePerKey(sum)
        sums | hr.Values() | "all" >> hr.CombineGlobally(sum) | "all out" >> hr.ForEachBatch(Files(root / "out/all"))
        points = sums | "points" >> hr.Map(lambda pair: Point(*pair)).with_output_types(Point)
        large = points | "large" >> hr.Where("n > 3") | "named" >> hr.Select("n", name="upper(user)")
        large | "large out" >> hr.ForEachBatch(Files(root / "out/large"))
        sessions = pairs | "sessions" >> hr.WindowInto(hr.Sessions(15), allowed_lateness=60)
        sessions | "lists" >> hr.GroupByKey() | "lists out" >> hr.ForEachBatch(Files(root / "out/lists"))
        (
            sessions
            | "spreads" >> hr.CombinePerKey(Spread())
            | "spreads out" >> hr.ForEachBatch(Files(root / "out/spreads"))
        )
        counted = pairs | "threes" >> hr.WindowInto(hr.CountWindows(3)) | "tops" >> hr.Top.largest_per_key(2)
        counted | "tops out" >> hr.ForEachBatch(Files(root / "out/tops"))
        return p

    @staticmethod
    def arrive(root: Path, part: int) -> None:
        (root / "in").mkdir(parents=True, exist_ok=True)
        new = root / "in" / f".{part}"
        new.write_text("".join(json.dumps(each) + "\n" for each in events(part)))
        os.replace(new, root / "in" / f"{part}.json")

    @classmethod
    def _run(cls, root: Path, spark: SparkSession) -> Any:
        pipeline = cls.pipeline(root, spark)
        return pipeline.run(stream=True, checkpoint=str(root / "checkpoint"), trigger="100 milliseconds")

    @classmethod
    def first(cls, root: Path, spark: SparkSession) -> None:
        for part in (0, 1):
            cls.arrive(root, part)
            handle = cls._run(root, spark)
            process(handle)
            handle.stop()

    @classmethod
    def second(cls, root: Path, spark: SparkSession) -> Any:
        cls.arrive(root, 2)
        handle = cls._run(root, spark)
        process(handle)
        handle.stop(drain=True)
        return written(root)


class Watch(hr.DoFn):
    """Notes of each user what there is to note, in state of every kind, and gives it a minute after the first event."""

    last = hr.ValueState("last")
    numbers = hr.ListState("numbers")
    pages = hr.SetState("pages")
    counts = hr.MapState("counts")
    total = hr.CombiningState("total", sum)
    due = hr.TimerSpec("due")
    idle = hr.TimerSpec("idle")

    def process(
        self,
        pair: Any,
        last: Any = hr.DoFn.StateParam(last),
        numbers: Any = hr.DoFn.StateParam(numbers),
        pages: Any = hr.DoFn.StateParam(pages),
        counts: Any = hr.DoFn.StateParam(counts),
        total: Any = hr.DoFn.StateParam(total),
        due: Any = hr.DoFn.TimerParam(due),
        idle: Any = hr.DoFn.TimerParam(idle),
    ) -> None:
        user, row = pair
        if not numbers.read():
            due.after("1 minute")
        idle.after("20 seconds")
        last.write(Point(user, row.n))
        numbers.add(row.n)
        pages.add(row.page)
        counts.put(row.page, (counts.get(row.page) or 0) + 1)
        total.add(row.n)

    @hr.on_timer(due)
    def report(
        self,
        key: Any = hr.DoFn.ElementParam,
        last: Any = hr.DoFn.StateParam(last),
        numbers: Any = hr.DoFn.StateParam(numbers),
        pages: Any = hr.DoFn.StateParam(pages),
        counts: Any = hr.DoFn.StateParam(counts),
        total: Any = hr.DoFn.StateParam(total),
    ) -> Iterator[Any]:
        seen = (tuple(last.read()), sorted(numbers.read()), sorted(pages.read()), sorted(counts.items()), total.read())
        yield key, *seen
        numbers.clear()

    @hr.on_timer(idle)
    def rest(self, key: Any = hr.DoFn.ElementParam, time: Any = hr.DoFn.TimestampParam) -> Iterator[Any]:
        yield key, "idle", int(time)


class OfTopics:
    """A stream that reads topics: a stateful DoFn with timers, and a side input that is a stream."""

    @staticmethod
    def pipeline(root: Path, spark: SparkSession) -> hr.Pipeline:
        p, log = hr.Pipeline(spark=spark), str(root / "log")
        policy = hr.BoundedDisorder("10 seconds")
        rows = p | "rows" >> hr.ReadTopic("events", log=log, event_time="at", watermark=policy)
        rates = p | "rates" >> hr.ReadTopic("rates", log=log, event_time="at", watermark=policy)
        keyed = rows | "keyed" >> hr.Map(lambda row: (row.user, row))
        keyed | "watch" >> hr.ParDo(Watch()) | "watch out" >> hr.ForEachBatch(Files(root / "out/watch"))
        newest = rates | "refreshed" >> hr.WindowInto(
            hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)), accumulation="accumulating"
        )
        by_page = newest | "by page" >> hr.Map(lambda row: (row.page, row.rate)) | "most" >> hr.CombinePerKey(max)
        valued = rows | "valued" >> hr.Map(
            lambda row, rates: (row.page, row.n * rates.get(row.page, 0)), hr.AsDict(by_page)
        )
        valued | "valued out" >> hr.ForEachBatch(Files(root / "out/valued"))
        tens = rates | "tens" >> hr.WindowInto(hr.FixedWindows(30))
        in_tens = rows | "main tens" >> hr.WindowInto(hr.FixedWindows(10))
        windowed = in_tens | "windowed" >> hr.Map(
            lambda row, rates: (row.n, sorted(r.rate for r in rates)), hr.AsList(tens)
        )
        windowed | "windowed out" >> hr.ForEachBatch(Files(root / "out/windowed"))
        return p

    @staticmethod
    def arrive(root: Path, part: int) -> None:
        log = Log(root / "log")
        if part == 0:
            log.create("events", values=SCHEMA, partitions=2)
            log.create("rates", values="page string, rate bigint, at timestamp")
        rows = [each | {"at": dt.datetime.fromisoformat(each["at"])} for each in events(part)]
        for partition in (0, 1):
            ours = rows[partition::2]
            log.topic("events").append(partition, log.topic("events").batch(ours, timestamps=[0] * len(ours)))
        rates = [{"page": row["page"], "rate": 1 + row["n"] // 4, "at": row["at"]} for row in rows[::3]]
        log.topic("rates").append(0, log.topic("rates").batch(rates, timestamps=[0] * len(rates)))

    @classmethod
    def first(cls, root: Path, spark: SparkSession) -> None:
        for part in (0, 1):
            cls.arrive(root, part)
            handle = cls.pipeline(root, spark).run(checkpoint=str(root / "checkpoint"))
            process(handle)
            handle.stop()

    @classmethod
    def second(cls, root: Path, spark: SparkSession) -> Any:
        cls.arrive(root, 2)
        handle = cls.pipeline(root, spark).run(checkpoint=str(root / "checkpoint"))
        process(handle)
        handle.stop(drain=True)
        return written(root)


class OfLog:
    """A topic of JSON with a named producer and a group that has read a part of it."""

    @classmethod
    def first(cls, root: Path, spark: SparkSession) -> None:
        log = Log(root)
        log.create("visits", partitions=2)
        cls._send(log, 0)
        with Consumer(log, "visits", "billing") as consumer:
            consumer.poll(7)

    @classmethod
    def second(cls, root: Path, spark: SparkSession) -> Any:
        log = Log(root)
        before = Group(log, "visits", "billing").committed()
        cls._send(log, 1)
        with Consumer(log, "visits", "billing") as consumer:
            records = consumer.poll(100)
        return {
            "committed": sorted(before.items()),
            "polled": sorted(([str(record.key), record.value, record.timestamp] for record in records), key=json.dumps),
            "lag": sorted(Group(log, "visits", "billing").lag().items()),
            "topic": [[record.offset for record in log.topic("visits").read(number)] for number in (0, 1)],
        }

    @staticmethod
    def _send(log: Log, part: int) -> None:
        with Producer(log.topic("visits"), "desk", batch=4) as producer:
            for row in events(part):
                producer.send(row, key=row["user"].encode(), timestamp=row["n"])


VISITS: Final = hr.Topic("visits", schema=SCHEMA, event_time="at", partitions=2)


@hr.view(VISITS, window=hr.FixedWindows("1 minute"), allowed_lateness="30 days")
def pages(rows: Any) -> Any:
    return rows | hr.GroupBy("page").aggregate(
        hits=hr.count(), total=hr.sum("n"), people=hr.approx_distinct("user"), most=hr.top("n", 2), mean=hr.mean("n")
    )


class OfViews:
    """A system: a store on SQLite with a batch version and what came since, master data, and a speed layer."""

    @staticmethod
    def _append(system: System, part: int) -> None:
        lines = [json.dumps(each).encode() for each in events(part)]
        system.service.topics["visits"].append(b"\n".join(lines))
        system.catch_up()

    @staticmethod
    def _compute(system: System, *, incremental: bool) -> None:
        BatchLayer(pages, system.service.views["pages"], system.masters["visits"]).compute(incremental=incremental)

    @classmethod
    def first(cls, root: Path, spark: SparkSession) -> None:
        with System.at(root, App.of({"pages": pages}), spark=spark) as system:
            cls._append(system, 0)
            cls._compute(system, incremental=False)
            cls._append(system, 1)
            system.masters["visits"].archive()
        system.store.close()

    @classmethod
    def second(cls, root: Path, spark: SparkSession) -> Any:
        with System.at(root, App.of({"pages": pages}), spark=spark) as system:
            found = [cls._answer(system)]
            cls._append(system, 2)
            found.append(cls._answer(system))
            cls._compute(system, incremental=True)
            found.append(cls._answer(system))
            system.masters["visits"].audit()
        system.store.close()
        return found

    @staticmethod
    def _answer(system: System) -> Any:
        rows = system.answer("pages", Query(limit=100)).rows
        return sorted(([row.key["page"], row.window.start, row.values] for row in rows), key=json.dumps)


_to_emit = 0
"""How many words each task of the spout has in all; spouts run in the driver."""


class Words(storm.Spout):
    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < _to_emit:
            self.emit([f"w{self.at % 7}"], message_id=self.at)
            self.at += 1


class Counting(storm.BasicBolt):
    """Counts words in a dict, which is its state."""

    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


class OfTopology:
    """The directory of a cluster with one topology: two tasks of a spout, two of a bolt with state, and a topic."""

    @staticmethod
    def _run(root: Path, spark: SparkSession, words: int) -> None:
        global _to_emit
        _to_emit = words
        results = Log(root / "results")
        if "counts" not in results.topics():
            results.create("counts")
        builder = storm.TopologyBuilder()
        builder.set_spout("words", Words(), parallelism=2)
        builder.set_bolt("count", Counting(), parallelism=2).fields_grouping("words", ["word"])
        builder.set_bolt("write", storm.ToTopic("counts", log=str(root / "results"))).shuffle_grouping("count")
        config = storm.Config(guarantee="effectively_once", max_spout_pending=10, message_timeout="1 hour")
        with storm.LocalCluster(root / "cluster", spark=spark) as cluster:
            cluster.submit("words", builder.create(), config)
            while results.topic("counts").partition(0).next_offset() < 2 * words:
                cluster.running("words").check()
                threading.Event().wait(0.1)

    @classmethod
    def first(cls, root: Path, spark: SparkSession) -> None:
        cls._run(root, spark, 20)

    @classmethod
    def second(cls, root: Path, spark: SparkSession) -> Any:
        cls._run(root, spark, 40)
        values = [record.value for record in Log(root / "results").topic("counts").read(0)]
        return sorted([value["word"], value["count"]] for value in values)


STATES: Final[dict[str, Any]] = {
    "files": OfFiles,
    "topics": OfTopics,
    "log": OfLog,
    "views": OfViews,
    "topology": OfTopology,
}
"""The programs by name, which is also the name of the directory of their state."""
