"""The first rows of groups in a shard against the naive definition, in any windows and batches, with retractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.aggregation.toprowsfn import TopRowsFn, ToRowPairs
from headrace.engine.columns.sorting import sort_keys
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.rows import to_pairs, to_partials
from headrace.engine.shard.toprows import TopRowsWork, ToTopRows
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import PANE_COLUMNS, RETRACTION, ColumnBundle
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.operators import WindowOperator
from headrace.model.panes import Windowing
from headrace.model.schema import row_type
from headrace.model.sortorder import SortOrder
from headrace.model.times import MAX_TIME
from tests.reference_toprows import compare, top_rows
from tests.scale import examples

COLUMNS = pa.schema({"user": pa.string(), "x": pa.float64(), "name": pa.string(), "day": pa.date32(), "id": pa.int32()})
EVERY = hr.Repeatedly(hr.AfterCount(1))

floats = st.sampled_from([None, 0.0, -0.0, 1.5, -2.0, float("nan"), float("inf")])
names = st.sampled_from([None, "", "a", "ä", "b\U0001f40d", "b￿"])
drawn_rows = st.lists(
    st.tuples(st.sampled_from([None, "u", "v"]), floats, names, st.integers(0, 2), st.integers(0, 60)), max_size=8
)
orders = st.lists(
    st.builds(SortOrder, st.sampled_from(["x", "name", "day", "id"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda order: order.column,
)
windows = st.sampled_from([hr.GlobalWindows(), hr.FixedWindows("20 us"), hr.Sessions("9 us")])


def row_of(drawn: Any, number: int) -> dict[str, Any]:
    user, x, name, day, _ = drawn
    return dict(zip(COLUMNS.names, (user, x, name, np.datetime64(day, "D").item(), number), strict=True))


def sent(output: ToTopRows, rows: list[Any], window: Any, *, as_columns: bool) -> pa.RecordBatch | None:
    """What a task sends of rows with their times, all of them given or taken back."""
    if not rows:
        return None
    elements, times, back = zip(*rows, strict=True)
    operator = WindowOperator("w", window)
    parts: list[pa.RecordBatch] = []
    if as_columns:
        batch = pa.RecordBatch.from_pylist(list(elements), schema=COLUMNS)
        columns = batch.append_column(TIME, pa.array(times, pa.int64()))
        flags = {name: pa.array(np.zeros(len(rows), np.int64)) for name in PANE_COLUMNS}
        panes = pa.record_batch(flags | {RETRACTION: pa.array(back, pa.bool_())}) if any(back) else None
        bundle = ColumnBundle(columns, None, panes, window=operator)
        parts += output.add_columns(bundle.placed() if panes is not None else bundle)
    else:
        row = row_type(tuple(COLUMNS.names))._make
        for taken in (True, False):
            some = [at for at in range(len(rows)) if back[at] is taken]
            made = Bundle([row(elements[at].values()) for at in some], np.array([times[at] for at in some], np.int64))
            for _, placed in operator.run(made) if some else ():
                placed.retraction = taken
                parts += output.add(placed)
    parts += output.finish()
    return pa.concat_batches(parts) if parts else None


def sessions(rows: list[tuple[Any, int]], gap: int) -> Iterator[tuple[tuple[int, int], list[Any]]]:
    group: list[tuple[Any, int]] = []
    for row, time in sorted(rows, key=lambda each: each[1]):
        if group and time >= group[-1][1] + gap:
            yield (group[0][1], group[-1][1] + gap), [each for each, _ in group]
            group = []
        group.append((row, time))
    if group:
        yield (group[0][1], group[-1][1] + gap), [each for each, _ in group]


def expected(rows: list[tuple[Any, int]], window: Any, n: int, by: Any, rank: bool) -> Counter[str]:
    """The first rows of every group there is."""
    orders = [(order.column, order.descending, order.nulls_first) for order in by]
    found: Counter[str] = Counter()
    for user in {row["user"] for row, _ in rows}:
        own = [(row, time) for row, time in rows if row["user"] == user]
        groups: list[tuple[Any, list[Any]]] = [(None, [row for row, _ in own])]
        if isinstance(window, hr.Sessions):
            groups = list(sessions(own, window.gap))
        elif isinstance(window, hr.FixedWindows):
            starts = {time // 20 * 20 for _, time in own}
            groups = [((s, s + 20), [row for row, time in own if time // 20 * 20 == s]) for s in starts]
        for bounds, members in groups:
            for place, row in enumerate(top_rows(members, n, orders), 1):
                found[shown(row, bounds, place if rank else None)] += 1
    return found


def shown(row: dict[str, Any], bounds: Any, place: int | None) -> str:
    plain = {name: value + 0.0 if isinstance(value, float) else value for name, value in row.items()}
    return repr((plain, bounds, place))


def emitted(work: TopRowsWork, panes: pa.RecordBatch) -> list[tuple[bool, str]]:
    changes = []
    for _, bundle in work.bundles(panes):
        assert isinstance(bundle, ColumnBundle)
        for part in bundle.parts():
            for at, element in enumerate(part.elements):
                row = element._asdict()
                place = row.pop("place", None)
                bounds = None if part.starts is None else (int(part.starts[at]), int(part.ends[at]))
                changes.append((part.retraction, shown(row, bounds, place)))
    return changes


@examples(150)
@given(
    st.lists(st.tuples(drawn_rows, st.booleans(), st.booleans()), max_size=5),
    windows,
    st.integers(1, 3),
    orders.map(tuple),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_first_rows_as_the_naive_definition(
    batches: list[Any], window: Any, n: int, by: Any, ranked: bool, signed: bool, data: st.DataObject
) -> None:
    """After every step, what was emitted and not retracted is the first rows of each group so far."""
    windowing = Windowing(window, EVERY, "retracting")
    fn = TopRowsFn(n, by)
    pairs: Any = to_pairs("top", windowing, retractable=True) if signed else to_partials("top", windowing, fn)
    output = ToTopRows("top", fn, ToRowPairs(None, ("user",)), pairs).bind(COLUMNS)
    kind = RowKind.SIGNED_VALUES if signed else RowKind.ACCUMULATORS
    work = TopRowsWork(windowing, fn, kind, keys=("user",), rank="place" if ranked else None).bind(COLUMNS)
    shard = work.processor()
    blocks = shard.dump()
    there: list[tuple[Any, int]] = []
    table: Counter[str] = Counter()
    number = 0
    for drawn, as_columns, restart in batches:
        coming: list[Any] = []
        if signed:
            # What is taken back is looked for by value, and NaN is not found.
            able = [each for each in there if each[0]["x"] == each[0]["x"]]
            taken = data.draw(st.lists(st.sampled_from(able), max_size=2, unique_by=id)) if able else []
            coming += [(row, time, True) for row, time in taken]
            there = [each for each in there if not any(each is other for other in taken)]
        for each in drawn:
            number += 1
            row = row_of(each, number % 5)
            coming.append((row, each[-1], False))
            there.append((row, each[-1]))
        changes = emitted(work, shard.step(sent(output, coming, window, as_columns=as_columns), Clocks(0)).panes)
        for back, row in changes:
            table[row] += -1 if back else 1
        assert all(count >= 0 for count in table.values())
        if not (signed and isinstance(window, hr.Sessions)):  # a session of rows taken back stays as long as it was
            assert +table == expected(there, window, n, by, ranked)
        if not isinstance(window, hr.Sessions) and not signed:
            kept = Counter(row for back, row in changes if back) & Counter(row for back, row in changes if not back)
            assert not kept  # what stays is not emitted again
        blocks = blocks + shard.changes()
        if restart:
            shard = work.processor()
            shard.load(blocks)


@examples(100)
@given(st.lists(floats | st.just(3.0), max_size=8), st.lists(names, max_size=8), st.booleans(), st.booleans())
def test_columns_sort_as_values_compare(
    numbers: list[Any], texts: list[Any], descending: bool, nulls_first: bool
) -> None:
    for values, kind in ((numbers, pa.float64()), (texts, pa.string()), (texts, pa.large_string())):
        keys = sort_keys(pa.array(values, kind), descending=descending, nulls_first=nulls_first)
        for i, a in enumerate(values):
            for j, b in enumerate(values):
                first, second = tuple(key[i] for key in keys), tuple(key[j] for key in keys)
                assert int(first > second) - int(first < second) == compare(a, b, descending, nulls_first)


def test_whole_numbers_times_and_decimals_sort() -> None:
    from datetime import date, datetime
    from decimal import Decimal

    for values, kind in [
        ([2**63 - 1, -(2**63), 0], pa.int64()),
        ([True, False], pa.bool_()),
        ([date(2026, 1, 2), date(1960, 1, 1)], pa.date32()),
        ([datetime(2026, 1, 2), datetime(1960, 1, 1)], pa.timestamp("us")),
        ([Decimal("1.50"), Decimal("-3.00"), Decimal("1.49")], pa.decimal128(38, 2)),
        ([b"b", b"a"], pa.binary()),
    ]:
        for descending in (False, True):
            keys = sort_keys(pa.array(values, kind), descending=descending)
            order = np.lexsort(keys[::-1]).tolist()
            assert [values[at] for at in order] == sorted(values, reverse=descending)  # type: ignore[type-var]


def test_a_task_sends_only_rows_that_may_be_first() -> None:
    fn = TopRowsFn(2, (SortOrder("id", descending=True),))
    windowing = Windowing(hr.GlobalWindows())
    output = ToTopRows("top", fn, ToRowPairs(None, ("user",)), to_partials("top", windowing, fn)).bind(COLUMNS)
    rows = [(row_of(("u", 1.0, "a", 0, 0), number), 0, False) for number in range(1000)]
    batch = sent(output, rows, windowing.window, as_columns=True)
    assert batch is not None and batch.column("count").to_pylist() == [1000]
    work = TopRowsWork(windowing, fn, RowKind.ACCUMULATORS, keys=("user",), rank=None).bind(COLUMNS)
    assert batch.column("value").nbytes < 1000
    panes = work.processor().step(batch, Clocks(MAX_TIME)).panes
    assert [row.id for _, bundle in work.bundles(panes) for row in bundle.elements] == [999, 998]


def test_state_of_other_columns_is_refused() -> None:
    fn = TopRowsFn(2, (SortOrder("id"),), COLUMNS)
    with pytest.raises(ValueError, match=r"rows in the checkpoint have 1 columns, and now .* 5 \(user, x, name, day"):
        fn.load([("u",)])
