"""Queries of one shape on Spark: they come and go while rows flow, without a restart, and all are recounted."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.relations import NUMBER
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.shapes import Shape, shape_of
from headrace.dialects.sql.sharedviews import SharedViews
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream, parse_statements
from tests.scale import only_full, scaled

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


class Home:
    """A directory with a shape, whose pass is played: its log of batches, and rows in the table of the shape."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"sqlite:///{folder}/views.db"
        catalog = Catalog(folder / "catalog.json")
        (stream,) = parse_statements(STREAM)
        assert isinstance(stream, CreateStream)
        catalog.add_stream(stream)
        self.reopen()
        shape = self.shape(self.view(0))
        columns = {NUMBER: "bigint", "size": "bigint", "n": "bigint"}
        self.tables.create(shape.name, pa.schema([(name, pa.int64()) for name in columns]), (NUMBER, "size"))
        statement = replace(self.view(0), name=shape.name)
        self.catalog.add_shape(View(statement, columns, (NUMBER, "size"), "pass", shape=shape.name))
        self.name = shape.name

    def reopen(self) -> None:
        self.catalog, self.tables = Catalog(self.folder / "catalog.json"), ResultTables(self.url)
        self.shared = SharedViews(self.catalog, self.tables, self.folder / "passes")

    def view(self, number: int) -> CreateQuery:
        text = f"SELECT size, count(*) AS n FROM trades WHERE price > {number} GROUP BY size"
        (statement,) = parse_statements(f"CREATE VIEW v{number} AS {text}")
        assert isinstance(statement, CreateQuery)
        return statement

    def shape(self, statement: CreateQuery) -> Shape:
        shape = shape_of(statement, self.catalog.streams)
        assert shape is not None
        return shape

    def log(self, name: str, *batches: int) -> None:
        for batch in batches:
            path = self.folder / "passes" / "pass" / "spark" / name / str(batch)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def write(self, *numbers: int) -> None:
        with closing(sqlite3.connect(self.folder / "views.db")) as client, client:
            client.executemany(f"INSERT INTO {self.name} VALUES (?, 1, 1)", [(number,) for number in numbers])

    def written(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "views.db")) as client:
            return [number for (number,) in client.execute(f"SELECT {NUMBER} FROM {self.name} ORDER BY 1")]


def test_rows_of_a_dropped_query_go_also_if_a_batch_was_under_way(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number in range(4):
        home.shared.add(home.view(number), home.shape(home.view(number)))
    home.log("offsets", 0, 1, 2)
    home.log("commits", 0, 1)
    home.write(0, 1, 2, 3)
    assert not home.shared.remove(home.catalog.drop_view("v1"))
    assert home.written() == [0, 2, 3]
    home.write(1)  # by batch 2
    home.log("commits", 2)
    assert not home.shared.remove(home.catalog.drop_view("v2"))
    assert home.written() == [0, 3]
    assert [query.end for query in home.catalog.query_table(home.name).queries.values()] == [None, 3, 3, None]
    assert not home.shared.remove(home.catalog.drop_view("v0"))
    assert home.shared.remove(home.catalog.drop_view("v3"))
    assert home.catalog.shapes == {} and home.catalog.unfinished == {home.name}


def test_what_a_process_left_undone_is_done_when_the_directory_is_opened_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number in range(2):
        home.shared.add(home.view(number), home.shape(home.view(number)))
    table = home.catalog.query_table(home.name)
    table.add(home.shape(home.view(7)).constants, home.view(7).text, lambda: 5)  # its view was not made
    table.end(1, lambda: 6)  # its view was not dropped
    home.write(0, 1)
    home.reopen()
    assert sorted(home.catalog.views) == ["v0", "v7"]
    assert home.tables.views() == {"v0", "v7"}
    assert home.written() == [0]
    table = home.catalog.query_table(home.name)
    table.end(0, lambda: 8)
    table.end(2, lambda: 8)  # the shape was not dropped
    home.reopen()
    assert home.catalog.views == {} and home.catalog.shapes == {}
    assert home.catalog.unfinished == {home.name} and home.tables.views() == set()


@only_full("test_faults.py has queries that come and go, with aborts")
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
