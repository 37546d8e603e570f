"""Streams that are stopped or crash and go on from their checkpoint: the output is that of an undisturbed run."""

from __future__ import annotations

import json
import pathlib
import shutil
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.checkpoint import checkpoint
from headrace.engine.checkpoint.manifest import Manifest
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.model.sinks import WindowedValue


def script() -> hr.TestStream:
    def timed(*pairs: tuple[str, int, int]) -> list[hr.TimestampedValue]:
        return [hr.TimestampedValue((key, value), time) for key, value, time in pairs]

    return (
        hr.TestStream()
        .add(timed(("a", 1, 1), ("b", 2, 2), ("c", 3, 3)))
        .add(timed(("a", 4, 4), ("a", 5, 11)))
        .advance_watermark(10)
        .add(timed(("b", 6, 5), ("c", 7, 12)))
        .finish()
    )


class Crash(Exception):
    pass


class Run:
    """A pipeline of two groupings that can be run again and again on one checkpoint, with sinks that may crash."""

    def __init__(self, spark: SparkSession, folder: pathlib.Path) -> None:
        self.checkpoint, self.out, self.flag = str(folder / "checkpoint"), folder / "out", folder / "flag"
        self.crashes: set[tuple[str, int]] = set()
        self.batches: dict[int, list[str]] = {}
        self.reached: dict[int, threading.Event] = {}
        self.pipeline = p = hr.Pipeline(spark=spark)
        flag = self.flag

        def trap(pair: Any) -> Any:
            if flag.exists() and pair[1] == 8:
                raise Crash("in a worker")
            return pair

        late = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
        windows = hr.WindowInto(
            hr.FixedWindows(10), trigger=late, accumulation="retracting", allowed_lateness="1 minute"
        )
        events = p | script()
        sums = events | windows | "sums" >> hr.CombinePerKey(sum) | "trap" >> hr.Map(trap)
        total = sums | hr.Values() | "total" >> hr.CombineGlobally(sum)
        total | "before" >> hr.ForEachBatch(lambda elements, batch: self._reach("before", batch))
        counts = events | "w" >> hr.WindowInto(hr.FixedWindows(10), allowed_lateness=60)
        counts | "counts" >> hr.Count.per_key() | hr.WriteText(str(self.out))
        self.collected = total | hr.Collect()
        sums | "after" >> hr.ForEachBatch(self._write)

    def _reach(self, place: str, batch: int) -> None:
        if (place, batch) in self.crashes:
            self.crashes.discard((place, batch))
            raise Crash(f"{place} {batch}")

    def _write(self, elements: list[WindowedValue], batch: int) -> None:
        self.batches[batch] = [repr(each) for each in elements]
        if batch in self.reached:
            self.reached[batch].set()
        self._reach("after", batch)

    def start(self, savepoint: str | None = None) -> Any:
        return self.pipeline.run(checkpoint=self.checkpoint, savepoint=savepoint)

    def output(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """What each sink has: by batch in the function's own store, in files, and in the driver."""
        files = Counter(line for part in self.out.glob("batch-*/part-*") for line in part.read_text().splitlines())
        rows = Counter(row for batch in self.batches.values() for row in batch)
        return rows, files, Counter(map(repr, self.collected.windowed))


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = Run(spark, tmp_path_factory.mktemp("undisturbed"))
    run.start().wait()
    rows, files, collected = run.output()
    assert rows and collected
    first, second = (f"1970-01-01T00:00:{at:02d}Z\t1970-01-01T00:00:{at + 10}Z\t" for at in (0, 10))
    on_time = ["('a', 2)", "('b', 1)", "('c', 1)"], ["('a', 1)", "('c', 1)"]
    lines = [
        f"{window}0\ton_time\t{line}" for window, lines in zip((first, second), on_time, strict=True) for line in lines
    ]
    assert files == Counter([*lines, f"{first}1\tlate\t('b', 1)"])
    return rows, files, collected


@pytest.mark.slow("a stream that crashes several times")
def test_crashes_before_and_after_sinks_and_in_a_worker(
    spark: SparkSession, tmp_path: pathlib.Path, undisturbed: Any
) -> None:
    run = Run(spark, tmp_path)
    run.crashes = {("before", 0), ("after", 2), ("before", 3)}
    run.flag.touch()
    failures = []
    for _ in range(6):
        try:
            assert run.start().wait().state == "done"
            break
        except hr.TransformError as error:
            failures.append(str(error).splitlines()[0])
            if "in a worker" in failures[-1]:
                run.flag.unlink()
    assert [text.split("Crash: ")[1] for text in failures] == ["before 0", "after 2", "in a worker", "before 3"]
    assert run.output() == undisturbed


@only_full("test_golden.py goes on with state of an earlier version")
def test_stop_and_go_on_from_a_checkpoint_of_the_second_format(
    spark: SparkSession, tmp_path: pathlib.Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(spark, tmp_path)
    run.reached[2] = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "Manifest", partial(Manifest, stamps_apart=True, slots=0))
        handle = run.start()
    assert run.reached[2].wait(60)
    handle.stop()
    assert handle.status().state == "stopped"
    (written,) = pathlib.Path(run.checkpoint).glob("headrace-*.json")
    entries = json.loads(written.read_text())
    assert entries.pop("stamps_apart")
    written.write_text(json.dumps(entries | {"format": 2}))
    assert run.start().wait().state == "done"
    assert run.output() == undisturbed
    done = len(run.batches)
    assert run.start().wait().batches == 0  # nothing is left to do
    assert len(run.batches) == done


@pytest.mark.slow("several streams")
def test_a_savepoint_begins_another_stream(spark: SparkSession, tmp_path: pathlib.Path, undisturbed: Any) -> None:
    """The first stream goes on; the second gives what an undisturbed run gives from the savepoint on."""
    first, second = (Run(spark, tmp_path / name) for name in ("first", "second one"))
    savepoint = tmp_path / "a savepoint"
    first.reached[1] = threading.Event()
    handle = first.start()
    assert first.reached[1].wait(120)
    handle.savepoint(str(savepoint))
    with pytest.raises(hr.PipelineError, match=r"there is something at .* already; give the copy a directory"):
        handle.savepoint(str(savepoint))
    assert handle.wait().state == "done"
    assert first.output() == undisturbed

    begins = max(int(path.name) for path in (savepoint / "spark" / "offsets").iterdir() if path.name.isdigit())
    shutil.rmtree(first.checkpoint)  # the savepoint needs nothing of it
    pathlib.Path(second.checkpoint).mkdir(parents=True)
    assert second.start(str(savepoint)).wait().state == "done"
    assert min(second.batches) >= begins
    before = Counter(row for batch, rows in first.batches.items() for row in rows if batch < begins)
    written = [path for path in first.out.glob("batch-*/part-*") if int(path.parent.name.split("-")[1]) < begins]
    lines = Counter(line for part in written for line in part.read_text().splitlines())
    rows, files, collected = second.output()
    assert (before + rows, lines + files) == undisturbed[:2]
    assert 0 < len(collected) < len(undisturbed[2])
    first_id, second_id = (
        json.loads(max(pathlib.Path(path).glob("headrace-*.json")).read_text())["stream"]
        for path in (savepoint, second.checkpoint)
    )
    assert first_id != second_id
    assert second.start(str(savepoint)).wait().batches == 0  # it goes on where it was, and nothing is left to do


def test_no_savepoint_there(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    run = Run(spark, tmp_path)
    with pytest.raises(hr.PipelineError, match=r"there is no savepoint at .*nowhere; give the path that"):
        run.start(str(tmp_path / "nowhere"))
