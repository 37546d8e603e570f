"""The two kinds of stores, for the one suite over both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace.views.stores import Store
from tests.edges import postgresql


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    with postgresql.running() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/views.db"
        return
    server: str = request.getfixturevalue("postgresql_url")
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS views WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE views")
    engine.dispose()
    yield server.rpartition("/")[0] + "/views"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = Store(url, clock=lambda: 1_000_000)
    yield opened
    opened.close()
