"""Sessions on Spark: views come and go while rows flow, and go on when the directory is opened again."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.dialects.sql.catalog import Catalog
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.engine.checkpoint.checkpoint import groupings_of
from headrace.engine.spark.files import Folder
from headrace.log.offsets import groups_of
from tests.scale import only_full
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRADES = """CREATE STREAM trades (symbol text, trader text, price double, size bigint, at timestamp,
    WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH (partitions = 2)"""


def insert(session: SqlSession, *rows: tuple[Any, ...]) -> None:
    listed = ", ".join(
        "(" + ", ".join("NULL" if value is None else repr(value) for value in row) + f", '2026-01-31T12:00:{n:02}Z')"
        for n, row in enumerate(rows)
    )
    session.execute(f"INSERT INTO trades VALUES {listed}")


def rows_of(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    table = session.execute(query)[0].table
    assert table is not None
    return [tuple(row.values()) for row in table.to_pylist()]


def wait_for_rows(database: Path, query: str, expected: list[tuple[Any, ...]]) -> None:
    """Waits until a client of the database, which is none of ours, finds these rows."""
    found: list[Any] = []

    def are_there() -> bool:
        found[:] = client.execute(query).fetchall()
        return found == expected

    with closing(sqlite3.connect(database)) as client:
        try:
            wait_for(are_there)
        except AssertionError:
            assert found == expected


@pytest.mark.slow("a stream is started five times")
def test_views_come_and_go_while_rows_flow(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "home")
    database = tmp_path / "home" / "views.db"
    by_trader = "SELECT trader, n, total FROM traders ORDER BY trader NULLS LAST"
    with SqlSession(folder, spark=spark) as session:
        session.execute(TRADES)
        session.execute(
            "CREATE CONTINUOUS VIEW traders AS SELECT trader, count(*) AS n, sum(price * size) AS total "
            "FROM trades WHERE size > 0 GROUP BY trader"
        )
        assert rows_of(session, by_trader) == []
        insert(session, ("IBM", "ann", 2.0, 3), ("IBM", None, 5.0, 1), ("SAP", "ann", 1.0, 1), ("SAP", "bob", 1.0, 0))
        session.catch_up()
        assert rows_of(session, by_trader) == [("ann", 2, 7.0), (None, 1, 5.0)]

        # Views that come later begin then, and the first one misses nothing.
        session.execute(
            "CREATE VIEW symbols AS SELECT symbol, max(price) AS high FROM trades GROUP BY symbol;"
            "CREATE VIEW big AS SELECT symbol, price FROM trades WHERE size >= 10"
        )
        insert(session, ("IBM", None, 7.0, 10), ("SAP", "bob", 1.0, 2))
        totals = [("ann", 2, 7.0), ("bob", 1, 2.0), (None, 2, 75.0)]
        wait_for_rows(database, by_trader, totals)
        wait_for_rows(database, "SELECT * FROM big", [("IBM", 7.0)])
        wait_for_rows(database, "SELECT * FROM symbols ORDER BY symbol", [("IBM", 7.0), ("SAP", 1.0)])
        assert rows_of(session, by_trader) == totals
        session.execute("DROP VIEW symbols")
        with pytest.raises(hr.HeadraceError, match="symbols"):
            session.execute("SELECT * FROM symbols")
        with pytest.raises(hr.HeadraceError, match="in use by process"):
            SqlSession(folder, spark=spark)

    with SqlSession(folder, spark=spark) as session:
        assert rows_of(session, "SHOW VIEWS") == [("traders", "running", 0), ("big", "running", 0)]
        insert(session, ("SAP", "ann", 1.0, 100))
        wait_for_rows(database, by_trader, [("ann", 3, 107.0), *totals[1:]])
        wait_for_rows(database, "SELECT price FROM big ORDER BY 1", [(1.0,), (7.0,)])


def test_what_a_session_refuses(spark: SparkSession, tmp_path: Path) -> None:
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(TRADES)
        assert session.execute(TRADES.replace("STREAM", "STREAM IF NOT EXISTS"))[0].message == (
            "there is a stream trades already"
        )
        refused = {
            'CREATE STREAM "../t" (a text)': "'../t' is no name for a stream or a view",
            TRADES: "there is a stream 'trades' already; drop it first",
            "CREATE VIEW v AS SELECT symbol FROM tradse": "did you mean 'trades'?",
            "CREATE VIEW v AS SELECT upper(size, 2) AS x FROM trades": "Spark refuses the query",
            "CREATE VIEW v AS SELECT a.size FROM trades AS a LEFT JOIN trades AS b ON a.symbol = b.trader": "a stream "
            "never knows which these are",
            "DROP VIEW v": "there is no view 'v'",
            "DESCRIBE v": "there is no view 'v'",
            "INSERT INTO trade VALUES (1)": "there is no stream 'trade', did you mean 'trades'?",
            "INSERT INTO trades VALUES (1)": "a row has 1 values, and trades has 5 columns",
            "INSERT INTO trades (symbl) VALUES ('x')": "there is no column 'symbl', did you mean 'symbol'?",
            "INSERT INTO trades (price) VALUES ('dear')": "the column 'price' is double, got 'dear'",
            "SUBSCRIBE TO v": "there is no view 'v'",
        }
        for text, reason in refused.items():
            with pytest.raises(hr.HeadraceError) as caught:
                session.execute(text)
            assert reason in str(caught.value), text
        assert rows_of(session, "DESCRIBE trades")[-1] == ("at", "timestamp")
        explained = session.execute("EXPLAIN SELECT symbol, count(*) AS n FROM trades GROUP BY symbol")[0].message
        assert "GroupBy(symbol)" in explained
        session.execute("DROP STREAM trades")
        assert rows_of(session, "SHOW STREAMS") == []


@only_full("test_forgetting.py forgets groupings")
@pytest.mark.slow("a stream is started five times")
def test_a_dropped_view_leaves_no_state(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "home"

    def groupings() -> set[str]:
        return {label.split(" ")[0] for label in groupings_of(Folder(spark, str(folder / "passes/trades.levels-2")))}

    with SqlSession(str(folder), spark=spark) as session:
        session.execute(TRADES)
        session.execute(
            "CREATE VIEW sizes AS SELECT n, count(*) AS traders FROM (SELECT trader, count(*) AS n FROM trades "
            "GROUP BY trader) GROUP BY n;"
            "CREATE VIEW symbols AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol;"  # there is room for it
            "CREATE VIEW big AS SELECT trader FROM trades WHERE size + 0 >= 10"
        )
        assert set(session.catalog.passes()) == {"trades.levels-2"}
        insert(session, ("IBM", "ann", 2.0, 3), ("SAP", "ann", 1.0, 10), ("SAP", "bob", 1.0, 0))
        session.catch_up()
        assert rows_of(session, "SELECT * FROM sizes ORDER BY n") == [(1, 1), (2, 1)]
        assert groupings() == {"GroupBy(trader)", "GroupBy(n)", "GroupBy(symbol)"}
        symbols = session.catalog.views["symbols"].statement.text
        session.execute("DROP VIEW sizes; DROP VIEW symbols")
        assert groupings() == set()
        assert rows_of(session, "SHOW VIEWS") == [("big", "running", 0)]
        assert len(groups_of(folder / "log" / "groups", "trades")) == 1
    # The process may die when the catalog has a change and the passes do not.
    catalog = Catalog(folder / "catalog.json")
    catalog.drop_view("big")
    with SqlSession(str(folder), spark=spark) as session:
        assert not list((folder / "passes").iterdir())
        assert groups_of(folder / "log" / "groups", "trades") == []  # which would hold retention back
        session.execute(symbols)
        insert(session, ("SAP", "ann", 1.0, 1))
        session.catch_up()
        assert rows_of(session, "SELECT * FROM symbols") == [("SAP", 1)]
        assert set(session.catalog.passes()) == {"trades.levels-1"}


@only_full("the queries of test_queries.py join with a table")
@pytest.mark.slow("streams are started five times")
def test_streams_join_with_tables_of_parquet_and_of_databases(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"symbol": ["IBM", "SAP"], "name": ["Machines", "Systems"]}), tmp_path / "companies.parquet"
    )
    with closing(sqlite3.connect(tmp_path / "people.db")) as people:
        people.execute("CREATE TABLE people (login TEXT, city TEXT, age INTEGER)")
        people.executemany("INSERT INTO people VALUES (?, ?, ?)", [("ann", "Rome", 41), ("bob", "Oslo", 17)])
        people.commit()
    companies = f"CREATE TABLE companies (symbol text, name text) WITH (parquet = '{tmp_path}/companies.parquet')"
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(TRADES)
        session.execute(companies)
        session.execute(
            f"CREATE TABLE people (login text, city text, age bigint) "
            f"WITH (database = 'sqlite:///{tmp_path}/people.db', table = 'people')"
        )
        assert rows_of(session, "SHOW TABLES") == [("companies",), ("people",)]
        session.execute(
            "CREATE VIEW cities AS SELECT city, name, count(*) AS n, sum(size) AS size FROM trades AS t "
            "LEFT JOIN people AS p ON t.trader = p.login JOIN companies AS c ON t.symbol = c.symbol "
            "WHERE age > 18 OR age IS NULL GROUP BY city, name;"
            "CREATE VIEW best AS SELECT symbol, trader, size, ROW_NUMBER() "
            "OVER (PARTITION BY symbol ORDER BY size DESC) AS place FROM trades QUALIFY place <= 2"
        )
        for refused, reason in {
            companies: "there is a table 'companies' already",
            "DROP TABLE companies": "the view 'cities' reads the table 'companies'",
            "DROP TABLE people2": "there is no table 'people2', did you mean 'people'?",
            "CREATE VIEW v AS SELECT name FROM companies": "a view reads a stream",
        }.items():
            with pytest.raises(hr.HeadraceError, match=re.escape(reason)):
                session.execute(refused)
        insert(session, ("IBM", "ann", 2.0, 3), ("SAP", "ann", 2.0, 3), ("IBM", "bob", 1.0, 1), ("IBM", "eve", 1.0, 7))
        session.catch_up()
        first = [("Rome", "Machines", 1, 3), ("Rome", "Systems", 1, 3), (None, "Machines", 1, 7)]
        assert rows_of(session, "SELECT * FROM cities ORDER BY city, name") == first
        best = [("IBM", "eve", 7, 1), ("IBM", "ann", 3, 2), ("SAP", "ann", 3, 1)]
        assert rows_of(session, "SELECT * FROM best ORDER BY symbol, place") == best
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        insert(session, ("SAP", "ann", 2.0, 4), ("XXX", "ann", 2.0, 4), ("IBM", "bob", 2.0, 5))
        session.catch_up()
        best = [("IBM", "eve", 7, 1), ("IBM", "bob", 5, 2), ("SAP", "ann", 4, 1), ("SAP", "ann", 3, 2)]
        assert rows_of(session, "SELECT * FROM best WHERE symbol < 'T' ORDER BY symbol, place") == best
        assert rows_of(session, "SELECT * FROM cities ORDER BY city, name")[1] == ("Rome", "Systems", 2, 7)
        session.execute("DROP VIEW best; DROP VIEW cities; DROP TABLE companies; DROP TABLE IF EXISTS companies")
        assert rows_of(session, "SHOW TABLES") == [("people",)]
        assert rows_of(session, "DESCRIBE people")[-1] == ("age", "bigint")


def test_a_statement_that_a_crash_cut_off_leaves_no_table(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "home" / "views.db"
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(TRADES)
        session.catalog.begin("halfway")  # as CREATE VIEW and DROP VIEW do before they touch a table
    with closing(sqlite3.connect(database)) as client:
        client.execute("CREATE TABLE halfway (n INT)")
        client.execute("CREATE TABLE mine (n INT)")
        client.commit()
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        with pytest.raises(hr.HeadraceError, match="the database has a table 'mine' already, which is no view"):
            session.execute("CREATE VIEW mine AS SELECT count(*) AS n FROM trades")
        session.execute("CREATE VIEW halfway AS SELECT count(*) AS n, max(price) AS high FROM trades")
        insert(session, ("IBM", "ann", 2.0, 3), ("SAP", "bob", 5.0, 1))
        session.catch_up()
        insert(session, ("IBM", "ann", 3.0, 3))
        wait_for_rows(database, "SELECT * FROM halfway", [(3, 5.0)])


@only_full("views come and go while rows flow, and a pause copies a checkpoint as a savepoint does")
@pytest.mark.slow("a stream is started nine times")
def test_a_paused_view_stays_as_it_is_and_catches_up(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "home")
    rows: list[tuple[str, int]] = []  # the symbol and size of all trades

    def trade(session: SqlSession, *trades: tuple[str, int]) -> None:
        insert(session, *((symbol, "ann", 1.0, size) for symbol, size in trades))
        rows.extend(trades)
        session.catch_up(600)

    def answers() -> dict[str, list[tuple[Any, ...]]]:
        symbols = sorted({symbol for symbol, _ in rows})
        sums = [(each, sum(size for symbol, size in rows if symbol == each)) for each in symbols]
        counts = [(each, sum(symbol == each for symbol, _ in rows)) for each in symbols]
        return {"sums": sums, "big": sorted(row for row in rows if row[1] >= 10), "counts": counts}

    def tables(session: SqlSession, *names: str) -> dict[str, list[tuple[Any, ...]]]:
        return {name: rows_of(session, f"SELECT * FROM {name} ORDER BY ALL") for name in names}

    with SqlSession(folder, spark=spark) as session:
        session.execute(
            f"{TRADES}; CREATE VIEW sums AS SELECT symbol, sum(size) AS total FROM trades GROUP BY symbol;"
            "CREATE VIEW big WITH (from = 'latest') AS SELECT symbol, size FROM trades WHERE size >= 10;"
            "CREATE VIEW counts AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol"
        )
        trade(session, ("IBM", 10), ("SAP", 2))
        before = answers()
        assert tables(session, *before) == before
        assert session.execute("PAUSE VIEW sums; PAUSE big")[1].message == "paused the view big"
        assert session.execute("PAUSE big")[0].message == "the view big is paused already"
        trade(session, ("IBM", 30), ("IBM", 1))
        assert tables(session, *before) == {**before, "counts": answers()["counts"]}
        session.execute("RESUME VIEW sums")  # and big stays
        trade(session, ("SAP", 50))
        assert tables(session, *before) == {**answers(), "big": before["big"]}
        assert rows_of(session, "SHOW VIEWS") == [
            ("sums", "running", 0),
            ("big", "paused", 0),
            ("counts", "running", 0),
        ]
        session.execute("PAUSE VIEW counts; DROP VIEW sums")
    with SqlSession(folder, spark=spark) as session:
        trade(session, ("SAP", 100))
        assert tables(session, "big") == {"big": before["big"]}
        session.execute("RESUME big")
        session.catch_up(600)
        assert tables(session, "big") == {"big": answers()["big"]}
        session.execute("RESUME counts")
        session.catch_up(600)
        assert tables(session, "counts") == {"counts": answers()["counts"]}
        assert set(session.catalog.passes()) == {"trades.of-big.levels-0", "trades.of-counts.levels-1"}
        session.execute("DROP VIEW big; DROP VIEW counts")
        assert not list((tmp_path / "home" / "passes").iterdir())
        assert groups_of(tmp_path / "home" / "log" / "groups", "trades") == []
