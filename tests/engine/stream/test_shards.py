"""Shards with a state store of the test's own: what they give does not depend on what a worker happens to remember."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

import headrace as hr
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import ShardProcessor
from headrace.engine.shard.reports import ClockReport, ShardReport
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.shard.work import Grouping
from headrace.engine.state import statecells
from headrace.engine.state.statecells import StateCells
from headrace.engine.stream import shards
from headrace.engine.stream.shards import Shard, ShardCache, ShardOperator, ShardSpec
from headrace.engine.worker.blame import WorkerFailure
from headrace.model.algebra import SumFn
from headrace.model.keys import encode_keys
from headrace.model.panes import Windowing

DEST = 5


class Store:
    """What Spark's state store does for one key: a map and perhaps a value, which survive a worker."""

    def __init__(self, *, stamps_apart: bool = False) -> None:
        self.stamps_apart = stamps_apart
        self.value: tuple[Any, ...] | None = None
        self.map: dict[Any, tuple[Any, ...]] = {}
        self.read = self.wrote = 0  # bytes of cells

    def getValueState(self, name: str, schema: Any) -> Store:
        return self

    def getMapState(self, name: str, key: Any, schema: Any) -> Store:
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def getValue(self, key: Any) -> tuple[Any, ...] | None:
        cell = self.map.get(key)
        self.read += 0 if cell is None else len(cell[0])
        return cell

    def updateValue(self, key: Any, value: tuple[Any, ...]) -> None:
        self.wrote += len(value[0])
        self.map[key] = value

    def removeKey(self, key: Any) -> None:
        del self.map[key]

    def clear(self) -> None:
        self.value, self.map = None, {}

    def copy(self) -> Store:
        copied = Store(stamps_apart=self.stamps_apart)
        copied.value, copied.map = self.value, dict(self.map)
        return copied


TRIGGER = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))
FIXED = Windowing(hr.FixedWindows("10 us"), TRIGGER, "accumulating", "20 us")


def spec(fn: Any = None, windowing: Windowing = FIXED, work: type[Grouping] = Grouping) -> ShardSpec:
    return ShardSpec("0/0", "sums", work(windowing, fn), upstream=("events",))


def operator(
    store: Store, fn: Any = None, windowing: Windowing = FIXED, work: type[Grouping] = Grouping
) -> ShardOperator:
    made = ShardOperator("stream", {DEST: spec(fn, windowing, work)}, {}, stamps_apart=store.stamps_apart)
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
    return pack(ClockReport((0, 0, number, 1), 0, {"events": low}).dump(), rows if pairs else None)


def given_by(made: ShardOperator, *bodies: bytes) -> tuple[ShardReport, list[Any]]:
    (row,) = made.handleInputRows((DEST,), (Row(dest=DEST, body=each) for each in bodies), None)
    header, panes = unpack(row.body)
    report = replace(ShardReport.load(header), copies={})  # of which the answer must not depend
    return report, sorted(zip(panes["key"].to_pylist(), decode_cells(panes["value"]), strict=True))


@dataclass
class Batch:
    """A micro-batch: what comes, the worker that does it, and attempts before which came to nothing, on other data."""

    pairs: list[tuple[str, int]]
    low: int
    worker: int
    failed: list[tuple[int, list[tuple[str, int]]]]


workers = st.integers(0, 2)
several = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 50)), max_size=5)
batches = st.lists(
    st.builds(Batch, several, st.integers(0, 60), workers, st.lists(st.tuples(workers, several), max_size=2)),
    min_size=1,
    max_size=10,
)
windowings = st.sampled_from(
    [
        Windowing(hr.FixedWindows("10 us"), TRIGGER, "accumulating", "20 us"),
        Windowing(hr.FixedWindows("10 us"), TRIGGER, "retracting", "20 us"),
        Windowing(hr.Sessions("10 us"), TRIGGER, "discarding", "20 us"),
        Windowing(hr.CountWindows(3)),
    ]
)


