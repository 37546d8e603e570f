"""The stream over the log that is killed: from a topic by windows to a topic and to tables of a database.

    python tests/chaos/logjob.py FOLDER

begins the stream of a folder, or goes on with it, and leaves its output there.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from job import Output

import headrace as hr
from headrace.engine.spark.session import spark_session
from headrace.log import Log

LANDMARKS: Final = (
    "embedded/topics/counts/0/*.index",
    "checkpoint/spark/offsets/[!.]*",
    "embedded/topics/copies/[01]/*.index",
    "checkpoint/spark/commits/[!.]*",
    "checkpoint/spark/state/*/*/*.changelog",
    "tables.db",
    "checkpoint/headrace-*.json",
)
"""Files whose names are the same in every run. Topics that are written begin a segment with each batch."""

SECONDS: Final = 60
"""How many seconds of events there are; each has one of every user in both partitions."""


def visits(folder: Path) -> Log:
    """A log with all that happens in it, and the topics that are written. It appears whole or not at all."""
    if not (folder / "embedded").exists():
        new = Log(folder / "embedded.new")
        topic = new.create("visits", partitions=2, values="user string, amount bigint, ts timestamp")
        for second in range(SECONDS):
            for partition in (0, 1):
                rows = [{"user": user, "amount": 10 * second + partition, "ts": second} for user in "abc"]
                topic.append(partition, topic.batch(list(rows), timestamps=[second * 1_000_000] * len(rows)))
        new.create("copies", partitions=2, segment_bytes=1)
        new.create("counts", values="user string, n bigint, total bigint", segment_bytes=1)
        new.path.rename(folder / "embedded")
    return Log(folder / "embedded")


def run(folder: Path) -> None:
    log = str(visits(folder).path)
    tables = f"sqlite:///{folder}/tables.db"
    p = hr.Pipeline(spark=spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}))
    events = p | hr.ReadTopic("visits", log=log, event_time="ts", end="latest")
    sums = hr.GroupBy("user").aggregate(n=hr.count(), total=hr.sum("amount"))
    counts = events | hr.WindowInto(hr.FixedWindows(10)) | "counts" >> sums
    counts | hr.WriteTopic("counts", log=log)
    counts | "panes" >> hr.WriteTable(tables, "panes")
    early = hr.AfterWatermark(early=hr.AfterCount(1))
    latest = events | "early" >> hr.WindowInto(hr.FixedWindows(20), trigger=early, accumulation="accumulating")
    upsert = hr.WriteTable(tables, "latest", key=["user", "window_start"], mode="upsert")
    latest | "latest counts" >> sums | "latest" >> upsert
    events | hr.Map(tuple) | "copies" >> hr.WriteTopic("copies", log=log, key=lambda visit: visit[0])
    p.run(stream=True, checkpoint=str(folder / "checkpoint"), max_records_per_batch=60).wait()


def output(folder: Path) -> Output:
    """What the sinks have, as multisets."""
    log = Log(folder / "embedded")
    found: Output = {}
    for name in ("counts", "copies"):
        topic = log.topic(name)
        numbers = range(len(topic.partitions))
        found[name] = Counter(repr(record.value) for number in numbers for record in topic.read(number))
    with sqlite3.connect(folder / "tables.db") as database:
        for name in ("panes", "latest"):
            rows = database.execute(f"SELECT user, n, total FROM {name}").fetchall()
            found[name] = Counter(map(repr, rows))
    return found


if __name__ == "__main__":
    run(Path(sys.argv[1]))
