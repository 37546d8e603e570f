"""Queries as batches and as streams: both give what Spark's SQL gives for the same rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.dialects.sql.planner import Planned, Planner
from headrace.dialects.sql.sqltransform import parse_query, relation_of
from tests.dialects.sql.answers import answer, assert_same
from tests.scale import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Trade(NamedTuple):
    symbol: str
    trader: str | None
    price: float
    size: int | None
    at: datetime


class Company(NamedTuple):
    symbol: str
    name: str


def trades() -> list[Trade]:
    """Forty trades, somewhat out of order, with nulls."""
    return [
        Trade(
            ["IBM", "AAPL", "MSFT"][n * 7 % 3],
            None if n % 11 == 0 else f"t{n * 5 % 4}",
            float(100 + n * 13 % 17),
            None if n % 13 == 5 else n * 3 % 5,
            START + timedelta(seconds=n * 7 - n % 3 * 5),
        )
        for n in range(40)
    ]


COMPANIES = [Company("IBM", "Machines"), Company("AAPL", "Fruit")]
WINDOWS = {
    "tumble": "TUMBLE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE)",
    "hop": "HOP(TABLE trades, DESCRIPTOR(at), INTERVAL '30' SECONDS, INTERVAL '1' MINUTE)",
    "session": "SESSION(TABLE trades, DESCRIPTOR(at), INTERVAL '12' SECONDS)",
}
# Of a query over windows, the same by Spark's functions.
SPARK_WINDOWS = {
    "tumble": "window(at, '1 minute')",
    "hop": "window(at, '1 minute', '30 seconds')",
}

QUERIES = {
    "rows": r"""SELECT symbol, price * size AS amount, at, 'it''s' AS a, 'it\'s' AS b FROM trades
        WHERE size > 0 AND trader IS NOT NULL AND symbol <> 'it''s'""",
    "star": "SELECT *, upper(trader) AS who FROM trades t WHERE t.price > 110",
    "renamed": "SELECT symbol AS s, price AS p FROM trades",
    "groups": """SELECT symbol, count(*) AS n, sum(size) AS size, sum(price * size) / sum(size) AS vwap
        FROM trades GROUP BY symbol""",
    "nulls": """SELECT trader, count(size) AS n, count(DISTINCT size) AS d, avg(size) AS mean, min(size) AS low,
        max(price) AS high FROM trades GROUP BY trader""",
    "expressions": """SELECT substring(symbol, 1, 1) AS letter, hour(at) AS h, sum(size) + 1 AS more,
        max(price) - min(price) AS span FROM trades GROUP BY letter, hour(at)""",
    "conditions": """SELECT symbol, count(*) FILTER (WHERE price > 110) AS high, count_if(size = 1) AS single,
        sum(size) FILTER (WHERE trader = 't1') AS ones, bool_or(size > 3) AS some, bool_and(size >= 0) AS every
        FROM trades GROUP BY symbol""",
    "all": "SELECT count(*) AS n, stddev(price) AS deviation, max_by(trader, at) AS latest FROM trades",
    "unnamed": "SELECT count(*) AS n, sum(size) AS total FROM trades GROUP BY symbol, trader",
    "left out": "SELECT n FROM (SELECT trader, count(*) AS n FROM trades GROUP BY trader) WHERE n > 3",
    "both": """SELECT symbol, count(*) AS n FROM trades GROUP BY symbol
        UNION ALL SELECT trader, sum(size) FROM trades GROUP BY trader""",
    "having": "SELECT trader, sum(size) AS total FROM trades GROUP BY trader HAVING count(*) > 8 AND total > 5",
    "distinct": "SELECT DISTINCT symbol, trader FROM trades WHERE size > 1",
    "union": """SELECT symbol, price FROM trades WHERE price < 105
        UNION ALL SELECT trader, 1.0D FROM trades WHERE size = 1""",
    "nested": """SELECT n, count(*) AS traders
        FROM (SELECT trader, count(*) AS n FROM trades GROUP BY trader) GROUP BY n""",
    "nested most": """SELECT n, max(trader) AS last, min(total) AS least
        FROM (SELECT trader, count(*) AS n, sum(size) AS total FROM trades GROUP BY trader) GROUP BY n""",
    "no values": """SELECT symbol, sum(size) FILTER (WHERE price > 900) AS s, avg(size) FILTER (WHERE price > 900) AS a,
        stddev(price) FILTER (WHERE price = 100 AND size = 0) AS d FROM trades GROUP BY symbol""",
    "with": """WITH big AS (SELECT * FROM trades WHERE size > 2),
        by_symbol AS (SELECT symbol, sum(price) AS total FROM big GROUP BY symbol)
        SELECT max(total) AS most, min(total) AS least FROM by_symbol""",
    "joined": "SELECT t.symbol, name, price FROM trades t JOIN companies c ON t.symbol = c.symbol WHERE size > 1",
    "left": "SELECT t.symbol, c.symbol AS other, name FROM trades AS t LEFT JOIN companies AS c ON c.symbol = t.symbol",
    "near": """SELECT a.symbol, a.price, b.price AS next, b.at FROM trades AS a JOIN trades AS b
        ON a.symbol = b.symbol AND b.at > a.at AND b.at <= a.at + INTERVAL '25' SECONDS AND b.size > 1""",
    "first": """SELECT * FROM (SELECT symbol, trader, price, at,
        ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, at) AS place FROM trades WHERE size > 0)
        WHERE place <= 3""",
    "first ranked": """WITH ranked AS (SELECT *,
        ROW_NUMBER() OVER (PARTITION BY symbol, hour(at) ORDER BY size * price, at) AS place FROM trades)
        SELECT place, symbol AS s, at FROM ranked WHERE 4 > place AND place > 1 AND price > 101""",
    "latest": """SELECT trader, price, at FROM trades
        QUALIFY ROW_NUMBER() OVER (PARTITION BY trader ORDER BY at DESC) = 1""",
    "first of all": """SELECT symbol, at, row_number() OVER (ORDER BY at, price) AS place FROM trades
        QUALIFY place < 6""",
    "first groups": """SELECT trader, sum(size) AS total,
        ROW_NUMBER() OVER (ORDER BY sum(size) DESC NULLS LAST, trader) AS r
        FROM trades GROUP BY trader QUALIFY r <= 2""",
    "of the first": """SELECT symbol, sum(price) AS total, count(*) AS n FROM (SELECT symbol, price,
        ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY price DESC, at) AS place FROM trades) WHERE place <= 2
        GROUP BY symbol""",
    "window": """SELECT symbol, window.start AS s, window.end AS e, count(*) AS n FROM trades AS t
        GROUP BY symbol, window(t.at, '1 minute') HAVING window.start > '2026-01-31T12:01:00Z'""",
    "sliding window": """SELECT window.start AS s, max(price) AS high FROM (SELECT * FROM trades WHERE size > 0) AS t
        GROUP BY window(at, '1 minute', '30 seconds', '5 seconds')""",
    "session window": """SELECT symbol, session_window.end AS e, count(*) AS n FROM trades
        GROUP BY session_window(at, '12 seconds'), symbol""",
    "using": "SELECT name, sum(size) AS total FROM trades JOIN companies USING (symbol) GROUP BY name",
}
JOINED = """SELECT a.symbol, a.price, b.trader, a.window_start FROM {0} AS a JOIN {0} AS b
    ON a.symbol = b.symbol AND a.window_start = b.window_start AND a.window_end = b.window_end AND a.price < b.price"""
BY_START = """SELECT symbol, window_start, count(*) AS n FROM {} GROUP BY symbol, window_start, window_end"""
IN_WINDOWS = """SELECT symbol, window_start, window_end, count(*) AS n, sum(price) AS total FROM {}
    GROUP BY symbol, window_start, window_end"""
OVER_WINDOWS = """SELECT window_start AS begin, max(n) AS most
    FROM (SELECT symbol, window_start, count(*) AS n FROM {} GROUP BY symbol, window_start, window_end)
    GROUP BY window_start"""
FIRST_IN_WINDOWS = """SELECT symbol, price, at, window_end, place FROM (SELECT *, ROW_NUMBER() OVER
    (PARTITION BY window_start, window_end, symbol ORDER BY price DESC, at) AS place FROM {}) WHERE place <= 2"""
FIRST_OF_WINDOWS = """SELECT window_start, symbol, n FROM (SELECT window_start, symbol, count(*) AS n, ROW_NUMBER() OVER
    (PARTITION BY window_start ORDER BY count(*) DESC, symbol) AS place FROM {}
    GROUP BY symbol, window_start, window_end) WHERE place = 1"""
FIRST_WINDOW = """SELECT symbol, window_start, n FROM (SELECT symbol, window_start, count(*) AS n FROM {}
    GROUP BY symbol, window_start, window_end)
    QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY n DESC, window_start) = 1"""
WITHOUT_BOUNDS = """SELECT n, count(*) AS windows FROM (SELECT symbol, count(*) AS n FROM {}
    WHERE window_start > '2026-01-31T12:01:00Z' GROUP BY symbol, window_start, window_end) GROUP BY n"""
OVER_ALL = "SELECT symbol, count(*) AS n, sum(size) AS total FROM {} GROUP BY symbol"
NO_GROUPS = "SELECT symbol, price FROM {} WHERE size > 2"
WINDOW_QUERIES = {
    "all": OVER_ALL,
    "rows": NO_GROUPS,
    "in": IN_WINDOWS,
    "over": OVER_WINDOWS,
    "by": BY_START,
    "join": JOINED,
    "firstin": FIRST_IN_WINDOWS,
    "firstof": FIRST_OF_WINDOWS,
    "firstwindow": FIRST_WINDOW,
    "unbound": WITHOUT_BOUNDS,
}
# Spark knows the bounds of sessions in groups only.
SPARK_SESSIONS = """SELECT symbol, session_window.start, session_window.end, count(*) AS n, sum(price) AS total
    FROM trades GROUP BY symbol, session_window(at, '12 seconds')"""


# Spark has no joins as of a time: for each query, the same by other means.
BIG = "WITH big AS (SELECT symbol, trader, price, at FROM trades WHERE size > 2)"
AS_OF = {
    "as of": (
        f"""{BIG} SELECT a.trader, a.at, b.price, b.at AS since
        FROM trades AS a JOIN big FOR SYSTEM_TIME AS OF a.at AS b ON a.symbol = b.symbol""",
        f"""{BIG} SELECT a.trader, a.at, b.price, b.at AS since
        FROM trades AS a JOIN big AS b ON a.symbol = b.symbol AND b.at <= a.at
        QUALIFY ROW_NUMBER() OVER (PARTITION BY a.symbol, a.at ORDER BY b.at DESC) = 1""",
    ),
    "left as of": (
        f"""{BIG} SELECT a.symbol, count(*) AS n, count(b.at) AS known, max(b.at) AS latest FROM trades AS a
        LEFT JOIN big FOR SYSTEM_TIME AS OF a.at AS b ON a.symbol = b.symbol AND a.trader = b.trader
        GROUP BY a.symbol""",
        f"""{BIG} SELECT symbol, count(*) AS n, count(since) AS known, max(since) AS latest FROM (
            SELECT a.symbol, a.at, max(b.at) AS since FROM trades AS a LEFT JOIN big AS b
            ON a.symbol = b.symbol AND a.trader = b.trader AND b.at <= a.at GROUP BY a.symbol, a.at
        ) GROUP BY symbol""",
    ),
}


def reference(spark: SparkSession, name: str) -> list[tuple[Any, ...]]:
    """Returns what Spark's SQL gives."""
    if name in QUERIES:
        text = QUERIES[name]
    elif name in AS_OF:
        _, text = AS_OF[name]
    elif name == "in session":
        text = SPARK_SESSIONS
    else:
        query, window = name.split()
        table = f"""(SELECT *, w.start AS window_start, w.end AS window_end
            FROM (SELECT *, {SPARK_WINDOWS[window]} AS w FROM trades))"""
        text = WINDOW_QUERIES[query].format(table)
    return [tuple(row) for row in spark.sql(text).collect()]


