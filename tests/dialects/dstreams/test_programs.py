"""Programs on Spark against the reference: each operation, the known answers, and random programs."""

from __future__ import annotations

import operator
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyspark.streaming
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from headrace.dstreams import DStream, StateSpec
from tests import reference_dstreams as reference
from tests.dialects.dstreams.programs import collect_all, collected
from tests.reference_dstreams import each, reduce_by_key
from tests.scale import FULL, examples, only_full

ADD, SUB = operator.add, operator.sub


def add(a: Any, b: Any) -> Any:
    return a + b


def summed(values: Any, state: Any) -> Any:
    return sum(values) + (state or 0)


def tally(key: Any, value: Any, state: Any) -> Any:
    state.update((state.getOption() or 0) + 1)
    return key, state.get()


class Case(NamedTuple):
    """A program of DStreams of numbers and of pairs, and its definition."""

    stream: DStream[Any]
    expected: list[Any]


def cases(numbers: Any, pairs: Any, a: list[Any], b: list[Any]) -> dict[str, Case]:
    """All operations, over numbers and pairs."""
    by_key = [[(x % 3, x) for x in batch] for batch in a]
    keyed = numbers.map(lambda x: (x % 3, x))
    all_cases = {
        "map": Case(numbers.map(lambda x: x + 1), each(a, lambda xs: [x + 1 for x in xs])),
        "flatMap": Case(
            numbers.flatMap(lambda x: [x] * (x % 3)), each(a, lambda xs: [x for x in xs for _ in range(x % 3)])
        ),
        "filter": Case(numbers.filter(lambda x: x % 2), each(a, lambda xs: [x for x in xs if x % 2])),
        "mapPartitions": Case(
            numbers.repartition(1).mapPartitions(lambda i: [sum(i)]).filter(bool),
            each(a, lambda xs: [sum(xs)] if sum(xs) else []),
        ),
        "mapPartitionsWithIndex": Case(
            numbers.repartition(1).mapPartitionsWithIndex(lambda n, i: ((n, x) for x in i)),
            each(a, lambda xs: [(0, x) for x in xs]),
        ),
        "glom": Case(
            numbers.repartition(1).glom().map(sorted).filter(bool), each(a, lambda xs: [sorted(xs)] if xs else [])
        ),
        "mapValues": Case(pairs.mapValues(str), each(b, lambda ps: [(k, str(v)) for k, v in ps])),
        "flatMapValues": Case(pairs.flatMapValues(lambda v: [v, v]), each(b, lambda ps: [p for p in ps for _ in "12"])),
        "cache": Case(numbers.map(abs).cache().map(lambda x: -x), each(a, lambda xs: [-abs(x) for x in xs])),
        "persist": Case(numbers.map(abs).persist(StorageLevel.MEMORY_AND_DISK), each(a, lambda xs: list(map(abs, xs)))),
        "count": Case(numbers.count().filter(bool), each(a, lambda xs: [len(xs)] if xs else [])),
        "countByValue": Case(numbers.countByValue(), each(a, lambda xs: list(Counter(xs).items()))),
        "reduce": Case(numbers.reduce(max), each(a, lambda xs: [max(xs)] if xs else [])),
        "reduceByKey": Case(pairs.reduceByKey(add, 3), each(b, lambda ps: reduce_by_key(ps, add))),
        "combineByKey": Case(
            pairs.combineByKey(lambda v: {v}, lambda s, v: s | {v}, lambda s, t: s | t).mapValues(sorted),
            each(b, lambda ps: [(k, sorted(set(vs))) for k, vs in reference.groups(ps).items()]),
        ),
        "groupByKey": Case(
            pairs.groupByKey().mapValues(sorted),
            each(b, lambda ps: [(k, sorted(vs)) for k, vs in reference.groups(ps).items()]),
        ),
        "partitionBy": Case(pairs.partitionBy(3), b),
        "transform": Case(numbers.transform(lambda rdd: rdd.distinct()), each(a, lambda xs: list(set(xs)))),
        "transform with time": Case(
            numbers.transform(lambda time, rdd: rdd.map(lambda x: (x, time.second % 2))),
            [[(x, (20 + n) % 2) for x in xs] for n, xs in enumerate(a, 1)],
        ),
        "transformWith": Case(
            keyed.transformWith(lambda time, x, y: x.subtractByKey(y), pairs),
            reference.both(by_key, b, lambda x, y: [p for p in x if p[0] not in dict(y)]),
        ),
        "union": Case(keyed.union(pairs), reference.both(by_key, b, ADD)),
        "union of all": Case(
            numbers.context().union(numbers, numbers, keyed), [xs + xs + ps for xs, ps in zip(a, by_key, strict=True)]
        ),
        "transform of all": Case(
            numbers.context().transform([numbers, keyed], lambda rdds: rdds[0].union(rdds[1])),
            reference.both(a, by_key, ADD),
        ),
        "cogroup": Case(
            keyed.cogroup(pairs).mapValues(lambda v: (sorted(v[0]), sorted(v[1]))),
            reference.both(
                by_key,
                b,
                lambda x, y: [
                    (k, (sorted(reference.groups(x).get(k, [])), sorted(reference.groups(y).get(k, []))))
                    for k in dict(x + y)
                ],
            ),
        ),
        "join": Case(keyed.join(pairs), reference.both(by_key, b, reference.join)),
        "leftOuterJoin": Case(
            keyed.leftOuterJoin(pairs), reference.both(by_key, b, lambda x, y: reference.join(x, y, outer="l"))
        ),
        "rightOuterJoin": Case(
            keyed.rightOuterJoin(pairs), reference.both(by_key, b, lambda x, y: reference.join(x, y, outer="r"))
        ),
        "fullOuterJoin": Case(
            keyed.fullOuterJoin(pairs), reference.both(by_key, b, lambda x, y: reference.join(x, y, outer="lr"))
        ),
        "window": Case(numbers.map(abs).window(3), each(reference.window(a, 3), lambda xs: list(map(abs, xs)))),
        "window that slides": Case(numbers.window(3, 2), reference.window(a, 3, 2)),
        "reduceByWindow": Case(
            numbers.reduceByWindow(max, None, 3, 1), each(reference.window(a, 3), lambda xs: [max(xs)] if xs else [])
        ),
        "countByWindow": Case(
            numbers.countByWindow(3, 1), each(reference.window(a, 3), lambda xs: [len(xs)] if xs else [])
        ),
        "countByValueAndWindow": Case(
            numbers.countByValueAndWindow(7, 1), each(reference.window(a, 7), lambda xs: list(Counter(xs).items()))
        ),
        "groupByKeyAndWindow": Case(
            pairs.groupByKeyAndWindow(4, 2).mapValues(sorted),
            each(reference.window(b, 4, 2), lambda ps: [(k, sorted(vs)) for k, vs in reference.groups(ps).items()]),
        ),
        "reduceByKeyAndWindow": Case(
            pairs.reduceByKeyAndWindow(add, None, 3, 2), reference.reduce_window(b, add, None, 3, 2)
        ),
        "with inverse": Case(pairs.reduceByKeyAndWindow(ADD, SUB, 6, 1), reference.reduce_window(b, ADD, SUB, 6)),
        "with filter": Case(
            pairs.reduceByKeyAndWindow(ADD, SUB, 7, None, 3, lambda pair: pair[1] % 2),
            reference.reduce_window(b, ADD, SUB, 7, 1, lambda pair: pair[1] % 2),
        ),
        "updateStateByKey": Case(
            pairs.updateStateByKey(summed, 3, [("a", 10)]), reference.update_state(b, summed, [("a", 10)])
        ),
        "window of states": Case(
            pairs.updateStateByKey(summed).window(2), reference.window(reference.update_state(b, summed), 2)
        ),
    }
    if hasattr(pairs, "mapWithState"):  # or else these are Spark's
        mapped = pairs.mapWithState(StateSpec.function(tally))
        all_cases["mapWithState"] = Case(mapped, reference.map_with_state(b, tally)[0])
        begun = keyed.mapWithState(StateSpec.function(tally).initialState([(1, 5)]))
        snapshots = reference.map_with_state(by_key, tally, initial=[(1, 5)])[1]
        all_cases["stateSnapshots"] = Case(begun.stateSnapshots(), snapshots)
    return all_cases


