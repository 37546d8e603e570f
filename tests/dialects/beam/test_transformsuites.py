"""Beam's own tests of combiners and pipelines, with stages and groups of this engine in this process."""

from __future__ import annotations

import unittest
from typing import Final

import pytest
from apache_beam import pipeline_test
from apache_beam.transforms import combiners_test

from tests.dialects.beam.suites import IN_PROCESS, use_runner
from tests.scale import FULL

MODULES: Final = (combiners_test, pipeline_test)
NOT_RUN: Final = {"DoFnTest": {"test_windowed_value_param": None}}
"""It compares the windows of an element with a list: behind the fast lane, as behind a shuffle, they are a tuple."""


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    use_runner(monkeypatch, IN_PROCESS)


def _cases() -> dict[str, type[unittest.TestCase]]:
    return {
        f"Test{name}": pytest.mark.usefixtures("_in_process")(type(name, (case,), NOT_RUN.get(name, {})))
        for module in MODULES
        for name, case in vars(module).items()
        if isinstance(case, type) and issubclass(case, unittest.TestCase)
    }


if FULL:
    globals().update(_cases())
