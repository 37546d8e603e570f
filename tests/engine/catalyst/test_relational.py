"""Transforms of columns: Select, Where, windows, and GroupBy, whose aggregations must agree with their CombineFns."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.catalyst.relational import only_columns
from headrace.model.agg import Aggregation
from headrace.model.algebra import FirstFn, LastFn
from headrace.model.panes import Windowing
from headrace.model.sketches import HeavyHittersFn
from headrace.model.times import MAX_TIME, SECOND
from tests import reference
from tests.reference import Element

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(NamedTuple):
    user: str
    n: int | None
    price: float | None
    page: str | None


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def visits(count: int = 60, *, nulls: bool = False) -> list[hr.TimestampedValue]:
    """Visits within two days, many at the same time."""
    draw = random.Random(7)

    def made() -> Visit:
        n, price, page = draw.randint(-9, 9), draw.randint(-8, 8) / 4, draw.choice(["a", "b", "é", "zz"])
        missing = draw.randrange(4) if nulls else None
        values: list[Any] = [n, price, page]
        return Visit(draw.choice("xyz"), *(None if missing == at else value for at, value in enumerate(values)))

    return [hr.TimestampedValue(made(), draw.choice([0, 5, 9, 12, 13, 14, 30, 31, 90_000])) for _ in range(count)]


AGGREGATIONS: dict[str, Aggregation] = {
    "count": hr.count(),
    "sum_n": hr.sum("n"),
    "sum_price": hr.sum("price"),
    "mean_price": hr.mean("price"),
    "variance_price": hr.variance("price"),
    "min_page": hr.min("page"),
    "max_price": hr.max("price"),
    "first_n": hr.first("n"),
    "first_price": hr.first("price"),
    "first_page": hr.first("page"),
    "last_n": hr.last("n"),
    "last_price": hr.last("price"),
    "last_page": hr.last("page"),
    "page_by_n": hr.max_by("page", "n"),
    "n_by_page": hr.min_by("n", "page"),
    "price_by_n": hr.min_by("price", "n"),
    "top_n": hr.top("n", 3),
    "top_page": hr.top("page", 3),
    "collect_page": hr.collect("page"),
    "quantiles_n": hr.quantiles("n", 5),
    "distinct_n": hr.approx_distinct("n"),
    "distinct_page": hr.approx_distinct("page"),
    "hitters_page": hr.heavy_hitters("page", 20),
    "theta_n": hr.theta("n"),
    "theta_page": hr.theta("page", lg_k=5),
    "count_min_page": hr.count_min("page"),
    "frequency_n": hr.frequency("n", of=3),
    "frequency_page": hr.frequency("page", of=["a", "é", "x"]),
    "second_moment_page": hr.second_moment("page"),
    "bloom_page": hr.bloom("page", items=20),
    "rank_n": hr.rank("n", of=2),
    "rank_price": hr.rank("price", of=[-1, 0.5]),
    "histogram_n": hr.histogram("n", bins=[-5, 0, 5]),
    "histogram_price": hr.histogram("price", bins=3),
    "collect_sample": hr.sample("page", 60),
}
IN_WINDOWS = (
    "count",
    "sum_n",
    "mean_price",
    "first_n",
    "last_page",
    "page_by_n",
    "collect_page",
    "quantiles_n",
    "theta_page",
)
WINDOWS = (
    hr.FixedWindows(10),
    hr.SlidingWindows(20, 10),
    hr.Sessions(5),
    hr.CalendarWindows("day", timezone="Europe/Berlin"),
)


def by_python(data: list[hr.TimestampedValue], windowing: Windowing, aggregation: Aggregation) -> dict[Any, Any]:
    """The aggregation by its CombineFn, by (user, window). Nulls are values to those that take any; the rest skip."""
    fn = aggregation.fn
    takes_nulls = isinstance(fn, FirstFn | LastFn | HeavyHittersFn)

    def value_of(row: Visit) -> Any:
        values = tuple(getattr(row, name) for name in aggregation.columns)
        return values if len(values) > 1 else values[0] if values else row

    def aggregate(rows: list[tuple[int, Visit]]) -> Any:
        values = [(time, value_of(row)) for time, row in rows]
        kept = [(time, value) for time, value in values if takes_nulls or value is not None]
        return fn.finish(fn.add_all(fn.zero(), kept if fn.timed else [value for _, value in kept]))

    timed = [Element((e.value.user, (e.timestamp, e.value)), e.timestamp) for e in data]
    groups = reference.group_by_key(list(reference.window_into(timed, windowing)), windowing)
    return {(e.value[0], e.window): aggregate(e.value[1]) for e in groups}


def comparable(name: str, value: Any) -> Any:
    """The value without what is not promised: the last bits of floats, and the order of lists."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else pytest.approx(value)
    if name.startswith("rank"):
        return [comparable("", each) for each in value]
    if name.startswith("hitters"):
        return {tuple(hit.values()) if isinstance(hit, dict) else hit for hit in value}
    return sorted(value) if name.startswith("collect") else value


