"""Tests which columns functions are known to use, and that programs on columns give what programs on elements give."""

from __future__ import annotations

import datetime as dt
import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.worker.blame import WorkerFailure, transform_error
from headrace.engine.worker.bundles import FromColumns, ToBlocks, ToColumns, from_block
from headrace.engine.worker.columnbundles import ColumnBundle, ColumnReader
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import (
    Call,
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    LifeCycle,
    MapOperator,
    Operator,
    ParDoOperator,
    TimesOperator,
    WindowOperator,
)
from headrace.engine.worker.program import Program, Readers, Step, columns_read
from headrace.engine.worker.usedcolumns import used_columns
from headrace.model.dofn import DoFn, TimestampedValue
from headrace.model.panes import NO_PANE, ONLY_PANE
from headrace.model.schema import Row, Schema, rows_schema, schema_of
from headrace.model.times import MIN_TIME
from headrace.model.windows import FixedWindows
from tests.scale import examples


class Bid(NamedTuple):
    auction: int
    price: int | None
    url: str | None
    ts: dt.datetime | None
    tags: list[int] | None


class Doubled(NamedTuple):
    url: str | None
    price: int
    ts: dt.datetime | None


class Half(Bid):
    @property
    def price(self) -> float:  # type: ignore[override]
        return 0.5


KINDS = dict(zip(Bid._fields, schema_of(Bid).types, strict=True))  # type: ignore[union-attr]


def mentions_twice(bid: Bid) -> bool:
    price = bid.price or 0
    return price > 5 and bid.auction % 2 == 0


def mentions_whole(bid: Bid) -> bool:
    return bid == bid


def yields(bid: Bid) -> Iterator[Any]:
    for _ in range(bid.auction % 3):
        yield bid.url
        yield bid.ts


def replaces(bid: Any) -> Any:
    bid = bid.auction
    return bid


def looks(bid: Bid) -> Any:
    return bid.auction, locals()


def encloses(bid: Bid) -> Any:
    return [bid.auction for _ in range(2)] + [(lambda: bid)()]


class Urls(DoFn):
    def process(self, bid: Any) -> Any:
        yield bid.url
        yield bid.auction

    def finish_bundle(self) -> Any:
        yield "finished"


class Last(DoFn):
    def process(self, bid: Any) -> Any:
        self.last = bid
        yield self.last.url


def par_do(label: str, fn: DoFn) -> Operator:
    window = WindowOperator(label, FixedWindows(1))
    return ParDoOperator(label, FlatMapOperator(label, Call(fn.process)), LifeCycle(label, fn, window))


@functools.wraps(mentions_twice)
def wrapped(*args: Any) -> Any:
    return mentions_twice(*args)


@pytest.mark.parametrize(
    ("fn", "used"),
    [
        (lambda bid: bid.auction, {"auction"}),
        (lambda bid: (bid.auction, (bid.url or "").upper()), {"auction", "url"}),
        (lambda bid: bid.url.upper(), {"url"}),
        (lambda bid, factor=2: bid.price * factor, {"price"}),
        (lambda _: 1, set()),
        (mentions_twice, {"auction", "price"}),
        (yields, {"auction", "url", "ts"}),
        (lambda bid: bid, None),
        (lambda bid: bid[0], None),
        (lambda bid: bid.auction if bid else 0, None),
        (lambda bid: (bid or bid).auction, None),
        (lambda bid: getattr(bid, "url"), None),  # noqa: B009
        (lambda *bids: bids, None),
        (mentions_whole, None),
        (replaces, None),
        (looks, None),
        (encloses, None),
        (wrapped, None),
        (functools.partial(mentions_twice), None),
        (Urls().process, {"url", "auction"}),
        (Last().process, None),
        ("".join, None),
        (str.upper, None),
        (Bid, None),
    ],
)
def test_columns_that_a_function_uses(fn: Callable[..., Any], used: set[str] | None) -> None:
    assert used_columns(fn) == used


def test_a_method_call_is_no_column() -> None:
    assert not (used_columns(lambda bid: bid._asdict()) or set()) & set(Bid._fields)


