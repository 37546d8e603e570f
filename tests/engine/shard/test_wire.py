"""Rows in flight: destinations, bodies, and that every shard hears of the clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.aggregation.arrayaccumulators import load_accumulator
from headrace.engine.columns.cells import decode_cells
from headrace.engine.columns.sparkhash import spark_hash
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.reports import TaskClocks
from headrace.engine.shard.rows import to_pairs, to_partials
from headrace.engine.shard.senders import ToShards
from headrace.engine.shard.slots import shards_of
from headrace.engine.shard.wire import (
    exchange_of,
    pack,
    shard_dests,
    sink_dest,
    sink_dests,
    sink_of,
    unpack,
)
from headrace.engine.worker.bundles import Bundle
from headrace.model.algebra import SumFn
from headrace.model.keys import decode_keys, encode_keys
from headrace.model.panes import Windowing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXED = Windowing(hr.FixedWindows(10))


def test_the_hash_is_that_of_spark(spark: SparkSession) -> None:
    numbers = [0, 1, -1, 2**31, 2**32 + 7, 5 << 32, 2**62, -(2**62)]
    rows = spark.createDataFrame([(number,) for number in numbers], "n long").selectExpr("hash(n)").collect()
    assert [spark_hash(number) for number in numbers] == [row[0] for row in rows]


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 8))
def test_shards_are_spread_evenly(exchange: int, shards: int, partitions: int) -> None:
    dests = shard_dests(exchange, shards, partitions)
    assert [spark_hash(dest) % partitions for dest in dests] == [shard % partitions for shard in range(shards)]
    assert {exchange_of(dest) for dest in dests} == {exchange}


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_sinks_have_destinations_of_their_own(sink: int, sender: int) -> None:
    dest = sink_dest(sink, sender)
    low, high = sink_dests(sink)
    assert sink_of(dest) == sink and low <= dest <= high < 0
    assert sink_of(low) == sink_of(high) == sink


def sent(to: ToShards, bundles: list[Bundle]) -> dict[int, list[tuple[dict[str, object], pa.RecordBatch]]]:
    batches = [batch for bundle in bundles for batch in to.add(bundle)] + list(to.finish())
    bodies: dict[int, list[tuple[dict[str, object], pa.RecordBatch]]] = {dest: [] for dest in to.dests}
    for batch in batches:
        for dest, body in zip(batch["dest"].to_pylist(), batch["body"].to_pylist(), strict=True):
            bodies[dest].append(unpack(body))
    return bodies


def window(count: int) -> dict[str, Any]:
    return {"times": np.arange(count), "starts": np.zeros(count, np.int64), "ends": np.full(count, 10)}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers())))
def test_every_row_goes_to_the_shard_of_its_key_and_every_shard_hears(pairs: list[tuple[int, int]]) -> None:
    clocks = TaskClocks(partition=3)
    clocks.observe("events", 7, now=9)
    clocks.observe("others", 8, now=5)
    pairs_output = to_pairs("group", FIXED, retractable=True)
    to = ToShards(pairs_output, shard_dests(1, 4, 2), frozenset({"events"}), clocks=clocks)
    bundle = Bundle(list(pairs), **window(len(pairs)), retraction=True)
    bodies = sent(to, [bundle] if pairs else [])
    found = []
    for number, dest in enumerate(to.dests):
        ((header, rows),) = bodies[dest]
        assert header["lows"] == {"events": 7} and header["now"] == 9
        if rows.num_rows:
            keys = decode_keys(rows["key"], rows["spelling"])
            assert set(shards_of(encode_keys(keys)[0], 4).tolist()) == {number}
            assert rows["retraction"].to_pylist() == [True] * len(keys)
            found += list(zip(keys, decode_cells(rows["value"]), strict=True))
    assert sorted(found) == sorted(pairs)


def test_every_shard_hears_of_partitions_and_of_the_delays_of_all_rows() -> None:
    clocks, delays = TaskClocks(), Delays()
    clocks.observe("events", 7, 9, "a")
    clocks.observe("events", 3, 9, "b")
    clocks.observe("others", 1, 9, "a")
    to = ToShards(to_pairs("group", FIXED, retractable=False), (1, 2, 3), frozenset({"events"}), delays, clocks)
    bodies = sent(to, [Bundle([("a", 1), ("b", 2)], **window(2))])
    expected = Delays()
    expected.observe(np.array([0, 1]), now=9)
    for ((header, _),) in bodies.values():
        assert header["partitions"] == {"events": {"a": 7, "b": 3}} and header["lows"] == {"events": None}
        assert header["delays"] == [list(each) for each in sorted(expected.buckets.items())]


def test_a_task_that_has_nothing_to_tell_sends_nothing() -> None:
    to = ToShards(to_pairs("group", FIXED, retractable=False), (1, 2), frozenset({"events"}))
    assert list(to.finish()) == []


def test_the_watermark_may_follow_the_times_that_functions_set() -> None:
    clocks = TaskClocks(followed={"lines": hr.Monotonic()})
    clocks.observe("lines", None, now=100)
    to = ToShards(to_pairs("group", FIXED, retractable=False), (1,), frozenset({"lines"}), clocks=clocks)
    ((header, _),) = sent(to, [Bundle([("a", 1), ("b", 2), ("c", 3)], **window(3))])[1]
    assert header["lows"] == {"lines": 2}


def test_partials_tell_how_many_elements_they_hold() -> None:
    output = to_partials("sum", FIXED, SumFn())
    assert not list(output.add(Bundle([("a", 1), ("b", 2), ("a", 3)], **window(3))))
    (rows,) = output.finish()
    assert [load_accumulator(SumFn(), data) for data in decode_cells(rows["value"])] == [4, 2]
    assert (rows["count"].to_pylist(), rows["__time"].to_pylist()) == ([2, 1], [9, 9])
    assert not list(output.finish())


@given(st.dictionaries(st.text(), st.integers()), st.lists(st.binary()))
def test_bodies_come_back(header: dict[str, int], cells: list[bytes]) -> None:
    batch = pa.record_batch({"cell": pa.array(cells, pa.binary())})
    back, rows = unpack(pack(header, batch))
    assert back == header and rows["cell"].to_pylist() == cells
