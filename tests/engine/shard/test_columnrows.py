"""GroupBy over columns in a stream: by arrays or by objects, the groups a shard gives are those of a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.aggregation.columnsfn import columns_fn, to_keyed
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.columnrows import ToGroups
from headrace.engine.shard.placing import COUNT
from headrace.engine.shard.rows import to_pairs, to_partials
from headrace.engine.shard.work import Grouping, column_grouping
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import PANE_COLUMNS, ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import WindowOperator
from headrace.model.columns import Aggregate
from headrace.model.panes import Windowing
from headrace.model.schema import UTC_TIMES, column_values
from headrace.model.times import MAX_TIME
from tests.engine.aggregation.test_arrayaccumulators import same
from tests.scale import examples

TEN = Windowing(hr.FixedWindows("10 us"))
NAMES = ("name", "number")
NUMERIC = {
    "n": hr.count(),
    "total": hr.sum("x"),
    "mean": hr.mean("y"),
    "least": hr.min("y"),
    "most": hr.max("x"),
    "spread": hr.variance("y"),
    "x_by_y": hr.max_by("x", "y"),
    "y_by_x": hr.min_by("y", "x"),
}
TIMES = {
    "first": hr.first("x"),
    "last": hr.last("at"),
    "earliest": hr.min("at"),
    "latest": hr.max("at"),
    "total": hr.sum("x"),
    "at_by_x": hr.max_by("at", "x"),
    "x_by_at": hr.min_by("x", "at"),
}
OTHERS = {
    "n": hr.count(),
    "top": hr.top("x", 2),
    "least": hr.min("name"),
    "last": hr.last("x"),
    "name_by_x": hr.max_by("name", "x"),
    "all": hr.collect("y"),
}

numbers = st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
fractions = st.one_of(st.none(), st.floats(-100, 100).map(lambda x: round(x, 3)))
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from(["a", "b", ""])), st.integers(0, 2), numbers, fractions, st.integers(0, 40)
    ),
    min_size=1,
    max_size=15,
)
cuts = st.lists(st.integers(1, 14), max_size=3)


def moments(fractions: Any) -> pa.Array:
    """A column of times, in milliseconds as drawn."""
    return pa.array([None if y is None else int(y * 1000) for y in fractions], pa.int64()).view(UTC_TIMES)


def table(drawn: list[Any]) -> pa.RecordBatch:
    name, number, x, y, time = zip(*drawn, strict=True)
    start = np.array(time) // 10 * 10
    columns = {"name": pa.array(name, pa.string()), "number": pa.array(number, pa.int32())}
    columns |= {"x": pa.array(x, pa.int64()), "y": pa.array(y, pa.float64()), TIME: pa.array(time, pa.int64())}
    return pa.record_batch(columns | {"at": moments(y), START: pa.array(start), END: pa.array(start + 10)})


def output_of(aggregate: Aggregate, windowing: Windowing, *, lifted: bool, whole: bool = False) -> ToGroups:
    fn = columns_fn(aggregate)
    pairs: Any = to_pairs("g", windowing, retractable=False, elements=whole)
    if lifted:
        pairs = to_partials("g", windowing, fn)
    return ToGroups("g", fn, to_keyed(aggregate, None), pairs)


def given_by(aggregate: Aggregate, sent: list[pa.RecordBatch], *, lifted: bool) -> list[Bundle | ColumnBundle]:
    """What a shard gives of these rows once their windows are over, through its cells and back."""
    work = column_grouping(
        Grouping(TEN, columns_fn(aggregate), RowKind.ACCUMULATORS if lifted else RowKind.VALUES), aggregate
    )
    shard = work.processor()
    shard.step(pa.concat_batches(sent))
    again = work.processor()
    again.load(shard.dump())
    return [bundle for _, bundle in work.bundles(again.step(None, Clocks(watermark=MAX_TIME)).panes)]


def elements(bundles: list[Bundle | ColumnBundle]) -> Iterator[tuple[Any, int]]:
    for bundle in bundles:
        for part in [bundle] if isinstance(bundle, Bundle) else bundle.parts():
            assert part.starts is not None and part.pane.timing == "on_time"
            yield from zip(part.elements, part.starts.tolist(), strict=True)


def by_loop(aggregate: Aggregate, drawn: list[Any]) -> dict[Any, tuple[Any, ...]]:
    """The groups, one row after the other."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for name, number, x, y, time in drawn:
        (at,) = column_values(moments([y]))
        member = {"name": name, "x": x, "y": y, "at": at, TIME: time}
        groups.setdefault((name, number, time // 10 * 10), []).append(member)
    answers = {}
    for key, members in groups.items():
        results = []
        for each in aggregate.aggregations.values():
            read = [tuple(member[name] for name in each.columns) for member in members]
            values = [parts if len(parts) > 1 else parts[0] if parts else 1 for parts in read]
            kept: list[Any] = [value for value in values if value is not None]
            if each.fn.timed:
                kept = [(member[TIME], value) for member, value in zip(members, values, strict=True)]
            results.append(each.fn.finish(each.fn.add_all(each.fn.zero(), kept)))
        answers[key] = tuple(results)
    return answers


@examples(150)
@given(rows, cuts, st.booleans(), st.booleans(), st.sampled_from([NUMERIC, TIMES, OTHERS]))
def test_groups_are_those_of_a_loop(drawn: list[Any], at: list[int], lifted: bool, whole: bool, what: Any) -> None:
    aggregate = hr.GroupBy(*NAMES).aggregate(**what)
    batch, output = table(drawn), output_of(aggregate, TEN, lifted=lifted)
    edges = [0, *sorted({cut for cut in at if cut < len(drawn)}), len(drawn)]
    sent: list[pa.RecordBatch] = []
    for first, last in pairwise(edges):
        bundle = ColumnBundle(batch.slice(first, last - first), None)
        if whole or first:
            sent += output.add_columns(bundle)
        else:  # some tasks may have got objects
            for part in bundle.parts():
                sent += output.add(part)
    sent += output.finish()
    assert {each.schema for each in sent} == {sent[0].schema}
    if lifted:
        assert sum(np.asarray(each.column(COUNT)).sum() for each in sent) == len(drawn)
    got = {
        (row.name, row.number, start): tuple(row)[2:]
        for row, start in elements(given_by(aggregate, sent, lifted=lifted))
    }
    wanted = by_loop(aggregate, drawn)
    assert got.keys() == wanted.keys()
    for key, results in wanted.items():
        for name, a, b in zip(what, got[key], results, strict=True):
            assert sorted(a, key=repr) == sorted(b, key=repr) if name == "all" else a == b or same(a, b), name


class Around(hr.WindowFn):
    """Windows of no, one or two elements' own making."""

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        return [(time - width, time + width) for width in range(1, time % 3 + 1)]


WINDOWS = [
    hr.FixedWindows("7 us", offset="2 us"),
    hr.SlidingWindows("10 us", "5 us"),
    hr.SlidingWindows("10 us", "4 us", offset="3 us"),
    hr.SlidingWindows("3 us", "8 us", offset="1 us"),
    hr.Sessions("4 us"),
    hr.GlobalWindows(),
    Around(),
]
TRIGGERS: list[Any] = [
    hr.DefaultTrigger(),
    hr.Repeatedly(hr.AfterCount(3)),
    hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1)),
    hr.AfterCount(2),
]
steps = st.lists(st.tuples(rows, st.integers(0, 60)), min_size=1, max_size=4)


