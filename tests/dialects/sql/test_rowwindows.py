"""Windows of a number of rows: every n rows of a group, in the order in which they come."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqltransform import parse_query, relation_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from tests.dialects.sql.answers import answer
from tests.dialects.sql.memoryrun import Change, MemoryRun
from tests.dialects.sql.randomqueries import Batch, streams
from tests.dialects.sql.test_prefix_integrity import Row, table_of
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = """SELECT k, window_start, window_end, count(*) AS n, sum(y) AS total, count(DISTINCT y) AS d
    FROM TUMBLE(TABLE t, DESCRIPTOR(ts), {} ROWS) GROUP BY k, window_start, window_end"""


def expected(rows: list[tuple[Any, int]], size: int) -> set[tuple[Any, ...]]:
    """The windows of rows, which are key and number, from their definition."""
    by_key: dict[Any, list[int]] = {}
    for k, y in rows:
        by_key.setdefault(k, []).append(y)
    return {
        (k, start, start + size, len(part), sum(part), len({*part}))
        for k, ys in by_key.items()
        for start in range(0, len(ys), size)
        if (part := ys[start : start + size])
    }


@examples(100, deadline=None)
@given(streams(), st.integers(1, 4), st.booleans())
def test_every_n_rows_of_a_group_are_a_window(stream: list[Batch], size: int, whole: bool) -> None:
    text = QUERY.format(size) + (" EMIT AFTER WATERMARK" if whole else "")
    pipeline = hr.Pipeline()
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Row)
    plan = Planner({"t": replace(relation_of("t", source), time="ts")}).plan(parse_query(text), text)
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, source, {"answer": plan.collection})
    rows: list[tuple[Any, int]] = []
    changes: list[Change] = []
    for batch, _, restarts in stream:
        rows += [(k, y) for k, _, y, _ in batch]
        new = [{"id": n, "k": k, "x": x, "y": y, "ts": at * SECOND} for n, (k, x, y, at) in enumerate(batch)]
        arrived = table_of(new).drop_columns(["seen"])
        arrived = arrived.append_column(TIME, arrived.column("ts").cast("int64"))
        changes += run.step(arrived, 0)["answer"]
        wanted = expected(rows, size)
        assert {*answer(changes, plan)} == {each for each in wanted if not whole or each[3] == size}
        if restarts:
            run.restart()


def test_what_windows_of_rows_refuse() -> None:
    source = hr.Pipeline() | "t" >> hr.TestStream().finish().with_output_types(Row)
    planner = Planner({"t": replace(relation_of("t", source), time="ts")})
    for text, reason in {
        "SELECT k, window_start FROM TUMBLE(TABLE t, DESCRIPTOR(ts), 2 ROWS)": "numbered where they are grouped",
        "SELECT window_start + 1 AS w, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), 2 ROWS) "
        "GROUP BY window_start + 1": "by itself in GROUP BY",
    }.items():
        with pytest.raises(SqlError, match=reason):
            planner.plan(parse_query(text), text)


@only_full("the others have windows of rows without Spark")
def test_windows_of_rows_on_spark(spark: SparkSession) -> None:
    times = [datetime(2026, 1, 31, 12, 0, n, tzinfo=UTC) for n in range(20)]
    rows = [Row(n, "a" if n % 3 else "b", n, n % 5, at) for n, at in enumerate(times)]
    timed = [hr.TimestampedValue(row, row.ts) for row in rows]
    wanted, text = expected([(row.k, row.y) for row in rows], 4), QUERY.format(4)
    batches = [timed[:7], timed[7:8], timed[8:]]
    script = hr.TestStream()
    for each in batches:
        script = script.add(each)
    sources: list[Any] = [hr.Create(timed), script.finish()]
    for source in sources:
        p = hr.Pipeline(spark=spark)
        t = p | "t" >> source.with_output_types(Row)
        plans = {}
        for name, emit in (("growing", ""), ("whole", " EMIT AFTER WATERMARK")):
            planner = Planner({"t": replace(relation_of("t", t), time="ts")})
            plans[name] = planner.plan(parse_query(text + emit), text + emit)
        collected = {name: plan.collection | f"collect {name}" >> hr.Collect() for name, plan in plans.items()}
        p.run().wait()
        assert {*answer(collected["growing"].windowed, plans["growing"])} == wanted
        whole = {*answer(collected["whole"].windowed, plans["whole"])}
        assert whole == wanted  # at its end, a stream emits what is left
