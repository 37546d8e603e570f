"""The processor of an as-of join against the naive definition, with its state loaded at any time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.asofprocessor import AsOfProcessor
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.joinprocessor import LEFT, RIGHT, JoinSide, JoinSpec, arrivals
from headrace.engine.worker.hidden import TIME
from headrace.model.times import MAX_TIME
from tests.engine.shard.test_joinprocessor import shown
from tests.reference_joins import AsOfJoin, Placed
from tests.scale import examples

SCHEMAS = (
    pa.schema({"id": pa.int64(), "x": pa.float64(), "l": pa.int64(), TIME: pa.int64()}),
    pa.schema({"key": pa.int64(), "z": pa.float64(), "tags": pa.list_(pa.int64()), "r": pa.string(), TIME: pa.int64()}),
)
PAIRS = [(("id", "key"),), (("id", "key"), ("x", "z"))]
NAMES = {PAIRS[0]: ["id", "x", "l", "z", "tags", "r"], PAIRS[1]: ["id", "x", "l", "tags", "r"]}

floats = st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5])
lefts = st.tuples(st.sampled_from([None, 0, 1]), floats, st.integers(0, 40))
rights = st.tuples(st.integers(0, 1), floats, st.sampled_from([None, "a", "b"]), st.integers(0, 40))
moves = st.lists(
    st.tuples(st.lists(lefts, max_size=8), st.lists(rights, max_size=8), st.integers(0, 60), st.integers(0, 2)),
    max_size=7,
)


def spec(pairs: Any, how: str, lateness: int) -> JoinSpec:
    ours, theirs = zip(*pairs, strict=True)
    sides = (JoinSide(SCHEMAS[LEFT], ours, how == "left"), JoinSide(SCHEMAS[RIGHT], theirs))
    columns = tuple((name, LEFT if name in SCHEMAS[LEFT].names else RIGHT, name) for name in NAMES[pairs])
    return JoinSpec(sides, columns, lateness, late_by_time=True)


def batch(side: int, rows: list[Placed]) -> pa.RecordBatch:
    return arrivals(side, pa.RecordBatch.from_pylist([row | {TIME: time} for row, time in rows], SCHEMAS[side]))


@examples(200)
@given(moves, st.sampled_from(PAIRS), st.sampled_from(["inner", "left"]), st.sampled_from([0, 7]))
def test_a_shard_joins_as_the_naive_definition(moves: list[Any], pairs: Any, how: str, lateness: int) -> None:
    joined = spec(pairs, how, lateness)
    shard, naive = AsOfProcessor(joined), AsOfJoin(pairs, how, NAMES[pairs], lateness)
    blocks = shard.dump()
    number = late = 0
    watermark, punctual = -100, True
    for lefts, rights, move, way in [*moves, ([], [], 10**6, 0)]:
        left: list[Placed] = []
        for key, x, time in lefts:
            number += 1
            left.append(({"id": key, "x": x, "l": number}, time))
        # A key with a null matches nothing, and a task does not send it.
        right: list[Placed] = [
            ({"key": key, "z": z, "tags": None, "r": r}, time)
            for key, z, r, time in rights
            if z is not None or len(pairs) == 1
        ]
        watermark = max(watermark, move - 20)
        low_in, low_out = shard.clocks.watermark, shard.watermark
        step = shard.step(pa.concat_batches([batch(LEFT, left), batch(RIGHT, right)]), Clocks(watermark))
        panes = step.panes.to_pylist()
        assert shown([(row, row.pop(TIME)) for row in panes]) == shown(naive.step(left, right, watermark))
        late += 0 if step.late is None else step.late.num_rows
        assert late == naive.late
        punctual &= all(time >= low_in for rows in (left, right) for _, time in rows)
        if punctual:  # then nothing comes out late, either
            assert all(time >= low_out for time in step.panes.column(TIME).to_pylist())
        # Of each key there is one version that is valid at the least time of rows to come, and those after it.
        past = [row[pairs[0][1]] for row, since in stored(shard) if since <= watermark - lateness]
        if len(pairs) == 1:
            assert len(past) == len(set(past))
        blocks = blocks + shard.changes()
        if way:
            if way == 2:
                blocks = blocks + shard.part(0, HASHES // 3) + shard.part(HASHES // 3, HASHES)
            shard = AsOfProcessor(joined)
            shard.load(blocks)
    assert not shard.waiting[LEFT].size and shard.watermark == 10**6 - 20
    assert shard.step(None, Clocks(MAX_TIME)).held == 0
    assert not any(buffer.size for buffer in shard.waiting)


def stored(shard: AsOfProcessor) -> list[Placed]:
    buffer = shard.waiting[RIGHT]
    rows = buffer.take(pa.array(range(buffer.size), pa.int64()).to_numpy()).to_pylist()
    return [(row, row[TIME]) for row in rows]