@examples(200)
@given(
    steps,
    st.sampled_from(WINDOWS),
    st.sampled_from(TRIGGERS),
    st.sampled_from(["discarding", "accumulating", "retracting"]),
    st.integers(0, 8),
)
def test_windows_of_columns_are_those_of_elements(
    drawn: list[Any], window: hr.WindowFn, trigger: Any, accumulation: Any, lateness: int
) -> None:
    """Whole columns that are combined before they are in windows, and elements one by one, give the same panes."""
    windowing = Windowing(window, trigger, accumulation, f"{lateness} us")
    aggregate = hr.GroupBy(*NAMES).aggregate(
        n=hr.count(), total=hr.sum("x"), least=hr.min("y"), first=hr.first("x"), latest=hr.max("at")
    )
    fn = columns_fn(aggregate)
    work = column_grouping(Grouping(windowing, fn, RowKind.ACCUMULATORS), aggregate)
    fast, slow = work.processor(), work.processor()
    for batch, watermark in [*drawn, ([], MAX_TIME)]:
        answers = []
        for shard in (fast, slow):
            output, sent = output_of(aggregate, windowing, lifted=True), []
            if batch:
                bare = table(batch).drop_columns([START, END])
                bundle = ColumnBundle(bare, None, window=WindowOperator("windows", window))
                if shard is fast:
                    sent += output.add_columns(bundle)
                else:
                    for part in bundle.parts():
                        sent += output.add(part)
            sent += output.finish()
            step = shard.step(pa.concat_batches(sent) if sent else None, Clocks(watermark=watermark))
            late = 0 if step.late is None else sum(step.late.column(COUNT).to_pylist())
            panes = sorted(described(work.bundles(step.panes)), key=repr)
            answers.append((panes, late, step.refused, step.watermark, step.held))
        assert answers[0] == answers[1]


