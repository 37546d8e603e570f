"""What Beam's own suites need to run on another runner: a default runner, and lists that workers append to."""

from __future__ import annotations

import pickle
import sys
import unittest
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.testing.test_pipeline import TestPipeline

ON_SPARK: Final = "headrace.dialects.beam.runner.HeadraceRunner"
IN_PROCESS: Final = "tests.dialects.beam.localstream.LocalRunner"


def use_runner(monkeypatch: pytest.MonkeyPatch, runner: str) -> None:
    """Makes a runner the one that Beam's tests take."""
    monkeypatch.setattr(StandardOptions, "DEFAULT_RUNNER", runner)
    monkeypatch.setattr(TestPipeline, "pytest_test_pipeline_options", f"--runner={runner}")
    monkeypatch.setattr(sys, "argv", sys.argv[:1])  # which Beam reads as options of pipelines


def without_skips(case: type[unittest.TestCase], names: Iterable[str]) -> Any:
    """Returns the test case with these tests as they are without their `unittest.skip`."""
    return type(case.__name__ + "AsWritten", (case,), {name: getattr(case, name).__wrapped__ for name in names})


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
