"""Continuous SQL: what many views cost, against one, against the Python API and against native Spark.

    python bench/sql.py [--quick] [--only queries,known,shape,one,views]

queries  1,000 and 10,000 queries of one shape, `symbol = '...'` and `price BETWEEN`, against one of them
known    a query of a known shape: seconds to create it, and micro-batches until it answers
shape    a new shape: the pause of the others, from the last batch before it to the first one behind it, median of 10
one      one view against the same aggregation by the Python API
views    100 views of different shapes against one, and against 10 native queries of Spark, scaled to 100

Rows are appended to the stream as columns, a micro-batch each; the median of the last ones counts. What is compared
runs in turns, twice, and the second turn counts: the first one warms Spark up. The last line is JSON.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from _nexmark.processes import cpu_seconds
from _sections import Bench, Verdict, run
from _streams import Running, rival_stream
from pyspark.sql import functions as F

import headrace as hr
from headrace.dialects.sql.shapes import shape_of
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, parse_statements
from headrace.log.topics import Log

STREAM = "CREATE STREAM trades (symbol text, price double, size bigint) WITH (partitions = 2)"
SYMBOLS = 20_000


class Trades:
    """The topic of a session's stream, to which whole batches of rows are appended."""

    def __init__(self, log: Path, rows: int) -> None:
        self._topic, self.rows = Log(str(log)).topic("trades"), rows
        random, half = np.random.default_rng(16), rows // 2
        symbols, sizes = (random.integers(0, most, rows).tolist() for most in (SYMBOLS, 100))
        prices = (random.random(rows) * 1000).tolist()
        values = [
            {"symbol": f"S{symbol}", "price": price, "size": size}
            for symbol, price, size in zip(symbols, prices, sizes, strict=True)
        ]
        times = [0] * half
        self._batches = [self._topic.batch(part, timestamps=times) for part in (values[:half], values[half:])]  # type: ignore[arg-type]

    def arrive(self, partitions: int = 2) -> None:
        for partition, batch in enumerate(self._batches[:partitions]):
            self._topic.append(partition, batch)


def of_session(session: SqlSession) -> Running:
    """The stream of a session with one pass."""
    (handle,) = session.passes().values()
    return Running(handle.query, lambda: None)  # type: ignore[attr-defined]


def batches_of(bench: Bench) -> tuple[int, int]:
    """How many rows a micro-batch has, and how many of them are run; all but the first two count."""
    return (50_000, 6) if bench.quick else (200_000, 9)


def session_of(bench: Bench, name: str) -> tuple[SqlSession, Trades]:
    rows, _ = batches_of(bench)
    session = SqlSession(str(bench.folder / name), spark=bench.spark, trigger="0 seconds")
    session.execute(STREAM)
    return session, Trades(bench.folder / name / "log", rows)


def fed(bench: Bench, what: str, running: Running, trades: Trades) -> tuple[float, float]:
    """Feeds batches to a stream; returns the median of a batch in milliseconds, and CPU seconds of one."""
    _, count = batches_of(bench)
    for _ in range(2):
        trades.arrive()
        running.done()
    before = cpu_seconds()
    for _ in range(count - 2):
        trades.arrive()
        running.done()
    used = (cpu_seconds() - before) / (count - 2)
    median = bench.measured(what, running, count - 2)
    bench.say(f"{'':34} {used:8.2f} CPU seconds a batch")
    bench.figures.append({"what": what, "ms": round(median), "cpu": round(used, 3)})
    return median, used


QUERIES = {
    "symbol =": lambda n: (
        f"SELECT symbol, count(*) AS n, sum(price) AS total FROM trades WHERE symbol = 'S{n}' GROUP BY symbol"
    ),
    "price BETWEEN": lambda n: f"SELECT count(*) AS n FROM trades WHERE price BETWEEN {n / 10} AND {n / 10 + 0.5}",
}
"""Queries of one shape, by number."""


def queries(bench: Bench) -> Iterator[Verdict]:
    for shape, query in QUERIES.items():
        taken: dict[int, float] = {}
        for count in (1, 1_000, 10_000):
            name = f"{shape[:5]}{count}"
            session, trades = session_of(bench, name)
            with session:
                session.execute(f"CREATE VIEW v0 AS {query(0)}")
                table, streams = session.catalog.query_table(*session.catalog.shapes), session.catalog.streams
            with patch("os.fsync"):  # the others are stored while nothing runs, and need not be durable one by one
                for number in range(1, count):
                    (view,) = parse_statements(f"CREATE VIEW v{number} AS {query(number)}")
                    assert isinstance(view, CreateQuery)
                    made = shape_of(view, streams)
                    assert made is not None and made.name == table.path.name
                    table.add(made.constants, view.text, lambda: 0)
            with SqlSession(str(bench.folder / name), spark=bench.spark, trigger="0 seconds") as session:
                assert len(session.catalog.views) == count
                taken[count], _ = fed(bench, f"{shape}, {count} queries", of_session(session), trades)
        remedy = "a profile of MatchOperator and of the table's writer tells"
        yield Verdict(f"{shape}, 1,000 against one", taken[1_000] / taken[1], 2, False, remedy)
        yield Verdict(f"{shape}, 10,000 against one", taken[10_000] / taken[1], 3, False, remedy)


