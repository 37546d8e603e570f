"""Prefix integrity on Spark: after every micro-batch, tables are Spark's answers over the rows so far.

Ten random queries at a time are the views of a session, over a random stream with restarts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.viewreads import view_schema
from headrace.log.topics import Log
from headrace.model.times import SECOND
from tests.dialects.sql.answers import assert_same
from tests.dialects.sql.memoryrun import duckdb_of_tests
from tests.dialects.sql.randomqueries import Batch, Query, final_queries, queries, streams
from tests.dialects.sql.test_prefix_integrity import table_of
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "CREATE STREAM t (id bigint, k text, x bigint, y bigint, ts timestamp, WATERMARK FOR ts AS ts)"
DEEPEST = """CREATE VIEW deepest AS SELECT c, count(*) AS d FROM
    (SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n) GROUP BY c"""
"""A view of as many levels of groups as there are, in whose pass the others have room."""


def spark_answer(
    spark: SparkSession, query: Query, rows: list[dict[str, Any]], watermark: int
) -> list[tuple[Any, ...]]:
    """Spark's answer over rows; DuckDB only puts them into their windows."""
    database = duckdb_of_tests()
    database.register("t", table_of(rows))
    source = database.execute(query.rows.replace("{watermark}", f"make_timestamp({watermark})")).to_arrow_table()
    fields = [
        field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
        for field in source.schema
        if field.type != pa.duration("us") and not pa.types.is_interval(field.type)
    ]
    source = source.select([field.name for field in fields]).cast(pa.schema(fields))
    spark.createDataFrame(source).createOrReplaceTempView("source")
    return [tuple(row.values()) for row in spark.sql(query.batch).toArrow().to_pylist()]


class Prefix:
    """The rows of a stream so far, and its watermark: that of a stream whose rows are in order."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.watermark = 0

    def arrive(self, home: Path, batch: list[tuple[Any, ...]]) -> None:
        new = [
            {"id": len(self.rows) + n, "k": k, "x": x, "y": y, "ts": at * SECOND, "seen": self.watermark}
            for n, (k, x, y, at) in enumerate(batch)
        ]
        topic = Log(home / "log").topic("t")
        values: list[object] = [
            {
                **{name: row[name] for name in ("id", "k", "x", "y")},
                "ts": datetime.fromtimestamp(row["ts"] / SECOND, UTC),
            }
            for row in new
        ]
        topic.partition(0).append(topic.batch(values, timestamps=[0] * len(values)))
        self.rows += new
        self.watermark = max([self.watermark, *(row["ts"] for row in new)])


def is_possible(session: SqlSession, query: Query) -> bool:
    """Whether a view can be made of a query: Spark would cast the sides of UNION ALL to one type, and we refuse."""
    try:
        session.execute(f"EXPLAIN {query.text}")
    except SqlError as error:
        assert "the sides of UNION ALL have" in str(error), query.text
        return False
    return True


def check(spark: SparkSession, home: Path, views: list[Query], stream: list[Batch]) -> None:
    prefix = Prefix()
    session = SqlSession(str(home), spark=spark)
    tables = ResultTables(f"sqlite:///{home}/views.db")
    try:
        session.declare(STREAM)
        views = [each for each in views if is_possible(session, each)]
        made = [f"CREATE VIEW v{number} AS {each.text}" for number, each in enumerate(views)]
        session.declare(";\n".join([DEEPEST, *made]))
        for batch, _, restarts in stream:
            if not batch:
                continue
            prefix.arrive(home, batch)
            session.catch_up(600)
            for number, each in enumerate(views):
                view = session.catalog.view(f"v{number}")
                found = tables.read({view.name: view_schema(view)})[view.name]
                expected = spark_answer(spark, each, prefix.rows, prefix.watermark)
                assert_same(each.text, [tuple(row.values()) for row in found.to_pylist()], expected)
            if restarts:
                session.close()
                session = SqlSession(str(home), spark=spark)
    finally:
        tables.close()
        session.close()


def of_a_session() -> st.SearchStrategy[list[Query]]:
    return st.tuples(
        st.lists(queries(), min_size=8, max_size=8), st.lists(final_queries(), min_size=2, max_size=2)
    ).map(lambda drawn: [*drawn[0], *drawn[1]])


@only_full("the same without Spark, by the hundred, in test_prefix_integrity")
@pytest.mark.slow("five sessions of ten queries each, on Spark")
@pytest.mark.timeout(900)
@examples(5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(of_a_session(), streams().map(lambda stream: stream[:3]))
def test_after_every_commit_tables_are_sparks_answers_over_the_prefix(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, views: list[Query], stream: list[Batch]
) -> None:
    check(spark, tmp_path_factory.mktemp("prefix") / "home", views, stream)
