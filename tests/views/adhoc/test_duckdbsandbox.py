"""The sandbox of DuckDB: ordinary statements pass, the lists are complete, names mean what DuckDB takes them for."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.views.adhoc import duckdbsandbox
from headrace.views.adhoc.duckdbsandbox import Refused, check, open_tables

DAY = dt.datetime(2026, 1, 31)
TABLES = {
    "customers": pa.table({"c_custkey": [1, 2, 3], "c_name": ["a", "b", "c"], "c_segment": ["BUILDING", "BOATS", "x"]}),
    "orders": pa.table(
        {
            "o_orderkey": [1, 2, 3],
            "o_custkey": [1, 1, 2],
            "o_status": ["O", "F", "O"],
            "o_totalprice": [100.0, 250.5, 99.0],
            "o_orderdate": [dt.date(1994, 3, 1), dt.date(1995, 1, 31), dt.date(1996, 2, 29)],
        }
    ),
    "lines": pa.table(
        {
            "l_orderkey": [1, 1, 2],
            "l_quantity": [5.0, 30.0, 7.0],
            "l_price": [10.0, 90.5, 250.5],
            "l_discount": [0.05, 0.0, 0.02],
            "l_tax": [0.0, 0.1, 0.2],
            "l_flag": ["A", "N", "A"],
            "l_shipdate": [dt.date(1995, 1, 1)] * 3,
        }
    ),
    "visits": pa.table(
        {
            "url": ["foo.com", "oof.com", "foo.com", "bar.org"],
            "user": ["ann", "bob", "ann", "cid"],
            "n": [3, 4, 5, 1],
            "ts": [DAY + dt.timedelta(minutes=20 * n * n) for n in range(4)],
        }
    ),
    "documents": pa.table(
        {"id": [1, 2], "info": ['{"name": "ann", "tags": ["a", "b"]}', '{"name": "bob", "tags": []}']}
    ),
}
EVENTS = pa.table(
    {
        "_partition": pa.array([0, 0, 1], pa.int32()),
        "_offset": [0, 1, 0],
        "_timestamp": pa.array([DAY] * 3, pa.timestamp("us", tz="UTC")),
        "url": ["foo.com", "secret.com", "bar.org"],
        "_bad": ["hidden"] * 3,
    }
)
NAMES = {*TABLES, "events"}
ORDINARY = [text.strip() for text in Path(__file__).with_name("ordinary.sql").read_text().split(";\n") if text.strip()]
LISTS = tomllib.loads(Path(duckdbsandbox.__file__).with_name("duckdbfunctions.toml").read_text())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("master") / "events.parquet"
    pq.write_table(EVENTS, path)
    return str(path)


@pytest.fixture(scope="module")
def connection(file: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """One with tables in memory, and one of a file: not all of its columns, and not all of its rows."""
    shown = ["_partition", "_offset", "_timestamp", "url"]
    with open_tables(
        TABLES, {"events": {"paths": [file], "columns": shown, "zoned": [], "where": "url <> 'secret.com'"}}, 128
    ) as connection:
        yield connection


@pytest.mark.parametrize("sql", ORDINARY, ids=lambda sql: sql[:40])
def test_ordinary_statements_are_answered(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    found = connection.execute(check(connection, sql, NAMES)).fetchall()
    assert found or "SAMPLE" in sql


def names_of(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    return {str(name).lower() for (name,) in connection.execute(query).fetchall()}


def test_every_function_of_duckdb_has_been_judged(connection: duckdb.DuckDBPyConnection) -> None:
    """After an upgrade: look at what is new, and put it into one of the lists."""
    allowed = " ".join([*LISTS["allowed"].values(), LISTS["tables"]["allowed"]]).split()
    refused = " ".join(LISTS["refused"].values()).split()
    there = names_of(connection, "SELECT function_name FROM duckdb_functions()")

    def judgements(name: str) -> list[bool]:
        return [name in allowed, any(fnmatchcase(name, pattern) for pattern in refused)]

    assert [name for name in sorted(there) if sum(judgements(name)) != 1 and name not in "* **"] == []
    assert set(allowed) - there == {"->"}  # which the parser knows
    assert [pattern for pattern in refused if not any(fnmatchcase(name, pattern) for name in there)] == []
    assert len(set(allowed)) + len({"generate_series", "range", "unnest"}) == len(allowed)  # these are both
    foreign = names_of(connection, "SELECT function_name FROM duckdb_functions() WHERE schema_name <> 'main'")
    assert foreign & set(allowed) == {"current_schema"}  # in pg_catalog it calls itself
    aggregates = names_of(connection, "SELECT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'")
    assert aggregates <= set(allowed)  # list_aggregate calls them by their names


def test_every_type_of_duckdb_has_been_judged(connection: duckdb.DuckDBPyConnection) -> None:
    judged = {*LISTS["types"]["allowed"].split(), "time with time zone", "timestamp with time zone"}
    assert names_of(connection, "SELECT type_name FROM duckdb_types()") == judged


def test_names_that_are_functions_where_no_column_has_them_say_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    sql = f"SELECT {', '.join(LISTS['allowed']['names'].split())}"
    assert connection.execute(check(connection, sql, NAMES)).fetchall() == [
        ("memory", "duckdb", "main", "duckdb", "duckdb", "duckdb")
    ]


PATH = "{path}"
BEHIND_CTES = [
    'WITH "sqlite_master" AS (SELECT 1) SELECT * FROM main.sqlite_master',
    'WITH "main.sqlite_master" AS (SELECT 1) SELECT * FROM main.sqlite_master',
    'WITH "memory.main.events" AS (SELECT 1) FROM memory.main.events',
    'WITH "SQLITE_MASTER" AS (FROM "SQLITE_MASTER") FROM "SQLITE_MASTER"',
    'WITH "DUCKDB_VIEWS" AS (FROM DUCKDB_VIEWS) FROM Duckdb_Views',
    f'WITH "{PATH}" AS (FROM "{PATH}") FROM "{PATH}"',
    f"WITH a AS (FROM '{PATH}'), \"{PATH}\" AS (SELECT 1) FROM a",
    f'SELECT * FROM (WITH "{PATH}" AS (SELECT 1) FROM "{PATH}") a, "{PATH}" b',
    f'WITH RECURSIVE "{PATH}" AS (FROM "{PATH}") FROM "{PATH}"',
    f'WITH RECURSIVE "{PATH}" AS (FROM "{PATH}" UNION ALL SELECT 1) FROM "{PATH}"',
    f'WITH a AS MATERIALIZED (FROM "{PATH}"), "{PATH}" AS MATERIALIZED (SELECT 1) FROM a',
    f'SELECT (WITH "{PATH}" AS (SELECT 1) SELECT 1 FROM "{PATH}"), (SELECT count(*) FROM "{PATH}")',
    f'(WITH "{PATH}" AS (SELECT 1) FROM "{PATH}") UNION ALL (SELECT _offset FROM "{PATH}")',
    f'SELECT * FROM events, LATERAL (WITH "{PATH}" AS (SELECT 1) FROM "{PATH}"), LATERAL (FROM "{PATH}")',
    f'SELECT 1 LIMIT (WITH a AS (SELECT 1) SELECT count(*) FROM "{PATH}")',
    'WITH "events/x.parquet" AS (SELECT 1) FROM events."x.parquet"',
    "WITH information_schema AS (SELECT 1) FROM information_schema.tables",
    "FROM system.information_schema.tables",
    "FROM temp.main.sqlite_master",
    "FROM recurring.events",
]
REFUSED = {
    **dict.fromkeys(BEHIND_CTES, "there is no table"),
    "SELECT json_serialize_plan('SELECT current_setting(''threads'')', optimize := true)": "json_serialize_plan is not",
    "SELECT Json_Serialize_Plan('SELECT 1')": "json_serialize_plan is not",
    "SELECT stats(url) FROM events": "stats is not",
    "SELECT system.main.stats(url) FROM events": "stats is not",
    "SELECT url.stats() FROM events": "stats is not",
    "SELECT list_transform([1], x -> current_setting('threads'))": "current_setting is not",
    "SELECT sum(1) OVER (ORDER BY getvariable('x'))": "getvariable is not",
    "SELECT * REPLACE (current_query() AS url) FROM events": "current_query is not",
    "SELECT COLUMNS(x -> x = version()) FROM events": "version is not",
    "SELECT pg_catalog.pg_get_viewdef(0)": "pg_get_viewdef is not",
    "SELECT sleep_ms(10000)": "sleep_ms is not",
    "SELECT finalize(sum(n) EXPORT_STATE) FROM visits": "finalize is not",
    "SELECT sum(n) EXPORT_STATE FROM visits": "EXPORT_STATE is not",
    "SELECT nextval('x')": "nextval is not",
    "SELECT vector_type(url) FROM events": "vector_type is not",
    "SELECT no_such_function(1)": "no_such_function is not",
    "FROM histogram('sqlite_master', name)": "histogram is not",
    "FROM histogram_values(sqlite_master, name)": "histogram_values is not",
    "FROM query_table('sqlite_master')": "query_table is not",
    "FROM QUERY_TABLE(['sqlite_master'])": "query_table is not",
    "FROM json_execute_serialized_sql('{}')": "json_execute_serialized_sql is not",
    "FROM events, summary((FROM events))": "summary is not",
    "FROM arrow_scan(0, 0, 0)": "arrow_scan is not",
    "FROM (SHOW TABLES)": "SHOW_REF is not",
    "FROM (SHOW ALL TABLES)": "SHOW_REF is not",
    "FROM (SUMMARIZE events)": "SHOW_REF is not",
    "SUMMARIZE events": "SHOW_REF is not",
    "FROM (DESCRIBE sqlite_master)": "SHOW_REF is not",
    "SELECT $1": "PARAMETER is not",
    "SELECT ?": "PARAMETER is not",
    "FROM events AT (VERSION => 1)": "has no versions",
    "SELECT 'x'::main.thing": "no type 'thing'",
    "SELECT 'x'::thing": "no type 'thing'",
    "SELECT [x]::STRUCT(a ENUM ('b'))[] FROM visits": "cannot be checked: Cannot serialize",
    "SELECT 1\0 FROM sqlite_master": "a statement is text",
    "SELECT '\ud800'": "a statement is text",
    'FROM "VİSİTS"': "there is no table",
    "PIVOT visits ON user": "one statement",
    "PIVOT visits ON user IN (SELECT name FROM sqlite_master)": "one statement",
}


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: ascii(sql[:50]))
def test_what_stands_in_the_tree(connection: duckdb.DuckDBPyConnection, file: str, sql: str) -> None:
    with pytest.raises(Refused, match=REFUSED[sql]):
        check(connection, sql.replace(PATH, file), NAMES)


PLACES = """
SELECT {f}|SELECT 1 WHERE {f}|VALUES ({f})|SELECT DISTINCT ON ({f}) 1|FROM hits ORDER BY {f}|FROM hits LIMIT {f}
FROM hits LIMIT {f} %|FROM hits OFFSET {f}|SELECT 1 GROUP BY {f}|SELECT 1 HAVING {f}|FROM hits QUALIFY {f}
FROM hits GROUP BY GROUPING SETS (({f}), ())|FROM hits a JOIN hits b ON {f}
FROM hits a ASOF JOIN hits b ON {f} > 1|SELECT sum(1 ORDER BY {f})|SELECT sum(1) FILTER ({f})
SELECT sum({f}) OVER ()|SELECT sum(1 ORDER BY {f}) OVER ()|SELECT sum(1) FILTER ({f}) OVER ()
SELECT sum(1) OVER (PARTITION BY {f})|SELECT sum(1) OVER (ORDER BY {f})|SELECT lag(1, {f}, 2) OVER ()
SELECT lag(1, 2, {f}) OVER ()|SELECT percentile_cont({f}) WITHIN GROUP (ORDER BY 1)
SELECT sum(1) OVER (ROWS BETWEEN {f} PRECEDING AND CURRENT ROW)
SELECT sum(1) OVER w FROM hits WINDOW w AS (ORDER BY {f})
SELECT sum(1) OVER (ROWS BETWEEN CURRENT ROW AND {f} FOLLOWING)|SELECT * REPLACE ({f} AS n) FROM hits
SELECT COLUMNS({f}) FROM hits|SELECT COLUMNS(c -> {f}) FROM hits|SELECT *COLUMNS([{f}]) FROM hits
SELECT * LIKE {f} FROM hits|FROM unnest({f})|FROM range(stop := {f})|FROM range((SELECT {f}))
FROM hits, LATERAL (SELECT {f})|SELECT (SELECT {f})|SELECT EXISTS (SELECT {f})|SELECT 1 IN ({f})
SELECT {f} IN (SELECT 1)|SELECT 1 = ALL (SELECT {f})|SELECT ARRAY(SELECT {f})
PIVOT hits ON n IN (1) USING sum({f})|UNPIVOT hits ON ({f})|UNPIVOT hits ON COLUMNS(c -> {f})
UNPIVOT (SELECT {f}) ON n|WITH a AS (SELECT {f}) SELECT 1|WITH a AS MATERIALIZED (SELECT {f}) FROM a
SELECT 1 UNION ALL BY NAME SELECT {f}|WITH RECURSIVE a AS (SELECT {f} UNION ALL FROM a) FROM a
WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT {f} FROM a) FROM a|SELECT CASE {f} WHEN 1 THEN 2 END
SELECT CASE 1 WHEN {f} THEN 2 END|SELECT CASE WHEN true THEN {f} END|SELECT CASE WHEN true THEN 1 ELSE {f} END
SELECT {f}::VARCHAR|SELECT TRY_CAST({f} AS INTEGER)|SELECT {f} COLLATE NOCASE|SELECT [1][{f}:1]
SELECT [1][1:2:{f}]|SELECT [{f}]|SELECT {'a': {f}}|SELECT MAP {'a': {f}}|SELECT struct_pack(a := {f})
SELECT [1 FOR x IN [1] IF {f}]|SELECT [x FOR x IN {f}]|SELECT list_transform([1], lambda x: {f})
SELECT {f}.upper()|SELECT INTERVAL ({f}) DAY|SELECT EXTRACT(year FROM {f})|SELECT {f} AT TIME ZONE 'UTC'
SELECT now() AT TIME ZONE {f}|SELECT {f} BETWEEN 1 AND 2|SELECT 1 BETWEEN 1 AND {f}|SELECT {f} IS NULL
SELECT NOT {f}|SELECT {f} AND true|SELECT {f} || 'a'|SELECT coalesce(1, {f})|SELECT try({f})|SELECT upper({f})
SELECT POSITION({f} IN 'a')|SELECT 'a' LIKE {f} ESCAPE '$'|SELECT -{f}
"""


def test_a_function_is_found_wherever_a_statement_may_have_one(connection: duckdb.DuckDBPyConnection) -> None:
    for place in PLACES.replace("hits", "visits").strip().replace(" || ", " \0 ").replace("\n", "|").split("|"):
        with pytest.raises(Refused, match="the function getvariable is not allowed"):
            check(connection, place.replace("\0", "||").replace("{f}", "getvariable('x')"), NAMES)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ('WITH "sqlite_master" AS (SELECT 1) FROM Sqlite_Master', [(1,)]),
        (f'WITH "{PATH}" AS (SELECT 1) FROM (WITH "{PATH}" AS (FROM "{PATH}") FROM "{PATH}")', [(1,)]),
        ("WITH p AS (SELECT 1 x), q AS (FROM p) FROM (WITH p AS (SELECT 2 x) FROM q)", [(1,)]),
        ("WITH p AS (SELECT 1 x) SELECT x FROM p LIMIT (SELECT x FROM p)", [(1,)]),
        ("WITH p AS (SELECT 1 x) (FROM p) UNION ALL (SELECT x + 1 FROM p) ORDER BY x", [(1,), (2,)]),
        ('WITH "ünï" AS (SELECT 1) FROM "ünï"', [(1,)]),
    ],
)
def test_ctes_are_in_scope_where_duckdb_has_them(
    connection: duckdb.DuckDBPyConnection, file: str, sql: str, rows: list[Any]
) -> None:
    sql = sql.replace(PATH, file)
    assert connection.execute(check(connection, sql, NAMES)).fetchall() == rows


def test_the_plan_is_a_wall_of_its_own(connection: duckdb.DuckDBPyConnection, file: str) -> None:
    for sql, scan in {
        f"FROM '{file}'": "PARQUET_SCAN",
        f"SELECT (SELECT count(*) FROM '{file}') FROM visits": "PARQUET_SCAN",
        "FROM events WHERE url IN (SELECT name FROM sqlite_master)": "DUCKDB_",
        "FROM information_schema.tables": "DUCKDB_",
        "FROM duckdb_settings()": "DUCKDB_SETTINGS",
        "FROM test_all_types()": "TEST_ALL_TYPES",
    }.items():
        with pytest.raises(Refused, match=f"{scan}.* is not allowed in ad-hoc SQL; a statement reads only its tables"):
            duckdbsandbox._check_plan(connection, sql)
