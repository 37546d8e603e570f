"""Random pipelines over random data, held to the naive reference.

Most of them run without Spark, on the Cluster of test_program; some run on Spark itself, several to a pipeline.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.algebra import CallableFn, CollectFn, CountFn, FirstFn, LastFn, MaxFn, MinFn, SumFn, TopFn
from headrace.model.sketches import HeavyHittersFn
from headrace.model.times import SECOND
from tests import reference
from tests.engine.worker.test_program import Cluster
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Functions of the random pipelines. They must not depend on what nothing promises, nor on hash seeds.


def canonical(value: Any) -> str:
    if isinstance(value, bool | int | float | Decimal):
        return str(Fraction(value)) if math.isfinite(value) else str(float(value))
    if isinstance(value, tuple):
        return f"({','.join(map(canonical, value))})"
    if isinstance(value, frozenset | list):
        return f"[{','.join(sorted(map(canonical, value)))}]"
    return ascii(value)


def digest(value: Any) -> int:
    """A number that equal values share, in every process."""
    return zlib.crc32(canonical(value).encode())


def identity(value: Any) -> Any:
    return value


def bucket(value: Any) -> Any:
    """One of a few keys of many types."""
    keys = (0, 1.0, True, "1", b"1", None, float("nan"), ("a", None), (1, ("b", 2)), frozenset({1, "x"}), "é", 2**70)
    return keys[digest(value) % len(keys)]


def keep(value: Any) -> bool:
    return digest(value) % 3 != 0


def some_copies(value: Any) -> Iterator[Any]:
    yield from [value] * (digest(value) % 3)


def numbered_copies(value: Any) -> list[Any]:
    return [(value, number) for number in range(digest(value) % 4)]


def restamped(value: Any) -> Iterator[Any]:
    yield hr.TimestampedValue(value, stamp(value) + 1)
    yield value


def stamp(value: Any) -> int:
    return digest(value) % 100


def exact_stamp(value: Any) -> Decimal:
    """Different for different values, so that the order of elements is known."""
    return Decimal(digest(value)) / 1_000_000


def with_context(value: Any, time: Any = hr.DoFn.TimestampParam, window: Any = hr.DoFn.WindowParam) -> Any:
    return value, int(time), tuple(window)


def settled(key: Any, values: Any) -> Any:
    return key, digest(list(values))


def beside(value: Any, others: Any) -> Any:
    return value, digest(others)


def number(key: Any, value: Any) -> Any:
    return key, (digest(value) % 7 - 3) * 2**60


def half(key: Any, value: Any) -> Any:
    return key, digest(value) % 8 / 2


def xor(a: int, b: int) -> int:
    return a ^ b


class Parity(hr.DoFn):
    def process(self, value: Any) -> Iterator[Any]:
        yield hr.TaggedOutput("odd", value) if digest(value) % 2 else value


class Product(hr.CombineFn[Any, list[int], int]):
    """A CombineFn with an accumulator of its own form."""

    def zero(self) -> list[int]:
        return [1]

    def add(self, acc: list[int], value: Any) -> list[int]:
        acc[0] = acc[0] * (2 * digest(value) + 1) % 2**61
        return acc

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return [a[0] * b[0] % 2**61]

    def finish(self, acc: list[int]) -> int:
        return acc[0]

    def dump(self, acc: list[int]) -> object:
        return str(acc[0])

    def load(self, data: Any) -> list[int]:
        return [int(data)]


class Around(hr.WindowFn):
    """Two overlapping windows for most elements, none for some."""

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        if time % (7 * SECOND) == 0:
            return []
        start = time - time % (4 * SECOND)
        return [(start, start + 4 * SECOND), (start, start + 9 * SECOND)]


class Bursts(hr.WindowFn):
    """Sessions whose gap depends on the time."""

    merging = True

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        return [(time, time + (1 + time // SECOND % 5) * SECOND)]


class Pairs(hr.WindowFn):
    """Merges windows two by two, in the order of their starts."""

    merging = True

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        return [(time, time + 1)]

    def merge(self, windows: Any) -> list[list[int]]:
        ordered = sorted(range(len(windows)), key=lambda i: windows[i])
        return [ordered[at : at + 2] for at in range(0, len(ordered), 2)]


class PerKey(hr.WindowFn):
    keyed = True

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        size = (3 + digest(key) % 5) * SECOND
        return [(time - time % size, time - time % size + size)]


WINDOWS = (
    hr.FixedWindows(10),
    hr.FixedWindows(7, offset=3),
    hr.SlidingWindows(10, 5),
    hr.SlidingWindows(7, 3, offset=1),
    hr.SlidingWindows(3, 10),
    hr.Sessions(4),
    hr.CalendarWindows("day", timezone="Europe/Berlin"),
    Around(),
    Bursts(),
    Pairs(),
    hr.GlobalWindows(),
)
KEYED_WINDOWS = (*WINDOWS, hr.UnalignedWindows(10), PerKey())
COMBINERS: tuple[tuple[Callable[..., Any] | None, Any], ...] = (
    (None, CountFn()),
    (None, CollectFn()),
    (None, TopFn(2, key=digest)),
    (None, MinFn(key=digest)),
    (None, MaxFn(key=digest)),
    (None, FirstFn()),
    (None, LastFn()),
    (None, HeavyHittersFn(50)),
    (None, Product()),
    (number, SumFn()),
    (number, CallableFn(xor)),
    (number, max),
    (half, sum),
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0.5, 1.0, -0.0, 2.5, float("nan"), float("inf"), Decimal("0.5"), Decimal(2)]),
    st.text(max_size=2),
    st.sampled_from(["", "é", "\ud800", "𝄞", "NaN"]),
    st.binary(max_size=2),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.tuples(inner, inner), st.tuples(inner), st.just(()), st.frozensets(scalars, max_size=2)),
    max_leaves=4,
)
uniform_values = st.sampled_from(
    [st.integers(-3, 3), st.text("ab", max_size=2), st.tuples(st.text("ab"), st.booleans())]
)
datasets = st.one_of(st.lists(values, max_size=12), uniform_values.flatmap(lambda kind: st.lists(kind, max_size=25)))
timed_datasets = st.builds(
    lambda data, times: [hr.TimestampedValue(v, t) for v, t in zip(data, times, strict=False)],
    datasets,
    st.lists(st.integers(0, 60), min_size=25, max_size=25),
)


@dataclass
class Shape:
    """What is known of the elements while a random pipeline is put together."""

    pairs: bool = False
    timed: bool = True  # their times are those of a calendar
    step: int = 0


Apply = Callable[[Any], Any]


@st.composite
def chains(draw: st.DrawFn) -> list[Apply]:
    """One to five transforms, as functions from collection to collection."""
    shape = Shape()
    count = draw(st.integers(1, 5))
    return [draw(_step(shape, last=at == count - 1)) for at in range(count)]


@st.composite
def _step(draw: st.DrawFn, shape: Shape, *, last: bool) -> Apply:
    kinds = ["keep", "copies", "numbered", "restamp", "stamp", "context", "reshuffle", "distinct", "flatten", "window"]
    kinds += ["side", "windowed side", "tags"]
    kinds += ["group", "group", "combine", "combine", "combine", "count window"] if shape.pairs else ["key"] * 6
    kind = draw(st.sampled_from(kinds))
    if kind == "key":
        shape.pairs = True
        make = draw(st.sampled_from([hr.KeyBy(bucket), hr.Map(lambda value: (bucket(value), value))]))
        return lambda pc: pc | make
    if kind == "window":
        window = draw(st.sampled_from(KEYED_WINDOWS if shape.pairs else WINDOWS))
        combiner: Any = draw(st.sampled_from(["end_of_window", "earliest", "latest"]))
        into = hr.WindowInto(window, timestamp_combiner=combiner)
        if shape.timed:
            return lambda pc: pc | into
        shape.timed = True
        return lambda pc: pc | hr.WithTimestamps(stamp) | into
    if kind in ("group", "combine"):
        shape.timed = False
    if kind == "combine":
        prepare, fn = draw(st.sampled_from(COMBINERS))
        settle = not last
        return lambda pc: _settled(_prepared(pc, prepare) | hr.CombinePerKey(fn), settle)
    if kind == "group":
        settle = not last
        return lambda pc: _settled(pc | hr.GroupByKey(), settle)
    if kind == "count window":
        n = draw(st.integers(1, 4))
        shape.timed = True
        return lambda pc: (
            pc
            | hr.WithTimestamps(exact_stamp)
            | hr.WindowInto(hr.CountWindows(n))
            | hr.GroupByKey()
            | hr.MapTuple(settled)
            | hr.WithTimestamps(stamp)
            | hr.WindowInto(hr.FixedWindows(50))
        )
    if kind in ("numbered", "context", "side", "windowed side"):
        shape.pairs = True
    if kind in ("stamp", "restamp"):
        shape.timed = shape.timed or kind == "stamp"
    return _PLAIN_STEPS[kind]


def _prepared(pc: Any, prepare: Callable[..., Any] | None) -> Any:
    return pc if prepare is None else pc | hr.MapTuple(prepare)


def _settled(pc: Any, settle: bool) -> Any:
    return pc | hr.MapTuple(lambda key, result: (key, digest(result))) if settle else pc


def _with_tags(pc: Any) -> Any:
    parts = pc | hr.ParDo(Parity()).with_outputs("odd", main="even")
    return (parts.odd | hr.Filter(keep), parts.even) | hr.Flatten()


_PLAIN_STEPS: dict[str, Apply] = {
    "keep": lambda pc: pc | hr.Filter(keep),
    "copies": lambda pc: pc | hr.FlatMap(some_copies),
    "numbered": lambda pc: pc | hr.FlatMap(numbered_copies),
    "restamp": lambda pc: pc | hr.FlatMap(restamped),
    "stamp": lambda pc: pc | hr.WithTimestamps(stamp),
    "context": lambda pc: pc | hr.Map(with_context) | hr.Map(lambda found: (found[0], found[1:])),
    "reshuffle": lambda pc: pc | hr.Reshuffle(),
    "distinct": lambda pc: pc | hr.Distinct() | hr.WithTimestamps(stamp),
    "flatten": lambda pc: (pc, pc | hr.Filter(keep), pc | hr.Map(identity)) | hr.Flatten(),
    "side": lambda pc: pc | hr.Map(beside, hr.AsList(pc | hr.Filter(keep) | hr.WindowInto(hr.GlobalWindows()))),
    "windowed side": lambda pc: (
        pc | hr.Map(beside, others=hr.AsIter(pc | hr.WithTimestamps(stamp) | hr.WindowInto(hr.FixedWindows(20))))
    ),
    "tags": _with_tags,
}


def built(pipeline: hr.Pipeline, data: list[Any], chain: list[Apply], *, objects: bool) -> None:
    """One random pipeline that ends in a Collect; with `objects`, none of it is in columns."""
    pc = pipeline | hr.Create(data)
    if objects:
        pc = pc | hr.Map(identity)
    for apply in chain:
        pc = apply(pc)
    pc | hr.Collect()


def check(pipeline: hr.Pipeline) -> None:
    """What was collected is what the reference says."""
    for collected, expected in reference.expected_of_collects(pipeline.graph()):
        found, wanted = reference.multiset(collected.windowed), reference.multiset(expected)
        assert found == wanted, f"missing {wanted - found}, too many {found - wanted}"


@examples(400)
@given(timed_datasets, chains(), st.integers(0, 2**32))
def test_random_pipelines_without_spark(data: list[Any], chain: list[Apply], seed: int) -> None:
    pipeline = hr.Pipeline()
    built(pipeline, data, chain, objects=True)
    Cluster(random.Random(seed)).run(pipeline)
    check(pipeline)


@examples(150)
@given(
    st.lists(st.tuples(values, st.integers(0, 9), st.integers(0, 40)), max_size=30),
    st.sampled_from(KEYED_WINDOWS),
    st.sampled_from(["end_of_window", "earliest", "latest"]),
    st.sampled_from([None, *COMBINERS]),
    st.integers(0, 2**32),
)
def test_every_grouping_in_every_window(
    data: list[Any], window: hr.WindowFn, timestamp_combiner: Any, combiner: Any, seed: int
) -> None:
    pipeline = hr.Pipeline()
    pairs = pipeline | hr.Create([hr.TimestampedValue((key, value), time) for key, value, time in data])
    windowed = pairs | hr.Map(identity) | hr.WindowInto(window, timestamp_combiner=timestamp_combiner)
    if combiner is None:
        windowed | hr.GroupByKey() | hr.Collect()
    else:
        prepare, fn = combiner
        _prepared(windowed, prepare) | hr.CombinePerKey(fn) | hr.Collect()
    Cluster(random.Random(seed)).run(pipeline)
    check(pipeline)


@pytest.mark.slow("many pipelines on Spark")
@examples(5)
@given(st.lists(st.tuples(timed_datasets, chains(), st.booleans()), min_size=5, max_size=5))
def test_random_pipelines_on_spark(spark: SparkSession, recipes: list[tuple[list[Any], list[Apply], bool]]) -> None:
    pipeline = hr.Pipeline(spark=spark)
    for data, chain, objects in recipes:
        built(pipeline, data, chain, objects=objects)
    pipeline.run().wait()
    check(pipeline)


@given(st.lists(values, max_size=30))
def test_grouping_meets_keys_as_python_does(keys: list[Hashable]) -> None:
    pipeline = hr.Pipeline()
    pipeline | hr.Create([(key, 1) for key in keys]) | hr.CombinePerKey(sum) | hr.Collect()
    Cluster(random.Random(0)).run(pipeline)
    check(pipeline)
