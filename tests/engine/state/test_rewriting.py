"""Cells of shards that are moved: what a job over them reads and writes, without Spark's part in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.checkpoint.manifest import GroupingEntry, Manifest
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.slots import shards_of
from headrace.engine.shard.wire import shard_dests
from headrace.engine.shard.work import Grouping
from headrace.engine.state.layouts import layout_of
from headrace.engine.state.resharding import Resharding
from headrace.engine.state.rewriting import Move, ShardMoves, StateChange, check_counts, rescaled
from headrace.engine.state.shardcounts import ShardCounts
from headrace.engine.state.statecells import StateCells, StateStamp
from headrace.engine.state.staterows import StateRows
from headrace.engine.state.storedstate import CELLS, shards_in_cells
from headrace.engine.stream.shards import Shard, ShardSpec
from headrace.engine.worker.shuffle import KEY
from headrace.model.algebra import SumFn
from headrace.model.keys import encode_key
from headrace.model.panes import Windowing
from headrace.model.times import MIN_TIME, SECOND
from tests.engine.shard.test_processor_properties import emissions, rows_of
from tests.engine.stream.test_shards import Store
from tests.reference_panes import Element

WORK = Grouping(Windowing(hr.FixedWindows(10)), SumFn())
WORDS = [f"w{number}" for number in range(40)]


def cells_of(shards: int, partitions: int) -> list[dict[str, Any]]:
    """The cells of an exchange, numbered 3, behind another one, numbered 1, after two steps."""
    rows = rows_of([Element(word, 1, at * SECOND) for at, word in enumerate(WORDS)], WORK.windowing.window)
    numbers = shards_of(rows.column(KEY), shards)
    found: list[dict[str, Any]] = []
    for number, dest in enumerate(shard_dests(3, shards, partitions)):
        spec = ShardSpec(f"3/{number}", "sums", WORK, ("events", *(f"1/{n}" for n in range(shards))), number)
        shard, store = Shard(spec), Store()
        cells, stamp = StateCells(store), StateStamp()
        for now in (1, 2):
            for at in range(shards):
                shard.upstream.report(f"1/{at}", (20 + at) * SECOND, now=now, partition="")
            shard.upstream.report("events", 25 * SECOND, now=now, partition="")
            watermark = shard.upstream.advance(now=now)
            mine = rows.filter(pa.array(numbers == number)) if now == 1 else None
            shard.processor.step(mine, Clocks(watermark, now))
            shard.late += 1
            stamp = cells.write(stamp, shard.header(), shard.processor)
        found += [
            {"dest": dest, "kind": kind, "number": place, "cell": bytes(cell[0])}
            for (kind, place), cell in store.map.items()
        ]
    return sorted(found, key=lambda row: (row["dest"], row["kind"], row["number"]))


def moved(
    cells: list[dict[str, Any]], before: tuple[int, int], after: tuple[int, int], change: StateChange | None = None
) -> list[dict[str, Any]]:
    """What the job makes of cells, from so many shards on so many partitions to others."""
    resharding = Resharding(layout_of("sums", WORK.identity()), before[0], after[0], change is None)
    upstream = ("events", *(f"1/{number}" for number in range(after[0])))
    move = Move(resharding, shard_dests(3, *before), shard_dests(3, *after), upstream, change)
    counts = ShardCounts({1: before[0], 3: before[0]}, {1: after[0], 3: after[0]})
    plan = ShardMoves({3: move}, counts)
    batches = [pa.RecordBatch.from_pylist(cells[at : at + 3], schema=CELLS) for at in range(0, len(cells), 3)]
    pieces = [row for batch in plan.split(batches) for row in batch.to_pylist()]
    pieces.sort(key=lambda row: (row["dest"], row["shard"], row["place"]))
    schema, size = next(plan.split(batches)).schema, 5
    merged = plan.merge(
        pa.RecordBatch.from_pylist(pieces[at : at + size], schema=schema) for at in range(0, len(pieces), size)
    )
    rows = [row for batch in merged for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["dest"], row["kind"], row["number"]))


def test_cells_are_those_of_the_new_shards() -> None:
    cells = cells_of(4, 2)
    wide = moved(cells, (4, 2), (9, 3))
    assert sorted({row["dest"] for row in wide}) == sorted(shard_dests(3, 9, 3))
    panes, late = [], 0
    for number, dest in enumerate(shard_dests(3, 9, 3)):
        spec = ShardSpec(f"3/{number}", "sums", WORK, ("events", *(f"1/{n}" for n in range(9))), number)
        shard, store = Shard(spec), Store()
        stored = StateCells(store)
        for row in wide:
            if row["dest"] == dest:
                stored.put_back(row["kind"], row["number"], row["cell"])
        stamp = stored.stamp()
        assert stamp is not None
        shard.load(stored.whole(stamp))
        late += shard.late
        assert shard.upstream.watermark == 20 * SECOND
        assert shard.upstream.low == {"events": 25 * SECOND, **{f"1/{n}": 20 * SECOND for n in range(9)}}
        stamp = stored.write(stamp, shard.header(), shard.processor)  # it goes on from there
        panes += emissions(shard.processor.step(None, Clocks(60 * SECOND, 3)))
    assert late == 8
    assert sorted(pane[0] for pane in panes) == sorted(word for at, word in enumerate(WORDS) if at >= 20)
    again = moved(wide, (9, 3), (4, 2))
    rows = StateRows("sums", WORK.identity())

    def read(cells: list[dict[str, Any]]) -> list[str]:
        batch = pa.RecordBatch.from_pylist(cells, schema=CELLS)
        return sorted(repr(row) for _, piece in shards_in_cells([batch]) for row in rows.read(piece))

    assert read(again) == read(cells)


def test_a_changed_key_moves_to_its_shard_and_meets_no_other() -> None:
    rows = StateRows("sums", WORK.identity())
    cells = cells_of(4, 2)
    renamed = moved(cells, (4, 2), (4, 2), StateChange(rows, lambda row: row | {"key": row["key"] + "!"}))
    batch = pa.RecordBatch.from_pylist(renamed, schema=CELLS)
    dests = shard_dests(3, 4, 2)
    for dest, piece in shards_in_cells([batch]):
        for row in rows.read(piece):
            assert row["key"].endswith("!")
            encoded = pa.array([encode_key(row["key"])], pa.binary())
            assert dests[shards_of(encoded, 4)[0]] == dest
    with pytest.raises(hr.PipelineError, match="two rows the same key and window"):
        moved(cells, (4, 2), (4, 2), StateChange(rows, lambda row: row | {"key": "all"}))


def test_manifests_of_other_numbers_of_shards() -> None:
    identity = json.loads(json.dumps(WORK.identity()))
    sums = GroupingEntry(0, 1, ["events"], identity, "", "")
    side = {"kind": "side inputs", "sides": [identity | {"upstream": ["0/0", "0/1"]}]}
    beside = GroupingEntry(1, 2, ["0/0", "0/1"], side, "", "")
    tasks = GroupingEntry(2, 3, ["1/0", "1/1"], {"kind": "tasks", "tasks": 5}, "", "")
    manifest = Manifest("a", 2, 2, groupings={"sums": sums, "beside": beside, "tasks": tasks})
    wide = rescaled(manifest, 3, None)
    assert (wide.shards, wide.partitions) == (3, 2)
    assert wide.groupings["beside"].upstream == ["0/0", "0/1", "0/2"]
    assert wide.groupings["beside"].identity["sides"][0]["upstream"] == ["0/0", "0/1", "0/2"]
    assert wide.groupings["tasks"].upstream == ["1/0", "1/1", "1/2"]
    assert rescaled(wide, 2, 2) == manifest == rescaled(manifest, None, None)
    assert replace(wide, shards=2) != manifest
    for number in (0, 65_537, "4"):
        with pytest.raises(hr.PipelineError, match="shards is a number from 1 to 65,536"):
            check_counts(number, None)  # type: ignore[arg-type]


def test_an_upstream_that_is_new_is_waited_for() -> None:
    counts = ShardCounts({0: 2}, {})
    dumped = json.dumps([7, {"a": 9, "0/0": 8, "0/1": 8}, {"a": {"0": 9}, "b": {}}, {}, {}])
    watermark, low, partitions, *_ = json.loads(counts.upstream(dumped, ["a", "c"]))
    assert (watermark, low, partitions) == (7, {"a": 9, "c": MIN_TIME}, {"a": {"0": 9}})
