"""What the benchmarks by sections share: targets and what became of them, and a run that tells both.

The last line of a run is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from _streams import Running, session
from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parent.parent / "examples"))  # what they show is measured, not a copy of it


@dataclass(frozen=True)
class Verdict:
    """What was measured against what was aimed at; `at_least` or at most."""

    name: str
    measured: float
    target: float
    at_least: bool
    remedy: str

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target

    def __str__(self) -> str:
        aim = f"{'at least' if self.at_least else 'at most'} {self.target:g}"
        if self.met:
            return f"   met     {self.name:34} {self.measured:8.2f}   {aim}"
        more, less = (self.target, self.measured) if self.at_least else (self.measured, self.target)
        off = f"off by {more / less:.2f} x" if less else f"off by {more:g}"
        return f"   MISSED  {self.name:34} {self.measured:8.2f}   {aim}, {off}; {self.remedy}"


@dataclass
class Bench:
    """What a section works with: a session, a folder of its own, and whether to be quick."""

    folder: Path
    quick: bool
    asked: argparse.Namespace
    figures: list[dict[str, Any]] = field(default_factory=list)
    """What a section has measured beside its verdicts, for the last line."""

    @cached_property
    def spark(self) -> SparkSession:
        return session()

    def say(self, line: str) -> None:
        print(f"   {line}", flush=True)

    def measured(self, what: str, running: Running, batches: int) -> float:
        """The median of the last batches in milliseconds, told with where it goes."""
        last = running.batches()[-batches:]
        median = statistics.median(last)
        parts = "  ".join(f"{name} {ms:.0f}" for name, ms in running.parts(batches).items())
        self.say(f"{what:34} {median:8.0f} ms   of {[round(each) for each in last]}   {parts}")
        return median


Section = Callable[[Bench], Iterator[Verdict]]


def run(
    name: str, about: str | None, *sections: Section, options: Callable[[argparse.ArgumentParser], None] | None = None
) -> None:
    """Runs the sections that are asked for on the command line; a benchmark may have further `options`."""
    by_name = {section.__name__: section for section in sections}
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, under three minutes on 2 cores")
    parser.add_argument("--only", default=",".join(by_name), help="sections, with commas between them")
    if options is not None:
        options(parser)
    asked = parser.parse_args()
    chosen = asked.only.split(",")
    if unknown := [each for each in chosen if each not in by_name]:
        parser.error(f"there is no section {unknown[0]!r}; there are {', '.join(by_name)}")
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    load = os.getloadavg()[0]
    print(f"load before it began: {load:.1f}", flush=True)  # of whatever else runs, which the figures suffer from
    verdicts: list[Verdict] = []
    failed: dict[str, str] = {}
    bench = Bench(root, asked.quick, asked)
    try:
        for each in chosen:
            print(f"{each}", flush=True)
            bench.folder = root / each
            bench.folder.mkdir()
            try:
                for verdict in by_name[each](bench):
                    verdicts.append(verdict)
                    print(verdict, flush=True)
            except Exception as error:  # the other sections still tell something
                failed[each] = f"{type(error).__name__}: {error}".splitlines()[0]
                print(f"   FAILED  {failed[each]}", flush=True)
            shutil.rmtree(bench.folder, ignore_errors=True)
    finally:
        if "spark" in bench.__dict__:
            bench.spark.stop()
        shutil.rmtree(root, ignore_errors=True)
    results = [{**asdict(each), "met": each.met} for each in verdicts]
    for result in results:
        result["measured"] = round(result["measured"], 2)
        del result["remedy"]
    date = datetime.now(UTC).isoformat(timespec="minutes")
    told = {
        "bench": name,
        "date": date,
        "quick": asked.quick,
        "load": round(load, 1),
        "results": results,
        "failed": failed,
    }
    if bench.figures:
        told["figures"] = bench.figures
    print(json.dumps(told))
