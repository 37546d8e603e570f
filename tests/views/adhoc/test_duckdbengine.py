"""Attacks on ad-hoc SQL, and what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.views.adhoc.duckdbengine import AdHoc, Limits
from headrace.views.adhoc.duckdbsandbox import Refused, check, open_tables
from headrace.views.adhoc.sqlrequest import ParquetRows
from headrace.views.errors import ViewError

HITS = pa.table({"url": ["foo.com", "oof.com", "foo.com"], "hour": [366, 366, 505], "n": [3, 4, 5]})


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    files = [str(tmp_path_factory.mktemp("master") / f"it's {number}.parquet") for number in range(2)]
    for file in files:
        pq.write_table(HITS, file)
    return files


@pytest.fixture
def connection(master: list[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_tables(
        {"hits": HITS}, {"master": {"paths": master, "columns": [], "where": "", "zoned": []}}, 128
    ) as connection:
        yield connection


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT url, max(n) FROM hits GROUP BY url ORDER BY url DESC", [("oof.com", 4), ("foo.com", 5)]),
        ("SELECT count(*) FROM master", [(6,)]),
        ("WITH big AS (FROM hits WHERE n > 4) SELECT b.n FROM big b JOIN master m USING (url, hour)", [(5,), (5,)]),
        ("SELECT n FROM HITS UNION ALL SELECT x FROM range(2) t(x) ORDER BY 1", [(0,), (1,), (3,), (4,), (5,)]),
        ("WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 3) SELECT max(i) FROM r", [(3,)]),
        ("SELECT DISTINCT hour FROM hits WHERE n IN (SELECT n FROM master) ORDER BY ALL LIMIT 1", [(366,)]),
        ("SELECT first(n) OVER (ORDER BY n)::DECIMAL(9, 1)::VARCHAR FROM hits LIMIT 1", [("3.0",)]),
        ("FROM (PIVOT hits ON hour IN (366, 505) USING max(n)) ORDER BY 1", [("foo.com", 3, 5), ("oof.com", 4, None)]),
    ],
)
def test_queries_are_answered(connection: duckdb.DuckDBPyConnection, sql: str, rows: list[Any]) -> None:
    assert connection.execute(check(connection, sql, {"hits", "master"})).fetchall() == rows


ATTACKS = {
    "DELETE FROM hits": "only SELECT",
    "WITH x AS (DELETE FROM hits RETURNING *) SELECT * FROM x": "CTE needs a SELECT",
    "INSERT INTO hits VALUES ('x', 1, 1)": "only SELECT",
    "CREATE TABLE copy AS SELECT * FROM hits": "only SELECT",
    "DROP VIEW master": "only SELECT",
    "COPY (SELECT 1) TO '{folder}/stolen.csv'": "only SELECT",
    "COPY hits FROM '/etc/passwd'": "only SELECT",
    "EXPORT DATABASE '{folder}/stolen'": "only SELECT",
    "ATTACH '{folder}/other.db' AS other": "only SELECT",
    "INSTALL httpfs": "only SELECT",
    "LOAD httpfs": "only SELECT",
    "PRAGMA database_list": "only SELECT",
    "PRAGMA enable_external_access=true": "only SELECT",
    "SET enable_external_access=true": "only SELECT",
    "RESET lock_configuration": "only SELECT",
    "CALL enable_logging('QueryLog')": "only SELECT",
    "EXPLAIN ANALYZE SELECT 1": "only SELECT",
    "PREPARE later AS SELECT 1": "only SELECT",
    "CREATE SECRET (TYPE s3)": "only SELECT",
    "DESCRIBE hits": "SHOW_REF is not allowed in ad-hoc SQL",
    "SHOW TABLES": "SHOW_REF is not allowed in ad-hoc SQL",
    "SELECT 1; DROP VIEW master": "one statement",
    "": "one statement",
    "SELECT * FROM read_csv('/etc/passwd')": "read_csv is not allowed in ad-hoc SQL",
    "SELECT * FROM read_text('/etc/passwd')": "read_text is not allowed in ad-hoc SQL",
    "SELECT * FROM read_parquet('http://169.254.169.254/latest/meta')": "read_parquet is not allowed in ad-hoc SQL",
    "SELECT * FROM glob('/etc/*')": "glob is not allowed in ad-hoc SQL",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))": "read_text is not allowed in ad-hoc SQL",
    "SELECT * FROM hits WHERE EXISTS (FROM read_blob('/etc/passwd'))": "read_blob is not allowed in ad-hoc SQL",
    "SELECT * FROM query('SELECT 1')": "query is not allowed in ad-hoc SQL",
    "SELECT * FROM duckdb_settings()": "duckdb_settings is not allowed in ad-hoc SQL",
    "SELECT * FROM enable_logging('QueryLog')": "enable_logging is not allowed in ad-hoc SQL",
    "SELECT * FROM '/etc/passwd'": "no table '/etc/passwd'",
    "SELECT * FROM 'http://169.254.169.254/x.parquet'": "no table",
    "SELECT * FROM information_schema.tables": "no table 'information_schema.tables'",
    "SELECT * FROM duckdb_tables": "no table 'duckdb_tables'",
    "SELECT * FROM main.hits": "no table 'main.hits'",
    "FROM (WITH duckdb_tables AS (SELECT 1) FROM duckdb_tables), duckdb_tables": "no table 'duckdb_tables'",
    "SELECT HITS FROM tables": "no table 'tables'",
    "SELECT current_setting('memory_limit')": "current_setting is not allowed in ad-hoc SQL",
    "SELECT getenv('HOME')": "getenv is not allowed in ad-hoc SQL",
    "SELECT write_log('x')": "write_log is not allowed in ad-hoc SQL",
    "SELEC 1": "syntax error",
}


@pytest.mark.parametrize("sql", ATTACKS)
def test_the_first_wall_is_the_syntax_tree(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(Refused, match=ATTACKS[sql]):
        check(connection, sql, {"hits", "master"})


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{folder}/stolen.csv'",
        "EXPORT DATABASE '{folder}/stolen'",
        "ATTACH '{folder}/other.db' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access=true",
        "RESET lock_configuration",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_parquet('http://169.254.169.254/latest/meta-data')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('{neighbour}')",  # beside a file that may be read
        "SELECT * FROM read_parquet('{master}/../{name}/beside.parquet')",
        "SELECT * FROM read_parquet('{master}/*.parquet')",
        "SELECT * FROM glob('{master}/*')",
        "SELECT * FROM HITS_OF_THIS_PROCESS",
    ],
)
def test_the_second_wall_is_the_configuration(
    connection: duckdb.DuckDBPyConnection, master: list[str], sql: str, tmp_path: Path
) -> None:
    HITS_OF_THIS_PROCESS = HITS
    folder = Path(master[0]).parent
    neighbour = folder / "beside.parquet"
    pq.write_table(HITS, neighbour)
    sql = sql.replace("{neighbour}", str(neighbour)).replace("{master}", str(folder)).replace("{name}", folder.name)
    assert HITS_OF_THIS_PROCESS.num_rows == 3
    with pytest.raises(duckdb.Error, match=r"(?i)disabled|locked|does not exist"):
        connection.execute(sql.replace("{folder}", str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def adhoc() -> Iterator[AdHoc]:
    with AdHoc(Limits(seconds=60, rows=1000, megabytes=128)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT repeat('x', 1000000000)", "more than 128 MB"),  # for which DuckDB's own limits do not hold
        ("SELECT string_agg(repeat('x', 100000), '') FROM range(100000)", "more than 128 MB"),
        ("SELECT repeat('x', 1000000) FROM range(1000)", "more than 128 MB"),
        ("WITH x AS (DELETE FROM hits RETURNING *) SELECT * FROM x", "CTE needs a SELECT"),
        ("SELECT secret FROM hits", "not found in FROM"),
        (f"SELECT '{'x' * 100_001}'", "at most 100,000 characters"),
    ],
    ids=lambda text: text[:30],
)
def test_the_third_wall_is_the_process(adhoc: AdHoc, sql: str, reason: str) -> None:
    with pytest.raises(ViewError, match=reason):
        adhoc.query(sql, {"hits": HITS})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sum(a.range * random()) FROM range(1000000000000) a",
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i FROM r) SELECT count(*) FROM r",
    ],
)
def test_what_never_ends_is_ended(sql: str) -> None:
    with AdHoc(Limits(seconds=0.5)) as adhoc, pytest.raises(ViewError, match=r"longer than 0\.5 seconds"):
        adhoc.query(sql, {"hits": HITS})


def test_of_huge_results_one_sees_the_beginning(adhoc: AdHoc, master: list[str]) -> None:
    found = adhoc.query("SELECT a.range FROM range(1000000000) a, master", {"master": ParquetRows(tuple(master))})
    assert found.truncated
    assert found.table.num_rows == 1000


def test_tables_have_plain_names(adhoc: AdHoc) -> None:
    with pytest.raises(ViewError, match="letters, digits and _"):
        adhoc.query("SELECT 1", {'x" AS SELECT 1; --': HITS})


def test_the_environment_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SECRET", "hunter2")
    with AdHoc() as adhoc:
        process = adhoc._spare
        assert process is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert b"hunter2" not in Path(f"/proc/{process.pid}/environ").read_bytes()
