"""The handle of a run: states, metrics, stopping, failures; sessions given and made."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.model.sources import Source


def test_a_run_ends_and_tells_its_counts(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    words = p | hr.Create(["to be", "or"]) | "split" >> hr.FlatMap(str.split)
    kept = words | "short" >> hr.Filter(lambda w: w != "or") | hr.Collect()
    handle = p.run()
    assert handle.wait().state == "done"
    assert sorted(kept) == ["be", "to"]
    assert handle.metrics() == {"split": {"in": 2, "out": 3}, "short": {"in": 3, "out": 2}}


def test_wait_with_a_timeout_returns_and_stop_stops(spark: SparkSession, tmp_path: Path) -> None:
    started, out = tmp_path / "started", tmp_path / "out"

    def stuck(x: int) -> int:
        started.touch()
        threading.Event().wait(120)
        return x

    p = hr.Pipeline(spark=spark)
    p | hr.Create([1]) | hr.Map(stuck) | hr.WriteText(str(out))
    handle = p.run()
    while not started.exists():
        assert handle.wait(timeout=0.05).state == "running"
    handle.stop()
    assert handle.status().state == "stopped"
    assert [path for path in tmp_path.iterdir() if path != started] == []


def test_a_failure_is_raised_by_wait_and_leaves_the_session_usable(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    p | hr.Create([1]) | "bad" >> hr.Map(lambda x: x / 0)
    handle = p.run()
    with pytest.raises(hr.TransformError, match="'bad' failed on the element 1: ZeroDivisionError"):
        handle.wait()
    assert handle.status().state == "failed"
    with hr.Pipeline(spark=spark) as again:
        fine = again | hr.Create([1]) | hr.Collect()
    assert list(fine) == [1]


def test_an_unbounded_source_that_nothing_can_read_is_refused(spark: SparkSession) -> None:
    class Endless(Source):
        bounded = False

    p = hr.Pipeline(spark=spark)
    p | Endless() | hr.Map(print)
    with pytest.raises(hr.PipelineError, match="not yet in a stream"):
        p.run()


def test_a_pipeline_without_a_session_uses_the_running_one(spark: SparkSession) -> None:
    with hr.Pipeline() as p:
        seen = p | hr.Create([spark.sparkContext.applicationId]) | hr.Collect()
    assert list(seen) == [spark.sparkContext.applicationId]
