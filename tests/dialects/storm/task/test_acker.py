"""The acker against a naive one that stores sets of tuples."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.storm.task.acker import ACK, COMPLETE, FAIL, FAILED, TIMED_OUT, Acker, acker_of, acks
from headrace.dialects.storm.task.tupleids import root_ids, seed_of, tuple_ids
from tests.scale import examples

TIMEOUT = 1_000


@dataclass
class Naive:
    """A naive acker: stores all tuples of every tree that were emitted, and all that were acked.

    It drops the updates of a tree that does not begin within the timeout.
    """

    emitted: dict[int, set[int]] = field(default_factory=dict)
    acked: dict[int, set[int]] = field(default_factory=dict)
    early: dict[int, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)

    def step(self, updates: list[Update], now: int) -> set[tuple[int, int]]:
        for update in updates:
            self.emitted.setdefault(update.root, set()).update(update.emitted)
            self.acked.setdefault(update.root, set()).update(update.acked)
            if update.root not in self.begun:
                self.early.setdefault(update.root, now)
            if update.mark >= 0:
                self.begun[update.root] = now
                self.early.pop(update.root)
            elif update.mark == FAIL:
                self.failed.add(update.root)
        verdicts = set()
        for root in self.begun.keys() - self.over:
            if root in self.failed:
                verdicts.add((root, FAILED))
            elif self.emitted[root] == self.acked[root]:
                verdicts.add((root, COMPLETE))
            elif now >= self.begun[root] + TIMEOUT:
                verdicts.add((root, TIMED_OUT))
        self.over |= {root for root, _ in verdicts}
        for root in [root for root, first in self.early.items() if now >= first + TIMEOUT]:
            self.emitted[root], self.acked[root] = set(), set()
            self.failed.discard(root)
            del self.early[root]
        return verdicts


@dataclass(frozen=True)
class Update:
    """A row for the acker, with the tuples themselves."""

    root: int
    mark: int
    emitted: frozenset[int] = frozenset()
    acked: frozenset[int] = frozenset()

    def row(self) -> pa.RecordBatch:
        xor = 0
        for number in (*self.emitted, *self.acked):
            xor ^= number
        return acks(np.array([self.root], np.uint64), np.array([xor], np.uint64), self.mark)


def forest(seed: int, trees: int, most: int) -> list[Update]:
    """Trees that grow into each other: tuples have anchors in one tree or several; some fail, some are lost."""
    rng = random.Random(seed)
    roots = root_ids(3, np.arange(trees)).tolist()
    fresh = iter(tuple_ids(seed_of(3, seed), 0, trees + most).tolist())
    first = {root: next(fresh) for root in roots}
    updates = [Update(root, 3, emitted=frozenset([first[root]])) for root in roots]
    members: dict[int, frozenset[int]] = {number: frozenset([root]) for root, number in first.items()}
    children: dict[int, set[int]] = {number: set() for number in members}
    open_ = list(members)
    for number in fresh:
        parents = rng.sample(open_, k=min(len(open_), rng.choice([1, 1, 1, 2, 3])))
        for parent in parents:
            children[parent].add(number)
        members[number] = frozenset().union(*(members[parent] for parent in parents))
        children[number] = set()
        open_.append(number)
    healthy = rng.random() < 0.5
    emitted_by: dict[tuple[int, int], int] = {}
    for number, roots_ in members.items():
        for root in roots_:
            # One parent in the tree reports a tuple to the acker, as the task that emits it does once.
            parent = next((p for p in members if number in children[p] and root in members[p]), None)
            if parent is not None:
                emitted_by[number, root] = parent
    for number, roots_ in members.items():
        fate = 1.0 if healthy else rng.random()
        for root in roots_:
            born = frozenset(child for (child, of), parent in emitted_by.items() if parent == number and of == root)
            if fate < 0.04:
                updates.append(Update(root, FAIL))
            elif fate >= 0.08:
                updates.append(Update(root, ACK, emitted=born, acked=frozenset([number])))
    rng.shuffle(updates)
    return updates


@examples(120)
@given(seed=st.integers(0, 2**32), trees=st.integers(1, 6), most=st.integers(0, 25), pause=st.sampled_from([1, 300]))
def test_a_tree_is_complete_exactly_when_every_tuple_of_it_was_acked(
    seed: int, trees: int, most: int, pause: int
) -> None:
    rng, updates = random.Random(seed + 1), forest(seed, trees, most)
    naive, acker, stored = Naive(), Acker(TIMEOUT), []
    said: list[int] = []
    now = 0
    while updates or now < 4 * TIMEOUT:
        size = rng.randrange(len(updates) + 1)
        some, updates = updates[:size], updates[size:]
        verdicts = acker.step([each.row() for each in some], now)
        got = set(zip(verdicts.column("root").to_pylist(), verdicts.column("verdict").to_pylist(), strict=True))
        assert got == naive.step(some, now)
        said += verdicts.column("root").to_pylist()
        stored += acker.changes()
        if rng.random() < 0.3:
            acker = Acker(TIMEOUT)
            acker.load(stored)
        elif rng.random() < 0.2:
            stored = [*acker.part(0, 2**63), *acker.part(2**63, 2**64)]
        now += pause if updates else TIMEOUT
    assert acker.step([], now + TIMEOUT).num_rows == 0
    assert len(said) == len(set(said)) == trees
    assert acker.pending == 0
    blocks = acker.dump()
    assert sum(map(len, blocks)) == 16


def test_the_identity_of_storms_documentation() -> None:
    a, b, c = tuple_ids(1, 0, 3).tolist()
    assert a ^ (a ^ b) ^ c ^ (b ^ c) == 0
    rows = [a, a ^ b, c, b ^ c]
    acker, root = Acker(TIMEOUT), np.array([1], np.uint64)
    for number, xor in enumerate(rows):
        ended = acker.step([acks(root, np.array([xor], np.uint64), ACK if number else 0)], now=number)
        assert ended.num_rows == (1 if number == 3 else 0)


def test_ten_thousand_trees_take_less_than_a_megabyte_whatever_their_size() -> None:
    acker = Acker(30_000_000)
    roots = root_ids(0, np.arange(10_000))
    acker.step([acks(roots, tuple_ids(1, 0, 10_000), 0)], now=0)
    for batch in range(20):  # each tree grows
        acker.step([acks(roots, tuple_ids(2 + batch, 0, 10_000))], now=batch)
    assert acker.pending == 10_000
    assert acker.nbytes == 32 * 10_000
    assert sum(map(len, acker.dump())) <= 32 * 10_000 + 16
    other = Acker(30_000_000)
    other.load(acker.dump())
    assert other.dump() == acker.dump()


def test_trees_that_come_and_go_in_a_batch_are_not_stored() -> None:
    acker = Acker(TIMEOUT)
    roots, ids = root_ids(0, np.arange(1000)), tuple_ids(1, 0, 1000)
    assert acker.step([acks(roots, ids, 0), acks(roots[::-1], ids[::-1])], now=0).num_rows == 1000
    assert acker.changes() == []


def test_what_failed_before_it_began_has_failed_when_it_begins() -> None:
    acker = Acker(TIMEOUT)
    root, number = root_ids(0, np.arange(1)), tuple_ids(1, 0, 1)
    assert acker.step([acks(root, np.zeros(1, np.uint64), FAIL)], now=0).num_rows == 0
    assert acker.step([acks(root, number, 0)], now=1).column("verdict").to_pylist() == [FAILED]
    assert acker.pending == 0


def test_late_acks_are_dropped_and_counted() -> None:
    acker = Acker(TIMEOUT)
    root, number = root_ids(0, np.arange(1)), tuple_ids(1, 0, 1)
    acker.step([acks(root, number, 0)], now=0)
    assert acker.step([], now=TIMEOUT).column("verdict").to_pylist() == [TIMED_OUT]
    assert acker.step([acks(root, number)], now=TIMEOUT + 1).num_rows == 0
    assert (acker.pending, acker.orphans) == (1, 0)
    assert acker.step([], now=2 * TIMEOUT + 1).num_rows == 0
    assert (acker.pending, acker.orphans) == (0, 1)


def test_trees_are_shared_among_ackers() -> None:
    shares = np.bincount(acker_of(root_ids(2, np.arange(10_000)), 4))
    assert shares.min() > 2_000


def test_other_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="not a block of the acker's state"):
        Acker(TIMEOUT).load([b"\x80\x05something else entirely"])


def test_numbers_of_tuples_do_not_repeat() -> None:
    every = np.concatenate([tuple_ids(seed_of(task, batch), 0, 2_000) for task in range(10) for batch in range(10)])
    assert len(np.unique(every)) == len(every)
    assert (every != 0).all()
    assert np.unpackbits(every.view(np.uint8)).mean() == pytest.approx(0.5, abs=0.001)
