"""The mill that is killed: an injector, a computation that counts words in windows, and one that adds up the windows.

    python tests/chaos/millwheeljob.py FOLDER

begins the mill of a folder, or goes on with it, and ends when all words are counted.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from job import Output

from headrace import millwheel as mw
from headrace.engine.spark.session import spark_session
from headrace.log import Log

LANDMARKS: Final = (
    "mill/checkpoints/windows/spark/offsets/[0-3]",
    "mill/log/topics/words/[01]/*.index",
    "mill/checkpoints/totals/spark/commits/[0-2]",
    "mill/checkpoints/windows/spark/commits/[0-3]",
    "mill/log/topics/windows/0/*.index",
    "mill/checkpoints/windows/spark/state/*/*/[1-3].changelog",
    "mill/checkpoints/totals/spark/offsets/[0-2]",
    "mill/computations/windows/owner/0",
    "mill/log/topics/totals/0/*.index",
)
"""Files whose names are the same in every run."""

BATCHES: Final = 6
EACH: Final = 30
SECOND: Final = 1_000_000


class Windows(mw.Computation):
    """Counts a word in windows of ten seconds."""

    inputs = {"words": mw.key("word")}
    outputs = ("windows",)
    late = "process"
    counts = mw.Persistent(dict)

    def process_record(self, record: mw.Record) -> None:
        end = record.timestamp // (10 * SECOND) * 10 + 10
        self.counts[end] = self.counts.get(end, 0) + 1
        self.set_timer(at=end)
        self.set_timer(at=end, tag="again")

    def process_timer(self, timer: mw.Timer) -> None:
        end = timer.timestamp // SECOND
        if timer.tag:
            self.produce("windows", {"end": end, "word": timer.key, "n": self.counts.pop(end)})


class Totals(mw.Computation):
    """Adds up the windows that end at one time, and says every sum."""

    inputs = {"windows": mw.key("end")}
    outputs = ("totals",)
    n = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.n += record.value["n"]
        self.set_timer(after="1 second")

    def process_timer(self, timer: mw.Timer) -> None:
        self.produce("totals", [timer.key, self.n])


def words(batch: int) -> list[tuple[str, int]]:
    """The words of a batch and their times, which are between the watermarks before and after it."""
    rng = random.Random(batch)
    return [(f"w{rng.randrange(7)}", 10 * batch + rng.randrange(10)) for _ in range(EACH)]


def run(folder: Path) -> None:
    import millwheeljob as job  # by its own name, which workers can import

    spark = spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"})
    with mw.Mill(folder / "mill", spark=spark) as mill:
        log = Log(mill.log)
        if "words" not in log.topics():
            log.create("words", partitions=2)
        mill.run(job.Windows(), "windows")
        mill.run(job.Totals(), "totals")
        injector = mw.Injector("words", log=mill.log, name="words")

        def await_watermark(second: int) -> None:
            while (mill.status("totals").low_watermark or -1) < second * SECOND:
                for name in ("windows", "totals"):
                    mill.handle(name).wait(0)  # raises an error if it has failed
                time.sleep(0.05)

        first = injector.next
        for batch in range(first, BATCHES):
            if batch > first:  # before its first micro-batch, a stream that goes on has no watermark to show
                await_watermark(10 * batch)
            for word, second in words(batch):
                injector.send({"word": word}, timestamp=second, key=word)
            injector.advance(10 * batch + 10)
            injector.flush()
        # Where an earlier process has sent all words, and perhaps counted them, this causes micro-batches.
        injector.advance(10 * BATCHES)
        injector.flush()
        await_watermark(10 * BATCHES)


def output(folder: Path) -> Output:
    """All that was produced, as multisets."""
    log = Log(folder / "mill" / "log")
    return {
        stream: Counter(repr(record.value) for record in log.topic(stream).read(0)) for stream in ("windows", "totals")
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]))
