"""The loop that is killed: connected components of edges that come and go, from a topic to a topic.

    python tests/chaos/loopjob.py FOLDER

begins the stream of a folder, or goes on with it, and leaves its output there.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from job import Output
from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace.engine.spark.session import spark_session
from headrace.log import Log

LANDMARKS: Final = (
    "embedded/topics/labels/0/*.index",
    "checkpoint/spark/offsets/[!.]*",
    "checkpoint/spark/commits/[!.]*",
    "checkpoint/spark/state/*/*/*.changelog",
    "checkpoint/headrace-*.json",
)
"""Files whose names are the same in every run. The topic that is written begins a segment with each batch."""

BATCHES: Final = 20
SIZE: Final = 30
"""How many micro-batches there are, and changes in each."""


def edges(folder: Path) -> Log:
    """A log with all changes in it, and the topic that is written. It appears whole or not at all."""
    if not (folder / "embedded").exists():
        new = Log(folder / "embedded.new")
        topic = new.create("edges")
        rng = random.Random(1)
        present: set[tuple[int, int]] = set()
        for _ in range(BATCHES):
            changes: list[object] = []
            for _ in range(SIZE):
                # So few edges at a time that components fall apart and grow together in every batch.
                edge = rng.choice(sorted(present)) if len(present) > SIZE else (rng.randrange(40), rng.randrange(40))
                changes.append([*edge, -1 if edge in present else 1])
                present ^= {edge}
            topic.append(0, topic.batch(changes, timestamps=[0] * SIZE))
        new.create("labels", segment_bytes=1)
        new.path.rename(folder / "embedded")
    return Log(folder / "embedded")


def spread(collection: hr.Collection) -> hr.Collection:
    """Labels each node with the least node that it is connected with."""
    both = collection.concat(collection.map(lambda edge: (edge[1], edge[0])))
    nodes = both.map(lambda edge: (edge[0], edge[0])).distinct()
    return hr.iterate(
        nodes, lambda labels: labels.join(both, lambda node, label, other: (other, label)).concat(nodes).reduce(min)
    )


def as_record(change: hr.Change) -> list[Any]:
    return [*change.element, change.diff]


def run(folder: Path) -> None:
    log = str(edges(folder).path)
    p = hr.Pipeline(spark=spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}))
    # Without an end: what is bounded would be computed once, from scratch, and not in epochs.
    read = p | hr.ReadTopic("edges", log=log) | hr.Map(lambda edge: hr.Change((edge[0], edge[1]), edge[2]))
    assert not read.bounded
    hr.changes(spread(hr.collection(read))) | "record" >> hr.Map(as_record) | hr.WriteTopic("labels", log=log)
    handle: Any = p.run(checkpoint=str(folder / "checkpoint"), max_records_per_batch=SIZE)
    while True:
        try:
            handle.query.processAllAvailable()
            break
        except StreamingQueryException:
            handle.wait(1)  # raises what it failed with, unless the handle starts the query again
    handle.stop()


def output(folder: Path) -> Output:
    """All changes of labels, as a multiset, and what they add up to."""
    records = [record.value for record in Log(folder / "embedded").topic("labels").read(0)]
    labels: Counter[str] = Counter()
    for node, label, diff in records:
        labels[f"{node} {label}"] += diff
    return {"changes": Counter(map(repr, records)), "labels": Counter(dict(sorted((+labels).items())))}


if __name__ == "__main__":
    run(Path(sys.argv[1]))