def check(spark: SparkSession, folder: Path, a: list[Any], b: list[Any], chosen: Any = None, more: int = 2) -> None:
    """Runs operations for some intervals more than there are elements, and compares each batch."""
    queues = ([*a, *[[]] * more], [*b, *[[]] * more])
    expected: dict[str, list[Any]] = {}

    def build(numbers: Any, pairs: Any) -> dict[str, Any]:
        picked = {
            name: case for name, case in cases(numbers, pairs, *queues).items() if chosen is None or name in chosen
        }
        expected.update({name: case.expected for name, case in picked.items()})
        return {name: case.stream for name, case in picked.items()}

    found = collected(spark.sparkContext, [a, b], build, len(queues[0]), folder)
    for name, batches in expected.items():
        wanted = [Counter(map(repr, batch)) for batch in batches if batch is not None]
        assert [Counter(map(repr, batch)) for batch in found[name]] == wanted, name


@only_full("random programs are made of these operations, and the known answers are tested")
@pytest.mark.slow("each operation there is, in batch after batch")
def test_each_operation(spark: SparkSession, tmp_path: Path) -> None:
    a = [[3, 4, 5, 3], [], [1], [7, 7, 8], [2], [2, 9]]
    b = [[("a", 1), ("b", 2)], [("a", 3)], [], [(0, 4), (1, 5), (1, 6)], [("b", 7)], []]
    check(spark, tmp_path, a[: None if FULL else 4], b[: None if FULL else 4], more=2)


