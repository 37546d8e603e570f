"""Programs of Python stages without Spark: every transform, run by a small stand-in for Spark.

The plan is the real one, and so are the programs; a Cluster stands for partitions, batches and the shuffle. Results
must be those of the reference; failures must name the transform.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.engine.batch.sinks import windowed_values
from headrace.engine.plan import plan
from headrace.engine.plan.stages import Columns, Frame, Python, Read, Shuffle, Stage, Union, Write
from headrace.engine.worker.blame import WorkerFailure, transform_error
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle, FromBlocks, FromColumns, to_block
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.program import unnumbered
from headrace.engine.worker.sidevalues import BroadcastBlocks, SideValue
from headrace.model.elementwise import SideInput
from headrace.model.panes import NO_PANE, ONLY_PANE
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND
from tests import reference

Partitions = list[list[pa.RecordBatch]]


@dataclass
class Cluster:
    """Runs the Python stages of a plan as Spark would: in partitions, batch by batch, with copies of the program."""

    draw: random.Random

    def run(self, pipeline: hr.Pipeline) -> None:
        self._made: dict[int, Partitions] = {}
        for stage in plan(pipeline.graph()).ends():
            if isinstance(stage, Write):
                (frame,) = stage.inputs
                assert isinstance(stage.node.transform, hr.Collect)
                bundles = self._bundles(frame, stage.pane)
                stage.node.transform.collected.gathered = windowed_values(bundles)
            else:
                self._partitions(stage)

    def _bundles(self, frame: Frame, pane: hr.PaneInfo) -> list[Bundle]:
        head = FromColumns(frame.form.schema, pane) if isinstance(frame.form, Columns) else FromBlocks()
        return [bundle for part in self._data(frame) for bundle in head.bundles(iter(part))]

    def _data(self, frame: Frame) -> Partitions:
        parts, stage = self._partitions(frame.stage), frame.stage
        if not isinstance(stage, Python) or len(stage.program.outputs) < 2:
            return parts
        outputs = [[b.filter(pc.equal(b.column("output"), frame.number)) for b in part] for part in parts]
        return [list(unnumbered(iter(part))) for part in outputs]

    def _partitions(self, stage: Stage) -> Partitions:
        if id(stage) not in self._made:
            self._made[id(stage)] = self._make(stage)
        return self._made[id(stage)]

    def _make(self, stage: Stage) -> Partitions:
        inputs = [self._data(frame) for frame in stage.inputs]
        match stage:
            case Read(node=node):
                return self._created(node.transform, node.outputs[0])
            case Python(program=planned):
                sides = {id(frame.pc): frame for frame in stage.sides}
                program = planned.bind(lambda side: self._side(side, sides), planned.outputs)
                copies = [cloudpickle.loads(cloudpickle.dumps(program)) for _ in inputs[0]]
                return [list(copy(iter(part))) for copy, part in zip(copies, inputs[0], strict=True)]
            case Shuffle(order=order):
                return self._exchanged(inputs[0], order)
            case Union():
                return [part for parts in inputs for part in parts]
        raise NotImplementedError(f"{stage.describe()} needs Spark")

    def _side(self, side: SideInput, frames: dict[int, Frame]) -> SideValue:
        bundles = self._bundles(frames[id(side.collection)], NO_PANE)
        return SideValue.of(side, BroadcastBlocks(LocalVariable(list(map(to_block, bundles)))))

    def _created(self, source: Any, made: hr.PCollection) -> Partitions:
        times = [MIN_TIME if time is None else time for time in source.times]
        if made.schema is not None:
            columns = [*made.schema.to_columns(source.elements), pa.array(source.times, pa.int64())]
            return self._spread(pa.table(columns, names=[*made.schema.names, TIME]))
        size = self.draw.randint(1, 5)
        blocks = [
            to_block(Bundle(source.elements[at : at + size], np.array(times[at : at + size], np.int64)))
            for at in range(0, len(times), size)
        ]
        return self._spread(pa.table([pa.array(blocks, pa.binary())], schema=BLOCK_SCHEMA))

    def _exchanged(self, parts: Partitions, order: list[str]) -> Partitions:
        batches = [batch for part in parts for batch in part]
        if not batches:
            return [[], []]
        rows = pa.Table.from_batches(batches).to_pylist()
        self.draw.shuffle(rows)
        if not order:
            return self._spread(pa.Table.from_pylist(rows, schema=batches[0].schema))
        rows.sort(key=lambda row: [row[name] for name in order])
        shares = [[row for row in rows if zlib.crc32(row[order[0]]) % 2 == number] for number in (0, 1)]
        return [self._batches(pa.Table.from_pylist(part, schema=batches[0].schema)) for part in shares]

    def _spread(self, table: pa.Table) -> Partitions:
        cut = self.draw.randint(0, table.num_rows)
        return [self._batches(table.slice(0, cut)), self._batches(table.slice(cut))]

    def _batches(self, table: pa.Table) -> list[pa.RecordBatch]:
        return list(table.combine_chunks().to_batches(self.draw.choice([1, 2, 3, 5, 100])))


@dataclass
class LocalVariable:
    """Stands for a broadcast variable."""

    value: list[bytes]


@pytest.fixture
def p() -> hr.Pipeline:
    return hr.Pipeline()


def run(pipeline: hr.Pipeline) -> None:
    """Runs the pipeline, and tells its failures as a run on Spark does."""
    try:
        Cluster(random.Random(0)).run(pipeline)
    except WorkerFailure as failure:
        raise transform_error(failure) or failure from None


def agree(pipeline: hr.Pipeline) -> None:
    """Runs the pipeline; everything it collects is what the reference says."""
    run(pipeline)
    for collected, expected in reference.expected_of_collects(pipeline.graph()):
        assert reference.multiset(collected.windowed) == reference.multiset(expected), collected.label


def fails(pipeline: hr.Pipeline, match: str) -> hr.TransformError:
    with pytest.raises(hr.TransformError, match=match) as caught:
        run(pipeline)
    assert len(str(caught.value).splitlines()) <= 25
    return caught.value


def timed(*pairs: tuple[Any, float]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue(value, time) for value, time in pairs]


def created(pipeline: hr.Pipeline, elements: Any) -> Any:
    """The elements as objects: columns would be windowed by Spark."""
    return pipeline | hr.Create(elements) | hr.Map(lambda element: element)


# Elements


def test_elementwise_transforms(p: hr.Pipeline) -> None:
    numbers = p | hr.Create(range(20))
    numbers | hr.Map(lambda x: x * x) | hr.Collect()
    numbers | hr.FlatMap(lambda x: [x] * (x % 3)) | hr.Collect()
    numbers | hr.ParDo(lambda x: None if x % 2 else iter([x])) | hr.Collect()
    numbers | hr.Filter(lambda x: x % 2) | hr.Collect()
    numbers | hr.KeyBy(lambda x: x % 3) | hr.Collect()
    numbers | hr.Map(lambda x, y, z=0: (x, y, z), 5, z="z") | hr.Collect()
    numbers | hr.KeyBy(str) | hr.MapTuple(lambda key, x, y: key * x + y, "!") | hr.Collect()
    numbers | hr.ParDo(lambda x: [x, -x]) | hr.Collect()
    numbers | hr.Map(lambda x: {"x": [x]}) | hr.Collect()
    agree(p)


def test_empty_collections_go_through_everything(p: hr.Pipeline) -> None:
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
    agree(p)


def test_what_a_function_may_ask_for(p: hr.Pipeline) -> None:
    pc = created(p, timed(("a", 1), ("b", 12))) | hr.WindowInto(hr.FixedWindows(10))

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


def test_pane_info_of_a_flattened_collection_is_that_of_each_element(p: hr.Pipeline) -> None:
    pairs = p | hr.Create([("a", 1), ("a", 2)]) | hr.Map(lambda pair: pair)
    both = (pairs, pairs | hr.CombinePerKey(sum)) | hr.Flatten() | hr.Collect()
    run(p)
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


def test_what_finish_bundle_gives_has_windows(p: hr.Pipeline) -> None:
    class Late(hr.DoFn):
        def process(self, pair: Any) -> Any:
            return None

        def finish_bundle(self) -> Any:
            yield hr.TimestampedValue(("k", 1), 25)

    pc = created(p, timed((("k", 0), 1))) | hr.Map(lambda pair: pair) | hr.WindowInto(hr.FixedWindows(10))
    groups = pc | hr.ParDo(Late()) | hr.GroupByKey() | hr.Collect()
    run(p)
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


def test_flatmap_takes_none_for_nothing(p: hr.Pipeline) -> None:
    timed = [hr.TimestampedValue(n, n) for n in range(5)]
    p | hr.Create(timed) | hr.FlatMap(lambda x: None if x % 2 else [x, x]) | hr.Collect()
    agree(p)


def test_flatmap_needs_something_to_iterate(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "spread" >> hr.FlatMap(lambda x: x)
    fails(p, "'spread' failed on the element 1: TypeError: 'int' object is not iterable")


def test_an_undeclared_tag_is_an_error(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "sort" >> hr.ParDo(Sorting()).with_outputs("even")
    fails(p, r"'sort' failed.*tagged 'odd'.*with_outputs\('odd'\)")


def test_partition(p: hr.Pipeline) -> None:
    parts = p | hr.Create(range(10)) | hr.Partition(lambda x, n: x % n, 3)
    collected = [part | hr.Collect() for part in parts]
    run(p)
    assert [sorted(part) for part in collected] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


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
    rates = created(p, timed((2, 5), (3, 15))) | "in tens" >> hr.WindowInto(hr.FixedWindows(10))
    visits = created(p, timed((1, 1), (1, 12), (1, 25)))
    fives = visits | "in fives" >> hr.WindowInto(hr.FixedWindows(5))
    priced = fives | hr.Map(lambda x, rate: rate, hr.AsSingleton(rates, default=None)) | hr.Collect()
    visits | hr.WindowInto(hr.Sessions(3)) | hr.Map(lambda x, values: list(values), hr.AsIter(rates)) | hr.Collect()
    fives | hr.Map(lambda x, values: len(values), hr.AsList(p | "global" >> hr.Create([1, 2]))) | hr.Collect()
    agree(p)
    assert sorted((e.window.start // SECOND, e.value) for e in priced.windowed) == [(0, 2), (10, 3), (25, None)]


@pytest.mark.parametrize("elements", [[], [1, 2]])
def test_a_singleton_needs_exactly_one_element(p: hr.Pipeline, elements: list[int]) -> None:
    side = p | "side" >> hr.Create(elements)
    p | hr.Create([0]) | "use" >> hr.Map(lambda x, one: one, hr.AsSingleton(side))
    fails(p, rf"'use' failed.*AsSingleton\('side'\) needs exactly one element, it has {len(elements)}")


# Windows and keys


def test_count_windows_after_count_windows(p: hr.Pipeline) -> None:
    pairs = created(p, timed(*[(("ab"[i % 2], i), i) for i in range(12)])) | hr.Map(lambda pair: pair)
    threes = pairs | hr.WindowInto(hr.CountWindows(3)) | hr.CombinePerKey(sum)
    twos = threes | hr.Map(lambda pair: ("all", pair[1])) | hr.GroupByKey() | hr.Collect()
    agree(p)
    assert sorted(tuple(e.window) for e in twos.windowed) == [(0, 3), (3, 6)]


def test_rewindowing_a_result(p: hr.Pipeline) -> None:
    pc = created(p, timed(*[(("k", i), i) for i in range(30)]))
    tens = pc | hr.WindowInto(hr.FixedWindows(10)) | hr.CombinePerKey(sum)
    tens | hr.WindowInto(hr.FixedWindows(20)) | hr.GroupByKey() | hr.Collect()
    tens | hr.WindowInto(hr.GlobalWindows()) | hr.CombinePerKey(max) | hr.Collect()
    agree(p)


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
    run(p)
    collections = reference.run(p.graph())
    joins: list[tuple[Any, dict[Any, hr.PCollection]]]
    joins = [(joined, named), (by_position, {0: left, 1: right}), (windowed, tens)]
    for result, inputs in joins:
        windowing = next(iter(inputs.values())).windowing
        expected = reference.co_group_by_key({name: collections[pc] for name, pc in inputs.items()}, windowing)
        assert reference.multiset(result.windowed) == reference.multiset(expected)


def test_groups_of_a_join_are_sequences(p: hr.Pipeline) -> None:
    pairs = p | hr.Create([("a", 1), ("a", 2)])

    def described(group: Any) -> Any:
        key, values = group
        ones, none = values["ones"], values["none"]
        return key, len(ones), sorted(ones), bool(none), list(none), ones[0] in (1, 2), ones == list(ones)

    joined = (
        {"ones": pairs, "none": pairs | hr.Filter(lambda pair: False)}
        | hr.CoGroupByKey()
        | hr.Map(described)
        | hr.Collect()
    )
    run(p)
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


def test_a_wrong_declared_type_names_the_transform(p: hr.Pipeline) -> None:
    p | hr.Create([1]) | "lies" >> hr.Map(lambda n: "text").with_output_types(int) | hr.Collect()
    fails(p, r"'lies'.*declared as \(int64\).*with_output_types")


def any_pair(n: Any) -> Any:
    return n % 2, n


def bare_pair(n: Any) -> tuple:  # type: ignore[type-arg]
    return n % 2, n


def test_a_return_type_without_information_is_no_obstacle(p: hr.Pipeline) -> None:
    p | hr.Create(range(6)) | hr.Map(any_pair) | hr.GroupByKey() | hr.Collect()
    p | hr.Create(range(6)) | hr.Map(bare_pair) | hr.GroupByKey() | hr.Collect()
    agree(p)


# Failures


def test_a_failure_in_a_windowed_generator(p: hr.Pipeline) -> None:
    def parts(text: str) -> Iterator[int]:
        for word in text.split():
            yield int(word)

    texts = created(p, timed(("1 2", 1), ("3 x 4", 2), ("5", 3))) | hr.WindowInto(hr.FixedWindows(10))
    texts | "parse" >> hr.FlatMap(parts) | hr.Collect()
    fails(p, r"'parse' failed on the element '3 x 4': ValueError.*'x'")


def test_a_long_element_is_shortened(p: hr.Pipeline) -> None:
    p | hr.Create(["x" * 10_000]) | "parse" >> hr.Map(int)
    assert len(str(fails(p, "'parse' failed on the element 'xxxx"))) < 3000


class Failing(hr.CombineFn[Any, Any, Any]):
    """A CombineFn that fails in one method."""

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


def test_results_of_groupings_have_the_last_instant_of_their_window(p: hr.Pipeline) -> None:
    pairs = created(p, timed((("a", 1), 3)))
    whole = pairs | hr.GroupByKey() | hr.Collect()
    tens = pairs | hr.WindowInto(hr.FixedWindows(10)) | hr.GroupByKey() | hr.Collect()
    run(p)
    assert [e.timestamp for e in whole.windowed] == [MAX_TIME - 1]
    assert [e.timestamp for e in tens.windowed] == [10 * SECOND - 1]
