"""The Beam pipeline that is killed: a splittable source without an end of its own making, state, timers and windows.

    python tests/chaos/beamjob.py FOLDER

begins the pipeline of a folder, or goes on with it, and ends when every sum is there. Each result is a file whose name
says all of it: what is written twice is one file, and a wrong result is another.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import window
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp
from job import Output

from headrace.dialects.beam import HeadraceRunner
from headrace.engine.spark.session import spark_session

LANDMARKS: Final = (
    "checkpoint/spark/offsets/[1-6]",
    "checkpoint/spark/state/*/*/[1-6].changelog",
    "checkpoint/spark/commits/[1-6]",
    "sums/k0-20-*",
    "counts/k1-40-*",
)
"""Files whose names are the same in every run."""

SOURCES: Final = 3
TICKS: Final = 100
EACH: Final = 12
SECONDS: Final = 20


class Ranges(RestrictionProvider):  # type: ignore[misc]
    """A source's ticks: the seconds from 0 on."""

    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, TICKS)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        size: int = restriction.size()
        return size


class Ticks(beam.DoFn):  # type: ignore[misc]
    """Gives a few ticks at a time, and lets the rest wait."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        source: int,
        tracker: Any = beam.DoFn.RestrictionParam(Ranges()),
        watermark: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
    ) -> Iterator[Any]:
        start, stop = tracker.current_restriction().start, tracker.current_restriction().stop
        for at in range(start, stop):
            if at == start + EACH:
                tracker.defer_remainder()
                return
            if not tracker.try_claim(at):
                return
            watermark.set_watermark(Timestamp(at))
            yield window.TimestampedValue((f"k{(source + at) % 2}", source * at), at)


class Sums(beam.DoFn):  # type: ignore[misc]
    """Adds up what a key has in a window: a timer counts at its end, and a timer that it sets gives the result."""

    VALUES = BagStateSpec("values", VarIntCoder())
    COUNT = CombiningValueStateSpec("count", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)
    GIVE = TimerSpec("give", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        placed: Any = beam.DoFn.WindowParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        values.add(pair[1])
        end.set(placed.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def count(
        self,
        placed: Any = beam.DoFn.WindowParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        count: Any = beam.DoFn.StateParam(COUNT),
        give: Any = beam.DoFn.TimerParam(GIVE),
    ) -> None:
        count.add(len(list(values.read())))
        give.set(placed.max_timestamp())

    @on_timer(GIVE)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        placed: Any = beam.DoFn.WindowParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        count: Any = beam.DoFn.StateParam(COUNT),
    ) -> Iterator[str]:
        yield f"{key}-{int(placed.end)}-{count.read()}-{sum(values.read())}"
        values.clear()
        count.clear()


class Keep(beam.DoFn):  # type: ignore[misc]
    """Makes a file of each result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def process(self, name: str) -> None:
        (self.folder / name).touch()


class Counted(beam.DoFn):  # type: ignore[misc]
    """Names a count after its key and window."""

    def process(self, pair: tuple[str, int], placed: Any = beam.DoFn.WindowParam) -> Iterator[str]:
        yield f"{pair[0]}-{int(placed.end)}-{pair[1]}"


def run(folder: Path) -> None:
    """Runs the pipeline until all results are there."""
    spark_session("local[2]", {"spark.log.level": "OFF"})
    for sink in ("sums", "counts"):
        (folder / sink).mkdir(exist_ok=True)
    options = PipelineOptions(["--streaming", f"--checkpoint={folder}/checkpoint"])
    pipeline = beam.Pipeline(runner=HeadraceRunner(), options=options)
    ticks = pipeline | beam.Create(range(SOURCES)) | "ticks" >> beam.ParDo(Ticks())
    placed = ticks | beam.WindowInto(window.FixedWindows(SECONDS))
    placed | "sums" >> beam.ParDo(Sums()) | "keep sums" >> beam.ParDo(Keep(folder / "sums"))
    counts = placed | "ones" >> beam.MapTuple(lambda key, _: (key, 1)) | "add" >> beam.CombinePerKey(sum)
    counts | "name" >> beam.ParDo(Counted()) | "keep counts" >> beam.ParDo(Keep(folder / "counts"))
    result = pipeline.run()
    windows = -(-TICKS // SECONDS)
    while any(len(list((folder / sink).iterdir())) < 2 * windows for sink in ("sums", "counts")):
        result.wait_until_finish(100)
    result.cancel()


def output(folder: Path) -> Output:
    """The names of all results."""
    return {sink: Counter(path.name for path in (folder / sink).iterdir()) for sink in ("sums", "counts")}


if __name__ == "__main__":
    run(Path(sys.argv[1]))
