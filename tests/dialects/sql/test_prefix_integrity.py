"""Prefix integrity: after every micro-batch, the table of a query is the batch's answer over the rows so far.

Random queries over random streams, batches, lateness and restarts. Without Spark, groups are computed by the engine's
own processors and expressions by DuckDB, which also gives the answers; in FULL, some run on Spark, and Spark answers.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sqltransform import parse_query, relation_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from tests.dialects.sql.answers import answer, assert_same
from tests.dialects.sql.memoryrun import Change, MemoryRun, duckdb_of_tests, to_duckdb
from tests.dialects.sql.randomqueries import Batch, Query, final_queries, queries, streams
from tests.scale import examples


class Row(NamedTuple):
    id: int
    k: str | None
    x: int | None
    y: int
    ts: datetime


_TIME = pa.timestamp("us")
_SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in ("id", "x", "y")), ("k", pa.string()), ("ts", _TIME), ("seen", _TIME)]
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, _SCHEMA)


def batch_answer(query: Query, rows: list[dict[str, Any]], watermark: int) -> list[tuple[Any, ...]]:
    database = duckdb_of_tests()
    database.register("t", table_of(rows))
    source = query.rows.replace("{watermark}", f"make_timestamp({watermark})")
    database.execute(f"CREATE OR REPLACE TEMP TABLE source AS {source}")
    return database.execute(to_duckdb(query.batch)).fetchall()


def check(query: Query, stream: list[Batch]) -> None:
    pipeline = hr.Pipeline()
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Row)
    planner = Planner({"t": replace(relation_of("t", source), time="ts")})
    plan = planner.plan(parse_query(query.text), query.text)
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, source, {"answer": plan.collection})
    changes: list[Change] = []
    rows: list[dict[str, Any]] = []
    watermark = 0
    for batch, ahead, restarts in stream:
        new = [
            {"id": len(rows) + n, "k": k, "x": x, "y": y, "ts": at * SECOND, "seen": watermark}
            for n, (k, x, y, at) in enumerate(batch)
        ]
        rows += new
        watermark += ahead * SECOND
        arrived = table_of(new).drop_columns(["seen"])
        arrived = arrived.append_column(TIME, arrived.column("ts").cast(pa.int64()))
        changes += run.step(arrived, watermark)["answer"]
        assert_same(query.text, answer(changes, plan), batch_answer(query, rows, watermark))
        if restarts:
            run.restart()


@pytest.mark.slow("hundreds of queries, each planned and run batch by batch")
@examples(800, deadline=None)
@given(queries(), streams())
def test_after_every_batch_a_table_is_the_answer_over_the_prefix(query: Query, stream: list[Batch]) -> None:
    check(query, stream)


@pytest.mark.slow("dozens of queries, each planned and run batch by batch")
@examples(200, deadline=None)
@given(final_queries(), streams())
def test_windows_that_emit_once_are_the_answer_over_rows_that_were_not_late(query: Query, stream: list[Batch]) -> None:
    check(query, stream)
