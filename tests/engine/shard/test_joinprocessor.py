"""The processor of a join of two streams against the naive definition, with its state loaded at any time."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.joinprocessor import LEFT, RIGHT, JoinProcessor, JoinSide, JoinSpec, arrivals
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.times import MAX_TIME
from tests.reference_joins import Placed, StreamJoin, TimedJoin
from tests.scale import examples

SIZE = 10
HIDDEN = {TIME: pa.int64(), START: pa.int64(), END: pa.int64()}
SCHEMAS = (
    pa.schema({"id": pa.int64(), "x": pa.float64(), "l": pa.int64(), **HIDDEN}),
    pa.schema({"key": pa.int64(), "z": pa.float64(), "r": pa.int64(), **HIDDEN}),
)
TIMED = tuple(pa.schema([each for each in side if each.name not in (START, END)]) for side in SCHEMAS)
INTERVALS = [(0, 0), (-3, 8), (2, 9), (-12, -4)]
PAIRS = [(("id", "key"),), (("id", "key"), ("x", "z"))]
NAMES = {PAIRS[0]: ["id", "x", "l", "z", "r"], PAIRS[1]: ["id", "x", "l", "r"]}
HOWS = ["inner", "left", "right", "outer"]

keys = st.sampled_from([None, 0, 1, 2])
floats = st.sampled_from([None, 0.0, -0.0, float("nan")])
events = st.lists(st.tuples(st.integers(LEFT, RIGHT), keys, floats, st.integers(0, 45)), max_size=12)
moves = st.lists(st.tuples(events, st.integers(0, 60), st.integers(0, 3)), max_size=8)


def spec(pairs: Any, how: str, lateness: int, within: tuple[int, int] | None = None) -> JoinSpec:
    ours, theirs = zip(*pairs, strict=True)
    schemas = SCHEMAS if within is None else TIMED
    sides = (
        JoinSide(schemas[LEFT], ours, how in ("left", "outer")),
        JoinSide(schemas[RIGHT], theirs, how in ("right", "outer")),
    )
    columns = tuple((name, LEFT if name in SCHEMAS[LEFT].names else RIGHT, name) for name in NAMES[pairs])
    return JoinSpec(sides, columns, lateness, within, late_by_time=within is not None)


def batch(side: int, rows: list[tuple[dict[str, Any], int]]) -> pa.RecordBatch:
    start = [time // SIZE * SIZE for _, time in rows]
    placed = [
        row | {TIME: time, START: first, END: first + SIZE} for (row, time), first in zip(rows, start, strict=True)
    ]
    return arrivals(side, pa.RecordBatch.from_pylist(placed, schema=SCHEMAS[side]))


def shown(rows: list[Placed]) -> Counter[str]:
    def plain(value: Any) -> Any:
        return value + 0.0 if isinstance(value, float) else value  # -0.0 and 0.0 are one value

    return Counter(repr(({name: plain(value) for name, value in row.items()}, window)) for row, window in rows)


def emitted(panes: pa.RecordBatch) -> list[Placed]:
    return [
        ({name: value for name, value in row.items() if name not in HIDDEN}, (row[START], row[END]))
        for row in panes.to_pylist()
    ]


@examples(200)
@given(moves, st.sampled_from(PAIRS), st.sampled_from(HOWS), st.sampled_from([0, 7]))
def test_a_shard_joins_as_the_naive_definition(moves: list[Any], pairs: Any, how: str, lateness: int) -> None:
    """At any step the state goes through its blocks: all of them, a copy and its deltas, or parts."""
    joined = spec(pairs, how, lateness)
    shard, naive = JoinProcessor(joined), StreamJoin(pairs, how, NAMES[pairs], lateness)
    blocks, behind, since = shard.dump(), JoinProcessor(joined), shard.dump()
    number = late = 0
    watermark, punctual = -100, True
    for coming, move, way in [*moves, ([], 10**6, 0)]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for side, key, value, time in coming:
            names = ("id", "x", "l") if side == LEFT else ("key", "z", "r")
            sides[side].append((dict(zip(names, (key, value, number), strict=True)), time))
            number += 1
        watermark = max(watermark, move - 20)
        placed = [[(row, (t // SIZE * SIZE, t // SIZE * SIZE + SIZE)) for row, t in rows] for rows in sides]
        rows = pa.concat_batches([batch(side, rows) for side, rows in enumerate(sides)])
        low_in, low_out = shard.clocks.watermark, shard.watermark
        step = shard.step(rows, Clocks(watermark))
        assert shown(emitted(step.panes)) == shown(naive.step(*placed, watermark))
        late += 0 if step.late is None else step.late.num_rows
        assert late == naive.late
        punctual &= all(time >= low_in for rows in sides for _, time in rows)
        if punctual:  # then nothing comes out late, either
            assert all(time >= low_out for time in step.panes.column(TIME).to_pylist())
        delta = shard.changes()
        blocks, since = blocks + delta, since + delta
        if way == 1:
            shard = JoinProcessor(joined)
            shard.load(blocks)
        elif way == 2:
            behind.load(since)
            behind, shard, since = shard, behind, []
            behind = JoinProcessor(joined)
            behind.load(blocks)
        elif way == 3:
            middle = HASHES // 3
            blocks = blocks + shard.part(0, middle) + shard.part(middle, HASHES)
            shard = JoinProcessor(joined)
            shard.load(blocks)
    assert step.held == 0 and shard.watermark == 10**6 - 20


@examples(200)
@given(moves, st.sampled_from(PAIRS), st.sampled_from(HOWS), st.sampled_from([0, 7]), st.sampled_from(INTERVALS))
def test_a_shard_joins_by_time_as_the_naive_definition(
    moves: list[Any], pairs: Any, how: str, lateness: int, within: tuple[int, int]
) -> None:
    """Rows come in any order, some of them late; the state goes through its blocks as above."""
    joined = spec(pairs, how, lateness, within)
    shard, naive = JoinProcessor(joined), TimedJoin(pairs, how, NAMES[pairs], lateness, within)
    blocks = shard.dump()
    number = late = 0
    watermark, punctual = -100, True
    for coming, move, way in [*moves, ([], 10**6, 0)]:
        sides: tuple[list[Placed], list[Placed]] = ([], [])
        for side, key, value, time in coming:
            names = ("id", "x", "l") if side == LEFT else ("key", "z", "r")
            sides[side].append((dict(zip(names, (key, value, number), strict=True)), time))
            number += 1
        watermark = max(watermark, move - 20)
        timed = [[row | {TIME: time} for row, time in rows] for rows in sides]
        rows = [arrivals(side, pa.RecordBatch.from_pylist(each, TIMED[side])) for side, each in enumerate(timed)]
        low_in, low_out = shard.clocks.watermark, shard.watermark
        step = shard.step(pa.concat_batches(rows), Clocks(watermark))
        panes = step.panes.to_pylist()
        assert shown([(row, row.pop(TIME)) for row in panes]) == shown(naive.step(*sides, watermark))
        late += 0 if step.late is None else step.late.num_rows
        assert late == naive.late
        punctual &= all(time >= low_in for rows in sides for _, time in rows)
        if punctual:  # then nothing comes out late, either
            assert all(time >= low_out for time in step.panes.column(TIME).to_pylist())
        blocks = blocks + shard.changes()
        if way in (1, 3):
            blocks = blocks if way == 1 else blocks + shard.part(0, HASHES // 3) + shard.part(HASHES // 3, HASHES)
            shard = JoinProcessor(joined)
            shard.load(blocks)
    assert step.held == 0 and shard.watermark == 10**6 - 20
    assert not any(buffer.size for buffer in shard.waiting)


def test_rows_that_may_become_results_hold_the_watermark() -> None:
    rows = [({"id": 1, "x": None, "l": 0}, 3)]
    for how, lateness, expected in [
        ("inner", 0, [3, 12, 60]),
        ("inner", 5, [3, 12, 60]),
        ("left", 5, [3, 3, 60]),
        ("right", 5, [3, 12, 60]),
    ]:
        shard = JoinProcessor(spec(PAIRS[0], how, lateness))
        shard.step(batch(LEFT, rows), Clocks(0))
        assert [shard.step(None, Clocks(watermark)).watermark for watermark in (7, 12, 60)] == expected, how


def test_in_the_global_window_rows_wait_for_ever_and_hold_nothing() -> None:
    schemas = [pa.schema([each for each in side if each.name not in (START, END)]) for side in SCHEMAS]
    sides = (JoinSide(schemas[LEFT], ("id",)), JoinSide(schemas[RIGHT], ("key",)))
    shard = JoinProcessor(JoinSpec(sides, (("l", LEFT, "l"), ("r", RIGHT, "r"))))
    left = pa.RecordBatch.from_pylist([{"id": 1, "l": 5, TIME: 3}], schema=schemas[LEFT])
    right = pa.RecordBatch.from_pylist(
        [{"key": 1, "r": 6, TIME: 4}, {"key": 2, "r": 7, TIME: 4}], schema=schemas[RIGHT]
    )
    assert shard.step(arrivals(LEFT, left), Clocks(100)).watermark == 100
    step = shard.step(arrivals(RIGHT, right), Clocks(200))
    assert step.panes.to_pylist() == [{"l": 5, "r": 6, TIME: 3}] and step.held == 2
    assert shard.step(None, Clocks(MAX_TIME)).held == 0


def test_state_of_other_columns_is_refused() -> None:
    shard = JoinProcessor(spec(PAIRS[0], "inner", 0))
    shard.step(batch(LEFT, [({"id": 1, "x": None, "l": 0}, 3)]))
    other = spec(PAIRS[0], "inner", 0)
    changed = JoinSide(other.sides[LEFT].schema.append(pa.field("new", pa.string())), ("id",))
    with pytest.raises(ValueError, match=r"rows on the left .* \(id int64, x double, l int64\), and now .* new string"):
        JoinProcessor(JoinSpec((changed, other.sides[RIGHT]), other.columns)).load(shard.dump())


def test_a_hot_key_and_many_batches_stay_exact() -> None:
    joined = spec(PAIRS[0], "inner", 0)
    shard = JoinProcessor(joined)
    total = 0
    for number in range(40):
        left = [({"id": number % 3, "x": 0.0, "l": number}, 5)] * 5
        total += shard.step(pa.concat_batches([batch(LEFT, left), batch(RIGHT, [({"key": 0}, 6)])])).panes.num_rows
    assert total == sum(5 for number in range(40) if number % 3 == 0) * 40
    assert math.isclose(np.asarray(shard.waiting[LEFT]["time"]).mean(), 5)
