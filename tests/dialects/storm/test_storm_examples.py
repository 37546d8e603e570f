"""The examples' topologies: on the driver in memory, what they promise; on Spark, that they prove their own answers."""

from __future__ import annotations

import json
import runpy
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import storm_exclamation
import storm_fraud
import storm_top_words
import storm_wordcount

from headrace import storm
from tests.dialects.storm.driver import Driver
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000


def written(driver: Driver, bolt: str = "out") -> list[dict[str, Any]]:
    return [row for task in driver.instances(bolt) for row in map(json.loads, task.rows)]


def test_words_are_counted() -> None:
    driver = Driver(storm_wordcount.build("log"))
    driver.batch({"spout": [[sentence] for sentence in storm_wordcount.SENTENCES * 3]})
    counts = {row["word"]: row["count"] for row in written(driver)}
    assert counts == Counter(" ".join(storm_wordcount.SENTENCES * 3).split())


def test_hi_is_exclaimed_once_and_twice() -> None:
    driver = Driver(storm_exclamation.build("log"))
    driver.batch({"words": [["Hi"]]})
    assert sorted(row["word"] for row in written(driver)) == ["Hi!", "Hi!!"]


def test_the_top_words_are_those_of_the_last_slots() -> None:
    driver = Driver(storm_top_words.build("log"))
    driver.batch({"words": []}, now=0)
    driver.batch({"words": [["corn"]] * 5 + [["mill"]] * 3 + [["race"]] + [["stone"]] * 2}, now=SECOND)
    driver.batch({"words": []}, now=3 * SECOND)
    driver.batch({"words": [["race"]] * 4}, now=4 * SECOND)
    for tick in range(2, 7):
        driver.batch({"words": []}, now=3 * tick * SECOND)
    first, second = [["corn", 5], ["mill", 3], ["stone", 2]], [["corn", 5], ["race", 5], ["mill", 3]]
    assert [row["ranks"] for row in written(driver)] == [first, second, second, [["race", 4]], [], []]
    totals: Counter[str] = Counter()
    for row in written(driver, "counts"):
        totals[row["word"]] += row["count"]
    assert totals == {"corn": 15, "mill": 9, "stone": 6, "race": 15}


def test_machines_are_suspects_once_and_pay_for_no_more_than_people() -> None:
    driver = Driver(storm_fraud.build("log"))
    driver.batch({"views": []}, now=0)
    driver.batch({"views": [[1, 7]] * 150 + [[2, 7]] * 30 + [[2, 8]]}, now=SECOND)
    assert written(driver, "suspects") == [{"user": 1, "advertiser": 7}]
    assert {row["advertiser"]: row["views"] for row in written(driver, "charges")} == {7: 130, 8: 1}
    driver.batch({"views": [[2, 8]]}, now=2 * SECOND)
    assert written(driver, "charges")[-1] == {"advertiser": 8, "views": 2}


def test_views_come_in_bursts() -> None:
    due, begins, lasts = storm_fraud.due, storm_fraud.BEGINS, storm_fraud.LASTS
    assert due(60) == 60 * storm_fraud.CALM + lasts * (storm_fraud.BURST - storm_fraud.CALM)
    assert due(60 + begins + 1.5) - due(60 + begins + 0.5) == storm_fraud.BURST
    assert due(1) == storm_fraud.CALM


def test_a_file_with_a_topology_can_be_submitted() -> None:
    names = runpy.run_path(storm_wordcount.__file__, run_name="headrace_topology")
    assert isinstance(names["topology"], storm.Topology)


class CountsInFile(storm_wordcount.WordCount):
    """Writes its counts to a file at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cleanup(self) -> None:
        (self.folder / f"count{self.context.index}.json").write_text(json.dumps(self.counts))


def until(reached: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


SPOUTS = {"words": "spout", "fraud": "views", **({"marks": "words", "tops": "words"} if FULL else {})}
"""The examples and their spouts. Those that only FULL runs have groupings and ticks as the others have."""


@only_full("topologies on Spark have tests of their own")
@pytest.mark.slow("topologies run to their end on Spark")
@pytest.mark.timeout(900)
def test_the_examples_prove_themselves_on_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """All at once, with few tasks, until each has acked some; then none emits, and answers are recounted."""
    config = storm.Config(message_timeout="1 hour", max_spout_pending=60, max_task_parallelism=2)
    logs = {name: str(tmp_path / name) for name in SPOUTS}
    counting = storm_wordcount.build(logs["words"])
    writing = replace(counting.node("count"), component=CountsInFile(tmp_path))
    counting = storm.Topology(tuple(writing if node.id == "count" else node for node in counting.nodes))
    with storm.LocalCluster(spark=spark) as cluster:
        cluster.submit("words", counting, config)
        cluster.submit("fraud", storm_fraud.build(logs["fraud"]), config)
        if FULL:
            cluster.submit("marks", storm_exclamation.build(logs["marks"]), config)
            cluster.submit("tops", storm_top_words.build(logs["tops"]), config)

        def acked(name: str) -> int:
            cluster.running(name).check()
            return sum(task.acked for task in cluster.status(name).of(SPOUTS[name]))

        until(lambda: all(acked(name) >= 120 for name in SPOUTS))
        for name in SPOUTS:
            cluster.deactivate(name)
        for name in SPOUTS:
            assert cluster.running(name).settle(120)
        words = cluster.status("words")
        assert [len(words.of(each)) for each in ("spout", "split", "count", "out")] == [2, 2, 2, 1]
        executed = [task.executed for task in words.of("split")]
        assert abs(executed[0] - executed[1]) <= 2
        assert storm_wordcount.counted(logs["words"]) == storm_wordcount.recounted(words)
        answers, expected = storm_fraud.answers(cluster, logs["fraud"])
        assert answers == expected
        if FULL:
            marks = cluster.status("marks")
            assert storm_exclamation.exclaimed(logs["marks"]) == storm_exclamation.expected(marks)
            assert storm_top_words.silence(cluster, "tops", logs["tops"])
        assert [cluster.errors(name) + cluster.dead_letters(name) for name in SPOUTS] == [[]] * len(SPOUTS)
        cluster.kill("words")
    noted = [json.loads((tmp_path / f"count{index}.json").read_text()) for index in range(2)]
    assert Counter(noted[0]) + Counter(noted[1]) == storm_wordcount.counted(logs["words"])
