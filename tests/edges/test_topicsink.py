"""Topics as sinks: elements of every kind become records, each once, whatever happens to the batch or the disk."""

from __future__ import annotations

import datetime as dt
import errno
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.levels import lower
from headrace.engine.plan import plan
from headrace.log import Log, Record, Topic
from headrace.log.partitioning import partitions_of
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = hr.TimestampedValue


class Visit(NamedTuple):
    user: str
    n: int | None


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def records(topic: Topic) -> list[Record]:
    return [record for number in range(len(topic.partitions)) for record in topic.read(number)]


def values(topic: Topic) -> list[Any]:
    return [record.value for record in records(topic)]


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_what_the_writer_writes(stream: bool, p: hr.Pipeline, log: Log, tmp_path: Path) -> None:
    """All kinds of values, of elements with columns and without, before and after Python functions."""
    for name, kind in [("rows", "user string, n int"), ("json", "json"), ("bytes", "bytes"), ("sums", "json")]:
        log.create(name, partitions=3, values=kind)
    for name in ("objects", "plain", "pairs", "dicts"):
        log.create(name)
    where = str(log.path)
    lines = [{"user": "amy", "n": 1, "ts": 3}, {"user": "bob", "n": None, "ts": 65}, {"user": "amy", "n": 4, "ts": 70}]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, lines)))
    read = p | hr.ReadJson(str(tmp_path / "in"), schema="user string, n bigint, ts double", event_time="ts")
    rows = read | hr.Select("user", "n")
    rows | "rows" >> hr.WriteTopic("rows", log=where, key="user")
    read | "json" >> hr.WriteTopic("json", log=where, key=lambda row: row.user, timestamp="ts")
    visits = rows | hr.Map(lambda row: Visit(row.user, row.n)).with_output_types(Visit)
    visits | "objects" >> hr.WriteTopic("objects", log=where, timestamp=lambda visit: 7)
    names = visits | "names" >> hr.Map(lambda visit: visit.user).with_output_types(str)
    names | "bytes" >> hr.WriteTopic("bytes", log=where, key=str.upper)
    names | "plain" >> hr.WriteTopic("plain", log=where)
    (
        names
        | "undeclared" >> hr.Map(lambda name: {"name": name})
        | "dicts" >> hr.WriteTopic("dicts", log=where, key="name")
    )
    minute = read | hr.WindowInto(hr.FixedWindows("1 minute"))
    minute | hr.GroupBy("user").aggregate(n=hr.count()) | "sums" >> hr.WriteTopic("sums", log=where, key="n")
    names | hr.Count.per_element() | "pairs" >> hr.WriteTopic("pairs", log=where)
    p.run(stream=stream).wait()

    kept = [(r.key, r.timestamp // SECOND, r.value, r.headers) for r in records(log.topic("rows"))]
    assert sorted(kept, key=str) == [
        (b"amy", 3, {"user": "amy", "n": 1}, {}),
        (b"amy", 70, {"user": "amy", "n": 4}, {}),
        (b"bob", 65, {"user": "bob", "n": None}, {}),
    ]
    by_key = {r.key: r.partition for r in records(log.topic("rows"))}
    assert by_key == {key: partition_of(key, 3) for key in (b"amy", b"bob")}
    kept = [(r.key, r.timestamp // SECOND, r.value) for r in records(log.topic("json"))]
    assert sorted(kept, key=str) == sorted([(each["user"].encode(), each["ts"], each) for each in lines], key=str)
    assert {(r.key, r.timestamp) for r in records(log.topic("objects"))} == {(None, 7 * SECOND)}
    assert Counter(map(str, values(log.topic("objects")))) == Counter(
        str({"user": each["user"], "n": each["n"]}) for each in lines
    )
    kept = Counter((r.key, r.value) for r in records(log.topic("bytes")))
    assert kept == {(b"AMY", b"amy"): 2, (b"BOB", b"bob"): 1}
    assert sorted(values(log.topic("plain"))) == ["amy", "amy", "bob"]
    assert sorted((r.key, r.value["name"]) for r in records(log.topic("dicts"))) == [
        (b"amy", "amy"),
        (b"amy", "amy"),
        (b"bob", "bob"),
    ]
    kept = [(r.key, r.timestamp, r.value) for r in records(log.topic("sums"))]
    assert sorted(kept, key=str) == [
        (b"1", 120 * SECOND - 1, {"user": "amy", "n": 1}),
        (b"1", 120 * SECOND - 1, {"user": "bob", "n": 1}),
        (b"1", 60 * SECOND - 1, {"user": "amy", "n": 1}),
    ]
    assert sorted(values(log.topic("pairs"))) == [["amy", 2], ["bob", 1]]


def partition_of(key: bytes, count: int) -> int:
    import pyarrow as pa

    return int(partitions_of(pa.array([key]), count)[0])
