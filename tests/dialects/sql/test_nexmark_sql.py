"""Nexmark's queries in SQL: as streams they give what DuckDB, and with FULL Spark, give for the same events."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from nexmark.events import BEGIN, Events

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sqltransform import parse_query, relation_of
from tests.dialects.sql.answers import answer, assert_same
from tests.scale import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples" / "nexmark" / "sql"
QUERIES = {path.stem: path.read_text("utf-8") for path in sorted(EXAMPLES.glob("*.sql"))}
NOT_POSSIBLE = {"q12"}
PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
COUNT, BATCHES, STRETCH = 4_000, 3 if FULL else 2, 100


class Person(NamedTuple):
    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    date_time: datetime
    extra: str


class Auction(NamedTuple):
    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time: datetime
    expires: datetime
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    extra: str


class Side(NamedTuple):
    key: int
    value: str


SIDE = [Side(key, f"value-{key}") for key in range(0, 100, 3)]


def events() -> dict[str, list[Any]]:
    """Forty seconds of events: time goes a hundred times as fast, so that there are windows and sessions."""

    def stretched(row: dict[str, Any]) -> dict[str, Any]:
        times = {name: value for name, value in row.items() if isinstance(value, datetime)}
        return {**row, **{name: BEGIN + STRETCH * (value.astimezone(UTC) - BEGIN) for name, value in times.items()}}

    made = Events(seed=7)
    tables = {
        Person: made.persons(0, COUNT),
        Auction: made.auctions(0, COUNT),
        Bid: made.bids(0, COUNT),
    }
    return {
        kind.__name__.lower(): [kind(**stretched(row)) for row in table.to_pylist()] for kind, table in tables.items()
    }


_SIZES = r"\(TABLE (\w+), DESCRIPTOR\((\w+)\), INTERVAL '(\d+)' SECONDS(?:, INTERVAL '(\d+)' SECONDS)?\)"


def as_batch(text: str, *, spark: bool) -> str:
    """Returns a query for a batch: without EMIT, and with windows that are computed."""

    def windows(found: re.Match[str]) -> str:
        kind, table, time, first, second = found.groups()
        if kind == "SESSION":
            rows = (
                f"""SELECT *, {time} - lag({time}) OVER (PARTITION BY bidder ORDER BY {time}) AS since FROM {table}"""
            )
            numbered = f"""SELECT *, sum(CASE WHEN since < INTERVAL '{first}' SECONDS THEN 0 ELSE 1 END)
                OVER (PARTITION BY bidder ORDER BY {time}) AS session FROM ({rows})"""
            return f"""(SELECT *, min({time}) OVER (PARTITION BY bidder, session) AS window_start,
                max({time}) OVER (PARTITION BY bidder, session) + INTERVAL '{first}' SECONDS AS window_end
                FROM ({numbered}))"""
        slide, size = int(first), int(second or first)
        if spark:
            return f"""(SELECT *, w.start AS window_start, w.end AS window_end FROM
                (SELECT *, window({time}, '{size} seconds', '{slide} seconds') AS w FROM {table}))"""
        return f"""(SELECT *, window_start + INTERVAL '{size}' SECONDS AS window_end FROM (SELECT *,
            time_bucket(INTERVAL '{slide}' SECONDS, {time}) - {slide} * unnest(range({size // slide}))
            * INTERVAL '1' SECOND AS window_start FROM {table}))"""

    batch = re.sub(r"(TUMBLE|HOP|SESSION)" + _SIZES, windows, text).replace("EMIT AFTER WATERMARK", "")
    return batch if spark else sqlglot.transpile(batch, read="spark", write="duckdb")[0]


def by_duckdb(rows: dict[str, list[Any]]) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect() as database:
        for name, each in {**rows, "side_input": SIDE}.items():
            columns = {column: [row[at] for row in each] for at, column in enumerate(type(each[0])._fields)}
            table = pa.table({column: _without_zone(values) for column, values in columns.items()})
            database.register(name, table)
        return {name: database.execute(as_batch(text, spark=False)).fetchall() for name, text in QUERIES.items()}


def by_spark(spark: SparkSession, rows: dict[str, list[Any]]) -> dict[str, list[tuple[Any, ...]]]:
    session = spark.newSession()  # whose views are not those of other tests
    for name, each in {**rows, "side_input": SIDE}.items():
        session.createDataFrame(each).createOrReplaceTempView(name)
    return {
        name: [tuple(row) for row in session.sql(as_batch(text, spark=True)).collect()]
        for name, text in QUERIES.items()
    }


def _without_zone(values: list[Any]) -> list[Any]:
    return [each.replace(tzinfo=None) for each in values] if isinstance(values[0], datetime) else values


@pytest.mark.slow("twenty-two queries as one stream, each with Spark's and DuckDB's answer")
def test_streams_give_what_spark_and_duckdb_give(spark: SparkSession) -> None:
    rows = events()
    expected = by_duckdb(rows)
    assert [name for name, answers in expected.items() if not answers] == []
    for name, answers in by_spark(spark, rows).items() if FULL else ():
        assert_same(f"{name} by Spark", answers, expected[name])

    p = hr.Pipeline(spark=spark)
    tables = {}
    for kind, row in (("person", Person), ("auction", Auction), ("bid", Bid)):
        script, timed = hr.TestStream(), [hr.TimestampedValue(each, each.date_time) for each in rows[kind]]
        for batch in range(BATCHES):  # every second or third event, so that times go back with the next batch
            script = script.add(timed[batch::BATCHES])
        source = p | kind >> script.finish().with_output_types(row)
        tables[kind] = replace(relation_of(kind, source), time="date_time")
    side = p | "side_input" >> hr.Create(SIDE).with_output_types(Side)
    planner = Planner({**tables, "side_input": relation_of("side_input", side)})
    plans = {name: planner.plan(parse_query(text), text) for name, text in QUERIES.items()}
    collected = {name: plan.collection | f"collect {name}" >> hr.Collect() for name, plan in plans.items()}
    p.run().wait()
    for name, values in collected.items():
        assert_same(name, answer(values.windowed, plans[name]), expected[name])


def test_every_query_is_here_or_on_the_page() -> None:
    assert {*QUERIES, *NOT_POSSIBLE} == {f"q{number}" for number in range(23)}
    page = PAGE.read_text("utf-8")
    assert all(f"| {name} |" in page for name in NOT_POSSIBLE)
