"""Beam's own suite of tests of runners, FnApiRunnerTest, on Spark."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner_test
from pyspark.sql import SparkSession

from headrace.dialects.beam import HeadraceRunner
from tests.scale import FULL

SAMPLE = ("test_multimap_side_input", "test_pardo_state_timers", "test_windowing")


class TestFnApiRunner(fn_runner_test.FnApiRunnerTest):  # type: ignore[misc]
    """All tests of the suite with FULL=1, else three."""

    @pytest.fixture(autouse=True)
    def _session(self, spark: SparkSession) -> None:
        if not FULL and self._testMethodName not in SAMPLE:
            pytest.skip("with FULL=1 only: another transform, the same way")

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        return beam.Pipeline(runner=HeadraceRunner(drain=is_drain))
