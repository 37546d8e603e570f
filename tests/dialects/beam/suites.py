"""Beam's own tests, on Headrace: which of them do not run here, and why.

Beam's tests come with its package. Those of its runner are subclassed, others are run as they are with Headrace as the
default runner.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterable
from typing import Any, Final

SKIPPED: Final[dict[str, str]] = {
    "test_custom_window_type": "Beam skips it: its window cannot be decoded by any runner",
}


def marked(module: Any, mark: str) -> dict[str, type[unittest.TestCase]]:
    """Returns subclasses of a module's test cases that have only the tests with a mark, by name."""
    found = {}
    for name, case in vars(module).items():
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == module.__name__:
            tests = [test for test in dir(case) if test.startswith("test")]
            others: Iterable[str] = [test for test in tests if not _has_mark(case, test, mark)]
            if len(list(others)) < len(tests):
                found[name] = type(name, (case,), dict.fromkeys(others))
    return found


def _has_mark(case: type, test: str, mark: str) -> bool:
    marks = [*getattr(getattr(case, test), "pytestmark", ()), *getattr(case, "pytestmark", ())]
    return any(each.name == mark for each in marks)