# What only FULL runs: each is planned as one of the others is.
LIKE_OTHERS = {
    *("star", "renamed", "expressions", "all", "unnamed", "with", "union", "using", "groups", "having", "joined"),
    *("first ranked", "first of all", "first groups", "firstin tumble", "firstof tumble", "firstof hop"),
    *("in tumble", "in hop", "over tumble", "by tumble", "all tumble", "rows hop"),
    *("nested most", "no values", "sliding window"),
}


def texts() -> dict[str, str]:
    return {name: text for name, text in all_texts().items() if FULL or name not in LIKE_OTHERS}


def all_texts() -> dict[str, str]:
    names = ["in tumble", "in hop", "in session", "over tumble", "over hop", "by tumble", "join tumble"]
    names += ["firstin tumble", "firstin hop", "firstof tumble", "firstof hop", "firstwindow hop", "unbound tumble"]
    names += ["all tumble", "all hop", "rows hop"]
    in_windows = {name: WINDOW_QUERIES[name.split()[0]].format(WINDOWS[name.split()[1]]) for name in names}
    return {**QUERIES, **{name: text for name, (text, _) in AS_OF.items()}, **in_windows}


def planned(source: hr.PCollection, companies: hr.PCollection) -> dict[str, Planned]:
    tables = {
        "trades": replace(relation_of("trades", source), time="at"),
        "companies": relation_of("companies", companies),
    }
    planner = Planner(tables)
    return {name: planner.plan(parse_query(text), text) for name, text in texts().items()}


