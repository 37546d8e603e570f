"""Beam's own tests of streams: TestStream, pipelines with triggers, transcripts of triggers, state and timers.

On Spark they run with FULL=1, but for a sample; tests that watch a list in their own process have a list in a file
there. In this process all of them run.
"""

from __future__ import annotations

from builtins import range as python_range
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
import pytest
from apache_beam.testing import test_stream_test
from apache_beam.transforms import (
    deduplicate_test,
    periodicsequence_test,
    sideinputs_test,
    trigger_test,
    userstate_test,
    window_test,
)
from pyspark.sql import SparkSession

from tests.dialects.beam.suites import IN_PROCESS, ON_SPARK, FileList, use_runner, without_skips
from tests.scale import FULL, only_full

SKIPPED: Final = {
    "test_windowed_values_interpreted_correctly": "windows that are not the collection's, for notebooks only",
    "test_multi_triggered_gbk_side_input": "runs with those that every runner has to pass",
}
"""Tests that do not run on Spark, and why. ReverseTestStream needs transforms that only Beam's direct runner has."""

SAMPLE: Final = ("test_gbk_execution_after_watermark_trigger",)
SKIPPED_STATE: Final = {
    "test_stateful_set_state_compaction_race_portably": "it watches Beam's own state of sets, which is not used here",
}


@pytest.fixture
def _on_spark(spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not FULL and request.node.name not in SAMPLE:
        pytest.skip("with FULL=1 only: another case, the same way")
    if request.node.name in SKIPPED:
        pytest.skip(SKIPPED[request.node.name])
    use_runner(monkeypatch, ON_SPARK)


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    use_runner(monkeypatch, IN_PROCESS)


@pytest.mark.slow("streams of a dozen micro-batches")
@pytest.mark.usefixtures("_on_spark")
class TestScriptsOnSpark(test_stream_test.TestStreamTest):  # type: ignore[misc]
    """TestStreamTest."""


@pytest.mark.slow("streams of a dozen micro-batches")
@pytest.mark.usefixtures("_on_spark")
class TestTriggersOnSpark(trigger_test.TriggerPipelineTest):  # type: ignore[misc]
    """TriggerPipelineTest."""


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
        if self._testMethodName in SKIPPED_STATE:
            pytest.skip(SKIPPED_STATE[self._testMethodName])
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


@pytest.mark.usefixtures("_in_process")
class TestScripts(test_stream_test.TestStreamTest):  # type: ignore[misc]
    """TestStreamTest in this process."""

    test_windowed_values_interpreted_correctly = None  # see SKIPPED


@only_full("a sample of other transforms on Spark")
@pytest.mark.usefixtures("_on_spark")
class TestWindowsOnSpark(window_test.WindowTest):  # type: ignore[misc]
    """WindowTest; the other tests of its module run no pipeline."""


DEDUPLICATED: Final = ("test_deduplication_with_event_time", "test_deduplication_with_processing_time")


@only_full("the same in this process")
@pytest.mark.slow("streams of a dozen micro-batches")
@pytest.mark.usefixtures("_on_spark")
class TestDeduplicateOnSpark(without_skips(deduplicate_test.DeduplicateTest, DEDUPLICATED)):  # type: ignore[misc]
    """DeduplicateTest, with the tests that Beam skips."""


@pytest.mark.usefixtures("_in_process")
class TestDeduplicate(without_skips(deduplicate_test.DeduplicateTest, DEDUPLICATED)):  # type: ignore[misc]
    """DeduplicateTest in this process."""


@only_full("the same in this process, and splittable DoFns of our own on Spark")
@pytest.mark.slow("a source that fires once a second")
@pytest.mark.usefixtures("_on_spark")
class TestSequencesOnSpark(periodicsequence_test.PeriodicSequenceTest):  # type: ignore[misc]
    """PeriodicSequenceTest."""


def _twice_for_thirty(*bounds: int) -> range:
    return python_range(2) if bounds == (30,) else python_range(*bounds)


@only_full("the same in this process, and splittable DoFns of our own on Spark")
@pytest.mark.slow("a source that fires once a second")
@pytest.mark.usefixtures("_on_spark")
class TestImpulsesOnSpark(periodicsequence_test.PeriodicImpulseTest):  # type: ignore[misc]
    """PeriodicImpulseTest; its two tests of thirty random pipelines run two of them."""

    @pytest.fixture(autouse=True)
    def _twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(periodicsequence_test, "range", _twice_for_thirty, raising=False)


@only_full("splittable DoFns of our own in this process")
@pytest.mark.slow("some wait for the time of their source")
@pytest.mark.usefixtures("_in_process")
class TestImpulses(TestImpulsesOnSpark):
    """PeriodicImpulseTest in this process."""


@only_full("a sample of them on Spark, and side inputs of our own tests")
@pytest.mark.usefixtures("_in_process")
class TestSideInputs(sideinputs_test.SideInputsTest):  # type: ignore[misc]
    """SideInputsTest in this process."""


@only_full("a sample of them with every run")
@pytest.mark.usefixtures("_on_spark")
class TestSideInputsOnSpark(sideinputs_test.SideInputsTest):  # type: ignore[misc]
    """SideInputsTest, without those that every runner has to pass, which run apart."""

    @pytest.fixture(autouse=True)
    def _unmarked(self) -> None:
        marks = getattr(getattr(self, self._testMethodName), "pytestmark", ())
        if any(mark.name == "it_validatesrunner" for mark in marks):
            pytest.skip("it runs with those that every runner has to pass")


@only_full("the property test against Beam's driver")
@pytest.mark.usefixtures("_in_process")
class TestBatchTranscripts(trigger_test.BatchTranscriptTest):  # type: ignore[misc]
    """Transcripts of triggers as batches, in this process."""


@only_full("the property test against Beam's driver")
@pytest.mark.slow("scripts of dozens of steps")
@pytest.mark.usefixtures("_in_process")
class TestWeakTranscripts(trigger_test.WeakTestStreamTranscriptTest):  # type: ignore[misc]
    """Transcripts of triggers that say less about time, in this process."""

    test_timestamp_combiner_custom_timestamping_earliest_1 = None  # as above
