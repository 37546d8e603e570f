"""The two kinds of stores, for the one suite over both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.views.stores import Store
from tests.edges import postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/views.db"
    return postgresql.empty(request.getfixturevalue("postgresql_server"), "views")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url, clock=lambda: 1_000_000)
    yield opened
    opened.close()
