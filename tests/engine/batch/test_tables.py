"""Tables in and out: Create of pandas, polars, Arrow and Spark, Collect as a table, and collections as DataFrames."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.collected import SHOWN, Collected
from headrace.model.panes import NO_PANE
from headrace.model.sinks import WindowedValue
from headrace.model.windows import GLOBAL_WINDOW
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SALES: dict[str, list[Any]] = {"city": ["Rome", "Oslo", "Rome", None], "price": [3.5, 9.0, None, 1.0], "at": [DAY] * 4}
ARROW = pa.table({**SALES, "at": pa.array(SALES["at"], pa.timestamp("us", tz="UTC"))})


class Sale(NamedTuple):
    city: str | None
    price: float | None


@dataclass
class Price:
    price: float


@pytest.mark.parametrize("stream", [False, True])
def test_tables_are_collections_with_columns(spark: SparkSession, stream: bool) -> None:
    frames = {
        "pandas": pd.DataFrame(SALES),
        "polars": pl.DataFrame(SALES),
        "arrow": ARROW,
        "spark": spark.createDataFrame(ARROW),
    }
    if stream:  # the others are Arrow tables there
        frames = {"spark": frames["spark"]}
    p = hr.Pipeline(spark=spark)
    found = {}
    for name, frame in frames.items():
        rows = p | name >> hr.Create(frame)
        cheap = rows | f"{name} cheap" >> hr.Where("price < 9") | f"{name} columns" >> hr.Select("city", "price")
        windows = rows | f"{name} windows" >> hr.WindowInto(hr.FixedWindows(60))
        totals = windows | f"{name} sums" >> hr.GroupBy("city").aggregate(total=hr.sum("price"), n=hr.count())
        found[name] = [each | f"{name} {at}" >> hr.Collect() for at, each in enumerate((rows, cheap, totals))]
    p.run(stream=stream).wait()
    expected = [tuple(row.values()) for row in ARROW.to_pylist()]
    for rows, cheap, totals in found.values():
        assert rows.to_arrow().schema == ARROW.schema and sorted(map(tuple, rows), key=str) == sorted(expected, key=str)
        assert rows[0]._fields == ("city", "price", "at")
        assert sorted(cheap, key=str) == [("Rome", 3.5), (None, 1.0)]
        assert sorted(totals, key=str) == [("Oslo", 9.0, 1), ("Rome", 3.5, 2), (None, 1.0, 1)]


@pytest.mark.parametrize("stream", [False, True])
def test_rows_with_a_schema(spark: SparkSession, stream: bool) -> None:
    dicts = [{"city": "Rome", "price": 3.5}, {"price": 1}]
    ddl = "city string, price double"
    from pyspark.sql.types import StructType

    p = hr.Pipeline(spark=spark)
    of_text = p | "text" >> hr.Create(dicts, schema=ddl) | "of text" >> hr.Collect()
    struct = StructType.fromDDL(ddl)
    of_struct = p | "struct" >> hr.Create([("Rome", 3.5), (None, 1)], schema=struct) | "of struct" >> hr.Collect()
    of_class = p | "class" >> hr.Create(dicts, schema=Sale) | "of class" >> hr.Collect()
    timed = [hr.TimestampedValue(each, 60 * at) for at, each in enumerate(dicts)]
    windows = p | "timed" >> hr.Create(timed, schema=ddl) | hr.WindowInto(hr.FixedWindows(60))
    counts = windows | hr.GroupBy().aggregate(total=hr.sum("price")) | "counts" >> hr.Collect()
    nothing = p | "nothing" >> hr.Create([], schema=ddl) | "of nothing" >> hr.Collect()
    p.run(stream=stream).wait()
    assert sorted(of_text, key=str) == sorted(of_struct, key=str) == [("Rome", 3.5), (None, 1.0)]
    assert sorted(of_class, key=str) == [Sale("Rome", 3.5), Sale(None, 1.0)] and isinstance(of_class[0], Sale)
    assert sorted((each.window.start, each.value.total) for each in counts.windowed) == [(0, 3.5), (60_000_000, 1.0)]
    assert nothing.to_arrow().schema == pa.schema({"city": pa.string(), "price": pa.float64()}) and not nothing


@pytest.mark.parametrize("stream", [False, True])
def test_a_column_is_the_event_time_and_rows_without_one_are_bad(spark: SparkSession, stream: bool) -> None:
    frame = pd.DataFrame({"n": [1, 2, 4], "at": [0, None, 90]})
    p = hr.Pipeline(spark=spark)
    read = p | "frame" >> hr.Create(frame, event_time="at").with_exception_handling()
    sums = read.main | hr.WindowInto(hr.FixedWindows(60)) | hr.GroupBy().aggregate(total=hr.sum("n")) | hr.Collect()
    dead = read.dead_letters | "dead" >> hr.Collect()
    other = p | "other" >> hr.Create(spark.createDataFrame(frame), event_time="at") | "rows" >> hr.Collect()
    handle = p.run(stream=stream)
    handle.wait()
    assert sorted((each.window.start // 10**6, each.value.total) for each in sums.windowed) == [(0, 1), (60, 4)]
    assert [(json.loads(letter.element)["n"], letter.error) for letter in dead] == [(2, "no event time")]
    assert sorted(each.timestamp for each in other.windowed) == [0, 90 * 10**6]
    assert handle.metrics()["frame"]["no event time"] == handle.metrics()["other"]["no event time"] == 1


def test_what_is_refused_before_a_job_runs(spark: SparkSession) -> None:
    for data, options, message in [
        (
            [{}],
            {"schema": "city strin"},
            "schema='city strin': the column 'city' has the type 'strin', which does not exist",
        ),
        ([{"town": 1}], {"schema": "city string"}, "row 0 has 'town'"),
        (pa.table({"__time": [1]}), {}, "the engine has a column '__time' of its own; rename yours"),
        (pa.table({"a": pa.array([], pa.month_day_nano_interval())}), {}, "a type that Spark has not"),
    ]:
        p = hr.Pipeline(spark=spark)
        with pytest.raises(hr.PipelineError, match=message):
            _ = p | hr.Create(data, **options) | hr.Collect()  # type: ignore[arg-type]
            p.run().wait()
    endless = spark.readStream.format("rate").load()
    with pytest.raises(hr.PipelineError, match="is a stream, which has no end"):
        hr.Create(endless)


def test_collections_are_dataframes_of_the_session(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    sales = spark.createDataFrame(ARROW)
    totals = hr.from_spark(sales) | hr.Where("city is not null") | hr.GroupBy("city").aggregate(total=hr.sum("price"))
    frame = totals.to_spark()
    assert frame.columns == ["city", "total"] and frame.sparkSession is spark
    assert sorted(map(tuple, frame.collect())) == [("Oslo", 9.0), ("Rome", 3.5)]
    # The pipeline may still change; functions, side inputs and windows are part of what leads there.
    p = totals.pipeline
    rate = p | "rate" >> hr.Create([2.0])
    twice = totals | hr.Map(lambda row, rate: Price(row.total * rate), hr.AsSingleton(rate)).with_output_types(Price)
    both = (twice, twice | "same" >> hr.Filter(bool)) | hr.Flatten()
    assert sorted(row.price for row in both.to_spark().collect()) == [7.0, 7.0, 18.0, 18.0]
    windows = totals | "windows" >> hr.WindowInto(hr.FixedWindows(60))
    assert windows.to_spark().columns == ["city", "total"]
    collected = twice | hr.Collect()
    p.run().wait()
    assert sorted(each.price for each in collected) == [7.0, 18.0]
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_what_is_no_dataframe(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\noops\n')
    p = hr.Pipeline(spark=spark)
    objects = p | "objects" >> hr.Create([1, "a"])
    endless = p | "rate" >> hr.Rate(1)
    read = p | "read" >> hr.ReadJson(str(tmp_path), schema="n long")
    skipped = p | "skipped" >> hr.ReadJson(str(tmp_path), schema="n long", bad="skip")
    handled = p | "handled" >> hr.ReadJson(str(tmp_path), schema="n long").with_exception_handling()
    for pc, message in [
        (objects, "it needs columns, but 'objects'"),
        (endless, "has no end"),
        (read, "it may have bad records, which a DataFrame cannot report; say bad='fail' or bad='skip'"),
    ]:
        with pytest.raises(hr.PipelineError, match=message):
            pc.to_spark()
    assert skipped.to_spark().collect() == handled.main.to_spark().collect() == [(1,)]
    with pytest.raises(hr.PipelineError, match="from_spark takes a Spark DataFrame, got a list"):
        hr.from_spark([1])


def collected(*elements: Any, columns: pa.Schema | None = None, retracted: int = 0) -> Collected:
    made = Collected("counts")
    made.begin("run", columns)
    values = [WindowedValue(each, 0, GLOBAL_WINDOW, NO_PANE, at < retracted) for at, each in enumerate(elements)]
    made.take(0, values)
    return made


def test_python_objects_are_tables_by_their_values() -> None:
    for elements, rows in [
        ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        ([("a", 1), ("b", None)], [{"_1": "a", "_2": 1}, {"_1": "b", "_2": None}]),
        ([1, None], [{"value": 1}, {"value": None}]),
        ([Sale("Rome", None)], [{"city": "Rome", "price": None}]),
        ([Price(1.5)], [{"price": 1.5}]),
        ([[1], [2, 3]], [{"value": [1]}, {"value": [2, 3]}]),
        ([], []),
    ]:
        assert collected(*elements).to_arrow().to_pylist() == rows
    with pytest.raises(hr.PipelineError, match=r"'counts': its elements are no rows of a table, .* make rows of them"):
        collected(1, "a").to_arrow()
    with pytest.raises(RuntimeError, match="run it first"):
        Collected("counts").to_pandas()


def test_tables_tell_windows_panes_and_retractions_apart(spark: SparkSession) -> None:
    at = hr.TimestampedValue
    script = hr.TestStream().with_output_types(tuple[str, int]).add([at(("a", 1), 1)]).advance_watermark(60)
    windowing = hr.WindowInto(
        hr.FixedWindows(60),
        trigger=hr.AfterWatermark(late=hr.AfterCount(1)),
        accumulation="retracting",
        allowed_lateness=3600,
    )
    p = hr.Pipeline(spark=spark)
    pairs = p | script.add([at(("a", 2), 2)]).finish() | windowing
    sums = pairs | hr.GroupBy("_1").aggregate(total=hr.sum("_2")) | "sums" >> hr.Collect()
    plain = pairs | "plain" >> hr.Collect()
    p.run().wait()
    bounds = {
        "window_start": dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        "window_end": dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC),
    }
    assert sums.to_arrow().to_pylist() == [
        {"_1": "a", "total": total, **bounds, "pane": pane, "timing": timing, "op": op}
        for total, pane, timing, op in [
            (1, 0, "on_time", "insert"),
            (1, 0, "on_time", "retract"),
            (3, 1, "late", "insert"),
        ]
    ]
    assert sums.to_polars(window=False).columns == ["_1", "total", "op"]
    assert plain.to_pandas().columns.tolist() == ["_1", "_2", "window_start", "window_end"]
    assert plain.to_pandas(window=False).columns.tolist() == ["_1", "_2"]


def test_pandas_keeps_large_ints_beside_nulls() -> None:
    columns = pa.schema({"n": pa.int64(), "flag": pa.bool_(), "m": pa.int64(), "cost": pa.decimal128(5, 2)})
    frame = collected((2**62 + 1, True, 1, Decimal("1.25")), (None, None, 2, None), columns=columns).to_pandas()
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "boolean", "int64", "object"]
    assert frame["n"][0] == 2**62 + 1 and frame["n"][1] is pd.NA and frame["cost"][0] == Decimal("1.25")
    assert collected(columns=columns).to_pandas().columns.tolist() == ["n", "flag", "m", "cost"]


cells = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(st.characters(codec="utf-8")),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.datetimes(timezones=st.just(dt.UTC)),
    st.none() | st.lists(st.none() | st.booleans()),
)
COLUMNS = pa.schema(
    {
        "n": pa.int64(),
        "text": pa.string(),
        "x": pa.float64(),
        "at": pa.timestamp("us", tz="UTC"),
        "flags": pa.list_(pa.bool_()),
    }
)


@examples(200)
@given(st.lists(cells, max_size=5))
def test_tables_out_and_in_again_have_the_same_values(rows: list[tuple[Any, ...]]) -> None:
    gathered = collected(*rows, columns=COLUMNS)
    expected = [dict(zip(COLUMNS.names, row, strict=True)) for row in rows]
    assert gathered.to_arrow().to_pylist() == expected
    assert gathered.to_polars().rows() == rows
    for table in (gathered.to_arrow(), gathered.to_polars()):
        again = hr.Create(table).table
        assert again is not None and again.schema == COLUMNS and again.to_pylist() == expected


def test_polars_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(hr.PipelineError, match="to_polars needs polars, which is not installed: pip install polars"):
        collected(1).to_polars()


def test_a_notebook_shows_ten_rows_and_the_number_of_the_rest() -> None:
    many = collected(*[(f"<b>{n}</b>", n) for n in range(1234)])
    html = many._repr_html_()
    assert html.count("<tr>") == 1 + SHOWN and "... and 1,224 more" in html
    assert "&lt;b&gt;9&lt;/b&gt;" in html and "<b>" not in html
    assert repr(many).endswith("('<b>9</b>', 9), ... and 1,224 more]")
    assert repr(collected(1, 2)) == "[1, 2]"
    columns = pa.schema({"<n>": pa.int64()})
    assert "<th>&lt;n&gt;</th>" in collected((1,), columns=columns)._repr_html_()
    assert "no elements" in collected(columns=columns)._repr_html_()
    assert "<td>-</td><td>7</td>" in collected(7, 8, retracted=1)._repr_html_()
    assert collected({"a": 1}, "x", None)._repr_html_().count("<td>") == 3
    assert "<td>1</td><td></td>" in collected({"a": 1}, {"b": 2})._repr_html_()
    assert "not run yet" in Collected("counts")._repr_html_()
