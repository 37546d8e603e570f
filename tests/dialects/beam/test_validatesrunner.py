"""Beam's tests that every runner has to pass (`it_validatesrunner`), as batches, in this process and on Spark."""

from __future__ import annotations

import unittest

import pytest
from apache_beam import pipeline_test
from apache_beam.metrics import metric_test
from apache_beam.runners.portability.fn_api_runner import translations_test
from apache_beam.transforms import (
    combinefn_lifecycle_test,
    combiners_test,
    dofn_lifecycle_test,
    ptransform_test,
    sideinputs_test,
    util_test,
)
from pyspark.sql import SparkSession

from tests.dialects.beam.suites import ON_SPARK, use_runner
from tests.scale import FULL

MODULES = (
    combinefn_lifecycle_test,
    combiners_test,
    dofn_lifecycle_test,
    metric_test,
    pipeline_test,
    ptransform_test,
    sideinputs_test,
    translations_test,
    util_test,
)
SAMPLE = ("test_par_do_with_multiple_outputs_and_using_yield", "test_multi_valued_singleton_side_input")
"""Tests that run without FULL=1, too."""
SKIPPED = {
    "test_combine": "it watches calls of a CombineFn in its own process",
    "test_dofn_lifecycle": "it watches calls of a DoFn in its own process",
}
"""Tests that do not run on Spark, and why."""


def marked(module: object) -> dict[str, type[unittest.TestCase]]:
    """Returns a module's test cases with nothing but the tests that every runner has to pass, by name."""
    found = {}
    for name, case in vars(module).items():
        if isinstance(case, type) and issubclass(case, unittest.TestCase):
            tests = [test for test in dir(case) if test.startswith("test")]
            others = [test for test in tests if not _is_marked(case, test)]
            if len(others) < len(tests):
                found[name] = type(name, (case,), dict.fromkeys(others))
    return found


def _is_marked(case: type, test: str) -> bool:
    marks = getattr(getattr(case, test), "pytestmark", ())
    return any(mark.name == "it_validatesrunner" for mark in marks)


for _module in MODULES:
    for _name, _case in marked(_module).items():
        globals()[f"Test{_name}"] = pytest.mark.usefixtures("_on_spark")(_case)


@pytest.fixture
def _on_spark(spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    name = request.node.name
    if not FULL and name not in SAMPLE:
        pytest.skip("with FULL=1 only: another transform, the same way")
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    use_runner(monkeypatch, ON_SPARK)
