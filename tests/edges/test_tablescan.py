"""Scans of tables and queries: every row in one partition, types, one instant, and refusals that say what to do."""

from __future__ import annotations

import datetime as dt
import sqlite3
import uuid
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.databases import DatabaseError
from headrace.edges.tablescan import TableScan, one_snapshot, table_scan
from headrace.model.tables import database_url
from tests.edges.tabling import execute
from tests.scale import examples

TIMES = [dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in (3, 9, 21)]


def scan_of(url: str, table: str | None = None, **options: Any) -> TableScan:
    return table_scan(database_url("ReadTable", url), table, options.pop("query", None), **options)


def rows_of(scan: TableScan) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values()) for part in range(scan.partitions) for batch in scan.read(part) for row in batch.to_pylist()
    ]


@examples(200)
@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)),
    st.lists(st.none() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9)),
    st.integers(1, 9),
)
def test_each_row_is_in_one_partition(
    tmp_path_factory: pytest.TempPathFactory, integers: list[Any], numbers: list[Any], partitions: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "scanned.db"
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE IF EXISTS t")
        database.execute("CREATE TABLE t (i INTEGER, x REAL)")
        pairs = [(value, None) for value in integers] + [(None, value) for value in numbers]
        database.executemany("INSERT INTO t VALUES (?, ?)", pairs)
    database.close()
    for column in ("i", "x"):
        scan = scan_of(f"sqlite:///{file}", "t", partition_column=column, partitions=partitions)
        assert scan.partitions <= partitions
        assert Counter(rows_of(scan)) == Counter(pairs)


def test_ranges_share_the_rows_evenly(sqlite: str) -> None:
    execute(sqlite, "CREATE TABLE t (n INTEGER)", *(f"INSERT INTO t VALUES ({n})" for n in range(-10, 30)))
    scan = scan_of(sqlite, "t", partition_column="n", partitions=4)
    assert scan.splits == (0, 10, 20)
    assert [sum(batch.num_rows for batch in scan.read(part)) for part in range(4)] == [10, 10, 10, 10]


def test_types_of_postgresql(postgresql: str) -> None:
    number = uuid.UUID(int=7)
    execute(
        postgresql,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE TABLE t (flag boolean, small smallint, n bigint, x real, price numeric(10, 2), free numeric, "
        "name varchar(9), mood mood, raw bytea, at timestamptz, naive timestamp, day date, id uuid, doc jsonb, "
        "tags text[])",
        f"""INSERT INTO t VALUES (true, 1, 9007199254740993, 0.5, 12.30, 1.5, 'é', 'good', '\\x00ff',
        '2026-01-01 12:00+02', '2026-01-01 12:00', '2026-01-02', '{number}', '"text"', ARRAY['a', 'b'])""",
        "INSERT INTO t DEFAULT VALUES",
    )
    scan = scan_of(postgresql, "t")
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    first, second = rows_of(scan)
    assert first == (
        *(True, 1, 9007199254740993, 0.5, Decimal("12.30"), Decimal("1.5"), "é", "good", b"\x00\xff"),
        *(noon - dt.timedelta(hours=2), noon, dt.date(2026, 1, 2), str(number), '"text"', ["a", "b"]),
    )
    assert second == (None,) * len(first)
    assert scan.schema().field("price").type == pa.decimal128(10, 2)
    query = scan_of(postgresql, query="SELECT n + 1 AS more, name || ':x' || '%' AS it, price FROM t WHERE name = 'é'")
    assert rows_of(query) == [(9007199254740994, "é:x%", Decimal("12.30"))]
    assert query.schema().types[0] == pa.int64()


def test_types_of_sqlite(sqlite: str) -> None:
    execute(
        sqlite,
        "CREATE TABLE t (n INTEGER, name VARCHAR(9), at DATETIME, day DATE, flag BOOLEAN, raw BLOB, price DECIMAL)",
        "INSERT INTO t VALUES (1, 'a', '2026-01-01 12:00:00', '2026-01-02', 1, x'00ff', 2.5)",
        "INSERT INTO t VALUES (2, NULL, NULL, NULL, 0, NULL, 3)",
    )
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    assert rows_of(scan_of(sqlite, "t")) == [
        (1, "a", noon, dt.date(2026, 1, 2), True, b"\x00\xff", 2.5),
        (2, None, None, None, False, None, 3.0),
    ]
    query = "SELECT n * 2 AS twice, upper(name) AS name, n / 2.0 AS half, NULL AS empty FROM t"
    assert rows_of(scan_of(sqlite, query=query)) == [(2, "A", 0.5, None), (4, None, 1.0, None)]
    wanted = pa.schema([("half", pa.float64()), ("twice", pa.string())])
    with pytest.raises(DatabaseError, match="the column 'twice' is read as string, but not all of its values are that"):
        rows_of(scan_of(sqlite, query=query, wanted=wanted))
    assert rows_of(scan_of(sqlite, query=query, wanted=pa.schema([("half", pa.float64())]))) == [(0.5,), (1.0,)]


def test_times_can_be_divided(database: str) -> None:
    kind = "DATETIME" if database.startswith("sqlite") else "timestamptz"
    times = [f"('{time:%Y-%m-%d %H:%M:%S}')" for time in TIMES]
    execute(database, f"CREATE TABLE t (at {kind})", f"INSERT INTO t VALUES {', '.join(times)}, (NULL)")
    scan = scan_of(database, "t", partition_column="at", partitions=3)
    assert scan.partitions == 3
    assert Counter(rows_of(scan)) == Counter([(time,) for time in TIMES] + [(None,)])


def test_partitions_of_postgresql_are_of_one_instant(postgresql: str) -> None:
    execute(postgresql, "CREATE TABLE t (n int)", "INSERT INTO t SELECT generate_series(1, 10)")
    with one_snapshot(scan_of(postgresql, "t", partition_column="n", partitions=2)) as scan:
        first = [row for batch in scan.read(0) for row in batch.column("n").to_pylist()]
        execute(
            postgresql, "INSERT INTO t VALUES (11)", "DELETE FROM t WHERE n > 8", "UPDATE t SET n = n + 5 WHERE n < 3"
        )
        second = [row for batch in scan.read(1) for row in batch.column("n").to_pylist()]
    assert sorted(first + second) == list(range(1, 11))


def test_what_cannot_be_read(database: str) -> None:
    execute(database, "CREATE TABLE t (name text, at time)", "INSERT INTO t VALUES ('a', '12:00')")
    execute(database, "CREATE TABLE visits (n int)")
    for options, match in [
        ({"table": "nowhere"}, "there is no table 'nowhere'; tables of another schema are written SCHEMA.TABLE"),
        ({"table": "visit"}, "there is no table 'visit', did you mean 'visits'. Tables of another schema are"),
        ({"table": "t"}, r"the column 'at' is TIME, which no column of a collection can be; read it as text: query="),
        ({"query": "SELECT name FROM nowhere"}, "nowhere"),
        ({"query": "SELECT name FROM t", "partition_column": "n"}, "there is no column 'n'; there are name"),
        (
            {"query": "SELECT name FROM t UNION SELECT 'b'", "partition_column": "name", "partitions": 2},
            "the column 'name' has values such as 'a', which cannot be divided into ranges",
        ),
    ]:
        with pytest.raises(DatabaseError, match=match):
            scan_of(database, **options)


def test_values_of_several_types(sqlite: str) -> None:
    execute(sqlite, "CREATE TABLE t (n)", "INSERT INTO t VALUES (1), ('a')")
    with pytest.raises(DatabaseError, match=r"the column 'n' has values of several types \(integer, text\); CAST it"):
        scan_of(sqlite, "t")
    assert rows_of(scan_of(sqlite, query="SELECT CAST(n AS TEXT) AS n FROM t")) == [("1",), ("a",)]


def test_a_failure_of_the_server_says_no_password(postgresql: str) -> None:
    url = sa.make_url(postgresql).set(password="s3cret")
    with pytest.raises(Exception, match="password authentication failed") as refused:
        scan_of(url.render_as_string(hide_password=False), "t")
    assert "s3cret" not in str(refused.value)
