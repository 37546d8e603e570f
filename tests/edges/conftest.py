"""What tests of the edges share: a log, and the databases that tables are written to."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


@pytest.fixture
def postgresql(postgresql_server: str) -> str:
    """The URL of an empty schema of its own."""
    schema = f"test_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(postgresql_server.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    engine.dispose()
    return f"{postgresql_server}?options=-csearch_path%3D{schema}"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The URL of a file of its own."""
    return f"sqlite:///{tmp_path}/tables.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of each kind."""
    url: str = request.getfixturevalue(request.param)
    return url
