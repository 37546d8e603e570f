"""Each transform on Spark: what the reference says, and what it does not: life cycles, errors, and what is run once."""

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
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND
from tests import reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def agree(pipeline: hr.Pipeline) -> None:
    """Runs the pipeline; everything it collects is what the reference says."""
    pipeline.run().wait()
    for collected, expected in reference.gathered(pipeline.graph()):
        assert reference.multiset(collected.windowed) == reference.multiset(expected), collected.label


def timed(*pairs: tuple[Any, float]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue(value, time) for value, time in pairs]


def fails(pipeline: hr.Pipeline, match: str) -> hr.TransformError:
    with pytest.raises(hr.TransformError, match=match) as caught:
        pipeline.run().wait()
    assert len(str(caught.value).splitlines()) <= 25
    return caught.value


# Elements


def test_elementwise_transforms(p: hr.Pipeline) -> None:
    numbers = p | hr.Create(range(20))
    numbers | hr.Map(lambda x: x * x) | hr.Collect()
    numbers | hr.FlatMap(lambda x: [x] * (x % 3)) | hr.Collect()
    numbers | hr.FlatMap(lambda x: None if x % 2 else iter([x])) | hr.Collect()
    numbers | hr.Filter(lambda x: x % 2) | hr.Collect()
    numbers | hr.KeyBy(lambda x: x % 3) | hr.Collect()
    numbers | hr.Map(lambda x, y, z=0: (x, y, z), 5, z="z") | hr.Collect()
    numbers | hr.KeyBy(str) | hr.MapTuple(lambda key, x, y: key * x + y, "!") | hr.Collect()
    numbers | hr.ParDo(lambda x: [x, -x]) | hr.Collect()
    numbers | hr.Map(lambda x: {"x": [x]}) | hr.Collect()
    agree(p)


