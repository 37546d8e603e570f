"""The task of a program, in its shard: epochs, counts, and state as deltas and parts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import changing_graphs as graphs
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.incremental.programtask import EpochProgramTask, ProgramTask, compute_epochs, compute_once
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.taskshard import EMITTED, TaskShard
from headrace.model.incremental.changingcollections import Collection
from headrace.model.times import SECOND
from tests.reference_incremental import compute, nonzero
from tests.scale import examples

COMPONENTS = graphs.components(Collection.input("edges"))


def sent(batches: list[list[Any]]) -> pa.RecordBatch:
    rows = [{"task": 0, "batch": arrow_bytes(pack_list("edges", changes))} for changes in batches]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([("task", pa.int64()), ("batch", pa.binary())]))


def emitted(body: pa.RecordBatch) -> Counter[Any]:
    assert body.schema == EMITTED
    out: Counter[Any] = Counter()
    for cell in body.column("batch"):
        for _, changes in unpack_lists(pa.ipc.open_stream(cell.as_buffer()).read_next_batch()):
            for element, diff in changes:
                out[element] += diff
    return out


@given(st.integers(0, 10**9))
@examples(60)
def test_a_shard_goes_on_wherever_its_state_is_loaded(seed: int) -> None:
    rng = random.Random(seed)
    shard = TaskShard(ProgramTask(COMPONENTS))
    edges: Counter[Any] = Counter()
    answer: Counter[Any] = Counter()
    blocks: list[bytes] = []
    epochs = 0
    for _ in range(rng.randint(1, 8)):
        batches: list[list[Any]] = []
        for _ in range(rng.randint(0, 3)):
            changes = []
            for _ in range(rng.randint(1, 4)):
                edge = rng.randrange(6), rng.randrange(6)
                diff = -1 if edges[edge] else 1
                edges[edge] += diff
                changes.append((edge, diff))
            batches.append(changes)
        step = shard.step(sent(batches) if batches else None)
        answer.update(emitted(step.panes))
        epochs += bool(batches)
        assert step.counts["epochs"] == epochs
        assert nonzero(answer) == compute(COMPONENTS, {"edges": edges})
        blocks += shard.changes()
        if rng.random() < 0.3:
            middle = rng.randrange(2**64)
            blocks += [*shard.part(0, middle), *shard.part(middle, 2**64)]
        if rng.random() < 0.5:  # another worker goes on
            shard = TaskShard(ProgramTask(COMPONENTS))
            shard.load(blocks)


def test_an_epoch_without_changes_writes_nothing_of_the_program() -> None:
    task = ProgramTask(COMPONENTS)
    list(task.run([pack_list("edges", [((1, 2), 1)])], 0))
    assert task.counts()["epochs"] == 1 and task.counts()["rounds"] == 2
    assert task.changes() != []
    assert list(task.run([], 1)) == [] and task.changes() == []


def test_what_is_computed_once_is_what_an_epoch_gives() -> None:
    changes = [((1, 2), 1), ((2, 3), 1), ((2, 3), -1), ((4, 3), 1)]
    assert {(change.element, change.diff) for change in compute_once(COMPONENTS, [("edges", changes)])} == {
        ((1, 1), 1),
        ((2, 1), 1),
        ((3, 3), 1),
        ((4, 3), 1),
    }


@given(st.integers(0, 10**9))
@examples(60)
def test_epochs_are_computed_when_they_are_closed_in_order(seed: int) -> None:
    rng = random.Random(seed)
    shard = TaskShard(EpochProgramTask(COMPONENTS))
    by_epoch: dict[int, list[Any]] = {}
    answer: Counter[Any] = Counter()
    answers: dict[int, dict[Any, int]] = {}
    blocks: list[bytes] = []
    closed, late = 0, 0
    for number in range(rng.randint(1, 8)):
        changes = [((rng.randrange(5), rng.randrange(5)), 1, rng.randint(0, 6)) for _ in range(rng.randint(0, 4))]
        for element, count, epoch in changes:
            if epoch < closed:
                late += 1
            else:
                by_epoch.setdefault(epoch, []).append((element, count))
        reached = 9 if number == 7 else max(closed, rng.randint(0, 7))
        step = shard.step(sent([changes]) if changes else None, Clocks(reached * SECOND, number))
        for cell in step.panes.column("batch"):
            for name, listed in unpack_lists(pa.ipc.open_stream(cell.as_buffer()).read_next_batch()):
                assert closed <= int(name) < reached
                answer.update(dict(listed))
                answers[int(name)] = nonzero(answer)
        closed = reached
        assert step.counts["late"] == late and step.watermark == reached * SECOND
        assert step.counts["waiting"] == sum(epoch >= closed for epoch in by_epoch)
        first = min((epoch for epoch in by_epoch if epoch >= closed), default=None)
        assert (None if step.waiting is None else step.waiting.window) == (None if first is None else f"epoch {first}")
        assert step.counts["epoch"] == closed
        blocks += shard.changes()
        if rng.random() < 0.3:
            middle = rng.randrange(2**64)
            blocks = [*shard.part(0, middle), *shard.part(middle, 2**64)]
        if rng.random() < 0.5:  # another worker goes on
            shard = TaskShard(EpochProgramTask(COMPONENTS))
            shard.load(blocks)
    edges: Counter[Any] = Counter()
    for epoch in sorted(epoch for epoch in by_epoch if epoch < closed):
        edges.update(element for element, _ in by_epoch[epoch])
        expected = compute(COMPONENTS, {"edges": edges})
        assert answers.get(epoch, expected) == expected  # an epoch that changes no label sends nothing
    assert nonzero(answer) == (compute(COMPONENTS, {"edges": edges}) if edges else {})
    flat = [("edges", [(*change, epoch) for epoch, listed in by_epoch.items() for change in listed if epoch < closed])]
    at_once: Counter[Any] = Counter()
    for _, change in compute_epochs(COMPONENTS, flat):
        at_once[change.element] += change.diff
    assert nonzero(at_once) == nonzero(answer)