@examples(100)
@given(
    steps, st.sampled_from(WINDOWS), st.sampled_from(["discarding", "accumulating"]), st.integers(0, 8), st.booleans()
)
def test_what_is_late_is_given_whole_by_columns_and_by_elements(
    drawn: list[Any], window: hr.WindowFn, accumulation: Any, lateness: int, timed: bool
) -> None:
    """Aggregates with a late output have the panes of those without one, and late elements are whole and once."""
    windowing = Windowing(window, hr.DefaultTrigger(), accumulation, f"{lateness} us")
    aggregate = hr.GroupBy(*NAMES).aggregate(
        n=hr.count(), total=hr.sum("x"), **({"last": hr.last("y")} if timed else {})
    )
    fn = columns_fn(aggregate)
    late_too = column_grouping(Grouping(windowing, fn, RowKind.VALUES, late=True), aggregate)
    without = column_grouping(Grouping(windowing, fn, RowKind.ACCUMULATORS), aggregate)
    kinds = {"columns": (late_too, True), "elements": (late_too, False), "combined": (without, True)}
    shards = {kind: work.processor() for kind, (work, _) in kinds.items()}
    for batch, watermark in [*drawn, ([], MAX_TIME)]:
        panes, late = {}, {}
        for kind, (work, by_columns) in kinds.items():
            output = output_of(aggregate, windowing, lifted=work is without, whole=work is late_too)
            sent: list[pa.RecordBatch] = []
            if batch:
                bare = table(batch).drop_columns([START, END])
                bundle = ColumnBundle(bare, None, window=WindowOperator("windows", window))
                for part in [bundle] if by_columns else bundle.parts():
                    sent += output.add_columns(part) if isinstance(part, ColumnBundle) else output.add(part)
            sent += output.finish()
            step = shards[kind].step(pa.concat_batches(sent) if sent else None, Clocks(watermark=watermark))
            given = list(work.bundles(step.panes))
            panes[kind] = sorted(described([each for each in given if each[0] is None]), key=repr)
            late[kind] = sorted(
                repr((tuple(row), time, bounds))
                for tag, each in given
                if tag is not None
                for (_, row), time, bounds in zip(each.elements, each.all_times().tolist(), each.windows(), strict=True)
            )
        assert panes["columns"] == panes["elements"] == panes["combined"]
        assert late["columns"] == late["elements"]
        assert len(late["columns"]) == (0 if step.late is None else sum(step.late.column(COUNT).to_pylist()))


def described(bundles: Any) -> Iterator[tuple[Any, ...]]:
    """Panes as plain values; without the pane's place among those of other keys."""
    for _, bundle in bundles:
        for part in [bundle] if isinstance(bundle, Bundle) else bundle.parts():
            for row, time, window in zip(part.elements, part.all_times().tolist(), part.windows(), strict=True):
                yield tuple(row), time, window, part.pane, part.retraction


def test_panes_are_columns() -> None:
    """Where keys and aggregates are plain, nothing between source and sink is a Python object."""
    aggregate = hr.GroupBy(*NAMES).aggregate(**NUMERIC)
    output = output_of(aggregate, TEN, lifted=True)
    batch = table([("a", 1, 5, 0.5, 3), ("a", 1, None, 1.5, 4), (None, 2, 7, None, 12)])
    sent = [*output.add_columns(ColumnBundle(batch, None)), *output.finish()]
    (panes,) = given_by(aggregate, sent, lifted=True)
    assert isinstance(panes, ColumnBundle)
    assert panes.rows.to_pylist()[0] == {
        "name": "a",
        "number": 1,
        "n": 2,
        "total": 5,
        "mean": 1.0,
        "least": 0.5,
        "most": 5,
        "spread": 0.5,
        "x_by_y": None,
        "y_by_x": 0.5,
        TIME: 9,
        START: 0,
        END: 10,
    }
    assert panes.panes is not None and panes.panes.schema.names == list(PANE_COLUMNS)


def test_a_second_grouping_takes_back_columns() -> None:
    """What the panes of a first grouping take back, the second subtracts, by arrays as well."""
    late: Any = hr.AfterWatermark(late=hr.AfterCount(1))
    windowing = Windowing(hr.FixedWindows("10 us"), late, "retracting", "100 us")
    first = hr.GroupBy("name").aggregate(total=hr.sum("x"))
    second = hr.GroupBy().aggregate(sum=hr.sum("total"), n=hr.count())
    inner = column_grouping(Grouping(windowing, columns_fn(first), RowKind.ACCUMULATORS), first)
    outer = column_grouping(Grouping(windowing, columns_fn(second), RowKind.SIGNED_VALUES), second)
    shards = inner.processor(), outer.processor()
    partials = ToGroups("a", columns_fn(first), to_keyed(first, None), to_partials("a", windowing, columns_fn(first)))
    pairs = to_pairs("b", windowing, retractable=True)
    totals = ToGroups("b", columns_fn(second), to_keyed(second, None), pairs)
    seen = []
    for drawn, watermark in [([("a", 0, 1, None, 1), ("b", 0, 10, None, 2)], 10), ([("a", 0, 5, None, 3)], 11)]:
        sent = [*partials.add_columns(ColumnBundle(table(drawn), None)), *partials.finish()]
        step = shards[0].step(pa.concat_batches(sent), Clocks(watermark=watermark))
        passed: list[pa.RecordBatch] = []
        for _, bundle in inner.bundles(step.panes):
            assert isinstance(bundle, ColumnBundle)
            passed += totals.add_columns(bundle)
        step = shards[1].step(pa.concat_batches(passed), Clocks(watermark=watermark))
        for _, bundle in outer.bundles(step.panes):
            assert isinstance(bundle, ColumnBundle)
            seen += [(tuple(row), part.retraction) for part in bundle.parts() for row in part.elements]
    assert seen == [((11, 2), False), ((11, 2), True), ((16, 2), False)]
