"""Programs in several shards against computation from scratch, after every epoch, wherever shards go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import changing_graphs as graphs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.incremental.changeprogram import Program
from headrace.engine.incremental.shardedprogram import ShardedProgram
from headrace.engine.incremental.shardedtask import ShardedProgramTask
from headrace.engine.incremental.shardplaces import brought_home, by_shard
from headrace.engine.shard.processor import StepResult
from headrace.model.errors import PipelineError
from headrace.model.incremental.changingcollections import Collection, iterate
from headrace.model.times import MAX_TIME, SECOND
from tests.engine.incremental.test_changeprogram import random_changes, random_program
from tests.engine.lockstep import PlayedShards, outputs
from tests.reference_incremental import compute, nonzero
from tests.scale import examples


def to_shards(changes: dict[str, list[Any]], shards: int) -> list[list[pa.RecordBatch]]:
    """Changes as senders pack them; what is behind the count of a change goes along."""
    found: list[list[pa.RecordBatch]] = [[] for _ in range(shards)]
    for name, listed in changes.items():
        for change in listed:
            ((shard, _),) = by_shard([change[:2]], shards).items()
            found[shard].append(pack_list(name, [change]))
    return found


def players(result: Collection, shards: int, epochs: Any, rng: random.Random | None = None) -> PlayedShards:
    home = brought_home(result)
    return PlayedShards(lambda number, of: ShardedProgramTask(home, number, of, epochs), shards, rng)


@pytest.mark.slow("three hundred programs in shards that go on from their state")
@given(st.integers(0, 10**9))
@examples(300)
def test_every_epoch_of_micro_batches_is_as_computed_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    result = random_program(rng)
    names = Program(result).inputs
    if not names:
        return
    shards = rng.randint(2, 4)
    played, alone = players(result, shards, "batch", rng), Program(brought_home(result))
    inputs: dict[str, Counter[Any]] = {name: Counter() for name in names}
    expected: list[dict[Any, int]] = [compute(result, inputs)]
    work: list[tuple[int, int]] = [(0, 0)]
    answer: Counter[Any] = Counter()
    epochs = 0

    def check(results: Sequence[StepResult]) -> int:
        made = [change for batch in outputs(results) for _, listed in unpack_lists(batch) for change in listed]
        assert len({element for element, _ in made}) == len(made)
        answer.update(dict(made))
        (done,) = {int(each.counts["epochs"]) for each in results}  # all finish an epoch in one micro-batch
        assert nonzero(answer) == expected[done]
        if done > epochs and not any("epoch" in each.counts for each in results):  # and none has begun the next
            # No operator was run before all of a round was there: that would have been work in vain.
            assert work[done] == (
                sum(each.counts["changes"] for each in results),
                max(each.counts["rounds"] for each in results),
            )
        return done

    for _ in range(rng.randint(1, 6)):
        changes = random_changes(rng, inputs, rng.randint(0, 6))
        read = to_shards(changes, shards)
        if any(read):
            expected.append(compute(result, inputs))
            alone.step(changes)
            work.append((alone.work.changes, alone.work.rounds))
        for number in range(rng.choice([1, 2, 3, 1000])):  # the next epoch may come while one is computed
            if number and not played.moving:
                break
            epochs = check(played.step(read if not number else ()))
    while played.moving:
        epochs = check(played.step())
    assert epochs == len(expected) - 1


@given(st.integers(0, 10**9))
@examples(100)
def test_every_epoch_of_event_time_is_as_computed_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    result = random_program(rng)
    names = list(Program(result).inputs)
    if not names:
        return
    shards = rng.randint(2, 3)
    played = players(result, shards, "time", rng)
    by_epoch: dict[int, list[Any]] = {}
    answers: dict[int, Counter[Any]] = {}
    closed = late = 0

    def taken(results: Any, watermark: int) -> None:
        for batch in outputs(results):
            for epoch, listed in unpack_lists(batch):
                assert int(epoch) * SECOND < watermark
                assert not answers or int(epoch) >= max(answers)
                answers.setdefault(int(epoch), Counter()).update(dict(listed))
        assert min(each.watermark for each in results) >= (max(answers, default=0)) * SECOND

    for _ in range(rng.randint(1, 6)):
        read: dict[str, list[Any]] = {name: [] for name in names}
        for _ in range(rng.randint(0, 5)):
            name, pair, epoch = rng.choice(names), (rng.randrange(4), rng.randrange(4)), rng.randint(0, 5)
            read[name].append((pair, 1, epoch))
            if epoch < closed:
                late += 1
            else:
                by_epoch.setdefault(epoch, []).append((name, pair))
        closed = max(closed, rng.randint(0, 5))
        taken(played.step(to_shards(read, shards), closed * SECOND), closed * SECOND)
        for _ in range(rng.choice([0, 1, 1000])):
            if not played.moving:
                break
            taken(played.step((), closed * SECOND), closed * SECOND)
    results = played.step((), MAX_TIME)
    taken(results, MAX_TIME)
    while played.moving:
        results = played.step((), MAX_TIME)
        taken(results, MAX_TIME)
    assert sum(each.counts["late"] for each in results) == late
    assert all(each.watermark == MAX_TIME for each in results)
    inputs: dict[str, Counter[Any]] = {name: Counter() for name in names}
    answer: Counter[Any] = Counter()
    for epoch in sorted({*by_epoch, *answers}):
        for name, pair in by_epoch.get(epoch, ()):
            inputs[name][pair] += 1
        answer.update(answers.get(epoch, {}))
        assert nonzero(answer) == compute(result, inputs)


def steps_of_an_epoch(played: PlayedShards, changes: dict[str, list[Any]]) -> tuple[int, list[StepResult]]:
    results, before = played.step(to_shards(changes, len(played.shards))), played.steps
    while played.moving:
        results = played.step()
    return played.steps - before, results


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_no_round_is_computed_before_all_of_it_is_there(shards: int) -> None:
    rng = random.Random(shards)
    result = graphs.components(Collection.input("edges"))
    played, alone = players(result, shards, "batch"), Program(result)
    edges: dict[Any, None] = {}
    for _ in range(12):
        new = [(rng.randrange(60), rng.randrange(60)) for _ in range(15)]
        gone = rng.sample(sorted(edges), min(len(edges), 8))
        changes = [*((edge, 1) for edge in new if edge not in edges), *((edge, -1) for edge in gone)]
        edges = {edge: None for edge in [*edges, *new] if edge not in gone}
        alone.step({"edges": changes})
        steps, results = steps_of_an_epoch(played, {"edges": changes})
        assert sum(each.counts["changes"] for each in results) == alone.work.changes
        assert max(each.counts["rounds"] for each in results) == alone.work.rounds
        # One exchange a round; then before it, edges are turned round and nodes made; and it is known to be over.
        assert steps <= alone.work.rounds + 4


def test_a_loop_in_which_nothing_is_sent_goes_round_within_a_micro_batch() -> None:
    words = Collection.input("words")
    played = players(iterate(words, lambda each: each.join(words).filter(bool), iterations=50), 3, "batch")
    steps, results = steps_of_an_epoch(played, {"words": [((word, 1), 1) for word in range(10)]})
    assert max(each.counts["rounds"] for each in results) == 50 and steps == 2


def test_what_has_to_be_a_pair_or_a_key_is_refused() -> None:
    words = Collection.input("words")
    shard = ShardedProgram(words.map(str).count(), 0, 2)
    with pytest.raises(
        PipelineError, match="take tuples of key and value where a program has several shards, got '12'"
    ):
        shard.begin({"words": [(12, 1)]})
        shard.run(None)
    with pytest.raises(PipelineError, match=r"with several shards, elements go to one by their keys: .* of type list"):
        by_shard([(([1], 2), 1)], 2)


def test_a_loop_without_end_is_stopped_in_its_round() -> None:
    numbers = Collection.input("numbers")
    played = players(iterate(numbers, lambda each: each.map(lambda n: n + 1), limit=9), 2, "batch")
    with pytest.raises(PipelineError, match="gone round 9 times, its limit"):
        steps_of_an_epoch(played, {"numbers": [(1, 1)]})
    assert played.steps == 11  # a micro-batch each, as far as elements go to the other shard, before the one that fails


def test_shards_that_are_out_of_step_are_refused() -> None:
    home = Collection.input("words").distinct()
    task = ShardedProgramTask(home, 0, 2, "batch")
    list(task.run([pack_list("", [(1, (7, False, None, False, None), [])])], 0))
    with pytest.raises(RuntimeError, match="shard 1 has seen 7 micro-batches and this one 0"):
        list(task.advance(0))