def agrees(data: list[hr.TimestampedValue], windowing: Windowing, collected: Any, name: str) -> None:
    found = {(e.value.user, e.window): getattr(e.value, name) for e in collected.windowed}
    wanted = by_python(data, windowing, AGGREGATIONS[name])
    assert found.keys() == wanted.keys()
    for group, value in wanted.items():
        assert comparable(name, found[group]) == comparable(name, value), group


@pytest.fixture(scope="module", params=[False, True], ids=["full", "with nulls"])
def everything(spark: SparkSession, request: pytest.FixtureRequest) -> tuple[list[hr.TimestampedValue], Any]:
    data = visits(nulls=request.param)
    with hr.Pipeline(spark=spark) as p:
        collected = p | hr.Create(data) | hr.GroupBy("user").aggregate(**AGGREGATIONS) | hr.Collect()
    return data, collected


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_columns_and_combine_fns_agree(everything: tuple[list[hr.TimestampedValue], Any], name: str) -> None:
    """Of a group of nothing but skipped nulls comes what the CombineFn makes of no values."""
    agrees(everything[0], hr.WindowInto(hr.GlobalWindows()).windowing, everything[1], name)


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "with nulls"])
def test_columns_and_combine_fns_agree_in_windows(p: hr.Pipeline, nulls: bool) -> None:
    data = visits(nulls=nulls)
    rows = p | hr.Create(data)
    found = {}
    for into in map(hr.WindowInto, WINDOWS):
        grouped = rows | into | hr.GroupBy("user").aggregate(**{name: AGGREGATIONS[name] for name in IN_WINDOWS})
        found[into.windowing] = grouped | hr.Collect()
    p.run().wait()
    for windowing, collected in found.items():
        for name in IN_WINDOWS:
            agrees(data, windowing, collected, name)


def test_results_have_the_times_that_the_windowing_asks_for(p: hr.Pipeline) -> None:
    data = visits(20)
    found = {}
    for combiner in ("end_of_window", "earliest", "latest"):
        into = hr.WindowInto(hr.Sessions(5), timestamp_combiner=combiner)
        found[combiner] = into, p | hr.Create(data) | into | hr.GroupBy("user").aggregate(n=hr.count()) | hr.Collect()
    whole = p | hr.Create(data) | hr.GroupBy().aggregate(n=hr.count()) | hr.Collect()
    p.run().wait()
    for into, collected in found.values():
        timed = reference.window_into([Element((e.value.user, 1), e.timestamp) for e in data], into.windowing)
        wanted = reference.combine_per_key(list(timed), into.windowing, AGGREGATIONS["count"].fn)
        assert reference.multiset(collected.windowed) == reference.multiset(wanted)
    assert [(e.value.n, e.timestamp) for e in whole.windowed] == [(20, MAX_TIME - 1)]


def test_sums_beyond_64_bits(p: hr.Pipeline) -> None:
    rows = [("a", 2**62)] * 4
    total = p | hr.Create(rows) | hr.GroupBy("_1").aggregate(total=hr.sum("_2")) | hr.Collect()
    with pytest.raises(Exception, match="overflow"):  # a column has 64 bits: better an error than a wrong sum
        p.run().wait()
    assert total.gathered is None


