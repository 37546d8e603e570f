"""The topology that fails tuples of its own accord, and is killed besides: at least once, some twice, some never done.

    python tests/chaos/retryjob.py FOLDER

begins the topology of a folder, or goes on with it, and ends when every tuple is acked or a dead letter.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Final

import stormjob
from job import Output

from headrace import storm
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.log import Log

LANDMARKS: Final = (
    "cluster/words/checkpoint-0/spark/commits/[0-4]",
    "cluster/words/spouts/words-[01]/pending.json",
    "cluster/log/topics/words..dead/0/*.index",
    "cluster/words/checkpoint-0/spark/offsets/[0-4]",
    "results/topics/done/0/*.index",
    "cluster/words/checkpoint-0/spark/state/*/*/[1-4].changelog",
    "cluster/log/topics/words..outcomes/0/*.index",
)
"""Files whose names are the same in every run."""


class Numbers(stormjob.Words):
    """Emits numbers; what fails is emitted again by its host."""

    fields = ("task", "n")

    def next_tuple(self) -> None:
        if self.at < stormjob.EACH:
            self.emit([self.context.index, self.at], message_id=self.at)
            self.at += 1


class Try(storm.ToTopic):
    """Of every ten tuples it never bears one; of two it fails the first try, before it is written or after."""

    def prepare(self, context: storm.TopologyContext) -> None:
        self.seen: dict[tuple[int, int], int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        number = tup["task"], tup["n"]
        self.seen[number] = self.seen.get(number, 0) + 1
        kind = tup["n"] % 10
        if kind == 3:
            raise ValueError(f"cannot bear {tup['n']}")
        if kind == 6 and self.seen[number] == 1:
            raise ValueError(f"cannot bear {tup['n']} yet")
        super().execute(tup)
        if kind == 8 and self.seen[number] == 1:
            self.fail(tup)


def run(folder: Path) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Numbers(), parallelism=2)
    builder.set_bolt("try", Try("done", log=str(folder / "results")), parallelism=2).fields_grouping("words", ["n"])
    config = storm.Config(max_spout_pending=10, message_timeout="1 hour", max_retries=2)
    stormjob.play(folder, builder.create(), config)


def output(folder: Path) -> Output:
    """What got through, at least once; and what became of tuples in the end: acked, or dead letters, each once."""
    topics = TopologyTopics("words", str(folder / "cluster" / "log"))
    log = Log(topics.log)
    emitted = [list(log.topic(topics.spout("words")).read(task)) for task in (0, 1)]
    acked = [
        tuple(emitted[outcome.value["spout"]][place].value[3])
        for outcome in log.topic(topics.outcomes).read(0)
        for place in outcome.value["acked"]
    ]
    done = {(record.value["task"], record.value["n"]) for record in Log(folder / "results").topic("done").read(0)}
    dead = [tuple(record.value["values"]) for record in log.topic(topics.dead_letters).read(0)]
    return {name: Counter(map(repr, found)) for name, found in (("done", done), ("acked", acked), ("dead", dead))}


if __name__ == "__main__":
    run(Path(sys.argv[1]))
