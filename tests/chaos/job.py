"""The stream that is killed: two levels of groupings with retractions, files, and a function with lasting effects.

    python tests/chaos/job.py FOLDER

begins the stream of a folder, or goes on with it, and leaves its output there.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import headrace as hr
from headrace.engine.spark.session import spark_session
from headrace.model.sinks import WindowedValue

Output = dict[str, Counter[str]]

LANDMARKS: Final = (
    "checkpoint/spark/state/*/*/*.changelog",
    "counts/batch-*",
    "checkpoint/spark/offsets/[!.]*",
    "checkpoint/spark/commits/[!.]*",
    "sums/*.json",
    "raw/batch-*",
    "totals/*.json",
    "checkpoint/control/*/*.parquet",
    "checkpoint/headrace-*.json",
)
"""The files of a stream whose names are the same in every run."""


def timed(*triples: tuple[str, int, int]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue((key, value), time) for key, value, time in triples]


def script() -> hr.TestStream:
    return (
        hr.TestStream()
        .add(timed(("a", 1, 1), ("b", 2, 2), ("c", 3, 3)))
        .add(timed(("a", 4, 4), ("a", 5, 11)))
        .advance_watermark(10)
        .add(timed(("b", 6, 5), ("c", 7, 12), ("a", 8, 9)))
        .finish()
    )


class Effects:
    """A sink whose effects are a file for each batch: a batch that comes again must be what it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, elements: list[WindowedValue], batch: int) -> None:
        target = self.folder / f"{batch:06d}.json"
        rows = sorted(map(repr, elements))
        if target.exists() and json.loads(target.read_text()) != rows:
            target = self.folder / f"{batch:06d} again.json"
        new = target.with_suffix(".new")
        new.write_text(json.dumps(rows))
        os.replace(new, target)


def run(folder: Path) -> None:
    p = hr.Pipeline(spark=spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}))
    trigger = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
    events = p | script()
    windows = hr.WindowInto(hr.FixedWindows(10), trigger=trigger, accumulation="retracting", allowed_lateness=60)
    sums = events | windows | "sums" >> hr.CombinePerKey(sum)
    total = sums | hr.Values() | "total" >> hr.CombineGlobally(sum)
    fixed = events | "fixed" >> hr.WindowInto(hr.FixedWindows(10), trigger=trigger, allowed_lateness=60)
    fixed | "counts" >> hr.Count.per_key() | hr.WriteText(str(folder / "counts"))
    sums | "keep sums" >> hr.ForEachBatch(Effects(folder / "sums"))
    total | "keep totals" >> hr.ForEachBatch(Effects(folder / "totals"))
    events | "show" >> hr.Map(repr) | "raw" >> hr.WriteText(str(folder / "raw"))
    p.run(checkpoint=str(folder / "checkpoint")).wait()


def output(folder: Path) -> Output:
    """What the sinks have, as multisets."""
    found = {
        name: Counter(line for part in folder.glob(f"{name}/*/part-*") for line in part.read_text().splitlines())
        for name in ("counts", "raw")
    }
    for name in ("sums", "totals"):
        found[name] = Counter(row for file in folder.glob(f"{name}/*.json") for row in json.loads(file.read_text()))
    return found


if __name__ == "__main__":
    run(Path(sys.argv[1]))
