"""Subscriptions to views: what they are told leads from the first rows to the table, whoever writes and whenever."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from headrace.dialects.sql import viewchanges
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.tablereads import TablePart
from headrace.dialects.sql.viewchanges import Change, Subscription
from tests.edges import postgresql
from tests.scale import FULL

SCHEMA = pa.schema(
    [("key", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("odd name", pa.bool_())]
)
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ResultTables]:
    """A database with the table of a view `v`."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/views.db"
    else:
        url = postgresql.empty(request.getfixturevalue("postgresql_server"), "changes")
    tables = ResultTables(url)
    tables.create("v", SCHEMA, ("key",))
    yield tables
    tables.close()


def write(tables: ResultTables, *statements: tuple[str, dict[str, Any]], commit: bool = True) -> None:
    """Executes statements in one transaction."""
    with tables._engine.connect() as connection:
        for text, values in statements:
            connection.execute(sa.text(text), values)
        if commit:
            connection.commit()


def upsert(key: str | None, n: int, odd: bool | None = None) -> tuple[str, dict[str, Any]]:
    text = (
        "INSERT INTO v VALUES (:key, :n, :at, :odd) ON CONFLICT (key) DO UPDATE SET n = excluded.n, at = excluded.at, "
        '"odd name" = excluded."odd name"'
    )
    return text, {"key": key, "n": n, "at": "2026-01-31 12:00:00+00:00", "odd": odd}


def delete(key: str) -> tuple[str, dict[str, Any]]:
    return "DELETE FROM v WHERE key = :key", {"key": key}


def row(key: str | None, n: int, odd: bool | None = None) -> dict[str, Any]:
    return {"key": key, "n": n, "at": AT, "odd name": odd}


def rows_of(tables: ResultTables) -> list[dict[str, Any]]:
    return tables.read({"v": SCHEMA})["v"].to_pylist()


def apply(rows: list[dict[str, Any]], changes: list[Change]) -> None:
    for change in changes:
        if change.old is not None:
            rows.remove(change.old)
        if change.new is not None:
            rows.append(change.new)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["key"]))


def read_all(subscription: Subscription) -> list[Change]:
    found: list[Change] = []
    while changes := subscription.read():
        found += changes
    return found


def objects(tables: ResultTables) -> set[str]:
    return {name for name in sa.inspect(tables._engine).get_table_names() if name.startswith("headrace_log")}


def test_changes_are_told_as_they_were_committed(tables: ResultTables) -> None:
    write(tables, upsert("a", 1, True), upsert(None, 7))
    with tables.subscribe("v", SCHEMA) as subscription:
        assert subscription.read() == [Change(None, row("a", 1, True)), Change(None, row(None, 7))]
        assert subscription.read() == []
        write(tables, upsert("b", 2), upsert("a", 3, False))
        write(tables, upsert("c", 9), commit=False)
        write(tables, upsert("a", 3, False), delete("b"))  # the first changes nothing
        assert subscription.read() == [
            Change(None, row("b", 2)),
            Change(row("a", 1, True), row("a", 3, False)),
            Change(row("b", 2), None),
        ]
        with tables.subscribe("v", SCHEMA, snapshot=False) as second:
            write(tables, upsert("d", 4))
            assert second.read() == subscription.read() == [Change(None, row("d", 4))]
        assert objects(tables)
        with pytest.raises(SqlError, match="more than 2 rows"):
            tables.subscribe("v", SCHEMA, most=2)
        write(tables, delete("d"))
        iterated = iter(subscription)
        assert next(iterated) == Change(row("d", 4), None)
        subscription.stop()
        assert list(iterated) == []
    assert not objects(tables)
    write(tables, upsert("e", 5))  # nobody follows it, and nothing is in the way


def test_a_dropped_view_ends_its_subscriptions(tables: ResultTables) -> None:
    with tables.subscribe("v", SCHEMA) as subscription:
        tables.drop("v")
        with pytest.raises(SqlError, match="the view was dropped"):
            subscription.read()
    tables.create("v", SCHEMA, ("key",))
    with tables.subscribe("v", SCHEMA) as subscription:
        write(tables, upsert("a", 1))
        assert subscription.read() == [Change(None, row("a", 1))]


