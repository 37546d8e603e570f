"""State of operators without Spark: against the reference, through crashes, late attempts and what is forgotten."""

from __future__ import annotations

import operator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.dstreams.worker import statefiles
from headrace.dialects.dstreams.worker.keyedblocks import Block, Combiner, combine, gather
from headrace.dialects.dstreams.worker.mappedstate import MapState, Snapshots
from headrace.dialects.dstreams.worker.statefiles import ForgottenVersion, StateFiles
from headrace.dialects.dstreams.worker.updatestate import UpdateState
from headrace.dialects.dstreams.worker.windowstate import ReduceWindow
from tests import reference_dstreams as reference
from tests.scale import examples

PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 9)), max_size=6)
BATCHES = st.lists(PAIRS, min_size=1, max_size=12)
ACCIDENTS = st.lists(st.sampled_from(["", "", "", "forget", "again", "die", "fail"]), min_size=12, max_size=12)


def blocks_of(pairs: list[Any], *, tag: int = 0, reduce: Any = None) -> list[Block]:
    """The pairs as two tasks send them."""
    half = len(pairs) // 2
    prepare = gather if reduce is None else lambda part: combine(part, Combiner(None, reduce, reduce))
    return [Block(tag, task, each) for task, part in enumerate((pairs[:half], pairs[half:])) for each in prepare(part)]


