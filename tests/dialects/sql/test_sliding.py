"""Sliding views: the answer over the time before the last step that the watermark has passed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sliding import UNTIL, slid, sliding_of, sliding_query
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream, parse_statements
from headrace.dialects.sql.sqltransform import relation_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from tests.dialects.sql.memoryrun import MemoryRun
from tests.dialects.sql.randomqueries import Batch, streams
from tests.dialects.sql.test_prefix_integrity import Row, table_of
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "CREATE STREAM t (k text, x bigint, y bigint, ts timestamp, WATERMARK FOR ts AS ts)"


@examples(100, deadline=None)
@given(streams(), st.sampled_from([(10, 10), (20, 5), (21, 7)]))
def test_a_sliding_view_is_the_answer_over_its_last_window(stream: list[Batch], sizes: tuple[int, int]) -> None:
    length, step = sizes
    declared, view = parse_statements(
        f"{STREAM}; CREATE VIEW v WITH (sw = '{length} seconds', step = '{step} seconds') AS "
        "SELECT k, count(*) AS n FROM t WHERE y >= 0 GROUP BY k"
    )
    assert isinstance(declared, CreateStream) and isinstance(view, CreateQuery)
    sliding = sliding_of(view)
    assert sliding is not None
    pipeline = hr.Pipeline()
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Row)
    planner = Planner({"t": replace(relation_of("t", source), time="ts")})
    plan = slid(planner.plan(sliding_query(sliding, view, {"t": declared}), view.text, combines=True))
    assert (plan.key, plan.hidden) == (("k",), (UNTIL,))
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, source, {"v": plan.collection})
    rows: list[tuple[Any, int, int]] = []  # key, time, and the watermark when it came
    there: dict[Any, tuple[int, int]] = {}
    watermark = 0
    for batch, ahead, restarts in stream:
        rows += [(k, at, watermark) for k, _, y, at in batch if y >= 0]
        new = [{"id": n, "k": k, "x": x, "y": y, "ts": at * SECOND} for n, (k, x, y, at) in enumerate(batch)]
        watermark += ahead
        arrived = table_of(new).drop_columns(["seen"])
        arrived = arrived.append_column(TIME, arrived.column("ts").cast("int64"))
        changes = run.step(arrived, watermark * SECOND)["v"]
        for k, n, until in sorted((tuple(each.value) for each in changes), key=lambda row: row[2]):
            there[k] = n, int(until.replace(tzinfo=UTC).timestamp())
        there = {k: (n, until) for k, (n, until) in there.items() if until > watermark - step}  # as WriteTable deletes
        end = watermark - watermark % step
        expected = Counter(k for k, at, seen in rows if end - length <= at < end and seen < end)
        assert {k: n for k, (n, _) in there.items()} == expected
        if restarts:
            run.restart()


@only_full("the other plans them, and test_ttl.py has rows that expire on Spark")
@pytest.mark.slow("a session with two views, started twice")
def test_a_sliding_view_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    def insert(*seconds: int) -> None:
        listed = ", ".join(f"('{'odd' if n % 2 else 'even'}', {n}, {n}, '2026-01-31T12:00:{n:02}Z')" for n in seconds)
        session.execute(f"INSERT INTO t VALUES {listed}")
        session.catch_up()

    def select(query: str) -> list[tuple[Any, ...]]:
        table = session.execute(query)[0].table
        assert table is not None
        return [tuple(row.values()) for row in table.to_pylist()]

    grouped = "AS SELECT k, count(*) AS n, avg(x) AS mean FROM t GROUP BY k"
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(f"{STREAM}; CREATE STREAM timeless (k text)")
        for options, query, reason in (
            ("step = '1 second'", grouped, "step is how far a sliding view moves on"),
            ("sw = '1 second', step = '2 seconds'", grouped, "sw must be so many steps long"),
            ("sw = '0 seconds'", grouped, "sw must be positive"),
            ("sw = 'long'", grouped, "sw: "),
            ("sw = '1 hour', ttl = '1 hour', ttl_column = 'k'", grouped, "has no ttl"),
            ("sw = '1 hour'", "AS SELECT k, count(*) AS n FROM timeless GROUP BY k", "a stream with an event time"),
            ("sw = '1 hour'", "AS SELECT DISTINCT k FROM t", "sw is for a SELECT of aggregates over one stream"),
            ("sw = '1 hour'", "AS SELECT count(*) AS n FROM t GROUP BY k", "must be in the SELECT"),
        ):
            with pytest.raises(hr.HeadraceError, match=reason):
                session.execute(f"CREATE VIEW v WITH ({options}) {query}")
        session.execute(
            f"CREATE VIEW v WITH (sw = '20 seconds', step = '5 seconds') {grouped};"
            "CREATE VIEW total WITH (sw = '20 seconds') AS SELECT count(*) AS n FROM t"
        )
        with pytest.raises(hr.HeadraceError, match="v is a sliding view"):
            session.execute("CREATE VIEW w AS SELECT count(*) AS groups FROM v")
        assert [name for name, _ in select("DESCRIBE v")] == ["k", "n", "mean"]
        insert(1, 2, 3)
        assert select("SELECT * FROM v") == []  # no step is over
        insert(12)  # as of 10
        assert select("SELECT * FROM v ORDER BY k") == [("even", 1, 2.0), ("odd", 2, 2.0)]
        assert select("SELECT * FROM total") == [(3,)]
        assert select("SELECT combine(mean) AS mean FROM v") == [(2.0,)]
        insert(20, 4)  # as of 20; the second is late for the windows that are over, and not for those to come
        assert select("SELECT * FROM v ORDER BY k") == [("even", 3, 6.0), ("odd", 2, 2.0)]
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        insert(26)  # as of 25: from 5 on
        assert select("SELECT * FROM v ORDER BY k") == [("even", 2, 16.0)]
        insert(27)  # a step of `total` is a second: as of 27, from 7 on
        assert select("SELECT * FROM total") == [(3,)]
