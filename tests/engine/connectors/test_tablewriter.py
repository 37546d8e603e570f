"""Tests what rows of a table become of elements, in SQLite and PostgreSQL."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import headrace as hr
from headrace.engine.connectors.tablewriter import TableBatch, write_together
from headrace.engine.worker.blame import WorkerFailure
from headrace.model.errors import PipelineError
from headrace.model.schema import row_type
from headrace.model.sinks import WindowedValue
from tests.edges.tabling import Click, Hit, at, connected, contents, execute, failing, writer, written

UTC = dt.UTC
MINUTE = dt.datetime(1970, 1, 1, 0, 1, tzinfo=UTC)


# Elements and columns


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([Hit("a", 1), Hit("b", 2)], {}),
        ([Click("a", 1), Click("b", 2)], {}),
        ([{"url": "a", "hits": 1}, {"hits": 2, "url": "b"}], {}),
        ([row_type(("url", "hits"))._make(("a", 1)), Click("b", 2)], {}),
        ([("a", 1), ("b", 2)], {"columns": ["url", "hits"]}),
    ],
)
def test_elements_are_rows_by_the_names_of_their_parts(database: str, values: Any, options: Any) -> None:
    assert written(database, [at(value) for value in values], **options) == Counter([(1, "a"), (2, "b")])


def test_a_single_value_is_a_row_of_one_column(database: str) -> None:
    assert written(database, [at(5)], columns=["n"], kind=int) == Counter([(5,)])


def test_a_name_that_a_dict_does_not_have_is_null(database: str) -> None:
    assert written(database, [at({"a": 1}), at({"a": 2, "b": "x"})]) == Counter([(1, None), (2, "x")])


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (("a", 1), {}, "the element ('a', 1) has no names for its columns"),
        (("a", 1, 2), {"columns": ["url", "hits"]}, "columns=['url', 'hits'] names 2 parts, but ('a', 1, 2) has 3"),
        (Hit("a", 1), {"columns": ["url", "hits"]}, "names of its own; leave columns out"),
        ({1: 2}, {}, "the name of a column must be a str, got 1"),
        (
            {"a": [1]},
            {},
            "the column 'a' would hold list<item: int64>, which no column of a table can hold; convert it to text",
        ),
        ({"a": None}, {}, "the type of the column 'a' is unknown, since all its values are None"),
    ],
)
def test_elements_without_columns_are_refused(sqlite: str, value: Any, options: Any, message: str) -> None:
    assert message in failing(writer(sqlite, **options), [at(value)])


KINDS = {
    "a_text": ["x", "ünï\n'; --", None],
    "b_integer": [2**63 - 1, -(2**63), None],
    "c_double": [0.1, math.inf, None],
    "d_boolean": [True, False, None],
    "e_timestamp": [
        dt.datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2026, 7, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        None,
    ],
    "f_date": [dt.date(2026, 1, 1), dt.date(1, 1, 1), None],
    "g_binary": [b"\x00\xff", b"", None],
    "h_decimal": [Decimal("0.10"), Decimal("123456789012345678.123456789"), None],
}


def test_all_kinds_of_values_come_back_as_they_were(database: str) -> None:
    rows = [dict(zip(KINDS, values, strict=True)) for values in zip(*KINDS.values(), strict=True)]
    to = writer(database)
    to.write(list(map(at, rows)), 0)
    to.write(list(map(at, rows)), 1)  # now the table is there
    to.close()
    with connected(database) as connection:
        types = {c["name"]: str(c["type"]) for c in sa.inspect(connection).get_columns("things")}
    stored = [dict(zip(KINDS, row, strict=True)) for row in contents(database).elements()]
    if database.startswith("sqlite"):
        assert types["e_timestamp"] == "DATETIME" and types["h_decimal"] == "TEXT"
        for row in stored:
            row["d_boolean"] = None if row["d_boolean"] is None else bool(row["d_boolean"])
            row["e_timestamp"] = row["e_timestamp"] and dt.datetime.fromisoformat(row["e_timestamp"] + "+00:00")
            row["f_date"] = row["f_date"] and dt.date.fromisoformat(row["f_date"])
            row["h_decimal"] = row["h_decimal"] and Decimal(row["h_decimal"])
    else:
        assert types == {
            "a_text": "TEXT",
            "b_integer": "BIGINT",
            "c_double": "DOUBLE PRECISION",
            "d_boolean": "BOOLEAN",
            "e_timestamp": "TIMESTAMP",
            "f_date": "DATE",
            "g_binary": "BYTEA",
            "h_decimal": "NUMERIC",
        }
    assert Counter(tuple(row.values()) for row in stored) == Counter(tuple(row.values()) for row in rows * 2)


def test_a_naive_datetime_is_in_utc(postgresql: str) -> None:
    rows = written(postgresql, [at({"t": dt.datetime(2026, 1, 1)}), at({"t": dt.datetime(2026, 1, 2, tzinfo=UTC)})])
    assert rows == Counter([(dt.datetime(2026, 1, day, tzinfo=UTC),) for day in (1, 2)])


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Hit, [Hit("a", 1), Hit("b", "two")], "the column 'hits' holds integer, got the str 'two'"),
        (Hit, [Hit("a", 1), Hit("b", 2.5)], "the column 'hits' holds integer, got the float 2.5"),
        (Hit, [Hit("a", 2**63)], f"the column 'hits' holds integer, got the int {2**63}"),
        (Hit, [Hit(7, 1)], "the column 'url' holds text, got the int 7"),
        (None, [{"a": 1}, {"a": "x"}], "the column 'a' holds integer, got the str 'x'"),
        (None, [{"a": dt.date(2026, 1, 1)}, {"a": True}], "the column 'a' holds date, got the bool True"),
    ],
)
def test_a_value_of_another_kind_is_told_with_its_column(sqlite: str, kind: Any, values: Any, message: str) -> None:
    assert message in failing(writer(sqlite, kind), list(map(at, values)))
    assert not kind or contents(sqlite) == Counter()


def test_what_loses_nothing_is_converted(database: str) -> None:
    first = {"double": 0.5, "decimal": Decimal("0.5"), "time": dt.datetime(2026, 1, 1, tzinfo=UTC)}
    then = {"double": 2, "decimal": 3, "time": dt.date(2026, 1, 2)}
    columns = pa.schema({"double": pa.float64(), "decimal": pa.decimal128(9, 2), "time": pa.timestamp("us")})
    assert sum(written(database, [at(first)], [at(then)], known=columns).values()) == 2


# Tables that are there


def test_a_table_that_is_there_keeps_what_elements_do_not_have(database: str) -> None:
    execute(database, "CREATE TABLE things (url TEXT PRIMARY KEY, hits BIGINT, note TEXT DEFAULT 'new')")
    execute(database, "INSERT INTO things VALUES ('a', 1, 'old'), ('c', 3, 'old')")
    rows = written(database, [at(Hit("a", 5)), at(Hit("b", 2))], key="url", mode="upsert")
    assert rows == Counter([(5, "old", "a"), (2, "new", "b"), (3, "old", "c")])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("url TEXT PRIMARY KEY", "the table 'things' has no column 'hits', which elements have; its columns are url"),
        ("url TEXT PRIMARY KEY, hits TEXT", "the column 'hits' of the table is TEXT, but elements have integer"),
        (
            "url TEXT PRIMARY KEY, hits BIGINT, why TEXT NOT NULL",
            "the column 'why' of the table 'things' needs a value",
        ),
        ("url TEXT, hits BIGINT", "the table 'things' may have several rows of one url; add a primary key"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_runs(database: str, table: str, message: str) -> None:
    execute(database, f"CREATE TABLE things ({table})")
    with pytest.raises(PipelineError, match=r"'out' \(.*tabling.py:\d+\): ") as raised:
        writer(database, Hit, key=["url"], mode="upsert")
    assert message in str(raised.value)


def test_a_unique_index_tells_rows_apart_if_it_is_of_all_rows_and_of_columns(database: str) -> None:
    execute(database, "CREATE TABLE things (url TEXT, hits BIGINT)", "CREATE UNIQUE INDEX low ON things (lower(url))")
    execute(database, "CREATE UNIQUE INDEX many ON things (url) WHERE hits > 5")
    with pytest.raises(PipelineError, match="may have several rows of one url"):
        writer(database, Hit, key=["url"], mode="upsert")
    execute(database, "CREATE UNIQUE INDEX whole ON things (url)")
    assert written(database, [at(Hit("a", 1))], [at(Hit("a", 2))], key="url", mode="upsert") == Counter([(2, "a")])


def test_with_a_unique_index_nulls_are_keys_too(database: str) -> None:
    execute(database, "CREATE TABLE things (url TEXT, day BIGINT, hits BIGINT, UNIQUE (url, day))")
    rows = [{"url": url, "day": day, "hits": 1} for url, day in ((None, None), (None, 1), ("a", None), ("a", 1))]
    more = [row | {"hits": 2} for row in rows[:3]]
    assert written(database, list(map(at, rows)), list(map(at, more)), key=["url", "day"], mode="upsert") == Counter(
        [(None, 2, None), (1, 2, None), (None, 2, "a"), (1, 1, "a")]
    )
    back = [at(more[0], back=True), at(rows[3], back=True)]
    assert written(database, back, key=["url", "day"], mode="upsert", stream="b") == Counter(
        [(1, 2, None), (None, 2, "a")]
    )


def test_columns_that_only_spark_knows_are_looked_at_when_the_run_begins(database: str) -> None:
    columns = pa.schema({"url": pa.string(), "hits": pa.int32(), "price": pa.decimal128(10, 2)})
    assert written(database, known=columns, key="url", mode="upsert") == Counter()
    wrong = pa.schema({"url": pa.string(), "visits": pa.int64()})
    with pytest.raises(PipelineError, match="has no column 'visits'"):
        writer(database, known=wrong, key="url", mode="upsert")


def test_columns_of_other_types_take_what_the_database_takes(postgresql: str) -> None:
    execute(postgresql, "CREATE TYPE mood AS ENUM ('good', 'bad')")
    execute(postgresql, "CREATE TABLE things (id serial PRIMARY KEY, n smallint, now mood, at timestamp, s varchar(3))")
    execute(postgresql, "ALTER ROLE amy SET timezone = 'Asia/Tokyo'")
    try:
        good = {"n": 1, "now": "good", "at": dt.datetime(2026, 1, 1, tzinfo=UTC), "s": "abc"}
        rows = written(postgresql, [at(good)])
    finally:
        execute(postgresql, "ALTER ROLE amy RESET timezone")
    assert rows == Counter([(dt.datetime(2026, 1, 1), 1, 1, "good", "abc")])
    assert 'invalid input value for enum mood: "so"' in failing(
        writer(postgresql, stream="b"), [at(good | {"now": "so"})]
    )
    assert "smallint out of range" in failing(writer(postgresql, stream="c"), [at(good | {"n": 2**20})])


@pytest.mark.parametrize("mode", ["upsert", "retract"])
@pytest.mark.parametrize("column", ["real", "numeric(10, 2)", "double precision"])
def test_a_row_that_was_rounded_is_found_again(postgresql: str, mode: Any, column: str) -> None:
    execute(postgresql, f"CREATE TABLE things (k bigint PRIMARY KEY, x {column})")
    key = ["k"] if mode == "upsert" else []
    rows = [at({"k": 1, "x": 1.23456789}), at({"k": 2, "x": math.nan}), at({"k": 3, "x": None})]
    to = writer(postgresql, mode=mode, key=key)
    to.write(rows, 0)
    assert len(contents(postgresql)) == 3
    to.write([row._replace(retraction=True) for row in rows], 1)
    to.close()
    assert contents(postgresql) == Counter()


def test_a_table_may_be_in_a_schema(postgresql: str) -> None:
    execute(postgresql, "CREATE SCHEMA IF NOT EXISTS elsewhere", "DROP TABLE IF EXISTS elsewhere.things")
    to = writer(postgresql, Hit, table="elsewhere.things", key="url", mode="upsert")
    to.write([at(Hit("a", 1))], 0)
    to.write([at(Hit("a", 2))], 1)
    to.close()
    with connected(postgresql) as connection:
        assert connection.execute(sa.text("SELECT url, hits FROM elsewhere.things")).all() == [("a", 2)]


def test_names_need_not_be_plain(database: str) -> None:
    odd = {'a "b"': 1, "select": 2, "%(x)s": 3, "a:b": 4}
    assert written(database, [at(odd)], key=["select", 'a "b"'], mode="upsert", table="my things") == Counter(
        [tuple(odd[name] for name in sorted(odd))]
    )


# Windows


def test_a_key_with_the_start_of_the_window_makes_columns_of_its_bounds(database: str) -> None:
    hits = [at(Hit("a", 1)), at(Hit("a", 2), 60, 120), at(Hit("a", 3), index=1)]
    written(database, hits, kind=Hit, key=["url", "window_start"], mode="upsert")
    with connected(database) as connection:
        rows = connection.execute(sa.text("SELECT url, hits, window_start, window_end FROM things ORDER BY hits")).all()
    start, end = "1970-01-01 00:00:00", "1970-01-01 00:01:00"
    assert [(*row[:2], *(str(bound)[:19] for bound in row[2:])) for row in rows] == [
        ("a", 2, end, "1970-01-01 00:02:00"),
        ("a", 3, start, end),
    ]


def test_bounds_that_are_asked_for_are_filled(postgresql: str) -> None:
    assert written(postgresql, [at(("a", 1))], columns=["word", "window_end", "n"]) == Counter([(1, MINUTE, "a")])
    execute(postgresql, "CREATE TABLE others (url text, hits bigint, window_end timestamptz)")
    assert written(postgresql, [at(Hit("a", 1))], table="others", stream="b") == Counter([(1, "a", MINUTE)])


def test_a_column_of_the_elements_is_not_filled(database: str) -> None:
    element = {"window_start": 7, "n": 1}
    assert written(database, [at(element)], key="window_start", mode="upsert", window=hr.GlobalWindows()) == Counter(
        [(1, 7)]
    )


@pytest.mark.parametrize("window", [hr.GlobalWindows(), hr.CountWindows(3)])
def test_bounds_that_are_no_times_are_refused(sqlite: str, window: Any) -> None:
    with pytest.raises(
        PipelineError, match=r"window_start, window_end would be bounds of windows, but elements are in"
    ):
        writer(sqlite, Hit, window=window, key=["url", "window_start"], mode="upsert")


def test_tables_of_one_database_get_a_batch_together_or_not_at_all(database: str) -> None:
    hits, visits = (writer(database, Hit, stream=name, table=name) for name in ("hits", "visits"))

    def batches(visited: list[WindowedValue]) -> list[TableBatch]:
        given = ((visits, visited), (hits, [at(Hit("a", 1))]))
        return [TableBatch(writer, partial(iter, [elements]), None) for writer, elements in given]

    with pytest.raises(WorkerFailure, match=r"the column .hits. holds integer, got the str .many."):
        write_together(batches([at(Hit("a", "many"))]), 0)  # type: ignore[arg-type]
    assert contents(database, "hits") == contents(database, "visits") == Counter()
    for _ in range(2):  # a batch that comes again is there once
        write_together(batches([at(Hit("a", 5))]), 0)
    assert contents(database, "hits") == Counter([(1, "a")])
    assert contents(database, "visits") == Counter([(5, "a")])
