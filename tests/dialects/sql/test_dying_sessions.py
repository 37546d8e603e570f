"""Sessions that die between two writes of a statement: pauses and transforms, which go on or never were."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from headrace.dialects.sql.catalog import Catalog
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.engine.stream.handle import StreamHandle
from headrace.local.querytable import QueryTable
from headrace.log.topics import Log
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SETUP = """CREATE STREAM s (k text, x bigint); CREATE STREAM out (k text, y bigint);
    CREATE VIEW sums AS SELECT k, sum(x) AS total FROM s GROUP BY k;
    CREATE VIEW plain AS SELECT k, x FROM s WHERE x % 2 = 0;
    CREATE VIEW sums_a AS SELECT k, sum(x) AS total FROM s WHERE k = 'a' GROUP BY k;
    CREATE VIEW sums_b AS SELECT k, sum(x) AS total FROM s WHERE k = 'b' GROUP BY k;
    CREATE VIEW rows_a AS SELECT k, x FROM s WHERE k = 'a';
    CREATE VIEW rows_b AS SELECT k, x FROM s WHERE k = 'b';
    CREATE TRANSFORM doubled INTO out AS SELECT k, x * 2 AS y FROM s"""

Point = tuple[str, type, str, Literal["before", "after"]]

POINTS: list[Point] = [
    ("PAUSE VIEW sums", StreamHandle, "halt", "after"),
    ("PAUSE VIEW sums", StreamHandle, "savepoint", "after"),
    ("PAUSE VIEW sums", Catalog, "_save", "before"),
    ("PAUSE VIEW sums", Catalog, "_save", "after"),
    ("PAUSE VIEW rows_a", QueryTable, "take", "after"),
    ("PAUSE VIEW rows_a", Catalog, "_save", "after"),
    ("PAUSE VIEW sums_b", QueryTable, "end", "after"),
    ("RESUME VIEW sums", Catalog, "_save", "after"),
    ("DROP TRANSFORM doubled", Catalog, "_save", "after"),
    ("CREATE TRANSFORM again INTO out AS SELECT k, -x AS y FROM s", Catalog, "_save", "before"),
    ("CREATE TRANSFORM again INTO out AS SELECT k, -x AS y FROM s", Catalog, "_save", "after"),
]


class Died(BaseException):
    """The process is gone."""


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, when: str) -> Iterator[None]:
    """Ends whatever is executed in the block before or after a call of a method, and nothing is done after that."""
    call = getattr(kind, name)
    dead = False

    def calling(self: Any, *arguments: Any) -> Any:
        nonlocal dead
        if when == "after":
            call(self, *arguments)
        dead = True
        raise Died

    def restart(self: SqlSession, name: str) -> None:
        if dead:
            raise Died
        original(self, name)

    original = SqlSession._restart
    with monkeypatch.context() as patched:
        patched.setattr(kind, name, calling)
        patched.setattr(SqlSession, "_restart", restart)
        with pytest.raises(Died):
            yield


class Recount:
    """What the tables and the topic must have."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.rows: list[tuple[str, int]] = []
        self.out: Counter[tuple[str, int]] = Counter()

    def insert(self, session: SqlSession) -> None:
        new = [("ab"[(len(self.rows) + n) % 2], len(self.rows) + n) for n in range(3)]
        session.execute("INSERT INTO s VALUES " + ", ".join(map(repr, new)))
        self.rows += new
        for name, factor in {"doubled": 2, "again": -1}.items():
            if name in session.catalog.transforms:
                self.out.update((k, factor * x) for k, x in new)

    def check(self, session: SqlSession) -> None:
        session.catch_up(600)
        sums: Counter[str] = Counter()
        for k, x in self.rows:
            sums[k] += x
        running = {name for name, view in session.catalog.views.items() if not view.paused}
        for name, keys in {"sums": "ab", "sums_a": "a", "sums_b": "b"}.items():
            if name in running:
                assert dict(self._table(name)) == {key: sums[key] for key in keys}, name
        for key in "ab":
            if f"rows_{key}" in running:
                assert Counter(self._table(f"rows_{key}")) == Counter(row for row in self.rows if row[0] == key)
        assert Counter(self._table("plain")) == Counter(row for row in self.rows if row[1] % 2 == 0)
        written = Counter(tuple(record.value.values()) for record in Log(self.home / "log").topic("out").read(0))
        assert written == self.out

    def _table(self, view: str) -> list[Any]:
        with closing(sqlite3.connect(self.home / "views.db")) as client:
            return client.execute(f"SELECT * FROM {view}").fetchall()


@only_full("sessions are closed and opened again in test_sqlsession.py, and aborted in test_faults.py")
@pytest.mark.slow("a session dies and is opened again, in FULL eleven times")
def test_a_session_that_dies_in_a_statement_has_executed_it_or_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    recount = Recount(home)
    session = SqlSession(str(home), spark=spark)
    try:
        session.declare(SETUP)
        recount.insert(session)
        recount.check(session)
        for statement, kind, name, when in POINTS if FULL else [POINTS[3], POINTS[5]]:
            if statement.startswith("RESUME"):
                session.execute("PAUSE VIEW sums")
            with dying(monkeypatch, kind, name, when):
                session.execute(statement)
            session.close()
            session = SqlSession(str(home), spark=spark)
            recount.insert(session)
            recount.check(session)
            for view in [name for name, each in session.catalog.views.items() if each.paused]:
                session.execute(f"RESUME VIEW {view}")
            recount.check(session)
            left = {folder.name for folder in (home / "passes").iterdir()}
            assert left == set(session.catalog.passes())
        session.execute("PAUSE VIEW sums_a; DROP VIEW sums_a; DROP VIEW sums_b; DROP VIEW rows_b; DROP VIEW rows_a")
        recount.insert(session)
        session.catch_up(600)
        assert not session.catalog.shapes and not session.catalog.alone
        assert not list((home / "queries").iterdir())
        with closing(sqlite3.connect(home / "views.db")) as client:
            assert client.execute("SELECT name FROM sqlite_master WHERE name LIKE '_queries_%'").fetchall() == []
    finally:
        session.close()
