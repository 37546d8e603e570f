"""The suite's two tiers: FULL tries everything; otherwise every kind of test runs, on smaller samples.

`make test FULL=1` sets HEADRACE_FULL for it.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from hypothesis import settings

FULL: Final = bool(os.environ.get("HEADRACE_FULL"))

_PART: Final = 1 if FULL else 5


def scaled(count: int) -> int:
    """The number of examples that this tier tries of so many: all of them, or a fifth, and at least one."""
    return -(-count // _PART)


def only_full(reason: str) -> pytest.MarkDecorator:
    """Marks a test, or a parameter of one, that FULL alone runs; the reason says what proves the same in every run."""
    return pytest.mark.skipif(not FULL, reason=f"with FULL=1 only: {reason}")


def examples(count: int, **options: Any) -> settings:
    """Settings of a property test that tries so many examples in FULL."""
    return settings(max_examples=scaled(count), **options)
