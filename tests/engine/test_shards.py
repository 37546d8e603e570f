"""Shards with a state store of the test's own: what they give does not depend on what a worker happens to remember."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

import headrace as hr
from headrace.engine import shards
from headrace.engine.cells import decode_cells, encode_cells
from headrace.engine.exchanges import Grouping
from headrace.engine.failures import WorkerFailure
from headrace.engine.routing import pack, unpack
from headrace.engine.shards import Shards, ShardSpec
from headrace.model.algebra import SumFn
from headrace.model.keys import encode_keys
from headrace.model.panes import Windowing

DEST = 5


class Store:
    """What Spark's state store does for one key: a value and a map, which survive a worker."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.map: dict[Any, tuple[Any, ...]] = {}

    def getValueState(self, name: str, schema: Any) -> Store:
        return self

    def getMapState(self, name: str, key: Any, schema: Any) -> Store:
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def getValue(self, key: Any) -> tuple[Any, ...]:
        return self.map[key]

    def updateValue(self, key: Any, value: tuple[Any, ...]) -> None:
        self.map[key] = value

    def clear(self) -> None:
        self.map.clear()

    def copy(self) -> Store:
        copied = Store()
        copied.value, copied.map = self.value, dict(self.map)
        return copied


def spec(fn: Any = None) -> ShardSpec:
    trigger = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))
    windowing = Windowing(hr.FixedWindows("10 us"), trigger, "accumulating", "20 us")
    return ShardSpec("0/0", "sums", Grouping(windowing, fn), upstream=("events",))


def operator(store: Store, fn: Any = None) -> Shards:
    made = Shards("stream", {DEST: spec(fn)}, {})
    made.init(store)  # type: ignore[arg-type]
    return made


def body(number: int, low: int | None, pairs: list[tuple[str, int]]) -> bytes:
    keys, spelling = encode_keys([key for key, _ in pairs])
    times = [time for _, time in pairs]
    starts = [time // 10 * 10 for time in times]
    rows = pa.record_batch(
        {
            "key": keys,
            "spelling": pa.nulls(len(pairs), pa.binary()) if spelling is None else spelling,
            "__start": pa.array(starts, pa.int64()),
            "__end": pa.array([start + 10 for start in starts], pa.int64()),
            "__time": pa.array(times, pa.int64()),
            "value": encode_cells(times),
        }
    )
    return pack({"from": [0, number, 1], "now": 0, "lows": {"events": low}}, rows if pairs else None)


def given_by(made: Shards, *bodies: bytes) -> tuple[dict[str, Any], list[Any]]:
    (row,) = made.handleInputRows((DEST,), (Row(dest=DEST, body=each) for each in bodies), None)
    header, panes = unpack(row.body)
    return header, sorted(zip(panes["key"].to_pylist(), decode_cells(panes["value"]), strict=True))


batches = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=5), st.integers(0, 60)),
    min_size=1,
    max_size=12,
)


@given(batches, st.lists(st.booleans(), min_size=12, max_size=12), st.booleans())
def test_memory_makes_no_difference(script: list[Any], forgets: list[bool], small: bool) -> None:
    """A worker that forgets, and a store that is compacted at every step or never, give the same panes and clocks."""
    patch = pytest.MonkeyPatch()
    patch.setattr(shards, "_SMALL", 0 if small else 1 << 30)
    try:
        shards._copies.held.clear()
        steady, forgetful = Store(), Store()
        low = 0
        for (pairs, step), forget in zip(script, forgets, strict=False):
            low = max(low, step)
            expected = given_by(shards_of_stream(steady, "steady"), body(0, low, pairs))
            if forget:
                shards._copies.held.clear()
            assert given_by(shards_of_stream(forgetful, "forgetful"), body(0, low, pairs)) == expected
    finally:
        patch.undo()


def shards_of_stream(store: Store, stream: str) -> Shards:
    made = Shards(stream, {DEST: spec(SumFn())}, {})
    made.init(store)  # type: ignore[arg-type]
    return made


def test_a_copy_of_an_attempt_that_failed_is_not_used() -> None:
    """The batch is run again on the state before it, in a worker that remembers the state after it."""
    shards._copies.held.clear()
    store = Store()
    given_by(operator(store), body(0, 0, [("a", 1)]))
    before = store.copy()
    first = given_by(operator(store), body(0, 0, [("a", 2)]))
    again = given_by(operator(before), body(0, 0, [("a", 2)]))
    assert again == first and first[1] == [(encode_keys(["a"])[0][0].as_py(), [1, 2])]
    after = given_by(operator(before), body(0, 100, []))
    shards._copies.held.clear()
    assert given_by(operator(store), body(0, 100, [])) == after


def test_the_order_of_arrival_does_not_matter() -> None:
    parts = [body(number, 0, [("a", number)]) for number in range(3)]
    results = []
    for order in (parts, parts[::-1]):
        shards._copies.held.clear()
        results.append(given_by(operator(Store()), *order))
    assert results[0] == results[1]
    assert results[0][1][0][1] == [0, 1, 2]


def test_who_has_not_spoken_is_waited_for() -> None:
    shards._copies.held.clear()
    header, _ = given_by(operator(Store()), pack({"from": [0, 0, 1], "now": 3, "lows": {"events": None}}))
    assert header["input"] < 0 and header["now"] == 3


def test_rows_for_others_pass() -> None:
    made = operator(Store())
    rows = [Row(dest=9, body=b"x"), Row(dest=9, body=b"y")]
    assert list(made.handleInputRows((9,), iter(rows), None)) == rows


def test_a_failing_combiner_is_named_and_leaves_no_copy() -> None:
    class Failing(SumFn):
        def add_all(self, acc: Any, values: Any) -> Any:
            raise ZeroDivisionError

    shards._copies.held.clear()
    with pytest.raises(WorkerFailure, match=r'"label": "sums".*ZeroDivisionError'):
        given_by(operator(Store(), Failing()), body(0, 0, [("a", 1)]))
    assert not shards._copies.held
