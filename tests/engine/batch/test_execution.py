"""A batch on Spark: what only Spark shows. Columns, life cycles across tasks, errors through the JVM, what is run once.

What each transform does is tested without Spark in test_program.
"""

from __future__ import annotations

import itertools
import math
import pathlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.panes import NO_PANE, ONLY_PANE
from tests import reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def agree(pipeline: hr.Pipeline) -> None:
    """Runs the pipeline; everything it collects is what the reference says."""
    pipeline.run().wait()
    for collected, expected in reference.expected_of_collects(pipeline.graph()):
        assert reference.multiset(collected.windowed) == reference.multiset(expected), collected.label


def timed(*pairs: tuple[Any, float]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue(value, time) for value, time in pairs]


def fails(pipeline: hr.Pipeline, match: str) -> hr.TransformError:
    with pytest.raises(hr.TransformError, match=match) as caught:
        pipeline.run().wait()
    assert len(str(caught.value).splitlines()) <= 25
    return caught.value


# Elements


def test_life_cycle_of_a_dofn(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    class Traced(hr.DoFn):
        def __init__(self, folder: pathlib.Path) -> None:
            self.folder = folder

        def setup(self) -> None:
            self.calls = ["setup"]

        def start_bundle(self) -> None:
            self.calls.append("start")

        def process(self, x: int) -> Iterator[Any]:
            self.calls.append("process")
            yield x

        def finish_bundle(self) -> list[str]:
            self.calls.append("finish")
            return ["end of bundle"]

        def teardown(self) -> None:
            import uuid

            (self.folder / uuid.uuid4().hex).write_text(" ".join([*self.calls, "teardown"]))

    out = p | hr.Create(range(5)) | hr.Reshuffle() | hr.ParDo(Traced(tmp_path)) | hr.Collect()
    p.run().wait()
    runs = [file.read_text().split() for file in tmp_path.iterdir()]
    assert sum(run.count("process") for run in runs) == 5
    for run in runs:
        assert run[0] == "setup"
        assert run[-1] == "teardown"
        assert run.count("start") == run.count("finish")
        bundles = [list(group) for framed, group in itertools.groupby(run[1:-1], lambda c: c == "process") if framed]
        assert len(bundles) == run.count("start")
    assert Counter(map(str, out))["end of bundle"] == sum(run.count("finish") for run in runs)


def test_pane_info(p: hr.Pipeline) -> None:
    def pane_of(x: Any, pane: Any = hr.DoFn.PaneInfoParam) -> Any:
        return pane

    pairs = p | hr.Create([("a", 1), ("a", 2)])
    before = pairs | hr.Map(pane_of) | hr.Collect()
    after = pairs | hr.GroupByKey() | hr.Map(pane_of) | hr.Collect()
    further = pairs | hr.CombinePerKey(sum) | hr.Reshuffle() | hr.Map(pane_of) | hr.Collect()
    p.run().wait()
    assert list(before) == [NO_PANE] * 2
    assert list(after) == list(further) == [ONLY_PANE]
    assert [e.pane for e in after.windowed] == [ONLY_PANE]


# Windows and keys


def test_grouping_in_every_kind_of_window(p: hr.Pipeline) -> None:
    data = p | hr.Create(timed(*[((("x", "y", None)[i % 3], i), (i * 7) % 60) for i in range(40)]))
    for window in (hr.FixedWindows(10), hr.SlidingWindows(10, 4), hr.Sessions(5), hr.CalendarWindows("day")):
        data | hr.WindowInto(window) | hr.CombinePerKey(sum) | hr.Collect()  # windowed as columns
    objects = data | hr.Map(lambda pair: pair)
    objects | hr.WindowInto(hr.UnalignedWindows(10)) | hr.CombinePerKey(sum) | hr.Collect()
    objects | hr.WindowInto(hr.Sessions(5), timestamp_combiner="earliest") | hr.GroupByKey() | hr.Collect()
    numbered = objects | hr.WithTimestamps(lambda pair: pair[1])
    numbered | hr.WindowInto(hr.CountWindows(4)) | hr.GroupByKey() | hr.Collect()
    agree(p)


def test_elements_between_sampling_windows_are_dropped(p: hr.Pipeline) -> None:
    pc = p | hr.Create(timed(*[(i, i) for i in range(30)]))
    pc | hr.WindowInto(hr.SlidingWindows(2, 10)) | hr.Collect()
    pc | hr.Map(lambda x: x) | hr.WindowInto(hr.SlidingWindows(2, 10)) | hr.Collect()
    agree(p)


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Spot:
    x: int


MEETING: list[list[Any]] = [
    [1, 1.0, True, Decimal(1)],
    [math.nan, float("nan")],
    [Decimal("0.5"), 0.5],
    [None, None],
    ["é", "é"],
    ["", ""],
    ["\ud800"],
    [b"\xc3\xa9"],
    [(1, "a"), (1.0, "a")],
    [Point(1, 2), (1, 2)],
    [Spot(1), Spot(1)],
    [frozenset({1, 2}), frozenset({2, 1.0})],
    [(math.nan, None), (float("nan"), None)],
    [2**70, float(2**70)],
    [()],
]


def test_equal_keys_meet(p: hr.Pipeline) -> None:
    pairs = p | hr.Create([(key, number) for number, keys in enumerate(MEETING) for key in keys])
    groups = pairs | hr.GroupByKey() | hr.Collect()
    counts = pairs | hr.Map(lambda pair: pair) | hr.Reshuffle() | hr.Count.per_key() | hr.Collect()
    windowed = pairs | hr.WindowInto(hr.FixedWindows(1)) | hr.Count.per_key() | hr.Collect()
    p.run().wait()
    assert sorted(tuple(values) for _, values in groups) == [(n,) * len(keys) for n, keys in enumerate(MEETING)]
    expected = Counter(map(len, MEETING))
    assert Counter(n for _, n in counts) == Counter(n for _, n in windowed) == expected


# Columns by type


class Visit(NamedTuple):
    user: str
    n: int


@dataclass
class Sale:
    item: str
    price: float


def visit(n: int) -> Visit:
    return Visit(f"u{n % 2}", n)


def sale(n: int) -> Sale:
    return Sale(f"i{n}", n / 2)


def pair(n: int) -> tuple[str, int]:
    return f"u{n % 2}", n


def test_typed_elements_keep_their_type_through_columns(p: hr.Pipeline) -> None:
    numbers = p | hr.Create(range(6))
    maybe = numbers | hr.Map(lambda n: None if n % 2 else n).with_output_types(int | None)
    for typed in (numbers | hr.Map(visit), numbers | hr.Map(pair), maybe):
        assert typed.has_columns
        typed | hr.Reshuffle() | hr.Collect()
    (numbers | hr.Map(visit), numbers | hr.Map(visit)) | hr.Flatten() | hr.Filter(lambda v: v.n > 2) | hr.Collect()
    kinds = numbers | hr.Map(visit) | hr.Reshuffle() | hr.Map(lambda x: type(x).__name__) | hr.Collect()
    sales = numbers | hr.Map(sale) | hr.Reshuffle() | hr.Collect()
    p.run().wait()
    assert set(kinds) == {"Visit"}
    assert sorted(s.price for s in sales) == [0, 0.5, 1, 1.5, 2, 2.5]
    assert all(type(s) is Sale for s in sales)


# Failures


def test_a_failure_names_label_element_and_the_users_code(p: hr.Pipeline) -> None:
    def invert(x: int) -> float:
        return 1 / x

    p | hr.Create([5, 0, 7]) | "invert" >> hr.Map(invert) | hr.Collect()
    text = str(fails(p, r"^'invert' failed on the element 0: ZeroDivisionError: division by zero"))
    assert "in invert" in text
    assert "return 1 / x" in text
    assert "headrace/engine" not in text
    assert "pyspark" not in text


def test_a_failure_in_the_middle_of_a_generator(p: hr.Pipeline) -> None:
    def parts(text: str) -> Iterator[int]:
        for word in text.split():
            yield int(word)

    p | hr.Create(["1 2", "3 x 4", "5"]) | "parse" >> hr.FlatMap(parts) | hr.Collect()
    assert "in parts" in str(fails(p, r"'parse' failed on the element '3 x 4': ValueError.*'x'"))


def test_deep_recursion_and_long_messages_stay_short(p: hr.Pipeline) -> None:
    def deep(n: int) -> int:
        if n == 0:
            raise ValueError("line\n" * 100)
        return deep(n - 1)

    p | hr.Create([50]) | "dive" >> hr.Map(deep)
    assert "ValueError" in str(fails(p, "'dive' failed on the element 50"))


def test_a_wrong_declared_type_names_the_transform(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "lies" >> hr.Map(lambda n: "text").with_output_types(int) | hr.Collect()
    fails(p, r"'lies'.*declared as .*int64.*with_output_types")


# What is run once


def test_a_collection_read_by_several_sinks_runs_its_functions_once(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    p = hr.Pipeline(spark=spark)
    calls = tmp_path / "calls"

    def noted(x: int) -> int:
        with calls.open("a") as file:
            file.write(f"{x}\n")
        return x

    once = p | hr.Create(range(10)) | "note" >> hr.Map(noted)
    first = once | hr.Collect()
    once | hr.WriteText(str(tmp_path / "out"))
    second = once | hr.KeyBy(lambda x: x % 2) | hr.GroupByKey() | hr.Collect()
    total = once | hr.CombineGlobally(sum)
    third = once | hr.Map(lambda x, total: x / total, hr.AsSingleton(total)) | hr.Collect()
    handle = p.run()
    handle.wait()
    assert Counter(calls.read_text().split()) == {str(x): 1 for x in range(10)}
    assert sorted(first) == list(range(10))
    assert len(second) == 2
    assert len(third) == 10
    assert handle.metrics()["note"] == {"in": 10, "out": 10}


def test_metrics_and_status(p: hr.Pipeline) -> None:
    p | hr.Create(range(10)) | "even" >> hr.Filter(lambda x: x % 2 == 0) | "twice" >> hr.FlatMap(lambda x: [x, x])
    handle = p.run()
    assert handle.wait().state == "done"
    assert handle.metrics() == {"even": {"in": 10, "out": 5}, "twice": {"in": 5, "out": 10}}


def test_large_groups_on_spark(p: hr.Pipeline) -> None:
    n = 150_000
    pairs = p | hr.Create(range(100)) | hr.FlatMap(lambda x: (("big" if y else f"k{x}", y) for y in range(n // 100)))
    sizes = pairs | hr.GroupByKey() | hr.MapTuple(lambda key, values: (key, len(values), sum(values))) | hr.Collect()
    p.run().wait()
    found = {key: (count, total) for key, count, total in sizes}
    assert len(found) == 101
    assert found["big"] == (n - 100, 100 * sum(range(n // 100)))
