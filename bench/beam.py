"""Apache Beam's pipelines on Headrace, against Headrace's own and against Beam's own runners, in one run.

    python bench/beam.py [--quick]

words     FlatMap, Map, count by key over text files: words a second, the better of two turns
chain     Map, Map, Filter over the lines of these files, counted: the time against Headrace's own
state     a DoFn with a state: microseconds of CPU an element, in this process, once its rows are there
windows   a TestStream of 100 steps, counted in windows: events a second, against Beam's DirectRunner
splits    an unbounded splittable DoFn that defers itself, counted in windows: records a second

Beam's own runner of batches is FnApiRunner, in one process; it counts a tenth of the words. The last line is JSON. The
targets: words in at most 2.5 times the time of Headrace's own, and 10 times the words a second of Beam's runner; the
chain in at most 1.6 times the time; 7 microseconds with state; windows at 20 times the events a second of DirectRunner;
100,000 records a second through the splittable DoFn.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from batch import make_words

import headrace as hr
from headrace.dialects.beam import HeadraceRunner
from headrace.dialects.beam.batchstate import StatefulStageFn
from headrace.engine.spark.session import spark_session


def ours(source: Path, out: Path) -> None:
    """Headrace's own word count."""
    with hr.Pipeline() as p:
        words = p | hr.ReadText(f"{source}/*.txt") | hr.FlatMap(str.split) | hr.Map(lambda word: (word, 1))
        words | hr.CombinePerKey(sum) | hr.MapTuple(lambda word, n: f"{word} {n}") | hr.WriteText(str(out))


def beams(source: Path, out: Path, runner: Any) -> None:
    """Beam's word count."""
    with beam.Pipeline(runner=runner) as p:
        lines = p | beam.io.ReadFromText(f"{source}/*.txt")
        words = lines | beam.FlatMap(str.split) | beam.Map(lambda word: (word, 1)) | beam.CombinePerKey(sum)
        words | beam.MapTuple(lambda word, n: f"{word} {n}") | beam.io.WriteToText(f"{out}/counts")


def seconds(job: Callable[[Path], None], folder: Path, turns: int = 2) -> float:
    """The seconds of the better turn."""
    times = []
    for turn in range(turns):
        begun = time.perf_counter()
        job(folder / str(turn))
        times.append(time.perf_counter() - begun)
    return min(times)


def own_chain(source: Path, out: Path) -> None:
    """Headrace's own chain."""
    with hr.Pipeline() as p:
        lines = p | hr.ReadText(f"{source}/*.txt") | hr.Map(str.upper) | "again" >> hr.Map(str.lower)
        lines | hr.Filter(lambda line: line[-1] != "7") | hr.Count.globally() | hr.WriteText(str(out))


def beams_chain(source: Path, out: Path) -> None:
    """The same chain, as Beam writes it."""
    with beam.Pipeline(runner=HeadraceRunner()) as p:
        lines = p | beam.io.ReadFromText(f"{source}/*.txt") | beam.Map(str.upper) | "again" >> beam.Map(str.lower)
        count = lines | beam.Filter(lambda line: line[-1] != "7") | beam.combiners.Count.Globally()
        count | beam.io.WriteToText(f"{out}/count")


class Totals(beam.DoFn):  # type: ignore[misc]
    """Adds up the values of a key."""

    TOTAL = CombiningValueStateSpec("total", sum)

    def process(self, pair: tuple[str, int], total: Any = beam.DoFn.StateParam(TOTAL)) -> Iterator[int]:
        total.add(pair[1])
        if pair[1] == 0:
            yield total.read()


def state_micros(elements: int) -> float:
    """Microseconds of CPU that a DoFn with state takes for an element."""
    run, spent = StatefulStageFn.run, 0.0

    def timed(fn: StatefulStageFn, bundle: Any) -> Any:
        nonlocal spent
        begun = time.process_time()
        results = list(run(fn, bundle))
        spent += time.process_time() - begun
        return results

    StatefulStageFn.run = timed  # type: ignore[method-assign, assignment]
    try:
        with beam.Pipeline(runner=HeadraceRunner(local=True)) as p:
            numbers = p | beam.Create([0]) | beam.FlatMap(lambda _: range(elements))
            pairs = numbers | beam.Map(lambda n: (f"k{n % 1000}", n % 7)).with_output_types(tuple[str, int])
            pairs | beam.ParDo(Totals())
    finally:
        StatefulStageFn.run = run  # type: ignore[method-assign]
    return spent / elements * 1e6


