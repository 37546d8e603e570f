"""Rows of views that expire: they leave the table and the state, and late rows for them change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, parse_statements
from headrace.dialects.sql.sqltransform import relation_of
from headrace.dialects.sql.ttl import lateness_for, ttl_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from tests.dialects.sql.answers import answer
from tests.dialects.sql.memoryrun import Change, MemoryRun
from tests.dialects.sql.randomqueries import Batch, streams
from tests.dialects.sql.test_prefix_integrity import Row, table_of
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 10  # seconds


def planner_of(pipeline: hr.Pipeline) -> Planner:
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Row)
    return Planner({"t": replace(relation_of("t", source), time="ts")})


@pytest.mark.slow("streams by the dozen, each recounted after every batch")
@examples(100, deadline=None)
@given(streams(), st.sampled_from([10, 15, 40]), st.sampled_from(["window_start", "window_end"]))
def test_the_table_is_the_answer_over_rows_that_came_before_their_windows_expired(
    stream: list[Batch], ttl: int, column: str
) -> None:
    """Of each window that has not expired, all rows that came count; of one that has, there is nothing: no state."""
    (statement,) = parse_statements(
        f"CREATE VIEW v WITH (ttl = '{ttl} seconds', ttl_column = '{column}') AS SELECT k, window_start, window_end, "
        f"count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{WINDOW}' SECONDS) "
        "GROUP BY k, window_start, window_end"
    )
    assert isinstance(statement, CreateQuery)
    found = ttl_of(statement)
    assert found is not None
    lateness = lateness_for(found, planner_of(hr.Pipeline()).plan(statement.query, statement.text), statement)
    pipeline = hr.Pipeline()
    planner = planner_of(pipeline)
    plan = planner.plan(statement.query, statement.text, lateness=lateness)
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, planner.tables["t"].collection, {"v": plan.collection})
    changes: list[Change] = []
    expected: dict[tuple[Any, int], int] = {}
    watermark = 0
    after = 0 if column == "window_start" else WINDOW

    def expired(start: int) -> bool:
        return start + after + ttl <= watermark

    for batch, ahead, restarts in stream:
        rows = [{"id": n, "k": k, "x": x, "y": y, "ts": at * SECOND} for n, (k, x, y, at) in enumerate(batch)]
        for k, _, _, at in batch:
            start = at - at % WINDOW
            if not expired(start):
                expected[k, start] = expected.get((k, start), 0) + 1
        watermark += ahead
        arrived = table_of(rows).drop_columns(["seen"])
        arrived = arrived.append_column(TIME, arrived.column("ts").cast("int64"))
        changes += run.step(arrived, watermark * SECOND)["v"]
        expected = {(k, start): n for (k, start), n in expected.items() if not expired(start)}
        rows_there = [(k, int(start.timestamp()), n) for k, start, _, n in answer(changes, plan)]
        there = {(k, start): n for k, start, n in rows_there if not expired(start)}  # as WriteTable deletes
        assert there == expected
        for processor in run.processors.values():
            assert processor.table.held == len(expected)
        if restarts:
            run.restart()


STREAM = """CREATE STREAM hits (url text, at timestamp, WATERMARK FOR at AS at - INTERVAL '5' SECOND)"""


def rows_of(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    table = session.execute(query)[0].table
    assert table is not None
    return [tuple(row.values()) for row in table.to_pylist()]


@only_full("the other expires rows without Spark")
@pytest.mark.slow("a session with three views, started twice")
def test_rows_of_views_expire_and_changes_say_so(spark: SparkSession, tmp_path: Path) -> None:
    grouped = (
        "AS SELECT url, window_start, count(*) AS n FROM TUMBLE(TABLE hits, DESCRIPTOR(at), INTERVAL '10' SECONDS) "
        "GROUP BY url, window_start"
    )

    def insert(*seconds: int) -> None:
        listed = ", ".join(f"('/{n}', '2026-01-31T12:00:{n:02}Z')" for n in seconds)
        session.execute(f"INSERT INTO hits VALUES {listed}")
        session.catch_up()

    def urls(view: str) -> list[str]:
        return [url for (url,) in rows_of(session, f"SELECT url FROM {view} ORDER BY url")]

    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(STREAM)
        refused = {
            f"CREATE VIEW v WITH (ttl = '1 day') {grouped}": "ttl needs the column that it counts from",
            f"CREATE VIEW v WITH (ttl = '0 days', ttl_column = 'window_start') {grouped}": "ttl must be positive",
            f"CREATE VIEW v WITH (ttl = 'soon', ttl_column = 'window_start') {grouped}": "ttl: ",
            f"CREATE VIEW v WITH (ttl = '5 seconds', ttl_column = 'window_start') {grouped}": "are not over yet",
            f"CREATE VIEW v WITH (ttl = '1 day', ttl_column = 'window_strat') {grouped}": "did you mean 'window_start'",
            f"CREATE VIEW v WITH (ttl = '1 day', ttl_column = 'n') {grouped}": "'n' is no bound of windows",
            f"CREATE VIEW v WITH (ttl = '20 seconds', ttl_column = 'window_start') {grouped} EMIT AFTER WATERMARK "
            "WITH LATENESS INTERVAL '1' HOUR": "give less LATENESS, or a longer ttl",
            "CREATE VIEW v WITH (ttl = '1 day', ttl_column = 'url') AS SELECT url FROM hits": "'url' is string; a ttl",
            "CREATE TRANSFORM v INTO hits WITH (ttl = '1 day', ttl_column = 'at') AS SELECT * FROM hits": "for views",
        }
        for text, reason in refused.items():
            with pytest.raises(hr.HeadraceError, match=reason):
                session.execute(text)
        session.execute(
            f"CREATE VIEW recent WITH (ttl = '20 seconds', ttl_column = 'window_start') {grouped};"
            f"CREATE VIEW everything {grouped};"
            "CREATE VIEW raw WITH (ttl = '20 seconds', ttl_column = 'at') AS SELECT url, at FROM hits"
        )
        with session.subscribe("recent", snapshot=False) as changes:
            insert(1, 11)
            insert(24)  # the watermark is at 19
            assert urls("recent") == ["/1", "/11", "/24"]
            insert(25)  # it is at 20: the first window has lived for 20 seconds
            assert urls("recent") == ["/11", "/24", "/25"]
            insert(2, 12)  # late for the first, and not for the second
            assert urls("recent") == ["/11", "/12", "/24", "/25"]
            told: list[tuple[str | None, str | None]] = []
            for change in changes:
                told.append((change.old and change.old["url"], change.new and change.new["url"]))
                if change.new is not None and change.new["url"] == "/12":
                    break
        assert sorted(told, key=str) == sorted(
            [(None, "/1"), (None, "/11"), (None, "/24"), (None, "/25"), ("/1", None), (None, "/12")], key=str
        )
        assert urls("everything") == ["/1", "/11", "/12", "/2", "/24", "/25"]
        assert urls("raw") == ["/11", "/12", "/24", "/25"]  # the newest is of 25
        (handle,) = session.passes().values()
        status = handle.status()
        assert sum(each.late for each in status.exchanges.values()) == 1  # type: ignore[attr-defined]
        assert sorted(each.held for each in status.exchanges.values()) == [4, 6]  # type: ignore[attr-defined]
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        insert(3, 36)  # the watermark is at 31, and what has expired stays away
        assert urls("recent") == ["/24", "/25", "/36"]
        assert urls("raw") == ["/24", "/25", "/36"]
