"""Tests that batches are in a table once, whatever breaks them off, and which databases cannot be written to."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from headrace.edges.tablestatements import TableTarget
from headrace.model.errors import PipelineError
from tests.edges.postgresql import PASSWORD
from tests.edges.tabling import Hit, at, connected, contents, execute, failing, writer, written

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
