"""The state of shards as rows: what is read is what was put in, and what a function changes is what goes on."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import headrace as hr
from headrace.engine.columns.cells import decode_cells
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.joinprocessor import LEFT, JoinProcessor
from headrace.engine.shard.work import Grouping
from headrace.engine.state.resharding import ShardPiece
from headrace.engine.state.staterows import StateRows
from headrace.engine.worker.shuffle import VALUE
from headrace.model.algebra import CombineFn, MeanFn, SumFn
from headrace.model.keys import encode_key
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.times import MAX_TIME, SECOND
from tests.engine.shard import test_joinprocessor as joins
from tests.engine.shard.test_processor_properties import rows_of
from tests.engine.state.test_resharding import Remembering
from tests.engine.stateful import test_processor as stateful
from tests.reference_panes import Element

FIXED = Windowing(hr.FixedWindows(10))
ELEMENTS = [Element("a", 1, 3 * SECOND), Element("a", 2, 12 * SECOND), Element("b", 4, 3 * SECOND)]


def at(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC)


def shard_of(work: Grouping) -> ShardPiece:
    shard = work.processor()
    shard.step(rows_of(ELEMENTS, work.windowing.window), Clocks(0))
    return ShardPiece({}, shard.dump())


@pytest.mark.parametrize(
    ("fn", "values"),
    [(None, [[1], [2], [4]]), (SumFn(), [1, 2, 4]), (MeanFn(), [(1, 1), (2, 1), (4, 1)])],
)
def test_groupings_are_read_by_key_and_window(fn: CombineFn[Any, Any, Any] | None, values: list[Any]) -> None:
    work = Grouping(FIXED, fn)
    rows, piece = StateRows("sums", work.identity()), shard_of(work)
    found = [tuple(row.values()) for row in rows.read(piece)]
    bounds = [("a", at(0), at(10), 1), ("a", at(10), at(20), 1), ("b", at(0), at(10), 1)]
    assert found == [(*each, value) for each, value in zip(bounds, values, strict=True)]
    assert [row["value"] for row in rows.read(piece, encode_key("b"))] == values[2:]
    assert rows.read(piece, encode_key("c")) == []


@pytest.mark.parametrize(("fn", "mended"), [(None, [10, 20]), (SumFn(), 30), (MeanFn(), (30, 2))])
def test_a_changed_value_is_what_the_shard_goes_on_with(fn: CombineFn[Any, Any, Any] | None, mended: Any) -> None:
    work = Grouping(FIXED, fn)
    rows = StateRows("sums", work.identity())

    def change(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["key"] == "b":
            return None
        return row | {"value": mended} if row["window_start"] == at(10) else row

    shard = work.processor()
    shard.load(rows.change(shard_of(work), change).blocks)
    panes = shard.step(None, Clocks(MAX_TIME)).panes
    values = decode_cells(panes.column(VALUE))
    expected = {None: [[1], [10, 20]], SumFn: [1, 30], MeanFn: [1.0, 15.0]}[None if fn is None else type(fn)]  # type: ignore[index]
    assert values == expected


def test_a_key_may_become_another_but_not_twice() -> None:
    work = Grouping(FIXED, SumFn())
    rows = StateRows("sums", work.identity())
    renamed = rows.change(shard_of(work), lambda row: row | {"key": ("x", row["key"])})
    rows.check_once(renamed)
    assert {row["key"] for row in rows.read(renamed)} == {("x", "a"), ("x", "b")}
    with pytest.raises(hr.PipelineError, match="two rows the same key and window; drop one of them"):
        rows.check_once(rows.change(shard_of(work), lambda row: row | {"key": "c"}))


def test_functions_are_held_to_the_columns_and_keys() -> None:
    sums = Grouping(FIXED, SumFn())
    rows = StateRows("sums", sums.identity())
    with pytest.raises(hr.PipelineError, match=r"other columns than it got: \['valeu'\]"):
        rows.change(shard_of(sums), lambda row: row | {"valeu": 1})
    with pytest.raises(hr.PipelineError, match="made of numbers, and would be 'x'"):
        rows.change(shard_of(sums), lambda row: row | {"value": "x"})
    sessions = Grouping(Windowing(hr.Sessions(5)))
    with pytest.raises(hr.PipelineError, match="the windows of a key depend on its elements"):
        StateRows("s", sessions.identity()).change(shard_of(sessions), lambda row: row | {"key": "z"})
    with pytest.raises(hr.PipelineError, match="of the kind 'tasks', which has no rows to read"):
        StateRows("bolt", {"kind": "tasks", "tasks": 2})


@pytest.mark.parametrize("windowing", [GLOBAL, FIXED])
def test_state_and_timers_of_a_dofn(windowing: Windowing) -> None:
    work = stateful.work_of(Remembering(), windowing=windowing)
    shard, rows = work.processor(), StateRows("do", work.identity())
    shard.step(stateful.rows_of(("a", 1, 3), ("b", 2, 4), windowing=windowing), Clocks(0, 0))
    piece = ShardPiece({}, shard.dump())
    (row,) = rows.read(piece, encode_key("b"))
    assert (row["key"], row["numbers"], row["total"]) == ("b", [2], 2)
    assert (row["timer_due"], row["timer_idle"]) == (at(11), at(5))
    assert (row["window_start"] is None) == (windowing is GLOBAL)

    def change(row: dict[str, Any]) -> dict[str, Any] | None:
        return row | {"numbers": [7, 8], "total": 100} if row["key"] == "a" else None

    shard = work.processor()
    shard.load(rows.change(piece, change).blocks)
    step = shard.step(None, Clocks(0, 60 * SECOND))
    assert [each for _, bundle in work.bundles(step.panes) for each in bundle.elements] == [("a", "idle", 100)]


def test_rows_that_wait_for_a_join() -> None:
    shard = JoinProcessor(joins.spec(joins.PAIRS[0], "inner", 0))
    shard.step(joins.batch(LEFT, [({"id": 7, "x": 0.5, "l": 1}, 12)]), Clocks(0))
    rows = StateRows("join", {"kind": "join", "on": [["id", "key"]]})
    (row,) = rows.read(ShardPiece({}, shard.dump()))
    assert (row["side"], row["id"], row["x"], row["l"]) == ("left", 7, 0.5, 1)
    assert not rows.has_keys
    with pytest.raises(hr.PipelineError, match="rows that wait for a join"):
        rows.change(ShardPiece({}, shard.dump()), lambda row: row)
