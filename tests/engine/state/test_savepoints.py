"""State on disk, as people see it: listed, shown, read by key, mended, copied, rescaled, and taken up by a pipeline."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import headrace as hr
from headrace.commands import main as cli
from headrace.commands import savepoint as commands
from tests.scale import only_full


class Numbered(hr.DoFn):
    """Numbers the elements of a key."""

    seen = hr.CombiningState("seen", sum)

    def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(seen)) -> Iterator[Any]:
        seen.add(1)
        yield *pair, seen.read()


BATCHES = [["to", "be", "or"], ["not", "to", "be"], ["that", "is", "to", "be"]]


class Program:
    """A pipeline that counts words, and numbers them by their first letter."""

    def __init__(self, spark: SparkSession, batches: int) -> None:
        script = hr.TestStream()
        for words in BATCHES[:batches]:
            script = script.add(words)
        self.p = hr.Pipeline(spark=spark)
        self.words = self.p | "words" >> script
        every = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always(), accumulation="accumulating")
        self.counts = self.words | every | "count" >> hr.Count.per_element()
        self.found = self.counts | "found" >> hr.Collect()
        letters = self.words | "letter" >> hr.Map(lambda word: (word[0], word))
        self.numbered = letters | "number" >> hr.ParDo(Numbered()) | "numbered" >> hr.Collect()

    def run(self, **options: Any) -> Any:
        return self.p.run(stream=True, **options).wait()


@pytest.fixture(scope="module")
def saved(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a stream that has read two batches of three."""
    folder = tmp_path_factory.mktemp("saved") / "first"
    Program(spark, 2).run(checkpoint=str(folder), shards=4, partitions=2)
    return folder


def invoke(*args: object) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, args)))


def counts_in(path: Path, spark: SparkSession) -> dict[str, int]:
    frame = hr.read_state(str(path), "count/count", spark=spark)
    return {row.key: row.value for row in frame.collect()}


def test_state_is_read_as_a_frame_and_by_key(spark: SparkSession, saved: Path) -> None:
    assert counts_in(saved, spark) == {"to": 2, "be": 2, "or": 1, "not": 1}
    (row,) = hr.read_state(str(saved), "count/count", key="be", spark=spark).collect()
    assert (row.key, row.value, row.elements) == ("be", 2, 2)
    assert hr.read_state(str(saved), "count/count", key="nobody", spark=spark).count() == 0
    letters = hr.read_state(str(saved), "number", spark=spark).collect()
    assert {row.key: row.seen for row in letters} == {"t": 2, "b": 2, "o": 1, "n": 1}
    with pytest.raises(hr.PipelineError, match=r"has no state of 'sums'; it has that of 'count/count', 'number'"):
        hr.read_state(str(saved), "sums", spark=spark)
    with pytest.raises(hr.PipelineError, match="there is no savepoint at"):
        hr.read_state(str(saved.parent), "count", spark=spark)


def test_a_query_by_key_reads_one_partition(spark: SparkSession, saved: Path) -> None:
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("query", "a query by key")
    hr.read_state(str(saved), "count/count", key="to", spark=spark).collect()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("query")]
    spark.sparkContext.setJobGroup("", "")
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert stages and all(stage.numTasks == 1 for stage in stages if stage is not None)


