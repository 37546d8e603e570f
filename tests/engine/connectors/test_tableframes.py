"""Tests tables as sources of pipelines on Spark: batches, streams that go on without the database, and JDBC."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.times import SECOND
from tests.edges.tabling import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sale(NamedTuple):
    id: int
    city: str


def fill(url: str) -> Counter[tuple[int, str, int]]:
    """Writes sales, one of them without a time; returns those with one, their times in seconds."""
    kind = "DATETIME" if url.startswith("sqlite") else "timestamp"
    times = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=7 * number) for number in range(40)]
    sales = [(n, ("Rome", "Oslo", "Bern")[n % 3], time) for n, time in enumerate(times)]
    rows = [f"({n}, '{city}', '{time:%Y-%m-%d %H:%M:%S}')" for n, city, time in sales]
    execute(
        url,
        f"CREATE TABLE sales (id INTEGER, city TEXT, at {kind})",
        f"INSERT INTO sales VALUES {', '.join(rows)}, (99, 'Rome', NULL)",
    )
    return Counter((n, city, int(time.timestamp())) for n, city, time in sales)


def seconds(collected: Any) -> Counter[tuple[int, str, int]]:
    return Counter((each.value.id, each.value.city, each.timestamp // SECOND) for each in collected.windowed)


def test_a_batch_reads_tables_in_partitions(spark: SparkSession, database: str) -> None:
    expected = fill(database)
    p = hr.Pipeline(spark=spark)
    options: dict[str, Any] = {"partition_column": "id", "partitions": 3}
    sales = p | "sales" >> hr.ReadTable(database, "sales", event_time="at", **options).with_exception_handling()
    collected, dead = sales.main | hr.Collect(), sales.dead_letters | "dead" >> hr.Collect()
    query = "SELECT city, count(*) AS n FROM sales GROUP BY city"
    counts = p | hr.ReadTable(database, query=query) | "counts" >> hr.Collect()
    named = p | "named" >> hr.ReadTable(database, "sales", schema=Sale) | hr.Filter(lambda sale: sale.id == 99)
    found = named | "found" >> hr.Collect()
    p.run().wait()
    assert seconds(collected) == expected
    assert [(letter.error, letter.position) for letter in dead] == [("no event time", "sales")]
    assert sorted(counts) == [("Bern", 13), ("Oslo", 13), ("Rome", 15)]
    assert list(found) == [Sale(99, "Rome")]


@pytest.mark.slow("a stream that fails and is run again")
def test_a_stream_reads_a_table_once(spark: SparkSession, sqlite: str, tmp_path: Path) -> None:
    """What it read is in the checkpoint: it goes on when the table has changed, and when the database is gone."""
    expected = fill(sqlite)
    batches: dict[int, list[Any]] = {}
    failing = [True]

    def take(elements: list[Any], batch: int) -> None:
        batches[batch] = [(each.value, each.window.start // SECOND) for each in elements]
        if failing.pop():
            failing.append(False)
            raise RuntimeError("once")
        failing.append(False)

    p = hr.Pipeline(spark=spark)
    source = hr.ReadTable(sqlite, "sales", event_time="at", partition_column="id", partitions=2)
    hourly = p | source | hr.WindowInto(hr.FixedWindows("1 hour")) | hr.GroupBy("city").aggregate(n=hr.count())
    hourly | hr.ForEachBatch(take)
    with pytest.raises(hr.TransformError, match="once"):
        p.run(stream=True, checkpoint=str(tmp_path / "checkpoint")).wait()
    Path(sqlite.removeprefix("sqlite:///")).unlink()
    handle = p.run(stream=True, checkpoint=str(tmp_path / "checkpoint"))
    assert handle.wait().state == "done"
    by_hour = Counter((city, time - time % 3600) for _, city, time in expected.elements())
    found = [(row.city, hour, row.n) for batch in batches.values() for row, hour in batch]
    assert Counter(found) == Counter((city, hour, n) for (city, hour), n in by_hour.items())


def test_a_table_that_cannot_be_read_is_named(spark: SparkSession, database: str) -> None:
    fill(database)
    for options, match in [
        ({"table": "nowhere"}, r"'load' .*: ReadTable\('.*', 'nowhere'\): there is no table 'nowhere'"),
        ({"table": "sales", "partition_column": "n"}, "'load' .*: there is no column 'n'; there are id, city, at"),
        ({"table": "sales", "event_time": "when"}, "'load' .*when"),
    ]:
        p = hr.Pipeline(spark=spark)
        p | "load" >> hr.ReadTable(database, **options) | hr.Collect()
        with pytest.raises(hr.PipelineError, match=match):
            p.run().wait()


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> str:
    """The URL of a database of Derby's, whose driver comes with Spark, with a table of sales."""
    url = f"jdbc:derby:{tmp_path}/derby;create=true"
    jvm: Any = spark._jvm
    connection = jvm.java.sql.DriverManager.getConnection(url)
    try:
        statement = connection.createStatement()
        statement.execute('CREATE TABLE sales ("Id" INT, city VARCHAR(9), price DECIMAL(9, 2))')
        for n, city in enumerate(["Rome", "Oslo", "Bern"] * 4):
            statement.execute(f"INSERT INTO sales VALUES ({n}, '{city}', {n}.5)")
        statement.execute("INSERT INTO sales VALUES (NULL, 'Rome', NULL)")
    finally:
        connection.close()
    return url


def test_jdbc_reads_tables_in_partitions(spark: SparkSession, derby: str) -> None:
    p = hr.Pipeline(spark=spark)
    source = hr.ReadJdbc(derby, "sales", partition_column="Id", partitions=3, schema="Id int, CITY string")
    sales = p | "sales" >> source | hr.Collect()
    dear = p | hr.ReadJdbc(derby, query="SELECT city, price FROM sales WHERE price > 9;") | "dear" >> hr.Collect()
    none = hr.ReadJdbc(derby, query='SELECT "Id" FROM sales WHERE "Id" > 99', partition_column="Id", partitions=2)
    nothing = p | "none" >> none | "nothing" >> hr.Collect()
    p.run().wait()
    cities = ["Rome", "Oslo", "Bern"] * 4
    assert Counter(map(tuple, sales)) == Counter([*enumerate(cities), (None, "Rome")])
    assert sorted((row.CITY, float(row.PRICE)) for row in dear) == [("Bern", 11.5), ("Oslo", 10.5), ("Rome", 9.5)]
    assert list(nothing) == []


def test_jdbc_without_a_driver_says_what_to_do(spark: SparkSession, derby: str) -> None:
    for source, match in [
        (hr.ReadJdbc("jdbc:mysql://127.0.0.1/shop", "sales"), r"'load' .* no JDBC driver for 'jdbc:mysql'; make the"),
        (hr.ReadJdbc("jdbc:mysql://h/shop", "sales", driver="com.mysql.cj.jdbc.Driver"), "no JDBC driver for"),
        (hr.ReadJdbc(derby, "nowhere"), "'load' .*NOWHERE"),
        (
            hr.ReadJdbc(derby, "sales", partition_column="n", partitions=2),
            "'load' .*there is no column 'n'; there are Id, CITY",
        ),
    ]:
        p = hr.Pipeline(spark=spark)
        p | "load" >> source | hr.Collect()
        with pytest.raises(hr.PipelineError, match=match):
            p.run().wait()
