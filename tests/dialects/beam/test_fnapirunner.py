"""Beam's own suite of tests of runners, FnApiRunnerTest, on Spark."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner_test
from pyspark.sql import SparkSession

from headrace.dialects.beam import HeadraceRunner
from tests.dialects.beam.suites import without_skips
from tests.scale import FULL

SAMPLE = ("test_multimap_side_input", "test_pardo_state_timers", "test_windowing")
SKIPPED = {"test_batch_rebatch_pardos": "it watches the warnings of its own process"}
"""Tests that do not run on Spark, and why."""
OF_BEAMS_OWN_RUNNER = (
    "test_batch_pardo_trigger_flush",
    "test_large_elements",
    "test_pardo_large_input",
    "test_pardo_side_input_sparse_dependencies",
    "test_teststream_pardo_timers",
)
"""Tests that Beam skips, for a reason that Beam's own runner has, and that run here."""


class TestFnApiRunner(without_skips(fn_runner_test.FnApiRunnerTest, OF_BEAMS_OWN_RUNNER)):  # type: ignore[misc]
    """All tests of the suite with FULL=1, else three."""

    @pytest.fixture(autouse=True)
    def _session(self, spark: SparkSession) -> None:
        if not FULL and self._testMethodName not in SAMPLE:
            pytest.skip("with FULL=1 only: another transform, the same way")
        if self._testMethodName in SKIPPED:
            pytest.skip(SKIPPED[self._testMethodName])

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(runner=HeadraceRunner(drain=is_drain))