def test_one_that_is_not_read_lapses(tables: ResultTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewchanges, "_RENEWAL", 0)
    late, prompt = tables.subscribe("v", SCHEMA), tables.subscribe("v", SCHEMA)
    log = sa.text("SELECT count(*) FROM headrace_log_v")
    for n in range(3):
        write(tables, upsert("a", n))
        prompt.read()
    with tables._engine.connect() as connection:
        assert connection.execute(log).scalar() == 3  # for the one that is late
    with tables._engine.begin() as connection:  # minutes pass
        connection.execute(sa.text("UPDATE headrace_subscribers SET until = 0 WHERE id = :id"), {"id": late._id})
    write(tables, upsert("a", 3))
    assert prompt.read() == [Change(row("a", 2), row("a", 3))]
    with tables._engine.connect() as connection:
        assert connection.execute(log).scalar() == 0
    with pytest.raises(SqlError, match="not read for"):
        late.read()
    late.stop()
    prompt.stop()
    assert not objects(tables)


def test_replayed_changes_are_the_table_whoever_writes_and_whenever(tables: ResultTables) -> None:
    """Several writers in transactions of their own, some of which are given up, while subscribers come and go."""
    rounds = 60 if FULL else 20
    failures: list[BaseException] = []

    def write_at_random(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for n in range(rounds):
                keys = sorted(chance.sample("abcdefgh", 3))  # in one order, as two writers would wait for each other
                statements = [delete(key) if chance.random() < 0.3 else upsert(key, n) for key in keys]
                write(tables, *statements, commit=chance.random() < 0.8)
        except BaseException as error:
            failures.append(error)

    def follow(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not over.is_set():
                with tables.subscribe("v", SCHEMA) as subscription:
                    rows: list[dict[str, Any]] = []
                    for _ in range(chance.randint(1, 8)):
                        apply(rows, subscription.read())
                    assert len({each["key"] for each in rows}) == len(rows)
        except BaseException as error:
            failures.append(error)

    over = threading.Event()
    rows: list[dict[str, Any]] = []
    with tables.subscribe("v", SCHEMA) as subscription:
        writers = [threading.Thread(target=write_at_random, args=(seed,)) for seed in range(3)]
        followers = [threading.Thread(target=follow, args=(seed,)) for seed in range(2)]
        for thread in (*writers, *followers):
            thread.start()
        while any(thread.is_alive() for thread in writers):
            apply(rows, subscription.read())  # fails at a change that does not follow from those before
            time.sleep(0.001)
        over.set()
        for thread in followers:
            thread.join()
        apply(rows, read_all(subscription))
        assert failures == []
        assert in_order(rows) == in_order(rows_of(tables))
    assert not objects(tables)


def test_a_view_that_is_a_part_of_a_table_is_followed_by_itself(tables: ResultTables) -> None:
    columns = pa.schema([("_query", pa.int64()), ("key", pa.string()), ("n", pa.int64())])
    tables.create("shape", columns, ("_query", "key"))
    parts = {name: TablePart("shape", "_query", number) for number, name in enumerate(["p", "q"])}
    schema = pa.schema(list(columns)[1:])
    tables.create_views({name: (schema.names, part) for name, part in parts.items()})

    def put(number: int, key: str, n: int) -> tuple[str, dict[str, Any]]:
        text = "INSERT INTO shape VALUES (:number, :key, :n) ON CONFLICT (_query, key) DO UPDATE SET n = excluded.n"
        return text, {"number": number, "key": key, "n": n}

    write(tables, put(0, "a", 1), put(1, "a", 2))
    with tables.subscribe("p", schema, parts["p"]) as first, tables.subscribe("q", schema, parts["q"]) as second:
        assert first.read() == [Change(None, {"key": "a", "n": 1})]
        assert second.read() == [Change(None, {"key": "a", "n": 2})]
        write(tables, put(0, "a", 3), put(1, "b", 4), put(0, "b", 5))
        write(tables, ("DELETE FROM shape WHERE key = 'a'", {}))
        assert first.read() == [
            Change({"key": "a", "n": 1}, {"key": "a", "n": 3}),
            Change(None, {"key": "b", "n": 5}),
            Change({"key": "a", "n": 3}, None),
        ]
        assert second.read() == [Change(None, {"key": "b", "n": 4}), Change({"key": "a", "n": 2}, None)]
        tables.drop_view("q")
        tables.delete_queries("shape", [1])
        with pytest.raises(SqlError, match="the view was dropped"):
            second.read()
        write(tables, put(0, "c", 6))
        assert first.read() == [Change(None, {"key": "c", "n": 6})]
    assert objects(tables) == set()
    assert tables.read({"p": schema})["p"].to_pylist() == [{"key": "b", "n": 5}, {"key": "c", "n": 6}]
