"""Tests that streams which are aborted around every append leave the same records as an undisturbed run."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.log import Log
from headrace.log.partitions import Partition
from tests.engine.stream.test_faults import EARLY_AND_LATE, Boundaries, Universe, timed
from tests.scale import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Topics(Universe):
    """Writes elements with and without a key, and sums with retractions."""

    workers = ("source", "pane")

    def build(self, p: hr.Pipeline) -> None:
        self.log = Log(self.folder / "log")
        for name in ("keyed", "plain", "sums"):
            self.log.create(name, partitions=2)
        script = (
            hr.TestStream()
            .add(timed(("a", 1, 1), ("d", 2, 2)))
            .add(timed(("a", 4, 4), ("c", 5, 11)))
            .advance_watermark(10)
            .add(timed(("d", 6, 5), ("c", 7, 12)))
            .finish()
        )
        events = p | script | self.visiting("source")
        events | "keyed" >> hr.WriteTopic("keyed", log=str(self.log.path), key=lambda pair: pair[0])
        events | "plain" >> hr.WriteTopic("plain", log=str(self.log.path))
        windows = hr.WindowInto(
            hr.FixedWindows(10), trigger=EARLY_AND_LATE, accumulation="retracting", allowed_lateness="1 minute"
        )
        sums = events | windows | hr.CombinePerKey(sum) | self.visiting("pane")
        sums | "sums" >> hr.WriteTopic("sums", log=str(self.log.path), key=lambda pair: pair[0])

    def output(self) -> dict[str, dict[Any, Counter[str]]]:
        return {
            name: {
                number: Counter(
                    str((record.key, record.timestamp, record.value, record.headers))
                    for record in self.log.topic(name).read(number)
                )
                for number in range(2)
            }
            for name in self.log.topics()
        }


@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
def test_aborts_around_appends_leave_no_trace(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boundaries, append = Boundaries(monkeypatch), Partition.append

    def appending(partition: Partition, *args: Any, **options: Any) -> int:
        boundaries.faults.reach(f"before the append to {partition.place}")
        offset = append(partition, *args, **options)
        boundaries.faults.reach(f"after the append to {partition.place}")
        return offset

    monkeypatch.setattr(Partition, "append", appending)
    undisturbed, disturbed = Topics(spark, tmp_path / "undisturbed"), Topics(spark, tmp_path / "disturbed")
    boundaries.faults = undisturbed.faults
    assert undisturbed.run() == []
    assert all(topic for topics in undisturbed.output().values() for topic in topics.values())
    around = [point for point in undisturbed.faults.passed if "append" in point]
    others = [point for point in undisturbed.faults.passed if "append" not in point]
    rng = random.Random(1)
    if FULL:
        points = random.Random(1).sample(around, 11) + random.Random(1).sample(others, 3)
    else:  # before and after an append to each of the topics; the others are tried with other sinks
        by_place = {point.rpartition("/")[0]: point for point in rng.sample(around, len(around))}
        points = [*by_place.values(), rng.choice(others)]
    boundaries.faults = disturbed.faults
    disturbed.faults.planned = set(points)
    assert sorted(disturbed.run()) == sorted(points)
    assert disturbed.output() == undisturbed.output()
