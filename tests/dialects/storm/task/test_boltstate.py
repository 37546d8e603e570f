"""The state of bolts: what is written of it, and that it comes back."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import Counter, OrderedDict, defaultdict
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.task.boltstate import BoltState
from headrace.engine.columns.hashing import HASHES
from tests.scale import examples


class Bolt(storm.Bolt):
    """With attributes of many kinds, some of them made in prepare."""

    transient = ("lock",)

    def prepare(self, context: Any = None) -> None:
        self.lock = threading.Lock()
        self.setting = 10
        self.counts: dict[Any, int] = {"prepared": 1, "too": 2}
        self.lists: Any = defaultdict(list)
        self.counter: Any = Counter()
        self.seen: set[int] = set()
        self.total = 0


KEYS = st.one_of(st.integers(0, 5), st.sampled_from(["a", "b", "prepared", "too", None, (1, "x"), 2.5, True]))
STEPS = st.one_of(
    st.tuples(st.sampled_from(["count", "append", "remove", "tally", "swap"]), KEYS),
    st.tuples(st.sampled_from(["total", "seen", "new", "clear", "replace", "drop", "odd", "nothing", "kind"]), KEYS),
)


def take(bolt: Any, step: str, key: Any) -> None:
    """One thing that a bolt may do to its attributes."""
    match step:
        case "count":
            bolt.counts[key] = bolt.counts.get(key, 0) + 1
        case "append":
            bolt.lists[key].append(len(bolt.lists))
        case "remove":
            bolt.counts.pop(key, None)
            bolt.lists.pop(key, None)
        case "tally":
            bolt.counter[key] = bolt.counter.get(key, 0) + 1
        case "swap":  # the same keys in another order
            bolt.counts[key] = bolt.counts.pop(key, 0)
        case "total":
            bolt.total += 1
        case "seen":
            bolt.seen.add(hash(key) % 7)
        case "new":
            bolt.late = {key: [key]} if not hasattr(bolt, "late") else {**bolt.late, key: key}
        case "clear":
            bolt.counts.clear()
        case "replace":
            bolt.lists = defaultdict(list, {key: [1]})
        case "drop":
            if hasattr(bolt, "late"):
                del bolt.late
        case "odd":  # keys that have no bytes
            bolt.late = {frozenset({key}): 1, Odd(1): 2}
        case "kind":  # from a dict to something else and back
            bolt.counter = OrderedDict({key: 2}) if isinstance(bolt.counter, Counter) else Counter({key: 1})


class Odd:
    """Equal by its own rule, which its bytes do not show."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


def attributes(bolt: Any) -> dict[str, Any]:
    return copy.deepcopy({name: value for name, value in vars(bolt).items() if name != "lock"})


def fresh() -> tuple[Any, BoltState]:
    bolt = Bolt()
    bolt.prepare()
    return bolt, BoltState(bolt)


@examples(80)
@given(batches=st.lists(st.lists(STEPS, max_size=6), max_size=8), data=st.data())
def test_state_comes_back_from_blocks_whatever_a_bolt_did(batches: list[list[Any]], data: st.DataObject) -> None:
    bolt, state = fresh()
    follower, following = fresh()
    stored: list[bytes] = []
    for steps in batches:
        state.touch()
        for step, key in steps:
            take(bolt, step, key)
        expected = attributes(bolt)
        changes = state.changes()
        stored += changes
        assert state.changes() == []
        following.load(changes)  # on top of what it has
        assert attributes(follower) == expected
        way = data.draw(st.sampled_from(["none", "restore", "parts", "dump"]))
        if way == "restore":
            bolt, state = fresh()
            state.load(stored)
        elif way == "parts":
            edges = [0, *sorted(data.draw(st.lists(st.integers(1, HASHES - 1), max_size=3, unique=True))), HASHES]
            stored = [each for low, high in pairwise(edges) for each in state.part(low, high)]
        elif way == "dump":
            stored = state.dump()
        restored, restoring = fresh()
        restoring.load(stored)
        assert attributes(restored) == expected
        assert {name: type(value) for name, value in vars(restored).items()} == {
            name: type(value) for name, value in vars(bolt).items()
        }
        assert attributes(bolt) == expected


def test_of_a_large_dict_only_what_changed_is_written() -> None:
    bolt, state = fresh()
    bolt.counts = {f"word{number}": number for number in range(100_000)}
    state.touch()
    assert sum(map(len, state.changes())) > 500_000
    for number in range(0, 100_000, 10_000):
        bolt.counts[f"word{number}"] += 1
    state.touch()
    [block] = state.changes()
    assert len(block) < 3_000
    other, loading = fresh()
    loading.load([block])
    assert other.counts["word90000"] == 90_001 and len(other.counts) == 12
    state.touch()
    assert state.changes() == []


def test_of_values_that_change_in_place_a_block_of_keys_is_written() -> None:
    bolt, state = fresh()
    bolt.lists = defaultdict(list, {number: [number] for number in range(20_000)})
    state.touch()
    whole = sum(map(len, state.changes()))
    bolt.lists[77].append(1)
    state.touch()
    [block] = state.changes()
    assert len(block) < whole / 50


def test_a_dict_whose_keys_have_no_bytes_is_written_when_it_changes_and_not_otherwise() -> None:
    bolt, state = fresh()
    bolt.late = {Odd(1): 1}
    state.touch()
    assert len(state.changes()) == 1
    state.touch()
    assert state.changes() == []
    bolt.late[Odd(1)] = 2
    state.touch()
    assert len(state.changes()) == 1


def test_what_nothing_touched_is_not_even_looked_at() -> None:
    bolt, state = fresh()
    bolt.total = 1
    assert state.changes() == []  # execute was not called, so this cannot be


def test_what_prepare_made_and_nothing_changed_is_no_state() -> None:
    bolt, state = fresh()
    bolt.total = 5
    state.touch()
    blocks = state.dump()
    newer = Bolt()
    newer.prepare()
    newer.setting = 20  # by new code
    BoltState(newer).load(blocks)
    assert (newer.setting, newer.total) == (20, 5)


def test_what_cannot_be_pickled_must_be_named_transient() -> None:
    class Careless(storm.Bolt):
        def prepare(self, context: Any = None) -> None:
            self.lock = threading.Lock()

    bolt = Careless()
    bolt.prepare()
    with pytest.raises(TypeError, match=r"'lock' is part of a bolt's state .*transient = \('lock',\)"):
        BoltState(bolt)


def test_blocks_of_others_are_refused_unread() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("unpickled",)

    with pytest.raises(pa.ArrowInvalid):
        fresh()[1].load([pickle.dumps(Bomb())])