OPERATORS: list[Operator] = [
    FilterOperator("few", Call(lambda bid: bid.auction % 7 == 0)),
    FilterOperator("twice", Call(mentions_twice)),
    FilterOperator("whole", Call(lambda bid: len(bid) > 1 and bid[0] != 3)),
    FilterOperator("more", Call(lambda bid, least: bid.auction > least, (2,))),
    FilterOperator("timed", Call(lambda bid, timestamp=DoFn.TimestampParam: bid.auction + timestamp % 2 > 1)),
    FilterOperator("all", Call(lambda bid: True)),
    TimesOperator("times", lambda bid: bid.auction),
]
LAST: list[tuple[Operator, object]] = [
    (MapOperator("narrow", Call(lambda bid: (bid.url, bid.auction, bid.ts, bid.tags))), None),
    (MapOperator("doubled", Call(lambda bid: Doubled(bid.url, (bid.price or 0) * 2, bid.ts))), Doubled),
    (MapOperator("swapped", Call(lambda bid: (bid.ts, bid.url))), tuple[dt.datetime | None, str | None]),
    (MapOperator("some", Call(lambda bid: (bid.url if bid.auction % 2 else "odd",))), tuple[str | None]),
    (MapOperator("wider", Call(lambda bid: (bid.auction,))), tuple[float]),
    (MapOperator("same", Call(lambda bid: bid)), Bid),
    (MapOperator("kind", Call(lambda bid: type(bid).__name__)), str),
    (MapOperator("at", Call(lambda bid: TimestampedValue(bid.auction, bid.auction))), int),
    (MapOperator("one", Call(lambda _: 1)), int),
    (FlatMapOperator("yields", Call(yields)), None),
    (FlatMapOperator("chars", Call(lambda bid: bid.url or "")), str),
    (FlatMapOperator("pairs", Call(lambda bid: [bid, bid])), None),
    (par_do("urls", Urls()), None),
    (par_do("last", Last()), None),
    (KeyByOperator("key", Call(lambda bid: bid.auction % 3)), None),
]


def program(head: Any, steps: list[Operator], element_type: object) -> Program:
    """Makes a program with one output behind all steps, and one behind all but the last."""
    schema = schema_of(element_type)
    last = Readers(outputs=[0])
    before = Readers(steps=[Step(steps[-1], {None: last})], outputs=[1])
    readers = before
    for op in reversed(steps[:-1]):
        readers = Readers(steps=[Step(op, {None: readers})])
    rows = rows_schema(pa.schema(list(KINDS.items())))
    output = ToBlocks() if schema is None else ToColumns("out", schema, windowed=True)
    return Program(head, readers, [output, ToColumns("before", rows, windowed=True)])


def made(head: Any, steps: list[Operator], element_type: object, batches: list[pa.RecordBatch]) -> Any:
    """Runs a program; returns what came out, element by element, and its counts."""
    running = program(head, steps, element_type)
    batches_out: list[list[Any]] = [[], []]
    for number, batch in running._run(iter(batches)):
        if batch.schema.names == ["block"]:
            for cell in batch.column(0):
                bundle = from_block(cell.as_py())
                starts = [None] * bundle.size if bundle.starts is None else bundle.starts.tolist()
                elements = [(type(each).__name__, each) for each in bundle.elements]
                batches_out[number] += zip(elements, bundle.all_times().tolist(), starts, strict=True)
        else:
            batches_out[number] += [row | {TIME: row[TIME] or MIN_TIME} for row in batch.to_pylist()]  # null or not
    return batches_out, running._counts


rows_of_bids = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.none() | st.integers(-10, 10),
        st.none() | st.text(max_size=3),
        st.none() | st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC)),
        st.none() | st.lists(st.integers(0, 3), max_size=2),
    ),
    max_size=30,
)


@given(
    st.lists(rows_of_bids, max_size=3),
    st.lists(st.sampled_from(OPERATORS), max_size=3),
    st.sampled_from(LAST),
    st.sampled_from([None, schema_of(Bid), Schema(tuple(KINDS), tuple(KINDS.values()), "named", Half)]),
)
@examples(400)
def test_functions_on_columns_give_what_functions_on_elements_give(
    given_rows: list[list[Any]], steps: list[Operator], last: tuple[Operator, object], schema: Schema | None
) -> None:
    batches = [
        pa.record_batch(
            [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(KINDS.values())]
            + [pa.array([None if row[1] is None else row[0] * 3 + 1 for row in rows], pa.int64())]
            + [pa.array([row[0] for row in rows], pa.int64()) for _ in (START, END)],
            names=[*KINDS, TIME, START, END],
        )
        for rows in given_rows
    ]
    operators = [*steps, last[0]]
    on_columns = made(ColumnReader(schema), operators, last[1], batches)
    assert on_columns == made(FromColumns(schema, NO_PANE), operators, last[1], batches)