def windows(runner: Any, steps: int, each: int) -> None:
    """Counts the events of a TestStream in windows."""
    stream = TestStream()
    for step in range(steps):
        stream = stream.advance_watermark_to(step)
        stream = stream.add_elements([TimestampedValue(f"k{n % 100}", step) for n in range(each)])
    with beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"])) as p:
        placed = p | stream.advance_watermark_to_infinity() | beam.WindowInto(FixedWindows(10))
        placed | beam.Map(lambda key: (key, 1)) | beam.CombinePerKey(sum)


class _Ranges(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, size: int) -> OffsetRange:
        return OffsetRange(0, size)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, size: int, restriction: OffsetRange) -> int:
        left: int = restriction.size()
        return left


class Numbers(beam.DoFn):  # type: ignore[misc]
    """Numbers with their times, 50,000 at a time."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        size: int,
        tracker: Any = beam.DoFn.RestrictionParam(_Ranges()),
        watermark: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
    ) -> Iterator[TimestampedValue]:
        start, stop = tracker.current_restriction().start, tracker.current_restriction().stop
        for number in range(start, stop):
            if number == start + 50_000:
                watermark.set_watermark(Timestamp(number / 1000))
                tracker.defer_remainder()
                return
            if not tracker.try_claim(number):
                return
            yield TimestampedValue(number % 100, number / 1000)


def splits(size: int) -> None:
    """Counts the records of four splittable sources in windows."""
    with beam.Pipeline(runner=HeadraceRunner(), options=PipelineOptions(["--streaming"])) as p:
        numbers = p | beam.Create([size // 4] * 4) | beam.ParDo(Numbers()) | beam.WindowInto(FixedWindows(60))
        numbers | beam.Map(lambda number: (number, 1)) | beam.CombinePerKey(sum)


def spent(job: Callable[[], None]) -> float:
    """The seconds of a job."""
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="400,000 words in place of ten million, and so on")
    words, events, records = (
        (400_000, 10_000, 100_000) if parser.parse_args().quick else (10_000_000, 200_000, 2_000_000)
    )
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="bench-beam-"))
    try:
        make_words(folder / "words", words)
        make_words(folder / "tenth", words // 10)
        spark_session()
        own = seconds(lambda out: ours(folder / "words", out), folder / "own")
        here = seconds(lambda out: beams(folder / "words", out, HeadraceRunner()), folder / "here")
        theirs = seconds(lambda out: beams(folder / "tenth", out, FnApiRunner()), folder / "theirs", turns=1)
        chain = seconds(lambda out: own_chain(folder / "words", out), folder / "own-chain")
        beam_chain = seconds(lambda out: beams_chain(folder / "words", out), folder / "chain")
    finally:
        shutil.rmtree(folder)
    window_seconds = spent(lambda: windows(HeadraceRunner(), 100, events // 100))
    direct_seconds = spent(lambda: windows(BundleBasedDirectRunner(), 100, events // 1000))
    split_seconds = spent(lambda: splits(records))
    figures = {
        "words": words,
        "headrace_words_per_s": round(words / own),
        "beam_on_headrace_words_per_s": round(words / here),
        "fnapirunner_words_per_s": round(words / 10 / theirs),
        "times_own": round(here / own, 2),
        "times_fnapirunner": round((words / here) / (words / 10 / theirs), 2),
        "chain_times_own": round(beam_chain / chain, 2),
        "state_us_per_element": round(state_micros(events), 2),
        "windows_events_per_s": round(events / window_seconds),
        "windows_times_directrunner": round((events / window_seconds) / (events / 10 / direct_seconds), 2),
        "splittable_records_per_s": round(records / split_seconds),
    }
    for name, value in figures.items():
        print(f"   {name:32} {value:12,}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
