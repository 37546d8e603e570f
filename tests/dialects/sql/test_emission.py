"""EMIT: what windows emit, step by step, through the engine's own processors."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sqltransform import parse_query, relation_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from tests.dialects.sql.memoryrun import MemoryRun
from tests.dialects.sql.test_prefix_integrity import Row, table_of

# Steps: the times of rows that come, in seconds, and the watermark behind them; windows are of ten seconds. For each
# step, the counts of the first window that are emitted.
STEPS = [([1, 2], 0), ([3], 5), ([], 12), ([4], 13), ([5, 6], 14), ([], 25), ([7], 30)]
EMITTED = {
    "": [2, 3, None, 4, 6, None, 7],
    "EMIT AFTER WATERMARK": [None, None, 3, None, None, None, None],
    "EMIT AFTER WATERMARK WITH LATENESS INTERVAL '10' SECONDS": [None, None, 3, 4, 6, None, None],
    "EMIT AFTER WATERMARK WITH LATENESS INTERVAL '1' HOUR": [None, None, 3, 4, 6, None, 7],
    "EMIT AFTER COUNT 2 AND AFTER WATERMARK": [2, None, 3, None, None, None, None],
    "EMIT AFTER COUNT 2 AND AFTER WATERMARK THEN AFTER COUNT 2 WITH LATENESS INTERVAL '1' HOUR": (
        [2, None, 3, None, 6, None, None]
    ),
    "EMIT AFTER COUNT 1 THEN AFTER COUNT 3": [2, None, None, None, 6, None, None],
}


@pytest.mark.parametrize("emit", EMITTED)
def test_windows_emit_when_the_clause_says(emit: str) -> None:
    text = (
        "SELECT window_start, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECONDS) "
        f"GROUP BY window_start {emit}"
    )
    pipeline = hr.Pipeline()
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Row)
    plan = Planner({"t": replace(relation_of("t", source), time="ts")}).plan(parse_query(text), text)
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, source, {"answer": plan.collection})
    emitted: list[int | None] = []
    for times, watermark in STEPS:
        rows = table_of([{"id": at, "k": "a", "x": 1, "y": 1, "ts": at * SECOND} for at in times])
        rows = rows.drop_columns(["seen"]).append_column(TIME, rows.column("ts").cast("int64"))
        changes = run.step(rows, watermark * SECOND)["answer"]
        counts = [change.value.n for change in changes if not change.retraction]
        assert len(counts) <= 1
        emitted.append(counts[0] if counts else None)
    assert emitted == EMITTED[emit]