def test_a_failing_function_names_the_whole_element() -> None:
    (bundle,) = ColumnReader(None).bundles(iter([_two_rows(0)]))
    with pytest.raises(WorkerFailure) as failure:
        list(MapOperator("divide", Call(lambda bid: 1 // (bid.auction - 1))).run_columns(bundle))
    told = str(transform_error(failure.value))
    assert "on the element Row(auction=1, price=5, url=None, ts=None" in told
    assert told.count("File ") == 1, "the user's own lines only"


def test_a_generator_keeps_a_row_of_its_own() -> None:
    """Other functions share one, whose attributes are set anew for each call."""
    (bundle,) = ColumnReader(None).bundles(iter([_two_rows(1)]))
    [(_, mapped)] = MapOperator("later", Call(yields)).run_columns(bundle)
    assert [len(list(each)) for each in mapped.elements] == [2, 4]


def test_only_used_columns_are_decoded() -> None:
    (bundle,) = ColumnReader(None, pane=ONLY_PANE).bundles(
        iter([pa.record_batch({"auction": [1, 2], "url": ["a", "b"], TIME: [1, 2]})])
    )
    [(_, passed)] = FilterOperator("two", Call(lambda bid: bid.auction == 2)).run_columns(bundle)
    assert isinstance(passed, ColumnBundle) and passed.size == 1 and passed.pane == ONLY_PANE
    assert set(bundle.decoded) == set(passed.decoded) == {"auction"}
    [(_, mapped)] = MapOperator("url", Call(lambda bid: bid.url)).run_columns(passed)
    assert mapped.elements == ["b"] and set(bundle.decoded) == {"auction"}


def test_what_a_function_keeps_of_rows_outlives_their_bundle() -> None:
    kept: list[Row] = []
    keep = FilterOperator("keep", Call(lambda bid: not kept.append(bid)))
    made(ColumnReader(None), [keep, LAST[-1][0]], None, [_two_rows(1), _two_rows(3)])
    assert [row.auction for row in kept] == [1, 2, 3, 4]  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(kept)) == kept == [(auction, 5, None, None, None) for auction in (1, 2, 3, 4)]
    assert {kept[0]: "here"}[1, 5, None, None, None] == "here"  # type: ignore[index]


def _two_rows(auction: int) -> pa.RecordBatch:
    columns = [
        pa.array([auction, auction + 1]),
        pa.array([5, 5]),
        *(pa.nulls(2, kind) for kind in (*KINDS.values(),)[2:]),
    ]
    return pa.record_batch([*columns, *[pa.array([1, 2])] * 3], names=[*KINDS, TIME, START, END])


def test_columns_that_readers_read() -> None:
    def read(last: Operator, *before: Operator, schema: Schema | None = None, beside: bool = False) -> set[str] | None:
        readers = Readers(steps=[Step(last, {None: Readers(outputs=[0])})], outputs=[1] if beside else [])
        for op in reversed(before):
            readers = Readers(steps=[Step(op, {None: readers})])
        return columns_read(readers, schema, lambda number: {"tags"} if number else None)

    by_name = {op.label: op for op, _ in LAST} | {op.label: op for op in OPERATORS}
    assert read(by_name["swapped"]) == {"ts", "url"}
    assert read(by_name["swapped"], beside=True) == {"ts", "url", "tags"}
    assert read(by_name["swapped"], by_name["few"], by_name["twice"]) == {"ts", "url", "auction", "price"}
    assert read(by_name["one"]) == set()
    assert read(by_name["swapped"], schema=schema_of(Bid)) == {"ts", "url"}
    whole = [(by_name["same"],), (by_name["few"],), (by_name["key"],), (by_name["swapped"], by_name["whole"])]
    assert [read(*steps) for steps in whole] == [None] * 4
    assert read(by_name["swapped"], schema=schema_of(tuple[int, int])) is None
    assert read(MapOperator("typo", Call(lambda bid: bid.prize)), schema=schema_of(Bid)) is None


def test_a_failing_function_names_the_columns_that_were_read() -> None:
    rows = pa.record_batch({"auction": [1, 0], TIME: [1, 2]})
    failing = MapOperator("divide", Call(lambda bid: 1 // bid.auction))
    with pytest.raises(WorkerFailure) as failure:
        list(failing.run_columns(ColumnBundle(rows, schema_of(Bid))))
    assert "on the element Row(auction=0): ZeroDivisionError" in str(transform_error(failure.value))
