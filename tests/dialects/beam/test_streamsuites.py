"""Beam's own tests of streams: TestStream, pipelines with triggers, transcripts of triggers, state and timers.

On Spark they run with FULL=1, but for a sample; tests that watch a list in their own process have a list in a file
there. In this process all of them run.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.testing import test_stream_test
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.transforms import trigger_test, userstate_test
from pyspark.sql import SparkSession

from tests.scale import FULL, only_full

ON_SPARK: Final = "headrace.dialects.beam.runner.HeadraceRunner"
IN_PROCESS: Final = "tests.dialects.beam.localstream.LocalRunner"

SKIPPED: Final = {
    "test_basic_execution_sideinputs": "a side input that is a stream in the global window, of which nothing fires",
    "test_basic_execution_sideinputs_fixed_windows": "a side input that is a stream is not mapped to windows yet",
    "test_basic_execution_with_service": "a TestStream that a service feeds cannot be replayed",
    "test_windowed_values_interpreted_correctly": "windows that are not the collection's, for notebooks only",
}
"""Tests that do not run on Spark, and why. ReverseTestStream needs transforms that only Beam's direct runner has."""

SAMPLE: Final = ("test_gbk_execution_after_watermark_trigger",)
STATE: Final = (
    "test_simple_stateful_dofn",
    "test_clearing_set_state",
    "test_simple_stateful_dofn_combining",
    "test_timer_output_timestamp",
    "test_dynamic_timer_clear_timer",
    "test_hash_join",
)
"""Tests of state and timers that run on Spark; all of them run in this process."""


@pytest.fixture
def _on_spark(spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not FULL and request.node.name not in SAMPLE:
        pytest.skip("with FULL=1 only: another case, the same way")
    if request.node.name in SKIPPED:
        pytest.skip(SKIPPED[request.node.name])
    _use(monkeypatch, ON_SPARK)


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    _use(monkeypatch, IN_PROCESS)


def _use(monkeypatch: pytest.MonkeyPatch, runner: str) -> None:
    monkeypatch.setattr(StandardOptions, "DEFAULT_RUNNER", runner)
    monkeypatch.setattr(TestPipeline, "pytest_test_pipeline_options", f"--runner={runner}")
    monkeypatch.setattr(sys, "argv", sys.argv[:1])  # which Beam reads as options of pipelines


@pytest.mark.slow("streams of a dozen micro-batches")
@pytest.mark.usefixtures("_on_spark")
class TestScriptsOnSpark(test_stream_test.TestStreamTest):  # type: ignore[misc]
    """TestStreamTest."""


@pytest.mark.slow("streams of a dozen micro-batches")
@pytest.mark.usefixtures("_on_spark")
class TestTriggersOnSpark(trigger_test.TriggerPipelineTest):  # type: ignore[misc]
    """TriggerPipelineTest."""


class FileList(Sequence[Any]):
    """A list in a file, to which workers append."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, element: Any) -> None:
        with self.path.open("ab") as file:
            file.write(pickle.dumps(element))

    def __iter__(self) -> Iterator[Any]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]


class _Recorded(beam.DoFn):  # type: ignore[misc]
    """Appends elements to a list."""

    def __init__(self, records: FileList) -> None:
        self.records = records

    def process(self, element: Any) -> None:
        self.records.append(element)


@only_full("the same state and timers in this process, and others of Beam's tests on Spark")
@pytest.mark.usefixtures("_on_spark")
class TestStateOnSpark(userstate_test.StatefulDoFnOnDirectRunnerTest):  # type: ignore[misc]
    """StatefulDoFnOnDirectRunnerTest, with its list in a file."""

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        if self._testMethodName not in STATE:
            pytest.skip("runs in this process: another kind of state, the same way")
        self.path = tmp_path / "records"

    def record_dofn(self) -> beam.DoFn:
        userstate_test.StatefulDoFnOnDirectRunnerTest.all_records = FileList(self.path)
        return _Recorded(FileList(self.path))


@pytest.mark.usefixtures("_in_process")
class TestState(userstate_test.StatefulDoFnOnDirectRunnerTest):  # type: ignore[misc]
    """StatefulDoFnOnDirectRunnerTest in this process."""


@pytest.mark.usefixtures("_in_process")
class TestTriggers(trigger_test.TriggerPipelineTest):  # type: ignore[misc]
    """TriggerPipelineTest in this process."""


@only_full("pipelines with triggers, and the property test against Beam's driver")
@pytest.mark.slow("scripts of dozens of steps")
@pytest.mark.usefixtures("_in_process")
class TestTranscripts(trigger_test.TestStreamTranscriptTest):  # type: ignore[misc]
    """Transcripts of triggers in this process."""

    test_timestamp_combiner_custom_timestamping_earliest_1 = None
    """Python writes a timestamp combiner that Beam's own pipeline proto does not have."""
