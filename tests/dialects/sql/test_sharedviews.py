"""Queries of one shape on Spark: they come and go while rows flow, without a restart, and all are recounted."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.dialects.sql.sqlsession import SqlSession
from tests.scale import scaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "CREATE STREAM trades (symbol text, price double, size bigint) WITH (partitions = 2)"
SYMBOLS = ("IBM", "SAP", "HPQ", "it's")

Row = tuple[str | None, float | None, int | None]


def literal(value: Any) -> str:
    return (
        "NULL"
        if value is None
        else repr(value)
        if not isinstance(value, str)
        else "'" + value.replace("'", "\\'") + "'"
    )


class Recount:
    """A view, the rows that it must have counted, and how many it may have counted of those before."""

    def __init__(self, name: str, symbols: list[str], low: float, high: float, grouped: bool) -> None:
        self.name, self.symbols, self.low, self.high, self.grouped = name, symbols, low, high, grouped
        self.rows: list[Row] = []

    def statement(self) -> str:
        listed = ", ".join(map(literal, self.symbols))
        where = f"symbol IN ({listed}) AND price BETWEEN {self.low} AND {self.high} AND size % 2 = 0"
        if self.grouped:
            return f"CREATE VIEW {self.name} AS SELECT size, count(*) AS n FROM trades WHERE {where} GROUP BY size"
        return f"CREATE VIEW {self.name} AS SELECT symbol, size * 2 AS twice FROM trades WHERE {where}"

    def expected(self) -> Counter[Any]:
        matching = [
            (symbol, size)
            for symbol, price, size in self.rows
            if symbol in self.symbols and price is not None and self.low <= price <= self.high
            if size is not None and size % 2 == 0
        ]
        if self.grouped:
            return Counter(dict(Counter(size for _, size in matching).items()).items())
        return Counter((symbol, size * 2) for symbol, size in matching)


class Play:
    """Executes random steps in a session, and compares the tables with a recount after each round."""

    def __init__(self, seed: int, database: Path) -> None:
        self.random, self.database = random.Random(seed), database
        self.views: list[Recount] = []
        self.made = 0

    def insert(self, session: SqlSession) -> None:
        draw = self.random
        rows: list[Row] = [
            (
                draw.choice([*SYMBOLS, None]),
                draw.choice([-1.0, 0.0, 0.5, 1.0, 2.0, None]),
                draw.choice([0, 1, 2, 3, 4, None]),
            )
            for _ in range(draw.randint(1, 12))
        ]
        session.execute("INSERT INTO trades VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows))
        for view in self.views:
            view.rows += rows

    def create(self, session: SqlSession) -> None:
        draw = self.random
        low, high = sorted(draw.choices([-1.0, 0.0, 0.5, 1.0, 2.0], k=2))
        symbols = draw.sample(SYMBOLS, draw.randint(1, 3))
        view = Recount(f"v{self.made}", symbols, low, high, grouped=self.made % 3 != 1)
        self.made += 1
        session.execute(view.statement())
        self.views.append(view)

    def drop(self, session: SqlSession, *, all_of_a_shape: bool = False) -> None:
        of_shape = Counter(view.grouped for view in self.views)
        choice = [view for view in self.views if all_of_a_shape or of_shape[view.grouped] > 1]
        view = self.random.choice(choice)
        self.views.remove(view)
        session.execute(f"DROP VIEW {view.name}")

    def check(self, session: SqlSession) -> None:
        session.catch_up()
        with closing(sqlite3.connect(self.database)) as client:
            for view in self.views:
                assert Counter(client.execute(f"SELECT * FROM {view.name}").fetchall()) == view.expected(), (
                    view.statement()
                )
            shapes = [name for (name,) in client.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            numbers = {view.number for view in session.catalog.views.values()}
            for name in shapes:
                if name.startswith("_queries_"):
                    found = {number for (number,) in client.execute(f"SELECT DISTINCT _query FROM {name}")}
                    assert found <= numbers  # what was dropped is gone


@pytest.mark.slow("a stream is started four times")
def test_queries_of_one_shape_come_and_go_while_rows_flow(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    play = Play(16, folder / "views.db")
    with SqlSession(str(folder), spark=spark) as session:
        session.execute(STREAM)
        for _ in range(3):  # of both shapes
            play.create(session)
        running = dict(session._running)
        for _ in range(scaled(60)):
            play.insert(session)
            play.check(session)  # views begin with a micro-batch, so rows that came before must be in one
            for _ in range(play.random.randint(0, 3)):
                play.create(session)
            while len(play.views) > 6 or (len(play.views) > 3 and play.random.random() < 0.4):
                play.drop(session)
            play.insert(session)
        assert session._running == running  # no pass was started anew
        play.check(session)
        explained = session.execute("EXPLAIN " + play.views[0].statement().partition(" AS ")[2])[0].message
        assert explained.startswith(
            "one step matches rows with all queries of this shape, which differ in price and symbol"
        )
        assert f"it has {sum(view.grouped == play.views[0].grouped for view in play.views)} other view" in explained
    with SqlSession(str(folder), spark=spark) as session:
        assert sorted(session.catalog.views) == sorted(view.name for view in play.views)
        play.insert(session)
        play.check(session)
        play.create(session)
        play.insert(session)
        play.check(session)
        while play.views:
            play.drop(session, all_of_a_shape=True)
        assert not session.catalog.passes() and not list((folder / "passes").iterdir())
        with closing(sqlite3.connect(play.database)) as client:
            assert client.execute("SELECT name FROM sqlite_master WHERE name LIKE '_queries_%'").fetchall() == []