@pytest.mark.slow("some forty queries, as a batch and as a stream, each with Spark's own answer")
def test_batches_and_streams_give_what_spark_gives(spark: SparkSession) -> None:
    rows = trades()
    spark.createDataFrame(rows).createOrReplaceTempView("trades")
    spark.createDataFrame(COMPANIES).createOrReplaceTempView("companies")
    expected = {name: reference(spark, name) for name in texts()}
    assert [name for name, rows in expected.items() if not rows] == []

    p = hr.Pipeline(spark=spark)
    timed = [hr.TimestampedValue(row, row.at) for row in rows]
    source = p | "trades" >> hr.Create(timed).with_output_types(Trade)
    plans = planned(source, p | "companies" >> hr.Create(COMPANIES).with_output_types(Company))
    collected = {name: plan.collection | f"collect {name}" >> hr.Collect() for name, plan in plans.items()}
    p.run().wait()
    for name, values in collected.items():
        assert_same(name, list(map(tuple, values)), expected[name])

    script, size = hr.TestStream(), 9 if FULL else 20
    for start in range(0, len(timed), size):
        script = script.add(timed[start : start + size])
    p = hr.Pipeline(spark=spark)
    source = p | "trades" >> script.finish().with_output_types(Trade)
    plans = planned(source, p | "companies" >> hr.Create(COMPANIES).with_output_types(Company))
    collected = {name: plan.collection | f"collect {name}" >> hr.Collect() for name, plan in plans.items()}
    p.run().wait()
    for name, values in collected.items():
        assert_same(name, answer(values.windowed, plans[name]), expected[name])
