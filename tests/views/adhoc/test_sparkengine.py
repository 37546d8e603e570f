"""Ad-hoc SQL on Spark: what is answered, and what was tried against it, by the wall that stops it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from headrace.model.times import SECOND
from headrace.views.adhoc.sparkengine import SparkAdHoc
from headrace.views.adhoc.sqlrequest import JsonLimits, Limits, ParquetRows
from headrace.views.errors import ViewError
from headrace.views.sparksql import sparkplans
from headrace.views.sparksql.sparkplans import Refused, check, check_read
from headrace.views.sparksql.sparksandbox import SESSION, _message, run
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON: JsonLimits = {"cells": 100, "bytes": 10_000}
HITS = pa.table({"url": ["a", "b"], "n": [3, 4], "user": ["x", "y"]})
TABLES = {"hits", "visits"}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """One with the settings of the sandbox."""
    session = spark.newSession()
    for name, value in SESSION.items():
        session.conf.set(name, value)
    return session


def test_queries_are_answered(session: SparkSession) -> None:
    queries: dict[str, list[tuple[Any, ...]]] = {
        "SELECT v.n, user FROM hits v JOIN hits h USING (url, user) WHERE v.n BETWEEN 1 AND 3": [(3, "x")],
        "WITH a AS (SELECT url u FROM hits), b AS (FROM a) SELECT u FROM b UNION SELECT 'c' ORDER BY 1 DESC LIMIT 2": [
            ("c",),
            ("b",),
        ],
        "SELECT (SELECT max(n) FROM hits) m FROM hits WHERE EXISTS (FROM hits) AND n IN (SELECT 3)": [(4,)],
        "SELECT sum(n) OVER w s, rank() OVER (PARTITION BY url ORDER BY n) FROM hits WINDOW w AS (ORDER BY n)": [
            (3, 1),
            (7, 1),
        ],
        "SELECT url, count(*) c FROM hits GROUP BY ROLLUP (url) HAVING c > 1 ORDER BY 1 NULLS LAST": [(None, 2)],
        "SELECT transform(array(1), x -> x + 1), from_json('{\"a\": 1}', 'a int').a, n::string, "
        "extract(year FROM date'2026-01-31') FROM hits WHERE n = 3": [([2], 1, "3", 2026)],
        "SELECT x, y FROM (VALUES (1, 'a')) t(x, z) LATERAL VIEW explode(array(2)) e AS y": [(1, 2)],
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 2), s AS (FROM R) SELECT i FROM S": [
            (1,),
            (2,),
        ],
        "WITH x AS (SELECT 1 a), y AS (FROM x) SELECT (WITH x AS (SELECT a + 1 FROM x) SELECT max(a) FROM y) b": [(1,)],
        "SELECT '${env:HOME}' x, '${spark.driver.memory}' y": [("${env:HOME}", "${spark.driver.memory}")],
    }
    for sql, rows in queries.items():
        found = run(session, sql, {"hits": HITS}, {}, 10)
        assert [tuple(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)] == rows


COMMANDS = """
SET spark.sql.runSQLOnFiles=true|RESET|ADD JAR '/tmp/x.jar'|ADD FILE '/etc/passwd'|LIST FILES|USE x|SET CATALOG x
REFRESH TABLE hits
CREATE TEMPORARY FUNCTION f AS 'a.B'|CREATE FUNCTION f() RETURNS INT RETURN 1|CREATE TABLE x AS SELECT 1|DROP VIEW hits
CREATE TEMPORARY VIEW x USING text OPTIONS (path '/etc/passwd')|CREATE TABLE x USING csv LOCATION '/tmp/x' AS SELECT 1
INSERT INTO hits VALUES (1)|INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT 1|FROM hits INSERT INTO visits SELECT *
INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' SELECT 1|LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE hits|DELETE FROM hits
MERGE INTO hits USING visits ON 1=1 WHEN MATCHED THEN DELETE|UPDATE hits SET n = 1|TRUNCATE TABLE hits|CACHE TABLE hits
EXPLAIN SELECT 1|DESCRIBE hits|SHOW TABLES|SHOW FUNCTIONS|EXECUTE IMMEDIATE 'SELECT 1'|BEGIN SELECT 1; END
DECLARE VARIABLE x INT
SELECT TRANSFORM(url) USING 'cat' FROM hits|FROM hits MAP url USING 'cat'|SELECT /*+ BROADCAST(hits) */ * FROM hits
SELECT * FROM range(3)|SELECT * FROM read_files('/etc/passwd')|SELECT * FROM python_worker_logs()|SELECT :x
SELECT IDENTIFIER('java_method')('java.lang.System', 'getenv')|SELECT * FROM hits TIMESTAMP AS OF '2020-01-01'
SELECT * FROM STREAM hits|SELECT url FROM hits, LATERAL (SELECT * FROM text.`/etc/passwd`)|FROM hits |> WHERE n > 3
"""
FUNCTIONS = """
SELECT java_method('java.lang.System', 'getenv')|SELECT reflect('a', 'b')|SELECT try_reflect('a', 'b')
SELECT REFLECT('a', 'b')
SELECT builtin.java_method('a', 'b')|SELECT system.builtin.java_method('a', 'b')
SELECT url, input_file_name() FROM visits
SELECT from_protobuf(x'00', 'A', '/etc/passwd')|SELECT from_avro(x'00', '{}')|SELECT xpath('<a/>', 'a')
SELECT from_xml('', 'a int')
SELECT version()|SELECT current_catalog()|SELECT current_user()|SELECT of_a_user(1)|SELECT spark_partition_id()
SELECT * FROM hits WHERE url IN (SELECT java_method('a', 'b'))|SELECT transform(array(1), x -> reflect('a', 'b'))
SELECT * FROM (VALUES (java_method('a', 'b')))|SELECT * FROM hits LATERAL VIEW java_method('a', 'b') e AS y
SELECT sum(n) OVER (ORDER BY reflect('a', 'b')) FROM hits
SELECT * FROM hits PIVOT (sum(n) FOR url IN (java_method('a', 'b')))
SELECT count(*) FILTER (WHERE reflect('a', 'b') = 'c') FROM hits|SELECT CASE WHEN true THEN reflect('a', 'b') END
SELECT * FROM hits JOIN visits ON reflect('a', 'b') = 'c'|SELECT 1 ORDER BY reflect('a', 'b')
SELECT 1 LIMIT length(reflect('a', 'b'))
"""
RELATIONS = """
SELECT * FROM parquet.`/etc/passwd`|SELECT * FROM text.`/etc/passwd`|SELECT * FROM `text`.`/etc/passwd`
TABLE text.`/etc/passwd`
SELECT * FROM binaryFile.`/etc`|SELECT * FROM `text.``/etc/passwd```|SELECT * FROM IDENTIFIER('text.`/etc/passwd`')
SELECT (SELECT * FROM text.`/etc/passwd`)|WITH x AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM x
SELECT * FROM spark_catalog.default.hits|SELECT * FROM default.hits|SELECT * FROM global_temp.x|SELECT * FROM jdbc.`x`
SELECT * FROM information_schema.tables|SELECT * FROM system.session.variables|SELECT * FROM other
WITH `text./etc/passwd` AS (SELECT 1) SELECT * FROM text.`/etc/passwd`
WITH `default.hits` AS (SELECT 1) FROM default.hits
WITH x AS (SELECT * FROM x) SELECT * FROM x|WITH x AS (SELECT * FROM y), y AS (SELECT 1) SELECT * FROM x
SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x), x
SELECT (WITH x AS (SELECT 1) SELECT * FROM x), (SELECT * FROM x)
(WITH x AS (SELECT 1) SELECT * FROM x) UNION (SELECT * FROM x)
WITH x AS (WITH y AS (SELECT 1) FROM y) SELECT * FROM x, y
WITH x AS (SELECT 1) SELECT * FROM session.x|WITH RECURSIVE x AS (SELECT * FROM y), y AS (SELECT 1) SELECT * FROM x
"""


def each(text: str) -> list[str]:
    return [sql for line in text.strip().split("\n") for sql in line.replace("|> ", "\0").split("|")]


@pytest.mark.parametrize(
    ("attacks", "reason"),
    [
        (COMMANDS, "only SELECT over its tables is"),
        (FUNCTIONS, "the function .* is not allowed"),
        (RELATIONS, "no table"),
    ],
    ids=["commands", "functions", "relations"],
)
def test_the_first_wall_is_the_parsed_plan(session: SparkSession, attacks: str, reason: str) -> None:
    parser: Any = session._jsparkSession.sessionState().sqlParser()
    for sql in each(attacks):
        with pytest.raises(Refused, match=reason):
            check(parser.parsePlan(sql.replace("\0", "|> ")), TABLES)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT _metadata FROM visits", "it has the paths of files"),
        ("SELECT v.`_METADATA`.file_path FROM visits v", "it has the paths of files"),
        ("SELECT * FROM hits WITH ('path' = '/etc')", "has no options"),
        ("SELECT n, n, n, n, n, n, n, n, n, n FROM hits", "more than 10 parts"),
    ],
    ids=lambda text: text[:30],
)
def test_the_first_wall_elsewhere(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, sql: str, reason: str
) -> None:
    monkeypatch.setattr(sparkplans, "_MOST_NODES", 10)
    parser: Any = session._jsparkSession.sessionState().sqlParser()
    with pytest.raises(Refused, match=reason):
        check(parser.parsePlan(sql), TABLES)


def test_the_second_wall_is_what_would_be_read(session: SparkSession, tmp_path: Path) -> None:
    for name in ("given", "other"):
        pq.write_table(HITS, tmp_path / f"{name}.parquet")
        session.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    files = [str(tmp_path / "given.parquet")]

    def analyzed(sql: str) -> Any:
        return session.sql(sql)._jdf.queryExecution().analyzed()

    check_read(analyzed("SELECT * FROM given WHERE n IN (WITH a AS (SELECT 3 x) SELECT x FROM a)"), files)
    for sql in (
        "SELECT * FROM other",
        "SELECT * FROM given WHERE n IN (SELECT n FROM other)",
        "SELECT (SELECT max(n) FROM given WHERE EXISTS (SELECT 1 FROM other WHERE n > 3))",
        "WITH x AS (SELECT * FROM other) SELECT * FROM given JOIN x USING (n)",
    ):
        with pytest.raises(Refused, match="files that are not of its tables"):
            check_read(analyzed(sql), files)
    with pytest.raises(Refused, match="Range is not allowed in ad-hoc SQL"):
        check_read(analyzed("SELECT * FROM range(3)"), files)
    with pytest.raises(
        Exception, match=r"TABLE_OR_VIEW_NOT_FOUND|UNSUPPORTED_DATASOURCE"
    ):  # Spark itself, by a setting
        session.sql("SELECT * FROM text.`/etc/passwd`")


def test_what_a_table_does_not_show_is_in_no_answer_and_in_no_error(session: SparkSession, tmp_path: Path) -> None:
    """Filters of a statement come after those of the table, or errors would have values of rows that it has not."""
    rows = {
        "_offset": [0, 1, 2, 3],
        "url": ["0", "1", "canary", "canary"],
        "n": [0, 1, 777, 777],
        "hidden": ["canary"] * 4,
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    shown = {
        "paths": [str(tmp_path / "rows.parquet")],
        "columns": ["_offset", "url", "n"],
        "zoned": [],
        "where": "(_offset = 0) OR (_offset < 2)",
    }
    for sql in (
        """
        SELECT * FROM visits WHERE CAST(url AS INT) >= 0|SELECT * FROM visits WHERE 1 / (n - 777) < 9
        SELECT a.url FROM visits a JOIN visits b ON CAST(a.url AS INT) >= b.n|SELECT max(url), max(n) FROM visits
        SELECT url FROM visits WHERE CAST(url AS INT) IN (SELECT CAST(url AS INT) FROM visits)
        SELECT url FROM visits ORDER BY hidden|SELECT hidden FROM visits
        SELECT * FROM visits JOIN visits v USING (hidden)
        SELECT * FROM visits JOIN visits v USING (_metadata)
        SELECT max(n) FROM visits GROUP BY url HAVING max(hidden) > ''
        SELECT * EXCEPT (_metadata) FROM visits|SELECT url FROM visits v WHERE v.hidden > ''
        SELECT max(hidden) FROM visits
    """.strip()
        .replace("\n", "|")
        .split("|")
    ):
        try:
            said = str(run(session, sql.strip(), {}, {"visits": shown}, 10).to_pylist())  # type: ignore[dict-item]
            assert "hidden" not in sql
        except (Refused, PySparkException) as error:
            said = str(error) if isinstance(error, Refused) else _message(error)
            assert "hidden" in sql or "_metadata" in sql, said
        assert "canary" not in said
        assert "777" not in said


@pytest.mark.slow("a Spark of its own starts, and starts again")
def test_the_third_wall_is_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SECRET", "hunter2")
    path = tmp_path / "it's [1].parquet"
    places = {"_partition": pa.array([0, 0, 0], pa.int32()), "_offset": [0, 1, 2]}
    pq.write_table(pa.table({**places, "at": pa.array([1, 2, 3], pa.timestamp("s", tz="UTC"))}), path)
    some = ParquetRows((str(path),), {0: (0, 2)}, "at", since=2 * SECOND, columns=("_offset", "at"), zoned=("at",))
    with SparkAdHoc(Limits(seconds=30, rows=1, megabytes=600), master="local[1]") as adhoc:
        assert adhoc.query("SELECT _offset FROM visits", {"visits": some}).table.to_pylist() == [{"_offset": 1}]
        found = adhoc.query("SELECT * FROM hits, hits h", {"hits": HITS})
        assert (found.table.num_rows, found.truncated) == (1, True)
        as_json = adhoc.query_json("SELECT array(_offset), at FROM visits", {"visits": some}, JSON)
        assert (as_json.columns[1], as_json.rows) == ("at", b'[[[1],"1970-01-01T00:00:02Z"]]')
        with pytest.raises(ViewError, match="at most 100 cells"):
            adhoc.query_json("SELECT sequence(1, 101)", {}, JSON)
        process = adhoc._process
        assert process is not None
        assert b"hunter2" not in Path(f"/proc/{process.pid}/environ").read_bytes()
        for sql, reason in {
            "SELECT java_method('java.lang.System', 'getenv')": "java_method is not allowed in ad-hoc SQL",
            "SELECT secret FROM hits": r"\[UNRESOLVED_COLUMN",
            "SELECT 1/0": r"\[DIVIDE_BY_ZERO\]",
            "SELEC 1": r"\[PARSE_SYNTAX_ERROR\]",
            f"SELECT '{'x' * 100_001}'": "at most 100,000 characters",
        }.items():
            with pytest.raises(ViewError, match=reason):
                adhoc.query(sql, {"hits": HITS})
        assert adhoc._process is process


@only_full("the limits of seconds are tested without Spark, and its process starts in every run")
@pytest.mark.slow("a Spark of its own starts, and is ended")
def test_what_spark_cannot_cancel_ends_with_its_process() -> None:
    with SparkAdHoc(Limits(seconds=30, rows=1, megabytes=600), master="local[1]") as adhoc:
        adhoc.query("SELECT 1", {})
        process = adhoc._process
        assert process is not None
        doubled = "SELECT * FROM hits"
        for _ in range(25):
            doubled = f"SELECT *, * FROM ({doubled})"
        adhoc.limits = Limits(seconds=1, rows=1, megabytes=600)
        with pytest.raises(ViewError, match=r"longer than 1 seconds|failed inside Spark"):  # what Spark cannot cancel
            adhoc.query(doubled, {"hits": HITS})
        assert adhoc._process is None
        assert not os.path.exists(f"/proc/{process.pid}")
