"""Apache Beam's word count on Headrace, against Headrace's own and against Beam's own runner, in one run.

    python bench/beam.py [--quick]

words    FlatMap, Map, count by key over text files: words a second, the better of two turns

Beam's own runner is FnApiRunner, in one process; it counts a tenth of the words. The last line is JSON. The targets:
at most 2.5 times the time of Headrace's own, and 10 times the words a second of Beam's runner.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from batch import make_words

import headrace as hr
from headrace.dialects.beam import HeadraceRunner
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="400,000 words in place of ten million")
    words = 400_000 if parser.parse_args().quick else 10_000_000
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="bench-beam-"))
    try:
        make_words(folder / "words", words)
        make_words(folder / "tenth", words // 10)
        spark_session()
        own = seconds(lambda out: ours(folder / "words", out), folder / "own")
        here = seconds(lambda out: beams(folder / "words", out, HeadraceRunner()), folder / "here")
        theirs = seconds(lambda out: beams(folder / "tenth", out, FnApiRunner()), folder / "theirs", turns=1)
    finally:
        shutil.rmtree(folder)
    figures = {
        "words": words,
        "headrace_words_per_s": round(words / own),
        "beam_on_headrace_words_per_s": round(words / here),
        "fnapirunner_words_per_s": round(words / 10 / theirs),
        "times_own": round(here / own, 2),
        "times_fnapirunner": round((words / here) / (words / 10 / theirs), 2),
    }
    for name, value in figures.items():
        print(f"   {name:32} {value:12,}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