def test_select_and_where(p: hr.Pipeline) -> None:
    from pyspark.sql import functions as F

    rows = p | hr.Create(
        [hr.TimestampedValue(Visit("amy", 1, 0.5, "a"), 1), hr.TimestampedValue(Visit("bob", 2, 1.5, "b"), 12)]
    )
    chosen = rows | hr.Select("user", twice="n * 2", shout=F.upper("user")) | hr.Collect()
    kept = rows | hr.Where("n > 1") | hr.Collect()
    by_column = rows | hr.Where(F.col("n") == 1) | hr.Collect()
    tens = rows | hr.WindowInto(hr.FixedWindows(10)) | hr.Select(s=hr.WINDOW_START, e=hr.WINDOW_END, t=hr.EVENT_TIME)
    shown = tens | hr.Map(lambda row: tuple(int(t.timestamp()) for t in row)) | hr.Collect()
    further = (
        rows | hr.Select("user", "n") | hr.Map(lambda row: (row.user, row.n)) | hr.CombinePerKey(sum) | hr.Collect()
    )
    p.run().wait()
    assert sorted(map(repr, chosen)) == [
        "Row(user='amy', twice=2, shout='AMY')",
        "Row(user='bob', twice=4, shout='BOB')",
    ]
    assert list(kept) == [Visit("bob", 2, 1.5, "b")]
    assert type(kept[0]) is Visit
    assert [v.user for v in by_column] == ["amy"]
    assert sorted(shown) == [(0, 10, 1), (10, 20, 12)]
    assert sorted(further) == [("amy", 1), ("bob", 2)]
    assert sorted(e.timestamp for e in chosen.windowed) == [SECOND, 12 * SECOND]


def test_empty_columns(p: hr.Pipeline) -> None:
    nothing = p | hr.Create([("a", 1)]) | hr.Where("_2 > 1")
    grouped = nothing | hr.GroupBy("_1").aggregate(n=hr.count()) | hr.Collect()
    selected = nothing | hr.Select(twice="_2 * 2") | hr.Collect()
    p.run().wait()
    assert list(grouped) == list(selected) == []


def test_columns_that_do_not_exist_are_named(p: hr.Pipeline) -> None:
    p | hr.Create([("a", 1)]) | hr.GroupBy("user").aggregate(n=hr.count()) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"no column 'user'; there are _1, _2"):
        p.run().wait()


def test_an_aggregated_column_that_does_not_exist_is_named(p: hr.Pipeline) -> None:
    p | hr.Create([("a", 1)]) | "stats" >> hr.GroupBy("_1").aggregate(n=hr.sum("price")) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'stats'.*price"):
        p.run().wait()


def test_a_faulty_expression_names_its_transform(p: hr.Pipeline) -> None:
    p | hr.Create([("a", 1)]) | "pick" >> hr.Select("nowhere") | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'pick'.*nowhere"):
        p.run().wait()


class Pairwise(hr.WindowFn):
    merging = True

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        return [(time, time + 1)]

    def merge(self, windows: Any) -> list[list[int]]:
        return [[at] for at in range(len(windows))]


@pytest.mark.parametrize(
    ("window", "match"), [(Pairwise(), "merges windows in its own way"), (hr.UnalignedWindows(10), "depends on a key")]
)
def test_windows_that_columns_cannot_have(p: hr.Pipeline, window: hr.WindowFn, match: str) -> None:
    p | hr.Create([("a", 1)]) | hr.WindowInto(window) | hr.GroupBy("_1").aggregate(n=hr.count()) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=match):
        p.run().wait()


def test_columns_of_different_names_do_not_flatten(p: hr.Pipeline) -> None:
    rows = p | hr.Create([("a", 1)])
    (rows | hr.Select(x="_1"), rows | hr.Select(y="_1")) | "both" >> hr.Flatten() | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'both'.*different columns \(x, y\)"):
        p.run().wait()


def test_only_the_columns_that_are_read_are_kept(spark: SparkSession) -> None:
    data = spark.createDataFrame([(1, 2, 3)], "`odd.name` int, b int, __time long")
    assert only_columns(data, {"odd.name", "missing"}).columns == ["odd.name", "__time"]
    assert only_columns(data, set()).columns == ["__time"]
    assert only_columns(data, None).columns == data.columns
    alike = spark.createDataFrame([(1, 2)], "a int, A int")  # which Spark could not tell apart
    assert only_columns(alike, {"a"}).columns == ["a", "A"]
