"""Beam's own suite of tests of runners, FnApiRunnerTest, on Spark."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner_test
from pyspark.sql import SparkSession

from headrace.dialects.beam import HeadraceRunner
from tests.scale import FULL

SAMPLE = ("test_multimap_side_input", "test_pardo_state_timers", "test_windowing")


SKIPPED = {
    "test_batch_rebatch_pardos": "it watches the warnings of its own process",
    "test_pardo_et_timer_with_no_firing": "14 s of a PeriodicImpulse, which as a stream did not end on Spark in time",
    "test_pardo_et_timer_with_no_reset": "as test_pardo_et_timer_with_no_firing",
    "test_pardo_et_timer_with_no_reset_and_no_clear": "as test_pardo_et_timer_with_no_firing",
}
"""Tests that do not run on Spark, and why; Beam skips five further ones itself."""


class TestFnApiRunner(fn_runner_test.FnApiRunnerTest):  # type: ignore[misc]
    """All tests of the suite with FULL=1, else three."""

    @pytest.fixture(autouse=True)
    def _session(self, spark: SparkSession) -> None:
        if not FULL and self._testMethodName not in SAMPLE:
            pytest.skip("with FULL=1 only: another transform, the same way")
        if self._testMethodName in SKIPPED:
            pytest.skip(SKIPPED[self._testMethodName])

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(runner=HeadraceRunner(drain=is_drain))