def known(bench: Bench) -> Iterator[Verdict]:
    query = QUERIES["symbol ="]
    session, trades = session_of(bench, "known")
    with session:
        session.execute(f"CREATE VIEW v0 AS {query(0)}")
        running = of_session(session)
        trades.arrive()
        running.done()
        waited, created = [], []
        for number in range(1, 11):
            begun = time.perf_counter()
            session.execute(f"CREATE VIEW v{number} AS {query(number)}")
            created.append(time.perf_counter() - begun)
            before = len(running.batches())
            trades.arrive(partitions=1)  # two appends may come to two micro-batches
            running.done()
            table = session.execute(f"SELECT * FROM v{number}")[0].table
            assert table is not None and table.num_rows == 1
            waited.append(len(running.batches()) - before)
    bench.say(f"created in {statistics.median(created) * 1000:.0f} ms, median of 10")
    yield Verdict("micro-batches until a query answers", max(waited), 1, False, "it must not wait for another")


def shape(bench: Bench) -> Iterator[Verdict]:
    session, trades = session_of(bench, "shape")
    pauses = []
    with session:
        session.execute("CREATE VIEW v AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol")
        trades.arrive()
        of_session(session).done()
        for number in range(11):
            begun = time.perf_counter()
            trades.arrive()  # it waits for the pass to go on
            session.execute(
                f"CREATE VIEW v{number} AS SELECT size % {number + 2} AS k, sum(price) AS total FROM trades GROUP BY 1"
            )
            of_session(session).done()
            pauses.append(time.perf_counter() - begun)
    bench.say(f"pauses, with a batch of {trades.rows} rows: {[round(each, 2) for each in pauses]}")
    yield Verdict(
        "pause by a new shape, seconds", statistics.median(pauses[1:]), 3, False, "restarting a query is most of it"
    )


def one(bench: Bench) -> Iterator[Verdict]:
    session, trades = session_of(bench, "one")
    with session:
        aggregated = "SELECT size, count(*) AS n, sum(price) AS total FROM trades"
        session.execute(f"CREATE VIEW v AS {aggregated} WHERE price > 100 GROUP BY size")
    view = api = 0.0
    for turn in ("to warm up", "that counts"):
        with SqlSession(str(bench.folder / "one"), spark=bench.spark, trigger="0 seconds") as session:
            view, _ = fed(bench, f"a view, {turn}", of_session(session), trades)
        handle: Any = by_the_api(bench).run(checkpoint=f"{bench.folder}/api", trigger="0 seconds")
        with Running(handle.query, handle.stop) as running:
            api, _ = fed(bench, f"the same by the Python API, {turn}", running, trades)
    yield Verdict("events/s of a view against the API", api / view, 0.9, True, "explain both, and compare the steps")


def by_the_api(bench: Bench) -> hr.Pipeline:
    p = hr.Pipeline(spark=bench.spark)
    sums = hr.GroupBy("size").aggregate(n=hr.count(), total=hr.sum("price"))
    rows = p | hr.ReadTopic("trades", log=str(bench.folder / "one" / "log"), start="latest") | hr.Where("price > 100")
    grouped = rows | hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always(), accumulation="accumulating") | sums
    grouped | hr.WriteTable(f"sqlite:///{bench.folder}/api.db", "v", key=["size"], mode="upsert")
    return p


def views(bench: Bench) -> Iterator[Verdict]:
    taken: dict[int, tuple[float, float]] = {}
    for count in (1, 100):
        session, trades = session_of(bench, f"views{count}")
        with session:
            columns = (f"size % {n + 2} AS k, count(*) AS n, sum(price + {n}) AS total" for n in range(count))
            made = [f"CREATE VIEW v{n} AS SELECT {each} FROM trades GROUP BY 1" for n, each in enumerate(columns)]
            session.declare(";".join(made))  # which starts the pass once
            taken[count] = fed(bench, f"{count} views", of_session(session), trades)
    yield Verdict("100 views against one", taken[100][0] / taken[1][0], 6, False, "what they do not share is the rest")
    native = native_cpu(bench)
    yield Verdict(
        "events per CPU-second against Spark", native / taken[100][1], 10, True, "native queries read 100 times"
    )


def native_cpu(bench: Bench) -> float:
    """CPU seconds of 100 native queries for a batch: ten times those of 10. They read Parquet files of as many rows."""
    import pyarrow.parquet as pq

    rows, count = batches_of(bench)
    random, folder = np.random.default_rng(16), bench.folder / "native"
    (folder / "in").mkdir(parents=True)

    def arrive(number: int) -> None:
        table = pa.table({"price": random.random(rows) * 1000, "size": random.integers(0, 100, rows)})
        pq.write_table(table, folder / f".{number}")
        (folder / f".{number}").rename(folder / "in" / f"{number}.parquet")

    arrive(0)
    frame = bench.spark.readStream.schema("price double, size long").parquet(str(folder / "in"))
    running = []
    for number in range(10):
        grouped = frame.groupBy((F.col("size") % (number + 2)).alias("k"))
        counted = grouped.agg(F.count("*").alias("n"), F.sum(F.col("price") + number).alias("total"))
        running.append(
            rival_stream(bench.spark, counted, "update", folder, f"q{number}", lambda data, batch: data.collect())
        )
    try:
        for each in running:
            each.done()
        before = cpu_seconds()
        for number in range(1, count - 1):
            arrive(number)
            for each in running:
                each.done()
        used = 10 * (cpu_seconds() - before) / (count - 2)
    finally:
        for each in running:
            each.stop()
    bench.say(f"100 native queries, scaled from 10: {used:.2f} CPU seconds a batch")
    return used


if __name__ == "__main__":
    run("sql", __doc__, queries, known, shape, one, views)