def test_commands_show_what_there_is(spark: SparkSession, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_session", lambda: spark)
    listed = invoke("savepoint", "list", saved.parent)
    assert listed.exit_code == 0 and "first" in listed.stdout and "count/count, number" in listed.stdout
    shown = invoke("savepoint", "show", saved).stdout
    assert "4 shards on 2 partitions, 65,536 slots" in shown and "after micro-batch 1" in shown
    (cells,) = [line.split() for line in shown.splitlines() if line.split()[:1] == ["count/count"]]
    assert cells[:5] == ["count/count", "1", "4", "4", "4"]
    assert "2 files read" in shown
    missing = invoke("savepoint", "show", saved.parent)
    assert missing.exit_code == 1 and "there is no savepoint at" in missing.stderr
    assert invoke("rescale", saved, saved.parent / "x", "--shards", "0").exit_code == 1


@pytest.mark.slow("three streams begin anew")
def test_a_savepoint_is_rescaled_copied_mended_and_continued(
    spark: SparkSession, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_session", lambda: spark)
    tmp_path.chmod(0o700)
    done = invoke("rescale", saved, tmp_path / "wide", "--shards", "9", "--partitions", "3")
    assert done.exit_code == 0, done.output
    assert "9 shards on 3 partitions" in done.stdout
    assert counts_in(tmp_path / "wide", spark) == counts_in(saved, spark)
    assert invoke("savepoint", "copy", tmp_path / "wide", tmp_path / "copy").exit_code == 0
    assert invoke("savepoint", "copy", tmp_path / "wide", tmp_path / "copy").exit_code == 1

    def mend(row: dict[str, Any]) -> dict[str, Any] | None:
        renamed = row | {"key": "To"} if row["key"] == "to" else row
        return None if row["key"] == "or" else renamed | {"value": row["value"] + 10}

    hr.rewrite_state(str(tmp_path / "copy"), str(tmp_path / "mended"), {"count/count": mend}, spark=spark)
    mended = {"To": 12, "be": 12, "not": 11}
    assert counts_in(tmp_path / "mended", spark) == mended
    (row,) = hr.read_state(str(tmp_path / "mended"), "count/count", key="To", spark=spark).collect()
    assert row.value == 12

    program = Program(spark, 3)
    status = program.run(savepoint=str(tmp_path / "mended"), checkpoint=str(tmp_path / "on"), shards=2, partitions=2)
    assert status.notes[0] == "2 shards on 2 partitions"
    assert sorted(program.found) == [("be", 13), ("is", 1), ("that", 1), ("to", 1)]
    assert sorted(program.numbered) == [("b", "be", 3), ("i", "is", 1), ("t", "that", 3), ("t", "to", 4)]
    assert counts_in(tmp_path / "on", spark) == mended | {"be": 13, "is": 1, "that": 1, "to": 1}
    with pytest.raises(hr.PipelineError, match=r"shards is 5, and the checkpoint .* keeps the number it began with, 2"):
        program.run(checkpoint=str(tmp_path / "on"), shards=5)
    again = Program(spark, 3)  # what the stream began with is not taken again
    again.run(checkpoint=str(tmp_path / "on"))
    assert list(again.found) == []


@pytest.mark.slow("two streams begin anew")
def test_a_pipeline_with_other_sources_and_levels_goes_on_from_a_savepoint(
    spark: SparkSession, saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o700)

    def changed(batches: int) -> tuple[Program, Any]:
        program = Program(spark, batches)
        more = program.p | "more" >> hr.Create(["to", "x"])
        more | "again" >> hr.Count.per_element() | "others" >> hr.Collect()
        sums = program.counts | "of counts" >> hr.CombinePerKey(sum)
        return program, sums | "out" >> hr.Collect()

    shutil.copytree(saved, tmp_path / "same")
    program, _ = changed(3)
    with pytest.raises(hr.PipelineError, match=r"(?s)the source 'more' is new.*savepoint='file:.*/same', the new one"):
        program.run(checkpoint=str(tmp_path / "same"))
    program, out = changed(3)
    with caplog.at_level(logging.WARNING, "headrace.stream"):
        status = program.run(savepoint=str(saved), checkpoint=str(tmp_path / "on"))
    assert "the source 'more' is new: it begins as in a new stream" in caplog.text
    assert "the grouping 'of counts' is new: it begins empty" in status.notes
    assert sorted(program.found) == [("be", 3), ("is", 1), ("that", 1), ("to", 3)]
    assert ("to", 3) in list(out)
    with pytest.raises(hr.PipelineError, match="the grouping 'number' is gone"):
        lacking = hr.Pipeline(spark=spark)
        lacking | "words" >> hr.TestStream() | hr.Collect()
        lacking.run(stream=True, savepoint=str(saved), checkpoint=str(tmp_path / "no")).wait()


@only_full("what is refused is refused before anything runs")
def test_a_rate_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    p = hr.Pipeline(spark=spark)
    (
        p
        | "numbers" >> hr.Rate(5)
        | "by" >> hr.Map(lambda n: (n % 2, n))
        | hr.WindowInto(hr.FixedWindows(60))
        | hr.GroupByKey()
        | hr.Collect()
    )
    handle = p.run(checkpoint=str(tmp_path / "c"), trigger="100 milliseconds")
    handle.savepoint(str(tmp_path / "s"))
    handle.stop()
    with pytest.raises(
        hr.PipelineError, match="the numbers of the source 'numbers', which is a Rate, would begin at 0"
    ):
        p.run(savepoint=str(tmp_path / "s"), checkpoint=str(tmp_path / "d"), shards=9)
    assert not (tmp_path / "d").exists()


def test_doctor_says_what_reads_a_directory(saved: Path, tmp_path: Path) -> None:
    hr.Log(tmp_path).create("visits")
    good = invoke("doctor", tmp_path)
    assert good.exit_code == 0 and "topic of a log" in good.stdout
    shutil.copytree(saved, tmp_path / "old", ignore=lambda folder, names: [name for name in names if name == "spark"])
    (manifest,) = (tmp_path / "old").glob("headrace-*.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    bad = invoke("doctor", tmp_path)
    assert bad.exit_code == 1
    assert "this one reads format 1 and 2 and 3 and 4; use the version that wrote it" in bad.stdout
    assert "nothing of Headrace's" in invoke("doctor", tmp_path / "old" / "control").stdout
    assert invoke("doctor", tmp_path / "nowhere").exit_code == 1
