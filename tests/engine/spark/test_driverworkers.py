"""Streams on a machine that is too busy for Spark's ten seconds, and the limits that can be raised."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace.engine.spark import driverworkers
from headrace.engine.stream import handle
from headrace.engine.stream.query import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NeverConnected:
    """A query that ended before its first batch, as one does whose Python worker is not there after ten seconds."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def processAllAvailable(self) -> None:
        raise StreamingQueryException(f"[STREAM_FAILED] Query terminated with exception: {self._reason}.")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why queries fail, one after the other, before others start in earnest."""
    reasons: list[str] = []
    started = Stream._started

    def starting(stream: Stream, data: Any) -> Any:
        return NeverConnected(reasons.pop(0)) if reasons else started(stream, data)

    monkeypatch.setattr(Stream, "_started", starting)
    return reasons


def counted(spark: SparkSession) -> list[tuple[str, int]]:
    p = hr.Pipeline(spark=spark)
    words = p | hr.TestStream().add(["a", "b", "a"]).finish() | hr.WindowInto(hr.FixedWindows(10))
    counts = words | hr.Count.per_element() | hr.Collect()
    p.run().wait()
    return sorted(counts)


def test_a_query_whose_worker_is_late_is_started_again_as_often_as_it_takes(
    spark: SparkSession, failing: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    awaited: list[str] = []
    monkeypatch.setattr(handle, "await_worker", awaited.append)
    failing += ["Python worker failed to connect back"] * 9
    assert counted(spark) == [("a", 2), ("b", 1)]
    assert failing == []
    assert awaited == [spark.sparkContext.pythonExec] * 9
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.stream"]
    assert [line.partition(":")[0] for line in lines] == ["this machine is busy"] * 9
    assert lines[0].endswith("nothing is lost, start 2 follows") and all("\n" not in line for line in lines)


def test_what_is_said_is_on_standard_error_and_is_no_trace() -> None:
    script = "from headrace.engine.stream.handle import _log; _log.warning('this machine is busy')"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "this machine is busy\n")


def test_a_python_that_can_be_no_worker_is_not_waited_for_for_ever(
    spark: SparkSession, failing: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named pyspark' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    failing += ["Python worker failed to connect back", "and again"]
    with pytest.raises(
        driverworkers.WorkerError, match=r"cannot import pyspark\.worker \(No module named pyspark\); set"
    ):
        counted(spark)
    assert failing == ["and again"]
    driverworkers.await_worker(sys.executable)
    with pytest.raises(driverworkers.WorkerError, match=r"cannot be started.*set PYSPARK_PYTHON"):
        driverworkers.await_worker(f"{tmp_path}/none")


def test_it_is_not_started_again_for_other_reasons(spark: SparkSession, failing: list[str]) -> None:
    failing += ["Python worker exited unexpectedly", "and again"]
    with pytest.raises(StreamingQueryException, match="exited unexpectedly"):
        counted(spark)
    assert failing == ["and again"]


def test_spark_says_so_in_these_words() -> None:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-core_*.jar")
    with zipfile.ZipFile(jar) as classes:
        factory = classes.read("org/apache/spark/api/python/PythonWorkerFactory.class")
    assert driverworkers._MESSAGE.encode() in factory


def test_sessions_wait_longer_than_spark_would(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.python.authenticate.socketTimeout") == "1800s"
    assert spark.sparkContext.getConf().get("spark.network.timeout") == "1800s"
    assert spark.conf.get("spark.sql.broadcastTimeout") == "-1"
