"""Tests tables in SQLite and PostgreSQL. Modes are compared with a few lines of Python, over random panes."""

from __future__ import annotations

import datetime as dt
import math
import random
import sqlite3
import threading
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.edges.tablestatements import TableTarget
from headrace.model.errors import PipelineError, TransformError
from headrace.model.schema import row_type
from headrace.model.sinks import WindowedValue
from tests.edges.postgresql import PASSWORD
from tests.edges.tabling import at, connected, contents, execute, writer, written
from tests.scale import examples

UTC = dt.UTC
MINUTE = dt.datetime(1970, 1, 1, 0, 1, tzinfo=UTC)


class Hit(NamedTuple):
    url: str
    hits: int


@dataclass
class Click:
    url: str
    hits: int | None


def failing(to: Any, elements: list[WindowedValue], batch_id: int = 0) -> str:
    """Returns the message with which a batch fails."""
    from headrace.engine.worker.blame import plain_error

    with pytest.raises(Exception) as raised:
        to.write(elements, batch_id)
    error = plain_error(raised.value)
    assert isinstance(error, TransformError)
    to.close()
    return str(error)


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


# Modes


def test_appended_retractions_have_a_sign(database: str) -> None:
    panes = [at(("a", 1)), at(("a", 1), back=True), at(("a", 2), index=1)]
    rows = written(database, panes, retracting=True, columns=["word", "n"])
    assert rows == Counter([(1, 1, "a"), (1, -1, "a"), (2, 1, "a")])


def test_a_sign_of_the_elements_own_is_refused(sqlite: str) -> None:
    with pytest.raises(PipelineError, match="elements have a column 'sign', which marks retractions"):
        writer(sqlite, known=pa.schema({"sign": pa.int64()}), retracting=True)


def test_the_last_pane_of_the_last_window_replaces_the_others_however_they_come(database: str) -> None:
    panes = [
        at(Hit("a", n), start, start + 60, index=i) for n, (start, i) in enumerate([(0, 0), (0, 1), (60, 0), (60, 2)])
    ]
    for seed in range(4):
        random.Random(seed).shuffle(panes)
        assert written(database, panes, key="url", mode="upsert", stream=str(seed)) == Counter([(3, "a")])


def test_without_windows_the_latest_replaces_the_others_and_of_equally_late_ones_the_last(database: str) -> None:
    rows = [at(Hit("a", 1), time=5), at(Hit("a", 2), time=9), at(Hit("a", 3), time=9), at(Hit("a", 4), time=7)]
    assert written(database, rows, key="url", mode="upsert", window=hr.GlobalWindows()) == Counter([(3, "a")])


def test_what_is_taken_back_and_not_replaced_is_deleted_unless_another_row_is_in_its_place(database: str) -> None:
    batches = [
        [at(Hit("a", 1)), at(Hit("b", 1))],
        [at(Hit("b", 2), 60, 120)],
        [at(Hit("a", 1), back=True), at(Hit("b", 1), back=True)],
    ]
    assert written(database, *batches, key="url", mode="upsert") == Counter([(2, "b")])


def test_a_table_of_keys_alone_can_be_upserted(database: str) -> None:
    assert written(database, [at({"k": 1})], [at({"k": 1}), at({"k": 2})], key="k", mode="upsert") == Counter(
        [(1,), (2,)]
    )


@pytest.mark.parametrize("key", [[], ["url"]])
def test_a_retraction_of_a_row_that_is_not_there_is_an_error_and_changes_nothing(database: str, key: Any) -> None:
    to = writer(database, Hit, key=key, mode="retract")
    to.write([at(Hit("a", 1)), at(Hit("b", 2))], 0)
    message = failing(to, [at(Hit("a", 1), back=True), at(Hit("c", 3), back=True), at(Hit("d", 4))], 1)
    assert "a retraction takes back {'url': 'c', 'hits': 3}, which is not in the table 'things'" in message
    assert contents(database) == Counter([(1, "a"), (2, "b")])


def test_one_of_equal_rows_is_taken_away(database: str) -> None:
    known = pa.schema({"a": pa.int64(), "b": pa.string()})
    nothing = at({"a": 1, "b": None})
    back = nothing._replace(retraction=True)
    assert written(database, [nothing] * 3, [back, back], mode="retract", known=known) == Counter([(1, None)])


def test_a_key_that_is_none_is_refused(sqlite: str) -> None:
    to = writer(sqlite, Click, key=["url", "hits"], mode="upsert")
    assert "the key 'hits' is None in {'url': 'a', 'hits': None}" in failing(to, [at(Click("a", None))])


