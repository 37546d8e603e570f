"""The ways in which a stream of columns can run, to be compared: each must write, count and tell the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from headrace.engine.stream import columnstream
from headrace.engine.stream.query import Stream

WAYS: Final = ("programs", "catalyst", "general")
"""By the source's own program, if it can; by Catalyst alone; by Catalyst, and then through Python."""


@contextmanager
def way(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes streams that start within run in this way."""
    with monkeypatch.context() as patch:
        if name == "catalyst":
            patch.setattr(Stream, "_by_programs", lambda self: False)
        if name == "general":
            patch.setattr(columnstream, "is_columnar", lambda line: False)
            patch.setattr(Stream, "_direct_tap", lambda self, tap: None)
        yield