def play(folder: Path, kind: Any, steps: list[list[Block]], accidents: list[str], reader: Any = None) -> list[Any]:
    """Runs batches, with an accident after each; returns the elements of each version."""
    statefiles._copies.clear()
    files, found = StateFiles(str(folder), "run", kind), []
    files.begin({})
    for version, blocks in enumerate(steps, 1):
        accident = accidents[version - 1]
        if accident == "fail":  # an attempt that fails in the middle leaves no trace
            with pytest.raises(ZeroDivisionError):
                files.advance(version, lambda: [][1 // 0], version)
        files.advance(version, partial(list, blocks), version)
        if accident == "again":  # an attempt that comes too late, with whatever input
            files.advance(version, lambda: [][1 // 0], version)
        elif accident == "die":  # the next task runs in another process
            statefiles._copies.clear()
        elif accident == "forget":
            files.forget(version)
        found.append(sorted(StateFiles(str(folder), "run", reader or kind).rows(version), key=repr))
    return found


def expected(stream: list[Any]) -> list[Any]:
    return [sorted(batch, key=repr) for batch in stream]


def add_up(values: Any, state: Any) -> Any:
    """A sum; a key without values whose sum is even goes."""
    total = sum(values) + (state or 0)
    return None if not values and total % 2 == 0 else total


def append(values: Any, state: Any) -> Any:
    """Changes the list that it was given; that must harm nobody."""
    state = [] if state is None else state
    state.extend(values)
    return state if values or len(state) < 3 else None


@examples(100)
@given(batches=BATCHES, accidents=ACCIDENTS, update=st.sampled_from([add_up, append]))
def test_update_state(tmp_path_factory: pytest.TempPathFactory, batches: Any, accidents: Any, update: Any) -> None:
    found = play(tmp_path_factory.mktemp("s"), UpdateState(update), [blocks_of(each) for each in batches], accidents)
    plain = reference.update_state(batches, lambda values, state: update(list(values), state and copied(state)))
    assert found == expected(plain)


def copied(state: Any) -> Any:
    return list(state) if isinstance(state, list) else state


@examples(150)
@given(
    batches=BATCHES,
    accidents=ACCIDENTS,
    width=st.integers(1, 9),
    inverse=st.sampled_from([None, operator.sub]),
    keep=st.sampled_from([None, lambda pair: pair[1] != 0]),
)
def test_windows(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, accidents: Any, width: int, inverse: Any, keep: Any
) -> None:
    kind = ReduceWindow(operator.add, inverse, keep, width, 1)
    steps = [blocks_of(batch, tag=time, reduce=operator.add) for time, batch in enumerate(batches, 1)]
    found = play(tmp_path_factory.mktemp("w"), kind, steps, accidents)
    assert found == expected(reference.reduce_window(batches, operator.add, inverse, width, 1, keep))


def test_windows_of_lists_that_functions_change(tmp_path: Path) -> None:
    def extend(a: Any, b: Any) -> Any:
        a.extend(b)
        return a

    kind = ReduceWindow(extend, lambda a, b: a[len(b) :], None, 6, 1)
    steps = [blocks_of([("a", [number])], tag=number, reduce=extend) for number in range(1, 10)]
    found = play(tmp_path, kind, steps, [""] * 9)
    assert found[-1] == [("a", [4, 5, 6, 7, 8, 9])]
    assert found[2] == [("a", [1, 2, 3])]


def count(key: Any, value: Any, state: Any) -> Any:
    if state.isTimingOut():
        return key, "gone", state.get()
    total = (state.getOption() or 0) + value
    if total > 12:
        if state.exists():
            state.remove()
    elif value >= 0:
        state.update(total)
    return key, value, total


@examples(150)
@given(batches=BATCHES, accidents=ACCIDENTS, timeout=st.sampled_from([None, 1, 3]), snapshots=st.booleans())
def test_map_with_state(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, accidents: Any, timeout: Any, snapshots: bool
) -> None:
    kind, reader = MapState(count, False, timeout), Snapshots(count, False, timeout)
    steps = [blocks_of(each) for each in batches]
    found = play(tmp_path_factory.mktemp("m"), kind, steps, accidents, reader if snapshots else None)
    assert found == expected(reference.map_with_state(batches, count, timeout=timeout)[snapshots])


def test_a_worker_that_is_behind_reads_what_it_missed_and_one_that_is_ahead_reads_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = UpdateState(lambda values, state: sum(values) + (state or 0))
    files = StateFiles(str(tmp_path / "0"), "run", kind)
    files.begin({"z": 1})
    caches: dict[str, dict[str, Any]] = {"one": {}, "other": {}}
    for version in range(1, 8):  # two workers take turns
        monkeypatch.setattr(statefiles, "_copies", caches["one" if version % 3 else "other"])
        files.advance(version, lambda: [Block(0, 0, {"a": [1]})], version)
    for name, cache in caches.items():
        monkeypatch.setattr(statefiles, "_copies", cache)
        assert dict(files.rows(7)) == {"a": 7, "z": 1}, name
        assert dict(files.rows(2)) == {"a": 2, "z": 1}, name
        assert dict(files.rows(7)) == {"a": 7, "z": 1}, name


def test_what_is_forgotten_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statefiles, "_SMALL", 1)  # all of the state is written often
    kind = UpdateState(lambda values, state: sum(values) + (state or 0))
    files = StateFiles(str(tmp_path / "0"), "run", kind)
    files.begin({})
    for version in range(1, 9):
        files.advance(version, lambda: [Block(0, 0, {"a": [1]})], version)
    files.forget(6)
    statefiles._copies.clear()
    assert [dict(files.rows(version)) for version in (6, 7, 8)] == [{"a": 6}, {"a": 7}, {"a": 8}]
    with pytest.raises(ForgottenVersion, match=r"after batch 2 .*remember"):
        files.rows(2)
    assert len(list((tmp_path / "0").iterdir())) < 10


def test_untouched_keys_cost_no_bytes(tmp_path: Path) -> None:
    kind = UpdateState(lambda values, state: sum(values) + (state or 0))
    files = StateFiles(str(tmp_path / "0"), "run", kind)
    files.begin({f"key{number}": 10**6 + number for number in range(5000)})
    files.advance(1, lambda: [Block(0, 0, {"key7": [1]})], 1)
    assert (tmp_path / "0" / "1.delta").stat().st_size < 200
    assert dict(files.rows(1))["key7"] == 10**6 + 8