NUMBERS = st.lists(st.integers(0, 9), max_size=5)
TWO = st.lists(st.tuples(st.sampled_from([0, 1, "a", None]), st.integers(0, 5)), max_size=5)


@pytest.mark.slow("each example is a stream")
@examples(6)
@given(data=st.data())
def test_random_programs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    a = data.draw(st.lists(NUMBERS, min_size=4, max_size=8))
    b = data.draw(st.lists(TWO, min_size=len(a), max_size=len(a)))
    names = sorted(
        {
            "with inverse",
            "with filter",
            "updateStateByKey",
            "window that slides",
            "window of states",
            "reduceByKeyAndWindow",
            "stateSnapshots",
            "fullOuterJoin",
            "countByValueAndWindow",
        }
    )
    chosen = data.draw(st.sets(st.sampled_from(names), min_size=2, max_size=3))
    check(spark, tmp_path_factory.mktemp("program"), a, b, chosen, more=1)


def test_known_answers(spark: SparkSession, tmp_path: Path) -> None:
    words = [["a"], ["a", "b"], ["b"]]
    batches: list[list[Any]] = [[1] * size for size in range(1, 6)]

    def build(letters: Any, ones: Any) -> dict[str, Any]:
        counted = letters.map(lambda letter: (letter, 1)).mapWithState(StateSpec.function(tally))
        return {
            "counted": counted,
            "window": ones.window(3, 1).count().filter(bool),
            "byWindow": ones.countByWindow(3, 1),
        }

    found = collected(spark.sparkContext, [words, batches], build, 7, tmp_path)
    assert [sorted(batch) for batch in found["counted"][:3]] == [[("a", 1)], [("a", 2), ("b", 1)], [("b", 2)]]
    assert found["counted"][3:] == [[]] * 4
    assert found["byWindow"] == found["window"] == [[1], [3], [6], [9], [12], [9], [5]]


@pytest.mark.slow("each operation there is, by Spark's own DStreams")
@only_full("the reference says the same of each operation in every run")
def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """The reference is right about pyspark.streaming."""
    a = [[3, 4, 5, 3], [], [1], [7, 7, 8], [2], [2, 9], [], []]
    b: list[Any] = [[("a", 1), ("b", 2)], [("a", 3)], [], [(0, 4), (1, 5), (1, 6)], [("b", 7)], [], [], []]
    done = threading.Event()

    class Completed(pyspark.streaming.StreamingListener):
        batches = 0

        def onBatchCompleted(self, batchCompleted: Any) -> None:
            self.batches += 1
            if self.batches >= len(a):
                done.set()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        ssc = pyspark.streaming.StreamingContext(spark.sparkContext, 1)
    ssc.checkpoint(str(tmp_path))
    ssc.addStreamingListener(Completed())
    numbers, pairs = (ssc.queueStream([spark.sparkContext.parallelize(batch) for batch in queue]) for queue in (a, b))
    expected = {name: case for name, case in cases(numbers, pairs, a, b).items() if name != "transform with time"}
    found = collect_all(ssc, {name: case.stream for name, case in expected.items()})
    ssc.start()
    assert done.wait(300)
    ssc.stop(stopSparkContext=False)
    for name, case in expected.items():
        wanted = [Counter(map(repr, batch)) for batch in case.expected if batch is not None]
        assert [Counter(map(repr, batch)) for batch in found[name][: len(wanted)]] == wanted, name
