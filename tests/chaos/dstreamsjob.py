"""The program of DStreams that is killed: files, state, windows and saved batches.

    python tests/chaos/dstreamsjob.py FOLDER

begins the program of a folder, or continues it, and leaves what it saved there. Time is that of a clock of its own,
which a step of the job moves; files of a step are there or not, so it can do a step again.
"""

from __future__ import annotations

import sys
from collections import Counter
from operator import add, sub
from pathlib import Path
from typing import Any, Final

from job import Output

from headrace.dstreams import ManualClock, StateSpec, StreamingContext
from headrace.engine.spark.session import spark_session

LANDMARKS: Final = (
    "checkpoint/run-1/state/*/*/*.delta",
    "checkpoint/run-1/stream/spark/offsets/[!.]*",
    "saved-state-*/_SUCCESS",
    "marks/[0-9]*",
    "checkpoint/run-1/stream/spark/commits/[!.]*",
    "saved-mapped-*/_SUCCESS",
    "in/[0-9]*",
)
"""Files whose names are the same in every run."""

STEPS: Final = 8


def count(key: Any, value: Any, state: Any) -> Any:
    state.update((state.getOption() or 0) + value)
    return key, state.get()


def setup(folder: Path) -> StreamingContext:
    ssc = StreamingContext(spark_session().sparkContext, 1)
    words = ssc.textFileStream(f"{folder}/in").flatMap(str.split).map(lambda word: (word, 1))
    words.reduceByKey(add).saveAsTextFiles(f"{folder}/saved-words")
    words.updateStateByKey(lambda values, total: sum(values) + (total or 0)).saveAsTextFiles(f"{folder}/saved-state")
    words.reduceByKeyAndWindow(add, sub, 6, 1).saveAsTextFiles(f"{folder}/saved-recent")
    words.mapWithState(StateSpec.function(count)).saveAsTextFiles(f"{folder}/saved-mapped")
    return ssc


def run(folder: Path) -> None:
    spark_session("local[2]", {"spark.log.level": "OFF"})
    (folder / "in").mkdir(exist_ok=True)
    (folder / "marks").mkdir(exist_ok=True)
    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", lambda: setup(folder))
    clock = ssc._clock = ManualClock()
    ssc.start()
    batches = ssc._run
    assert batches is not None
    for step in range(1, STEPS + 1):
        if batches.log.last() >= step * 1000:
            continue  # its batch is logged, with its files
        arrive(folder, step)
        clock.advance(step - clock.time() / 1000)
        while batches.done < step * 1000 and not ssc.awaitTerminationOrTimeout(0.02):
            pass
        (folder / "marks" / str(step)).touch()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    ssc.awaitTermination(0)


def arrive(folder: Path, step: int) -> None:
    """Moves the files of a step into the directory, unless they are there."""
    for number in range(2):
        target = folder / "in" / f"{step}-{number}"
        if not target.exists():
            words = ["abcdefgh"[: 1 + (step + number) % 7][at % 7 :] or "z" for at in range(12)]
            hidden = target.with_name(f".{target.name}")
            hidden.write_text(" ".join(words) + "\n")
            hidden.rename(target)


def output(folder: Path) -> Output:
    """What was saved, by output and batch, as multisets."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(folder.glob("saved-*-*")):
        lines = [line for part in path.glob("part-*") for line in part.read_text().splitlines()]
        found[path.name] = Counter({**Counter(lines), "complete": int((path / "_SUCCESS").exists())})
    return found


if __name__ == "__main__":
    run(Path(sys.argv[1]))