def test_a_key_that_is_there_twice_is_the_databases_error(database: str) -> None:
    message = failing(writer(database, Hit, key="url", mode="retract"), [at(Hit("a", 1)), at(Hit("a", 2))])
    assert "unique" in message.lower() and "url" in message
    assert contents(database) == Counter()


class Step(NamedTuple):
    """A pane of a key and a window: its value, or None if the window has become empty."""

    key: str
    window: int
    value: int | None
    new_batch: bool


STEPS = st.lists(
    st.builds(Step, st.sampled_from("ab"), st.integers(0, 1), st.none() | st.integers(0, 3), st.booleans()), max_size=25
)


def panes(steps: list[Step]) -> list[list[WindowedValue]]:
    """Returns the batches of a stream that retracts: each pane but the first of its window follows a retraction."""
    batches: list[list[WindowedValue]] = [[]]
    last: dict[tuple[str, int], WindowedValue] = {}
    index: Counter[tuple[str, int]] = Counter()
    for step in steps:
        if step.new_batch:
            batches.append([])
        of = step.key, step.window
        if of in last:
            batches[-1].append(last.pop(of)._replace(retraction=True))
        if step.value is not None:
            start = 60 * step.window
            last[of] = at({"k": step.key, "n": step.value}, start, start + 60, index=index[of])
            index[of] += 1
            batches[-1].append(last[of])
    return batches