def test_empty_collections_go_through_everything(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    nothing = p | hr.Create([])
    never = p | hr.Create([1, 2]) | hr.Filter(lambda x: False)
    pairs = nothing | hr.KeyBy(str)
    for empty in (nothing, never):
        empty | hr.FlatMap(lambda x: [x]) | hr.WithTimestamps(lambda x: x) | hr.Collect()
        empty | hr.Distinct() | hr.Collect()
        empty | hr.Reshuffle() | hr.Collect()
    pairs | hr.GroupByKey() | hr.Collect()
    pairs | hr.WindowInto(hr.Sessions(1)) | hr.GroupByKey() | hr.Collect()
    pairs | hr.WindowInto(hr.CountWindows(2)) | hr.CombinePerKey(sum) | hr.Collect()
    nothing | hr.CombineGlobally(sum) | hr.Collect()
    nothing | hr.Count.globally() | hr.Collect()
    nothing | hr.WindowInto(hr.FixedWindows(1)) | hr.CombineGlobally(sum) | hr.Collect()
    (nothing, never, never) | hr.Flatten() | hr.Collect()
    {"a": pairs, "b": pairs} | hr.CoGroupByKey() | hr.Collect()
    nothing | hr.WriteText(str(tmp_path / "text"))
    agree(p)
    assert (tmp_path / "text" / "_SUCCESS").exists()


def test_what_a_function_may_ask_for(p: hr.Pipeline) -> None:
    pc = p | hr.Create(timed(("a", 1), ("b", 12))) | hr.WindowInto(hr.FixedWindows(10))

    def seen(
        x: str,
        suffix: str,
        at: int = hr.DoFn.TimestampParam,  # type: ignore[assignment]
        window: hr.Window = hr.DoFn.WindowParam,  # type: ignore[assignment]
    ) -> Any:
        return x + suffix, at, window.start, window.end

    class Asks(hr.DoFn):
        def process(self, x: Any, window: Any = hr.DoFn.WindowParam, same: Any = hr.DoFn.ElementParam) -> Any:
            yield same, x, window.max_timestamp()

    pc | hr.Map(seen, "!") | hr.Collect()
    pc | hr.FlatMap(lambda x, t=hr.DoFn.TimestampParam: [x, t]) | hr.Collect()
    pc | hr.Filter(lambda x, w=hr.DoFn.WindowParam: w.start == 0) | hr.Collect()
    pc | hr.KeyBy(lambda x, w=hr.DoFn.WindowParam: w) | hr.Collect()
    pc | hr.ParDo(Asks()) | hr.Collect()
    agree(p)


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


def test_pane_info_of_a_flattened_collection_is_that_of_each_element(p: hr.Pipeline) -> None:
    pairs = p | hr.Create([("a", 1), ("a", 2)]) | hr.Map(lambda pair: pair)
    both = (pairs, pairs | hr.CombinePerKey(sum)) | hr.Flatten() | hr.Collect()
    p.run().wait()
    assert Counter(e.pane for e in both.windowed) == {NO_PANE: 2, ONLY_PANE: 1}


def test_timestamps(p: hr.Pipeline) -> None:
    untimed = p | hr.Create([1, 2, 3])
    untimed | hr.Collect()
    untimed | hr.WithTimestamps(lambda x: x * 10) | hr.Collect()
    untimed | hr.WithTimestamps(lambda x: f"2026-01-0{x}T00:00:00+02:00") | hr.Collect()
    untimed | hr.Map(lambda x: hr.TimestampedValue(x, x / 2)) | hr.Collect()
    untimed | hr.FlatMap(lambda x: [hr.TimestampedValue(x, 5), x]) | hr.Collect()
    mixed = p | hr.Create([hr.TimestampedValue("a", 1.5), "b"]) | hr.Collect()
    agree(p)
    assert {e.value: e.timestamp for e in mixed.windowed} == {"a": 1_500_000, "b": MIN_TIME}


def test_life_cycle_of_a_dofn(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    class Traced(hr.DoFn):
        def __init__(self, folder: pathlib.Path) -> None:
            self.folder = folder

        def setup(self) -> None:
            self.calls = ["setup"]

        def start_bundle(self) -> None:
            self.calls.append("start")

        def process(self, x: int) -> Iterator[int]:
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


def test_what_finish_bundle_gives_has_windows(p: hr.Pipeline) -> None:
    class Late(hr.DoFn):
        def process(self, pair: Any) -> Any:
            return None

        def finish_bundle(self) -> Any:
            yield hr.TimestampedValue(("k", 1), 25)

    pc = p | hr.Create(timed((("k", 0), 1))) | hr.Map(lambda pair: pair) | hr.WindowInto(hr.FixedWindows(10))
    groups = pc | hr.ParDo(Late()) | hr.GroupByKey() | hr.Collect()
    p.run().wait()
    assert [(e.value[0], list(e.value[1]), tuple(e.window)) for e in groups.windowed] == [
        ("k", [1], (20 * SECOND, 30 * SECOND))
    ]


class Sorting(hr.DoFn):
    def process(self, x: int) -> Iterator[Any]:
        yield x
        yield hr.TaggedOutput("odd" if x % 2 else "even", hr.TimestampedValue(x, x))


def test_tagged_outputs(p: hr.Pipeline) -> None:
    parts = p | hr.Create(range(10)) | hr.ParDo(Sorting()).with_outputs("odd", "even", main="all")
    parts.odd | hr.Collect()
    parts["even"] | hr.Map(str) | hr.Collect()
    parts.all | hr.Collect()
    (parts.odd, parts.all) | hr.Flatten() | hr.Collect()
    unread = p | hr.Create(range(10)) | hr.ParDo(Sorting()).with_outputs("odd", "even")
    unread[None] | hr.Collect()
    agree(p)


def test_an_undeclared_tag_is_an_error(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "sort" >> hr.ParDo(Sorting()).with_outputs("even")
    fails(p, r"'sort' failed.*tagged 'odd'.*with_outputs\('odd'\)")


def test_partition(p: hr.Pipeline) -> None:
    parts = p | hr.Create(range(10)) | hr.Partition(lambda x, n: x % n, 3)
    found = [part | hr.Collect() for part in parts]
    p.run().wait()
    assert [sorted(part) for part in found] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_a_part_that_does_not_exist_is_an_error(p: hr.Pipeline) -> None:
    p | hr.Create([7]) | "split" >> hr.Partition(lambda x, n: x, 3)
    fails(p, r"'split.*failed on the element 7: .*from 0 to 2, got 7")


# Side inputs


def test_side_inputs_of_every_shape(p: hr.Pipeline) -> None:
    main = p | hr.Create([1, 2, 3])
    pairs = p | "pairs" >> hr.Create([("a", 1), ("b", 2)])
    one = p | "one" >> hr.Create([41])
    none = p | "none" >> hr.Create([])
    main | hr.Map(lambda x, d: d == {"a": 1, "b": 2}, hr.AsDict(pairs)) | hr.Collect()
    main | hr.Map(lambda x, xs: (x, sorted(xs)), hr.AsList(main)) | hr.Collect()
    main | hr.Filter(lambda x, xs: x == max(xs), hr.AsIter(main | hr.Map(lambda x: x))) | hr.Collect()
    (
        main
        | hr.FlatMap(lambda x, y, z: [x + y + z], hr.AsSingleton(one), z=hr.AsSingleton(none, default=100))
        | hr.Collect()
    )
    main | hr.KeyBy(lambda x, total: x / total, hr.AsSingleton(main | hr.CombineGlobally(sum))) | hr.Collect()
    pairs | hr.MapTuple(lambda key, n, known: known[key] + n, hr.AsDict(pairs)) | hr.Collect()
    (
        pairs
        | hr.CombinePerKey(sum)
        | hr.Map(lambda pair, xs: (pair, len(xs)), hr.AsList(pairs | hr.GroupByKey()))
        | hr.Collect()
    )
    agree(p)


def test_windowed_side_inputs(p: hr.Pipeline) -> None:
    rates = p | "rates" >> hr.Create(timed((2, 5), (3, 15))) | "in tens" >> hr.WindowInto(hr.FixedWindows(10))
    visits = p | hr.Create(timed((1, 1), (1, 12), (1, 25)))
    fives = visits | "in fives" >> hr.WindowInto(hr.FixedWindows(5))
    priced = fives | hr.Map(lambda x, rate: rate, hr.AsSingleton(rates, default=None)) | hr.Collect()
    visits | hr.WindowInto(hr.Sessions(3)) | hr.Map(lambda x, found: list(found), hr.AsIter(rates)) | hr.Collect()
    fives | hr.Map(lambda x, found: len(found), hr.AsList(p | "global" >> hr.Create([1, 2]))) | hr.Collect()
    agree(p)
    assert sorted((e.window.start // SECOND, e.value) for e in priced.windowed) == [(0, 2), (10, 3), (25, None)]


@pytest.mark.parametrize("elements", [[], [1, 2]])
def test_a_singleton_needs_exactly_one_element(p: hr.Pipeline, elements: list[int]) -> None:
    side = p | "side" >> hr.Create(elements)
    p | hr.Create([0]) | "use" >> hr.Map(lambda x, one: one, hr.AsSingleton(side))
    fails(p, rf"'use' failed.*AsSingleton\('side'\) needs exactly one element, it has {len(elements)}")


# Windows and keys


CHUNKS = [
    hr.GlobalWindows(),
    hr.FixedWindows(10),
    hr.SlidingWindows(10, 4),
    hr.Sessions(5),
    hr.CalendarWindows("day", timezone="America/New_York"),
    hr.UnalignedWindows(10),
]


def test_grouping_in_every_kind_of_window(p: hr.Pipeline) -> None:
    data = p | hr.Create(timed(*[((("x", "y", None)[i % 3], i), (i * 7) % 60) for i in range(40)]))
    for pairs in (data, data | hr.Map(lambda pair: pair)):  # once from columns
        for window in CHUNKS[: 4 if pairs is data else None]:
            windowed = pairs | hr.WindowInto(window)
            windowed | hr.CombinePerKey(sum) | hr.Collect()
        pairs | hr.WindowInto(hr.Sessions(5), timestamp_combiner="earliest") | hr.GroupByKey() | hr.Collect()
        numbered = pairs | hr.WithTimestamps(lambda pair: pair[1])
        numbered | hr.WindowInto(hr.CountWindows(4)) | hr.GroupByKey() | hr.Collect()
    agree(p)


def test_count_windows_after_count_windows(p: hr.Pipeline) -> None:
    pairs = p | hr.Create(timed(*[(("ab"[i % 2], i), i) for i in range(12)])) | hr.Map(lambda pair: pair)
    threes = pairs | hr.WindowInto(hr.CountWindows(3)) | hr.CombinePerKey(sum)
    twos = threes | hr.Map(lambda pair: ("all", pair[1])) | hr.GroupByKey() | hr.Collect()
    agree(p)
    assert sorted(tuple(e.window) for e in twos.windowed) == [(0, 3), (3, 6)]


def test_elements_between_sampling_windows_are_dropped(p: hr.Pipeline) -> None:
    pc = p | hr.Create(timed(*[(i, i) for i in range(30)]))
    pc | hr.WindowInto(hr.SlidingWindows(2, 10)) | hr.Collect()
    pc | hr.Map(lambda x: x) | hr.WindowInto(hr.SlidingWindows(2, 10)) | hr.Collect()
    agree(p)


def test_rewindowing_a_result(p: hr.Pipeline) -> None:
    pc = p | hr.Create(timed(*[(("k", i), i) for i in range(30)]))
    tens = pc | hr.WindowInto(hr.FixedWindows(10)) | hr.CombinePerKey(sum)
    tens | hr.WindowInto(hr.FixedWindows(20)) | hr.GroupByKey() | hr.Collect()
    tens | hr.WindowInto(hr.GlobalWindows()) | hr.CombinePerKey(max) | hr.Collect()
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


@dataclass
class Loose:
    x: int


class Plain:
    pass


@pytest.mark.parametrize(
    ("key", "reason"),
    [([1], "use a tuple"), ({"a": 1}, "frozenset"), (Plain(), "equal only to themselves"), (Loose(1), "frozen=True")],
    ids=["list", "dict", "object", "dataclass"],
)
def test_keys_without_an_encoding_are_refused(p: hr.Pipeline, key: Any, reason: str) -> None:
    p | hr.Create([1]) | hr.Map(lambda x: (key, x)) | "meet" >> hr.GroupByKey()
    fails(p, f"'meet' failed.*{reason}")


@pytest.mark.parametrize("key", [[1], {"a": 1}, Plain()], ids=["list", "dict", "object"])
def test_combining_refuses_the_same_keys_with_the_same_reason(p: hr.Pipeline, key: Any) -> None:
    p | hr.Create([1]) | hr.Map(lambda x: (key, x)) | "total" >> hr.CombinePerKey(sum)
    fails(p, r"'total' failed.*has no encoding")


def test_what_is_no_pair_is_refused(p: hr.Pipeline) -> None:
    p | hr.Create(["ab"]) | hr.Map(lambda x: x) | "meet" >> hr.GroupByKey()
    fails(p, r"'meet' failed.*must be pairs \(key, value\), got 'ab'")


def test_combining(p: hr.Pipeline) -> None:
    pairs = p | hr.Create([("ab"[i % 2], i) for i in range(20)])
    big = pairs | hr.MapTuple(lambda key, i: (key, (2**62 if i % 4 else 2**70) * (-1) ** (i // 10)))
    for fn in (sum, max, min, len, list, lambda a, b: a + b, lambda xs: sum(xs), hr.Top.largest_per_key(2).fn):
        pairs | hr.CombinePerKey(fn) | hr.Collect()
        big | hr.CombinePerKey(fn) | hr.Collect()
    pairs | hr.Values() | hr.CombineGlobally(sum) | hr.Collect()
    pairs | hr.Keys() | hr.Distinct() | hr.Collect()
    pairs | hr.Keys() | hr.Count.per_element() | hr.Collect()
    agree(p)


def test_an_unhashable_value_is_no_key_but_may_be_counted(p: hr.Pipeline) -> None:
    lists = p | hr.Create([("k", [1]), ("k", [2])]) | hr.Map(lambda pair: pair)
    lists | hr.GroupByKey() | hr.Collect()
    lists | hr.Count.per_key() | hr.Collect()
    agree(p)


def test_cogroup(p: hr.Pipeline) -> None:
    left = p | "left" >> hr.Create(timed((("a", 1), 1), (("a", 2), 11), (("b", 3), 2)))
    right = p | "right" >> hr.Create(timed((("a", "x"), 3), ((1.0, "y"), 4)))
    named = {"left": left, "right": right}
    joined = named | hr.CoGroupByKey() | hr.Collect()
    by_position = (left, right) | hr.CoGroupByKey() | hr.Collect()
    tens = {name: pc | f"{name} tens" >> hr.WindowInto(hr.FixedWindows(10)) for name, pc in named.items()}
    windowed = tens | "windowed" >> hr.CoGroupByKey() | hr.Collect()
    p.run().wait()
    held = reference.run(p.graph())
    for found, inputs in ((joined, named), (by_position, {0: left, 1: right}), (windowed, tens)):
        expected = reference.co_group_by_key(
            {name: held[pc] for name, pc in inputs.items()}, inputs[next(iter(inputs))].windowing
        )
        assert reference.multiset(found.windowed) == reference.multiset(expected)


def test_groups_of_a_join_are_sequences(p: hr.Pipeline) -> None:
    pairs = p | hr.Create([("a", 1), ("a", 2)])

    def described(group: Any) -> Any:
        key, found = group
        ones, none = found["ones"], found["none"]
        return key, len(ones), sorted(ones), bool(none), list(none), ones[0] in (1, 2), ones == list(ones)

    joined = (
        {"ones": pairs, "none": pairs | hr.Filter(lambda pair: False)}
        | hr.CoGroupByKey()
        | hr.Map(described)
        | hr.Collect()
    )
    p.run().wait()
    assert list(joined) == [("a", 2, [1, 2], False, [], True, True)]


def test_flatten(p: hr.Pipeline) -> None:
    ints, more = p | "ints" >> hr.Create([1, 2]), p | "more" >> hr.Create([2, 3])
    texts, objects = p | "texts" >> hr.Create(["a"]), p | "objects" >> hr.Create([None, [1], 2.5])
    (ints, more) | hr.Flatten() | hr.Collect()
    (ints, texts, objects) | hr.Flatten() | hr.Collect()
    (ints, ints, ints) | hr.Flatten() | hr.Collect()
    (ints, ints | hr.Map(lambda x: x)) | hr.Flatten() | hr.Map(str) | hr.Collect()
    [ints] | hr.Flatten() | hr.Collect()
    tens = [pc | hr.WithTimestamps(lambda x: x * 7) | hr.WindowInto(hr.FixedWindows(10)) for pc in (ints, more)]
    tens | hr.Flatten() | hr.Count.per_element() | hr.Collect()
    agree(p)


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


def visits(n: int) -> list[Visit] | None:
    return [Visit("v", n)] * n or None


def test_typed_elements_keep_their_type_through_columns(p: hr.Pipeline) -> None:
    numbers = p | hr.Create(range(6))
    for typed in (
        numbers | hr.Map(visit),
        numbers | hr.Map(pair),
        numbers | hr.FlatMap(visits),
        numbers | hr.Map(lambda n: n + 1).with_output_types(int),
        numbers | hr.Map(lambda n: None if n % 2 else n).with_output_types(int | None),
        numbers | hr.Map(str),
    ):
        assert typed.has_columns
        typed | hr.Collect()
        typed | hr.Reshuffle() | hr.Collect()
        (typed, typed) | hr.Flatten() | hr.Filter(bool) | hr.Collect()
    kinds = numbers | hr.Map(visit) | hr.Reshuffle() | hr.Map(lambda x: type(x).__name__) | hr.Collect()
    sales = numbers | hr.Map(sale) | hr.Reshuffle() | hr.Collect()
    numbers | hr.Map(pair) | hr.CombinePerKey(sum) | hr.Collect()
    agree(p)
    assert set(kinds) == {"Visit"}
    assert sorted(s.price for s in sales) == [0, 0.5, 1, 1.5, 2, 2.5]
    assert all(type(s) is Sale for s in sales)


def test_a_wrong_declared_type_names_the_transform(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "lies" >> hr.Map(lambda n: "text").with_output_types(int) | hr.Collect()
    fails(p, r"'lies'.*declared as \(value int64\).*with_output_types")


def test_a_namedtuple_of_two_is_a_pair(p: hr.Pipeline) -> None:
    p | hr.Create(range(6)) | hr.Map(visit) | hr.GroupByKey() | hr.Collect()
    agree(p)


def any_pair(n: Any) -> Any:
    return n % 2, n


def bare_pair(n: Any) -> tuple:  # type: ignore[type-arg]
    return n % 2, n


def test_a_return_type_that_tells_nothing_is_no_obstacle(p: hr.Pipeline) -> None:
    p | hr.Create(range(6)) | hr.Map(any_pair) | hr.GroupByKey() | hr.Collect()
    p | hr.Create(range(6)) | hr.Map(bare_pair) | hr.GroupByKey() | hr.Collect()
    agree(p)


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


def test_a_failure_in_a_windowed_generator(p: hr.Pipeline) -> None:
    def parts(text: str) -> Iterator[int]:
        for word in text.split():
            yield int(word)

    texts = p | hr.Create(timed(("1 2", 1), ("3 x 4", 2), ("5", 3))) | hr.WindowInto(hr.FixedWindows(10))
    texts | "parse" >> hr.FlatMap(parts) | hr.Collect()
    fails(p, r"'parse' failed on the element '3 x 4': ValueError.*'x'")


def test_a_long_element_is_shortened(p: hr.Pipeline) -> None:
    p | hr.Create(["x" * 10_000]) | "parse" >> hr.Map(int)
    assert len(str(fails(p, "'parse' failed on the element 'xxxx"))) < 3000


def test_deep_recursion_and_long_messages_stay_short(p: hr.Pipeline) -> None:
    def deep(n: int) -> int:
        if n == 0:
            raise ValueError("line\n" * 100)
        return deep(n - 1)

    p | hr.Create([50]) | "dive" >> hr.Map(deep)
    assert "ValueError" in str(fails(p, "'dive' failed on the element 50"))


class Failing(hr.CombineFn[Any, Any, Any]):
    """Fails in the given method."""

    def __init__(self, where: str) -> None:
        self.where = where

    def _at(self, where: str) -> Any:
        if where == self.where:
            raise RuntimeError(f"cannot {where}")
        return 0

    def zero(self) -> Any:
        return self._at("zero")

    def add(self, acc: Any, value: Any) -> Any:
        return self._at("add")

    def merge(self, a: Any, b: Any) -> Any:
        return self._at("merge")

    def finish(self, acc: Any) -> Any:
        return self._at("finish")


@pytest.mark.parametrize("where", ["zero", "add", "merge", "finish"])
def test_a_failing_combiner(p: hr.Pipeline, where: str) -> None:
    pairs = p | hr.Create([("k", 1)]) | hr.Map(lambda pair: pair)
    both = (pairs, p | "more" >> hr.Create([("k", 2)]) | hr.Map(lambda pair: pair)) | hr.Flatten()
    both | "total" >> hr.CombinePerKey(Failing(where)) | hr.Collect()
    fails(p, f"'total' failed.*cannot {where}")


def test_a_failing_life_cycle(p: hr.Pipeline) -> None:
    class Broken(hr.DoFn):
        def setup(self) -> None:
            raise OSError("no such service")

        def process(self, x: Any) -> Any: ...

    p | hr.Create([1]) | "call" >> hr.ParDo(Broken())
    fails(p, "'call' failed: OSError: no such service")


def test_times_that_are_none(p: hr.Pipeline) -> None:
    p | hr.Create(["yesterday"]) | "stamp" >> hr.WithTimestamps(lambda x: x)
    fails(p, "'stamp' failed on the element 'yesterday': ValueError: instant: expected an ISO 8601")


def test_a_window_function_that_fails_names_its_transform(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | hr.Map(lambda x: x) | "days" >> hr.WindowInto(hr.CalendarWindows("day"))
    fails(p, "'days' failed.*give elements a timestamp first")


def test_a_foreach_that_fails(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "send" >> hr.ForEach(lambda x: 1 / 0)
    fails(p, "'send' failed on the element 1: ZeroDivisionError")


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
    third = once | hr.Map(lambda x, total: x / total, hr.AsSingleton(once | hr.CombineGlobally(sum))) | hr.Collect()
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


def test_results_of_groupings_have_the_last_instant_of_their_window(p: hr.Pipeline) -> None:
    pairs = p | hr.Create(timed((("a", 1), 3)))
    whole = pairs | hr.GroupByKey() | hr.Collect()
    tens = pairs | hr.WindowInto(hr.FixedWindows(10)) | hr.GroupByKey() | hr.Collect()
    p.run().wait()
    assert [e.timestamp for e in whole.windowed] == [MAX_TIME - 1]
    assert [e.timestamp for e in tens.windowed] == [10 * SECOND - 1]
