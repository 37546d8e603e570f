"""Columns in the midst of a stream: Select, Where and windows on what Python functions and groupings gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.plan.line import Line
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.reports import TaskClocks
from headrace.engine.shard.rows import pane_of
from headrace.engine.shard.wire import unpack, wire
from headrace.engine.stream.segmentprogram import SegmentOpener, after
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import PANE_COLUMNS, Columnar, ColumnBundle
from headrace.engine.worker.hidden import TIME
from headrace.model.panes import PaneInfo
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sale(NamedTuple):
    city: str
    price: int


def parse(line: str) -> Sale:
    city, price = line.split()
    return Sale(city, int(price))


def halves(sale: Sale) -> tuple[str, float]:
    return sale.city, sale.price / 2


def at(line: str, second: int) -> hr.TimestampedValue:
    return hr.TimestampedValue(line, second)


def test_columns_anywhere(spark: SparkSession) -> None:
    script = (
        hr.TestStream()
        .add([at("Rome 3", 1), at("Oslo 9", 2), at("Rome 0", 3)])
        .advance_watermark(10)
        .add([at("Rome 8", 4), at("Bonn 4", 12)])
        .finish()
    )
    late = hr.AfterWatermark(late=hr.AfterCount(1))
    p = hr.Pipeline(spark=spark)
    sales = p | script.with_output_types(str) | "parse" >> hr.Map(parse)
    many = sales | "many" >> hr.Where("price > 3")
    cities = many | "cities" >> hr.Select("city", tens="price * 10", second=f"second({hr.EVENT_TIME})")
    # 10 div 0 fails: rows that go elsewhere must not meet the expression.
    shares = sales | "some" >> hr.Where("price <> 0") | "shares" >> hr.Select(share="10 div coalesce(price, 0)")
    # Another type under the same name, at the same place in the line.
    half = sales | "halve" >> hr.Map(halves) | "half" >> hr.Select(price="_2") | "low" >> hr.Where("price < 2")
    again = cities | "shout" >> hr.Map(lambda row: row.city.upper()).with_output_types(str) | hr.Where("value > 'C'")
    windowed = (
        many
        | "named" >> hr.Select("city", "price")
        | "w" >> hr.WindowInto(hr.FixedWindows(10), trigger=late, accumulation="retracting", allowed_lateness=60)
        | "not Bonn" >> hr.Where("city <> 'Bonn'")
    )
    totals = windowed | hr.GroupBy("city").aggregate(total=hr.sum("price"))
    shown = (
        totals | "over" >> hr.Where("total >= 8") | "shown" >> hr.Select("total", start=f"second({hr.WINDOW_START})")
    )
    all_of_them = totals | "only totals" >> hr.Select("total") | "all" >> hr.GroupBy().aggregate(total=hr.sum("total"))
    slid = (
        many | "sliding" >> hr.WindowInto(hr.SlidingWindows(10, 5)) | "slid" >> hr.Select(s=f"second({hr.WINDOW_END})")
    )
    both = (many, sales | "all sales" >> hr.Map(lambda sale: sale).with_output_types(Sale)) | hr.Flatten()
    flat = both | "flat" >> hr.Select("price")
    collected = [
        pc | f"collect {number}" >> hr.Collect()
        for number, pc in enumerate((many, cities, shares, half, again, shown, all_of_them, slid, flat))
    ]
    p.run().wait()
    kept, named, shared, halved, shouted, panes, grand, slides, prices = collected
    assert sorted(kept) == [Sale("Bonn", 4), Sale("Oslo", 9), Sale("Rome", 8)]
    assert all(isinstance(sale, Sale) for sale in kept)
    assert sorted(named) == [("Bonn", 40, 12), ("Oslo", 90, 2), ("Rome", 80, 4)]
    assert named[0]._fields == ("city", "tens", "second")
    assert [e.timestamp // SECOND for e in named.windowed] == [row.second for row in named]
    assert sorted(row.share for row in shared) == [1, 1, 2, 3]
    assert sorted(row.price for row in halved) == [0.0, 1.5]
    assert sorted(shouted) == ["OSLO", "ROME"]
    assert [(e.value, e.retraction, e.pane.timing) for e in panes.windowed] == [
        ((9, 0), False, "on_time"),
        ((8, 0), False, "late"),
    ]
    assert [(e.value.total, e.retraction) for e in grand.windowed] == [(9, False), (9, True), (17, False)]
    assert sorted(row.s for row in slides) == [5, 5, 10, 10, 15, 20]
    assert sorted(row.price for row in prices) == [0, 3, 4, 4, 8, 8, 9, 9]


def test_rows_cannot_multiply_in_the_midst_of_a_stream(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    lists = p | hr.TestStream().add(["a b"]) | hr.Map(str.split).with_output_types(list[str])
    _ = lists | "each" >> hr.Select("explode(value) AS word") | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'each' .*use FlatMap to make several rows of one"):
        p.run()


# Without Spark


def lowered(p: hr.Pipeline) -> Line:
    return lower(p.graph(), shards=2, partitions=2)


def test_segments_follow_one_another_and_stand_behind_the_deepest_they_read() -> None:
    p = hr.Pipeline()
    sales = p | hr.TestStream().with_output_types(str) | hr.Map(parse)
    first = sales | "first" >> hr.Where("price > 1") | "same" >> hr.Select("city", "price")
    second = first | hr.Map(lambda row: row).with_output_types(Sale) | "second" >> hr.Where("price > 2")
    sums = first | hr.WindowInto(hr.FixedWindows(10)) | hr.GroupBy("city").aggregate(price=hr.sum("price"))
    after_sums = sums | hr.Map(lambda row: row).with_output_types(Sale)
    last = (second, after_sums) | hr.Flatten() | "last" >> hr.Where("price > 3")
    _ = second | "a" >> hr.Collect()
    _ = last | "b" >> hr.Collect()
    line = lowered(p)
    assert {tuple(node.label for node in each.nodes): each.station for each in line.segments} == {
        ("first", "same"): (0, 1),
        ("second",): (0, 2),
        ("first", "same", "WindowInto(FixedWindows('10 s'))"): (0, 1),
        ("last",): (1, 1),
    }


def test_the_plan_of_a_stream_shows_its_segments() -> None:
    p = hr.Pipeline()
    sales = p | "sales" >> hr.TestStream().with_output_types(str) | "parse" >> hr.Map(parse)
    dear = sales | "dear" >> hr.Where("price > 1") | "shout" >> hr.Map(lambda sale: sale.city.upper())
    _ = dear | "collect" >> hr.Collect()
    assert p.explain().splitlines() == [
        "read  sales: TestStream(0 steps)",
        "   python  parse",
        "columns  dear",
        "   python  shout",
        "write  collect: Collect",
    ]


def segment_line() -> Line:
    p = hr.Pipeline()
    sales = p | hr.TestStream().with_output_types(str) | hr.Map(parse)
    _ = sales | "dear" >> hr.Where("price > 1") | hr.Collect()
    return lowered(p)


class Sending:
    """Stands for a program: gives what it is given."""

    def __call__(self, batches: Any) -> Any:
        return batches


def test_panes_and_what_is_taken_back_travel_with_their_rows() -> None:
    line = segment_line()
    (segment,) = line.segments
    segment.output.clocks.followed["lines"] = hr.Monotonic()
    pane = PaneInfo("late", 3, 1, False, True)
    sent = [
        segment.output.batch(Bundle([Sale("a", 1), Sale("b", 2)], time=5, pane=pane, retraction=True)),
        wire([(7, b"elsewhere")]),
        segment.output.batch(Bundle([Sale("c", 3)], time=6)),
    ]
    schema = segment.output.schema()
    opened = list(SegmentOpener(Sending(), {segment.dest: schema}, {segment.dest: segment.column})(iter(sent)))  # type: ignore[arg-type]
    whole = pa.Table.from_batches(opened).combine_chunks().to_batches()[0]
    program = after([segment], {"lines": hr.Monotonic()})
    program._passing, program._clocks = [], TaskClocks()
    # Catalyst cuts batches where it likes; what it dropped is not there.
    for parts in ([whole], [whole.slice(at, 1) for at in range(whole.num_rows)]):
        entered = [part for bundle, _ in program._entering(iter(parts)) for part in bundle.parts()]  # type: ignore[union-attr]
        elements = [element for bundle in entered for element in bundle.elements]
        assert elements == [Sale("a", 1), Sale("b", 2), Sale("c", 3)]
        assert {(b.pane.timing, b.pane.index, b.retraction) for b in entered} == {
            ("late", 3, True),
            ("unknown", 0, False),
        }
        assert [t for b in entered for t in b.all_times().tolist()] == [5, 5, 6]
    assert program._passing == [(7, b"elsewhere")] * 2
    # A source whose watermark follows the times of rows is followed here, where its rows come by.
    assert program._clocks.followed == {"lines": hr.Monotonic()} and program._clocks.lows == {"lines": None}


def test_columns_enter_and_leave_as_columns() -> None:
    """Panes of a grouping that are columns are sent as they are, each kind of pane with a header of its own."""
    line = segment_line()
    (segment,) = line.segments
    assert isinstance(segment.output, Columnar)
    rows = pa.record_batch({"city": ["a", "b", "c"], "price": [1, 2, 3], TIME: [7, 7, 8]})
    panes = pa.record_batch(
        [pa.array(column) for column in ([True, False, False], [1] * 3, [0, 1, 1], [0] * 3, [True] * 3, [False] * 3)],
        names=list(PANE_COLUMNS),
    )
    sent = {
        (pane_of(header["pane"]).index, header["retraction"]): rows.to_pylist()
        for batch in segment.output.add_columns(ColumnBundle(rows, None, panes))
        for header, rows in map(unpack, batch["body"].to_pylist())
    }
    assert list(sent.items()) == [
        ((0, True), [{"city": "a", "price": 1, TIME: 7}]),
        ((1, False), [{"city": "b", "price": 2, TIME: 7}, {"city": "c", "price": 3, TIME: 8}]),
    ]