def test_modes_mean_what_a_dict_and_a_multiset_mean(database: str) -> None:
    known = pa.schema({"k": pa.string(), "n": pa.int64()})
    by_window = ["k", "window_start"]
    writers = {
        "append": writer(database, known=known, retracting=True, table="append"),
        "upsert": writer(database, known=known, stream="b", table="upsert", mode="upsert", key=by_window),
        "retract": writer(database, known=known, stream="c", table="retract", mode="retract"),
        "by_key": writer(database, known=known, stream="d", table="by_key", mode="retract", key=by_window),
    }
    numbers = count()

    @examples(25)
    @given(STEPS, st.randoms(use_true_random=False))
    def hold(steps: list[Step], shuffled: random.Random) -> None:
        execute(database, *(f"DELETE FROM {table}" for table in writers))
        stays: dict[tuple[str, int], int] = {}
        bag: Counter[tuple[str, int]] = Counter()
        signed: Counter[tuple[str, int, int]] = Counter()
        for batch in filter(None, panes(steps)):
            for (key, n), window, back in [(each.value.values(), each.window, each.retraction) for each in batch]:
                signed[key, n, -1 if back else 1] += 1
                bag[key, n] += -1 if back else 1
                if back:
                    del stays[key, window.start]
                else:
                    stays[key, window.start] = n
            number = next(numbers)
            shuffled.shuffle(batch)  # shards are in no order
            for to in writers.values():
                for _ in range(shuffled.choice([1, 2])):  # and a batch may come again
                    to.write(batch, number)
        assert contents(database, "append") == signed
        assert contents(database, "retract") == +bag
        rows = Counter((key, n, start // 10**6) for (key, start), n in stays.items())
        for table in ("upsert", "by_key"):
            stored = contents(database, table)
            assert Counter({(key, n, _second(start)): times for (key, n, _, start), times in stored.items()}) == rows

    hold()
    for to in writers.values():
        to.close()


def _second(bound: Any) -> int:
    instant = dt.datetime.fromisoformat(bound + "+00:00") if isinstance(bound, str) else bound
    return int(instant.timestamp())


# Once


def test_a_batch_that_comes_again_changes_nothing(database: str) -> None:
    batches = [[at(Hit("a", 1))], [at(Hit("b", 2))]]
    once = written(database, *batches, kind=Hit)
    assert written(database, *batches, kind=Hit) == once  # by another run of the stream
    assert written(database, *batches, kind=Hit, stream="another") == once + once


class Abort(Exception):
    pass


@pytest.mark.parametrize("mode", ["append", "upsert", "retract"])
@pytest.mark.parametrize("place", ["in the midst", "before the commit", "after the commit"])
def test_a_batch_that_is_broken_off_is_written_once(
    database: str, mode: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = [] if mode == "append" else ["url"]
    first, second = [at(Hit("a", 1)), at(Hit("b", 1))], [at(Hit("c", 5)), at(Hit("d", 6))]
    to = writer(database, Hit, mode=mode, key=key)
    to.write(first, 0)
    before = contents(database)
    with monkeypatch.context() as patch:
        if place == "in the midst":  # some of the rows are written
            name = "upsert" if mode == "upsert" else "insert"
            statement = getattr(TableTarget, name)
            patch.setattr(TableTarget, name, lambda self, c, rows: (statement(self, c, rows[:1]), abort()))
        else:
            done = sa.engine.Connection._commit_impl
            patch.setattr(
                sa.engine.Connection,
                "_commit_impl",
                lambda self: abort() if place == "before the commit" else (done(self), abort()),
            )
        with pytest.raises(Exception, match="aborted"):
            to.write(second, 1)
    to.close()
    if place != "after the commit":
        assert contents(database) == before
    again = writer(database, Hit, mode=mode, key=key)
    again.write(second, 1)
    again.write([at(Hit("e", 7))], 2)
    again.close()
    assert contents(database) == Counter([(1, "a"), (1, "b"), (5, "c"), (6, "d"), (7, "e")])


def abort() -> None:
    raise Abort("aborted")


def test_a_table_that_a_failed_batch_would_have_made_is_not_there(database: str) -> None:
    to = writer(database, key="a", mode="retract")
    assert "unique" in failing(to, [at({"a": 1, "b": 1}), at({"a": 1, "b": 2})]).lower()
    with connected(database) as connection:
        assert sa.inspect(connection).get_table_names() == ["headrace_batches"]


def test_two_runs_of_one_stream_write_a_batch_once(database: str) -> None:
    runs = [writer(database, Hit) for _ in range(4)]
    batch = [at(Hit(str(n), n)) for n in range(50)]
    threads = [threading.Thread(target=run.write, args=(batch, 0)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for run in runs:
        run.close()
    assert sum(contents(database).values()) == 50


def test_streams_that_begin_at_once_make_one_table(database: str) -> None:
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            to = writer(database, Hit, stream=str(number), key="url", mode="upsert")
            to.write([at(Hit(str(n), number)) for n in range(20)], 0)
            to.close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sum(contents(database).values()) == 20


# Databases that cannot be written to


def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(PipelineError, match=r"cannot open the database postgresql\+psycopg://amy:\*\*\*@127") as raised:
        writer("postgresql://amy:s3cret@127.0.0.1:1/things", Hit)
    assert "is the server running there" in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_wrong_password_is_not_shown(postgresql: str) -> None:
    with pytest.raises(PipelineError, match="password authentication failed") as raised:
        writer(postgresql.replace(PASSWORD, "s3cret"), Hit)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(PipelineError, match='database "nowhere" does not exist'):
        writer(postgresql.replace("/postgres?", "/nowhere?"), Hit)


def test_the_password_is_in_no_text(postgresql: str) -> None:
    to = writer(postgresql, Hit)
    to.write([at(Hit("a", 1))], 0)
    shown = f"{to.sink} {to.sink!r} {vars(to.sink)} {to._engine!r}"
    execute(postgresql, "DROP TABLE things")
    shown += failing(to, [at(Hit("a", 1))], 1)
    assert 'relation "things" does not exist' in shown
    assert PASSWORD not in shown


def test_a_driver_that_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(
        PipelineError, match=r"needs the Python package 'psycopg'.*pip install 'headrace\[postgresql\]'"
    ):
        writer("postgresql://amy@127.0.0.1/things", Hit)


def test_a_folder_that_is_missing_is_told() -> None:
    with pytest.raises(PipelineError, match=r"does the folder of '/nowhere/things.db' exist"):
        writer("sqlite:////nowhere/things.db", Hit)


def test_a_locked_sqlite_is_told_and_written_when_it_is_free(sqlite: str) -> None:
    to = writer(f"{sqlite}?timeout=0.05", Hit)
    other = sqlite3.connect(sqlite.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Exception, match="database is locked: another process has been writing to it for too long"):
        to.write([at(Hit("a", 1))], 0)
    other.execute("COMMIT")
    other.close()
    to.write([at(Hit("a", 1))], 0)
    to.close()
    assert contents(sqlite) == Counter([(1, "a")])


def test_a_server_that_was_restarted_is_found_again(postgresql: str) -> None:
    to = writer(postgresql, Hit)
    to.write([at(Hit("a", 1))], 0)
    execute(postgresql, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    to.write([at(Hit("b", 2))], 1)
    to.close()
    assert contents(postgresql) == Counter([(1, "a"), (2, "b")])
