"""DStreams on the engine against pyspark.streaming itself: the same programs, in one run, on data it makes.

    python bench/dstreams.py [--quick] [--only words,state,windows]

words     word count with reduceByKey over files, 10 words a line
state     updateStateByKey with 200,000 keys, of which 2,000 have new values in a batch; every state is counted
windows   reduceByKeyAndWindow with an inverse, a window of 8 batches, 20,000 keys

What counts is how long each is busy with a batch: from the end of its interval, or of the batch before it if that is
later, until all of its outputs are done. The first batches, in which both warm up, are left out. The last line is JSON.
"""

from __future__ import annotations

import importlib
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from operator import add, sub
from pathlib import Path
from typing import Any

import numpy as np
from _sections import Bench, Verdict, run

WORDS_EACH = 10
OURS, SPARKS = "headrace.dstreams", "pyspark.streaming"


def count(rdd: Any) -> None:
    """Makes all of an RDD. It returns nothing: pyspark.streaming takes what is returned for an RDD."""
    rdd.count()


def measured(
    bench: Bench, module: str, interval: float, batches: int, build: Callable[[Any], Any], feed: Any = None
) -> dict[int, float]:
    """Runs a program of either module for so many batches; returns the seconds that each took, by its time."""
    warnings.simplefilter("ignore", FutureWarning)
    package = importlib.import_module(module)
    ends: dict[int, int] = {}
    enough = threading.Event()

    class Ends(package.StreamingListener):  # type: ignore[misc, name-defined]
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            info = batchCompleted.batchInfo()
            ends[info.batchTime().milliseconds()] = info.processingEndTime()
            if len(ends) >= batches:
                enough.set()

    ssc = package.StreamingContext(bench.spark.sparkContext, interval)
    if feed is None:  # a program with state
        ssc.checkpoint(str(bench.folder / f"checkpoint-{module}"))
    ssc.addStreamingListener(Ends())
    build(ssc)
    ssc.start()
    if feed is not None:
        feed(interval, batches)
    if not enough.wait(600):
        raise TimeoutError(f"{module}: {len(ends)} of {batches} batches were done after 600 s")
    ssc.stop(stopSparkContext=False, stopGraceFully=False)
    before, took = 0, {}
    for batch_time, end in sorted(ends.items())[:batches]:
        took[batch_time] = (end - max(batch_time, before)) / 1000
        before = end
    return took


def compare(
    bench: Bench, records: int, warm: int, interval: float, batches: int, build: Callable[[Any], Any]
) -> dict[str, float]:
    """Measures both; returns the records per second of each."""
    rates = {}
    for module in (SPARKS, OURS):
        took = list(measured(bench, module, interval, batches, build).values())
        median = statistics.median(took[warm:])
        rates[module] = records / median
        bench.say(f"{module:20} {records / median:12,.0f} records/s   batches of {[round(each, 2) for each in took]} s")
        bench.figures.append({"module": module, "records": records, "seconds": [round(each, 3) for each in took]})
    return rates


def words(bench: Bench) -> Iterator[Verdict]:
    lines, batches, interval = (20_000, 5, 3) if bench.quick else (150_000, 7, 5)
    random = np.random.default_rng(1)
    vocabulary = [f"word{number}" for number in range(20_000)]
    picked = (random.zipf(1.3, (lines, WORDS_EACH)) - 1) % len(vocabulary)
    text = "".join(" ".join(vocabulary[at] for at in row) + "\n" for row in picked.tolist())
    halves = [text[: text.index("\n", len(text) // 2) + 1], text[text.index("\n", len(text) // 2) + 1 :]]
    folders = {module: bench.folder / f"in-{module}" for module in (OURS, SPARKS)}
    for folder in folders.values():
        folder.mkdir()

    def feed(module: str) -> Callable[[float, int], None]:
        def move(interval: float, batches: int) -> None:
            """Moves two files into the directory early in each interval."""
            for number in range(batches):
                at = (int(time.time() / interval) + 1) * interval + 0.2
                time.sleep(max(at - time.time(), 0))
                for half, each in enumerate(halves):
                    hidden = folders[module] / f".{number}-{half}"
                    hidden.write_text(each)
                    hidden.rename(folders[module] / f"{number}-{half}.txt")

        return move

    rates = {}
    for module in (SPARKS, OURS):
        sizes: dict[int, int] = {}

        def build(ssc: Any, folder: Path = folders[module], sizes: dict[int, int] = sizes) -> None:
            def count_at(moment: datetime, rdd: Any) -> None:
                sizes[round(moment.timestamp() * 1000)] = rdd.count()

            counts = ssc.textFileStream(str(folder)).flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(add)
            counts.foreachRDD(count_at)

        by_time = measured(bench, module, interval, batches + 2, build, feed(module))
        took = [seconds for at, seconds in by_time.items() if sizes[at]]  # of those with files
        rates[module] = lines * WORDS_EACH / statistics.median(took[2:])
        bench.say(f"{module:20} {rates[module]:12,.0f} words/s   batches of {[round(each, 2) for each in took]} s")
        bench.figures.append({"module": module, "words": lines * WORDS_EACH, "seconds": took})
    remedy = "see what reading files, splitting and combining cost"
    yield Verdict("words: reduceByKey", rates[OURS] / rates[SPARKS], 1.5, True, remedy)


def state(bench: Bench) -> Iterator[Verdict]:
    keys, touched, batches = (20_000, 500, 8) if bench.quick else (200_000, 2_000, 14)
    random = np.random.default_rng(2)
    names = [f"user{number:07}" for number in range(keys)]
    queue = [[(name, 1) for name in names]]
    queue += [[(names[at], 1) for at in random.integers(0, keys, touched).tolist()] for _ in range(batches - 1)]

    def build(ssc: Any) -> None:
        stream = ssc.queueStream([ssc.sparkContext.parallelize(each) for each in queue])
        stream.updateStateByKey(lambda values, old: sum(values) + (old or 0)).foreachRDD(count)

    rates = compare(bench, touched, 4, 1, batches, build)
    remedy = "see what a batch costs beside the calls: jobs, files of state, what Spark does around it"
    yield Verdict("state: updateStateByKey", rates[OURS] / rates[SPARKS], 10, True, remedy)


def windows(bench: Bench) -> Iterator[Verdict]:
    pairs, keys, batches = (10_000, 5_000, 14) if bench.quick else (100_000, 20_000, 20)
    random = np.random.default_rng(3)
    names = [f"page{number}" for number in range(keys)]
    queue = [[(names[at], 1) for at in random.integers(0, keys, pairs).tolist()] for _ in range(batches)]

    def build(ssc: Any) -> None:
        stream = ssc.queueStream([ssc.sparkContext.parallelize(each) for each in queue])
        stream.reduceByKeyAndWindow(add, sub, 8, 1).foreachRDD(count)

    rates = compare(bench, pairs, 9, 1, batches, build)
    remedy = "see what combining, exchanging and the window's table cost"
    yield Verdict("windows: reduceByKeyAndWindow", rates[OURS] / rates[SPARKS], 1.5, True, remedy)


if __name__ == "__main__":
    run("dstreams", __doc__, words, state, windows)