@given(batches, windowings, st.sampled_from([0, 3_000, 1 << 30]), st.sampled_from([1, 1 << 30]))
def test_memory_makes_no_difference(script: list[Batch], windowing: Windowing, worth: int, large: int) -> None:
    """Whichever worker does a batch, whatever it remembers of which attempts, and however the state is written.

    The other run forgets everything after every batch.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statecells, "_WORTH", worth)
        patch.setattr(statecells, "_LARGE", large)
        memories = [ShardCache() for _ in range(3)]
        store, other, low = Store(), Store(stamps_apart=True), 0  # as checkpoints of earlier formats have it

        def attempt(memory: ShardCache, store: Store, pairs: list[tuple[str, int]]) -> Any:
            patch.setattr(shards, "_cache", memory)
            return given_by(operator(store, SumFn(), windowing), body(0, low, pairs))

        for batch in script:
            low = max(low, batch.low)
            for worker, pairs in batch.failed:
                attempt(memories[worker], store.copy(), pairs)
            expected = attempt(ShardCache(), other, batch.pairs)
            assert attempt(memories[batch.worker], store, batch.pairs) == expected
        assert loaded(store, windowing).dump() == loaded(other, windowing).dump()


def loaded(store: Store, windowing: Windowing) -> Any:
    cells = StateCells(store, store if store.stamps_apart else None)
    stamp = cells.stamp()
    assert stamp is not None
    shard = Shard(spec(SumFn(), windowing))
    shard.load(cells.whole(stamp))
    return shard.processor


def test_who_is_behind_reads_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    memories, store = [ShardCache(), ShardCache()], Store()
    crowd = [(str(number), 1) for number in range(3_000)]
    for number, pairs in enumerate([crowd, [("0", 1)], [("1", 1)], [("2", 1)]]):
        monkeypatch.setattr(shards, "_cache", memories[number == 0])
        given_by(operator(store, SumFn()), body(0, 0, pairs))
    monkeypatch.setattr(shards, "_cache", memories[1])
    store.read = 0
    given_by(operator(store, SumFn()), body(0, 0, [("3", 1)]))
    _, shard = memories[1].shards["stream", DEST]
    assert shard.copies == {"used": 2, "caught up": 1, "loaded": 1}
    assert 0 < store.read < sum(len(cell) for (cell,) in store.map.values()) / 4


def test_no_batch_writes_much_more_than_was_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what is stored grow with age."""
    monkeypatch.setattr(statecells, "_WORTH", 20_000)
    monkeypatch.setattr(shards, "_cache", ShardCache())
    store, size = Store(), 20_000
    given_by(operator(store, SumFn()), body(0, 0, [(str(number), 1) for number in range(size)]))
    whole = store.wrote
    written, stored = [], []
    for batch in range(100):
        store.wrote = 0
        touched = [(str((batch * 200 + number) % size), 1) for number in range(200)]
        given_by(operator(store, SumFn()), body(0, 0, touched))
        written.append(store.wrote)
        stored.append(sum(len(cell) for (cell,) in store.map.values()))
    assert max(written) < whole / 5
    assert max(stored[50:]) < 3 * whole and max(stored[75:]) < 1.3 * max(stored[50:75])
    assert len(store.map) < 100


def test_a_lost_cell_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_cache", ShardCache())
    store = Store()
    given_by(operator(store), body(0, 0, [("a", 1)]))
    del store.map[0, 0]
    shards._cache.shards.clear()
    with pytest.raises(WorkerFailure, match="has lost a cell of kind 0, number 0"):
        given_by(operator(store), body(0, 0, [("a", 1)]))


class Unsliced:
    """A processor that knows nothing of parts, and loads only when it is new."""

    def __init__(self, of: ShardProcessor) -> None:
        self.step, self.dump, self.changes, self.fractions = of.step, of.dump, of.changes, of.fractions
        self._of = of

    @property
    def clocks(self) -> Clocks:
        return self._of.clocks

    def load(self, blocks: list[bytes]) -> None:
        assert not self._of.table.held
        self._of.load(blocks)


class Plain(Grouping):
    """Makes such processors."""

    def processor(self, shard: int = 0) -> Any:
        return Unsliced(super().processor())


@given(batches, st.sampled_from([0, 3_000, 1 << 30]))
def test_a_processor_need_not_have_parts(script: list[Batch], worth: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statecells, "_WORTH", worth)
        memories, stores, low = [ShardCache() for _ in range(3)], [Store(), Store()], 0
        for batch in script:
            low, panes = max(low, batch.low), []
            for store, kind in zip(stores, (Plain, Grouping), strict=True):
                patch.setattr(shards, "_cache", memories[batch.worker] if kind is Plain else ShardCache())
                panes.append(given_by(operator(store, SumFn(), FIXED, kind), body(0, low, batch.pairs)))
            assert panes[0] == panes[1]


def test_a_copy_of_an_attempt_that_failed_is_not_used() -> None:
    """The batch is run again on the state before it, in a worker that remembers the state after it."""
    shards._cache.shards.clear()
    store = Store()
    given_by(operator(store), body(0, 0, [("a", 1)]))
    before = store.copy()
    first = given_by(operator(store), body(0, 0, [("a", 2)]))
    again = given_by(operator(before), body(0, 0, [("a", 2)]))
    assert again == first and first[1] == [(encode_keys(["a"])[0][0].as_py(), [1, 2])]
    after = given_by(operator(before), body(0, 100, []))
    shards._cache.shards.clear()
    assert given_by(operator(store), body(0, 100, [])) == after


def test_the_order_of_arrival_does_not_matter() -> None:
    parts = [body(number, 0, [("a", number)]) for number in range(3)]
    results = []
    for order in (parts, parts[::-1]):
        shards._cache.shards.clear()
        results.append(given_by(operator(Store()), *order))
    assert results[0] == results[1]
    assert results[0][1][0][1] == [0, 1, 2]


def test_who_has_not_spoken_is_waited_for() -> None:
    shards._cache.shards.clear()
    report, _ = given_by(operator(Store()), pack(ClockReport(now=3, lows={"events": None}).dump()))
    assert report.input_watermark < 0 and report.now == 3


def test_rows_for_others_pass() -> None:
    made = operator(Store())
    rows = [Row(dest=9, body=b"x"), Row(dest=9, body=b"y")]
    assert list(made.handleInputRows((9,), iter(rows), None)) == rows


def test_a_failing_combiner_is_named_and_leaves_no_copy() -> None:
    class Failing(SumFn):
        def add_all(self, acc: Any, values: Any) -> Any:
            raise ZeroDivisionError

    shards._cache.shards.clear()
    with pytest.raises(WorkerFailure, match=r'"label": "sums".*ZeroDivisionError'):
        given_by(operator(Store(), Failing()), body(0, 0, [("a", 1)]))
    assert not shards._cache.shards
