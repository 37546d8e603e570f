"""The embedded log against plain files, in one run, on data it makes.

    python bench/log.py [--quick] [--only append,read,windows,spike]

append    records of 100 bytes in batches of 10,000, each forced to disk   rival: the same batches in an Arrow stream
read      all columns of a topic into Spark, and one                       rival: the same columns as Parquet
windows   a topic, counts by minute and user, a table; batch by batch      rival: Parquet files, Structured Streaming
spike     2,000 records/s, then 47,000/s for half a minute                 nothing lost, and how long it is behind

Each side and its rival take turns; the ratio is that of their medians. The last line is JSON.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _sections import Bench, Verdict, run
from _streams import MINUTE, Feed, Running, arriving, headrace_stream, rival_stream
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.batch.sources import read as frame_of
from headrace.engine.plan.topictypes import with_topic_types
from headrace.log import Group, Log, Producer, Topic

SIZE = 100  # bytes of a record
TENTH = 100_000  # of a second
PARTITIONS = 2
COLUMNS = "user bigint, amount bigint, ts timestamp"
EVERY_BATCH: Any = {"trigger": hr.AfterWatermark(early=hr.AfterCount(1)), "accumulation": "accumulating"}


def in_turn(bench: Bench, rounds: int, *sides: tuple[str, Callable[[], float]]) -> list[float]:
    """Lets the sides take turns, and tells the median of each; the first round warms them up."""
    told: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for (_, side), held in zip(sides, told, strict=True):
            held.append(side())
    medians = [statistics.median(held[1:]) for held in told]
    for (name, _), median, held in zip(sides, medians, told, strict=True):
        bench.say(f"{name:34} {median:12,.0f}/s   of {[round(each) for each in held[1:]]}")
    return medians


# Appending


def append(bench: Bench) -> Iterator[Verdict]:
    count, size, rounds = (20, 10_000, 3) if bench.quick else (100, 10_000, 7)
    octets = np.random.default_rng(1).bytes(count * size * SIZE)
    records = [octets[at : at + SIZE] for at in range(0, len(octets), SIZE)]
    log = Log(bench.folder)
    schema = log.create("schema", values="bytes")
    parts = [records[at : at + size] for at in range(0, len(records), size)]
    batches = [schema.batch(list(part), timestamps=list(range(size))) for part in parts]
    names = iter(range(1_000_000))

    def timed(work: Callable[[Topic], None]) -> float:
        name = f"topic-{next(names)}"
        topic = log.create(name, values="bytes")
        begun = time.perf_counter()
        work(topic)
        taken = time.perf_counter() - begun
        log.delete(name)
        return len(records) / taken

    def appended(topic: Topic) -> None:
        for batch in batches:
            topic.append(0, batch)

    def sent(topic: Topic) -> None:
        with Producer(topic, batch=size) as producer:
            for record in records:
                producer.send(record)

    def sent_by_key(topic: Topic) -> None:
        with Producer(topic, batch=size) as producer:
            for number, record in enumerate(records):
                producer.send(record, key=b"user%d" % (number % 1000))

    def written() -> float:
        path = bench.folder / "stream.arrow"
        begun = time.perf_counter()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema.schema) as writer:
            descriptor = os.open(path, os.O_RDWR)
            for batch in batches:
                writer.write_batch(batch)
                os.fsync(descriptor)
            os.close(descriptor)
        taken = time.perf_counter() - begun
        path.unlink()
        return len(records) / taken

    ours, rival, by_record, _ = in_turn(
        bench,
        rounds,
        ("batches to a topic", lambda: timed(appended)),
        ("the same to an Arrow stream", written),
        ("record by record, Producer.send", lambda: timed(sent)),
        ("the same, with keys", lambda: timed(sent_by_key)),
    )
    remedy = "checksums and fsync; a profile of Segment.append tells which"
    yield Verdict("append against an Arrow stream", ours / rival, 0.5, True, remedy)
    yield Verdict("append, thousand records/s", ours / 1000, 300, True, remedy)
    yield Verdict("send, thousand records/s", by_record / 1000, 300, True, "a call for each record, in Python")


# Reading


def filled(log: Log, name: str) -> Topic:
    return log.create(name, partitions=PARTITIONS, values=COLUMNS)


def rows(topic: Topic, users: np.ndarray, amounts: np.ndarray, times: np.ndarray) -> pa.RecordBatch:
    """Rows as a batch of a topic, from arrays; times are microseconds."""
    table = columns(users, amounts, times)
    batch = topic.batch([{}] * len(users), timestamps=times.tolist())
    value = pa.StructArray.from_arrays([each.combine_chunks() for each in table.columns], names=table.column_names)
    return batch.set_column(batch.schema.get_field_index("value"), batch.schema.field("value"), value)


def columns(users: np.ndarray, amounts: np.ndarray, times: np.ndarray) -> pa.Table:
    stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
    return pa.table({"user": pa.array(users), "amount": pa.array(amounts), "ts": stamps})


def read(bench: Bench) -> Iterator[Verdict]:
    count, rounds = (4_000_000, 3) if bench.quick else (16_000_000, 5)
    random, topic = np.random.default_rng(1), filled(Log(bench.folder), "visits")
    size = 100_000
    for number in range(count // size):
        drawn = random.integers(0, 100_000, size), random.integers(0, 1000, size), random.integers(0, MINUTE, size)
        topic.append(number % PARTITIONS, rows(topic, *drawn))
        (bench.folder / "parquet").mkdir(exist_ok=True)
        pq.write_table(columns(*drawn), bench.folder / "parquet" / f"{number}.parquet")

    def summed(frame: DataFrame) -> tuple[int, ...]:
        totals = [F.sum("user"), F.sum("amount"), F.max(F.unix_micros("ts")), F.count("*")]
        return tuple(frame.agg(*totals).collect()[0])

    def of_topic(**options: Any) -> DataFrame:
        read = hr.ReadTopic("visits", log=str(bench.folder), end="latest", **options)
        source = hr.Pipeline(spark=bench.spark) | read
        (node,) = with_topic_types(source.pipeline.graph())
        return frame_of(bench.spark, node, ExitStack())

    def of_files() -> DataFrame:
        return bench.spark.read.parquet(str(bench.folder / "parquet"))

    def total(frame: DataFrame) -> int:
        return int(frame.agg(F.sum("amount")).collect()[0][0])

    assert summed(of_topic(event_time="ts")) == summed(of_files()), "the answers differ"
    assert total(of_topic(schema="amount bigint")) == total(of_files()), "the answers differ"

    def timed(work: Callable[[], object]) -> float:
        begun = time.perf_counter()
        work()
        return count / (time.perf_counter() - begun)

    ours, rival, one, other = in_turn(
        bench,
        rounds,
        ("rows of a topic", lambda: timed(lambda: summed(of_topic(event_time="ts")))),
        ("rows of Parquet", lambda: timed(lambda: summed(of_files()))),
        ("one column of a topic", lambda: timed(lambda: total(of_topic(schema="amount bigint")))),
        ("one column of Parquet", lambda: timed(lambda: total(of_files()))),
    )
    remedy = "checksums of whole batches, and the start of a job; see MappedRecords.java"
    yield Verdict("read into Spark against Parquet", ours / rival, 0.9, True, remedy)
    yield Verdict("read one column into Spark against Parquet", one / other, 1.5, True, remedy)


# From end to end


def windows(bench: Bench) -> Iterator[Verdict]:
    size, warm, timed = (100_000, 2, 4) if bench.quick else (500_000, 3, 7)
    users = 1_000
    ours, feed = TopicJob(bench, "ours", {}), Feed(bench.folder / "files")
    rival = _by_hand(bench, feed)
    random = np.random.default_rng(1)
    with ours.running, rival:
        for minute in range(1, 1 + warm + timed):
            drawn = np.concatenate([np.arange(users), random.integers(0, users, size - users)])
            ours.arrive(drawn, minute * MINUTE)
            ours.running.done()
            feed.arrive(drawn, minute * MINUTE)
            rival.done()
        mine = bench.measured(f"{size:,} records, headrace", ours.running, timed)
        other = bench.measured(f"{size:,} records, by hand", rival, timed)
    last = warm + timed - 2  # windows that are over for both: Spark closes one a batch later
    found = [_counted(bench.folder / f"{name}.db", users, last) for name in ("ours", "rival")]
    assert found[0] == found[1] and len(found[0]) == users * last, "the tables differ"
    bench.say(f"{'sustained, headrace':34} {size / mine * 1000:12,.0f}/s")
    bench.say(f"{'sustained, by hand':34} {size / other * 1000:12,.0f}/s")
    remedy = "see the parts of a batch above"
    yield Verdict("topic to table against by hand", other / mine, 0.6, True, remedy)


class TopicJob:
    """A topic whose one-minute counts by user go to a table."""

    def __init__(self, bench: Bench, name: str, windowing: dict[str, Any]) -> None:
        self.log = Log(bench.folder / f"{name}-log")
        self.topic = filled(self.log, "visits")
        self._random = np.random.default_rng(2)
        p = hr.Pipeline(spark=bench.spark)
        visits = p | hr.ReadTopic("visits", log=str(self.log.path), event_time="ts", watermark=hr.BoundedDisorder(0))
        counts = visits | hr.WindowInto(hr.FixedWindows("1 minute"), **windowing)
        counts = counts | hr.GroupBy("user").aggregate(n=hr.count(), total=hr.sum("amount"))
        table = hr.WriteTable(
            f"sqlite:///{bench.folder}/{name}.db", "counts", key=["user", "window_start"], mode="upsert"
        )
        counts | table
        self.running = headrace_stream(p, bench.folder, name)

    def arrive(self, users: np.ndarray, at: int, span: int = MINUTE) -> None:
        """Records of these users, in order from `at` on, in every partition."""
        for number, some in enumerate(np.array_split(users, PARTITIONS)):
            times = np.sort(at + self._random.integers(0, span, len(some)))
            self.topic.append(number, rows(self.topic, some, self._random.integers(0, 1000, len(some)), times))

    def lag(self) -> int:
        (group,) = Group.names(self.log, "visits")
        return sum(Group(self.log, "visits", group).lag().values())


def _by_hand(bench: Bench, feed: Feed) -> Running:
    """The same job on Parquet files, as one writes it for Structured Streaming."""
    late = arriving(bench.spark, feed).withWatermark("ts", "0 seconds")
    counts = late.groupBy(F.window("ts", "1 minute"), "user").agg(F.count("*"), F.sum("amount"))
    flat = counts.select("user", F.unix_micros("window.start"), "count(1)", "sum(amount)")
    path = bench.folder / "rival.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE counts (user, window_start, n, total, PRIMARY KEY (user, window_start))")

    def upsert(batch: DataFrame, number: int) -> None:
        with sqlite3.connect(path) as database:
            database.executemany(
                "INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?)", [tuple(r) for r in batch.collect()]
            )

    return rival_stream(bench.spark, flat, "append", bench.folder, "rival", upsert)


def _counted(path: Path, users: int, windows: int) -> list[tuple[int, int]]:
    """Users and their counts, in the first so many windows of a table that have all users."""
    whole = (
        f"SELECT window_start FROM counts GROUP BY window_start HAVING count(*) = {users} ORDER BY 1 LIMIT {windows}"
    )
    with sqlite3.connect(path) as database:
        return sorted(database.execute(f"SELECT user, n FROM counts WHERE window_start IN ({whole})"))


# A spike


def spike(bench: Bench) -> Iterator[Verdict]:
    calm, peak = 2_000, 47_000  # records a second
    before, burst, most = (5, 10, 60) if bench.quick else (10, 30, 180)  # seconds
    job = TopicJob(bench, "spike", EVERY_BATCH)
    random = np.random.default_rng(3)
    sent, curve, back = 0, [], None
    with job.running:
        job.arrive(np.arange(2), 0, 1)  # both partitions have begun
        job.running.done()
        sent += 2
        begun = time.perf_counter()
        for tenth in itertools.count():
            second, wait = tenth / 10, begun + tenth / 10 - time.perf_counter()
            if wait > 0:
                time.sleep(wait)  # a benchmark's producer keeps to real time
            bursting = before <= second < before + burst
            count = (peak if bursting else calm) // 10
            job.arrive(random.integers(0, 1000, count), tenth * TENTH, TENTH)
            sent += count
            if tenth % 10 == 0:
                curve.append((int(second), count * 10, job.lag()))
                over = second >= before + burst
                usual = max(lag for at, _, lag in curve if at < before)
                if over and back is None and curve[-1][2] <= max(usual, calm):
                    back = second - before - burst
                if (over and back is not None) or second > before + burst + most:
                    break
        job.running.done()
    for second, rate, lag in curve:
        bench.say(f"{second:4} s {rate:8,}/s {lag:10,} behind  {'#' * (lag * 60 // max(each[2] for each in curve))}")
    with sqlite3.connect(bench.folder / "spike.db") as database:
        ((found,),) = database.execute("SELECT sum(n) FROM counts")
    bench.say(f"{sent:,} sent, {found:,} in the table, {job.lag()} behind in the end")
    yield Verdict("spike, records in the table of sent", min(found, sent) / max(found, sent), 1.0, True, "a defect")
    yield Verdict("spike, behind in the end", job.lag(), 0, False, "a defect")
    remedy = "a batch that takes more than arrives meanwhile: see the parts of a batch in `windows`"
    yield Verdict("spike, s until it has caught up", most if back is None else back, 60, False, remedy)


if __name__ == "__main__":
    run("log", __doc__, append, read, windows, spike)
