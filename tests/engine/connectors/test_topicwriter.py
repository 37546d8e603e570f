"""Tests embedded topics as sinks: records of all kinds of elements, each once, after failures of batch or disk."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.connectors import topicwriter
from headrace.engine.connectors.topicwriter import TopicWriter
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.torecords import ToRecords
from headrace.log import Log, Record, Topic, segments
from headrace.log.partitioning import partitions_of
from headrace.log.partitions import Partition
from headrace.log.values import Values
from headrace.log.watermarkrecords import WriterWatermark, split_watermarks
from headrace.model.times import SECOND, now

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
    """All kinds of values, from elements with and without columns, before and after Python functions."""
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

    contents = [(r.key, r.timestamp // SECOND, r.value, r.headers) for r in records(log.topic("rows"))]
    assert sorted(contents, key=str) == [
        (b"amy", 3, {"user": "amy", "n": 1}, {}),
        (b"amy", 70, {"user": "amy", "n": 4}, {}),
        (b"bob", 65, {"user": "bob", "n": None}, {}),
    ]
    by_key = {r.key: r.partition for r in records(log.topic("rows"))}
    assert by_key == {key: partition_of(key, 3) for key in (b"amy", b"bob")}
    contents = [(r.key, r.timestamp // SECOND, r.value) for r in records(log.topic("json"))]
    assert sorted(contents, key=str) == sorted([(each["user"].encode(), each["ts"], each) for each in lines], key=str)
    assert {(r.key, r.timestamp) for r in records(log.topic("objects"))} == {(None, 7 * SECOND)}
    assert Counter(map(str, values(log.topic("objects")))) == Counter(
        str({"user": each["user"], "n": each["n"]}) for each in lines
    )
    contents = Counter((r.key, r.value) for r in records(log.topic("bytes")))
    assert contents == {(b"AMY", b"amy"): 2, (b"BOB", b"bob"): 1}
    assert sorted(values(log.topic("plain"))) == ["amy", "amy", "bob"]
    assert sorted((r.key, r.value["name"]) for r in records(log.topic("dicts"))) == [
        (b"amy", "amy"),
        (b"amy", "amy"),
        (b"bob", "bob"),
    ]
    contents = [(r.key, r.timestamp, r.value) for r in records(log.topic("sums"))]
    assert sorted(contents, key=str) == [
        (b"1", 120 * SECOND - 1, {"user": "amy", "n": 1}),
        (b"1", 120 * SECOND - 1, {"user": "bob", "n": 1}),
        (b"1", 60 * SECOND - 1, {"user": "amy", "n": 1}),
    ]
    assert sorted(values(log.topic("pairs"))) == [["amy", 2], ["bob", 1]]


def partition_of(key: bytes, count: int) -> int:
    return int(partitions_of(pa.array([key]), count)[0])


def test_what_has_no_time_gets_that_of_the_batch(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """In a stream it is the time that Spark logged, which a repeated batch has again."""
    topic, checkpoint = log.create("plain"), tmp_path / "checkpoint"
    p = hr.Pipeline(spark=spark)
    p | hr.TestStream().add(["a"]).add([AT("b", 5)]) | hr.WriteTopic("plain", log=str(log.path))
    p.run(checkpoint=str(checkpoint)).wait()
    logged = [json.loads((checkpoint / f"spark/offsets/{n}").read_text().splitlines()[1]) for n in range(2)]
    assert [(record.value, record.timestamp) for record in records(topic)] == [
        ("a", 1000 * logged[0]["batchTimestampMs"]),
        ("b", 5 * SECOND),
    ]
    before = now()
    with hr.Pipeline(spark=spark) as p:
        p | hr.Create(["c"]) | hr.WriteTopic("plain", log=str(log.path))
    assert before <= records(topic)[-1].timestamp <= now()


def test_what_is_taken_back_is_marked(spark: SparkSession, log: Log) -> None:
    """From pairs, and from columns of a grouping."""
    pairs, sums = log.create("pairs"), log.create("sums")
    script = hr.TestStream().add([AT(("amy", 5), 1)]).advance_watermark(10).add([AT(("amy", 7), 2)]).finish()
    with hr.Pipeline(spark=spark) as p:
        late = hr.AfterWatermark(late=hr.AfterCount(1))
        window = hr.WindowInto(hr.FixedWindows(10), trigger=late, accumulation="retracting", allowed_lateness=60)
        scores = p | script | hr.Map(lambda pair: pair).with_output_types(tuple[str, int]) | window
        scores | hr.CombinePerKey(sum) | "pairs" >> hr.WriteTopic("pairs", log=str(log.path), key=lambda pair: pair[0])
        rows = scores | hr.GroupBy("_1").aggregate(total=hr.sum("_2"))
        rows | "sums" >> hr.WriteTopic("sums", log=str(log.path), key="_1")
    marked = {"retraction": b"true"}
    assert [(r.value, r.headers) for r in records(pairs)] == [
        (["amy", 5], {}),
        (["amy", 5], marked),
        (["amy", 12], {}),
    ]
    assert [(r.value["total"], r.headers) for r in records(sums)] == [(5, {}), (5, marked), (12, {})]


def test_a_batch_run_is_appended_piece_by_piece(spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver appends limited groups of blocks, and begins when all of them have been computed."""
    topic = log.create("numbers", partitions=2)
    monkeypatch.setattr(topicwriter, "_GROUP_BYTES", 10_000)
    with hr.Pipeline(spark=spark) as p:
        p | hr.Create(range(100_000)) | hr.WriteTopic("numbers", log=str(log.path), key=lambda n: n % 7)
    assert sorted(values(topic)) == list(range(100_000))
    assert all(len(list(partition.read(0))) > 1 for partition in topic.partitions)
    p = hr.Pipeline(spark=spark)
    inverse = p | hr.Create(range(100_000)) | hr.Map(lambda n: 1 / (99_999 - n))
    inverse | hr.WriteTopic("numbers", log=str(log.path))
    with pytest.raises(hr.TransformError, match="ZeroDivisionError"):
        p.run().wait()
    assert len(values(topic)) == 100_000


def test_from_topic_to_topic(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """A batch that failed after its append is repeated and counts once; a batch run writes the same."""
    visits = log.create("visits", partitions=2, values="user string, n bigint")
    for number in range(4):
        rows = [{"user": f"user {n % 5}", "n": n} for n in range(10 * number, 10 * number + 10)]
        visits.append(number % 2, visits.batch(rows, timestamps=[row["n"] * SECOND for row in rows]))
    copies, again = (log.create(name, partitions=3, values="n bigint, user string") for name in ("copies", "again"))

    def pipeline(to: Topic) -> hr.Pipeline:
        p = hr.Pipeline(spark=spark)
        read = p | hr.ReadTopic("visits", log=str(log.path), end="latest")
        read | hr.WriteTopic(to.name, log=str(log.path), key="user")
        return p

    def streamed() -> None:
        options: Any = {"checkpoint": str(tmp_path / "checkpoint"), "max_records_per_batch": 8}
        pipeline(copies).run(stream=True, **options).wait()

    for at in (1, 2):
        with pytest.raises(hr.TransformError, match="'WriteTopic' failed"), fault(at, done=True):
            streamed()
    streamed()
    pipeline(again).run().wait()
    expected = Counter(
        (partition_of(user.encode(), 3), user.encode(), n * SECOND, n, user)
        for n in range(40)
        for user in (f"user {n % 5}",)
    )
    for topic in (copies, again):
        contents = [(r.partition, r.key, r.timestamp, r.value["n"], r.value["user"]) for r in records(topic)]
        assert Counter(contents) == expected


# The writer alone


class Fault(Exception):
    pass


@contextmanager
def fault(at: int, *, done: bool) -> Iterator[None]:
    """Lets the append of this number fail, before or after it has appended."""
    append, count = Partition.append, itertools.count()

    def failing(partition: Partition, *args: Any, **options: Any) -> int:
        number = next(count)
        if number == at and not done:
            raise Fault
        offset = append(partition, *args, **options)
        if number == at:
            raise Fault
        return offset

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "append", failing)
        yield


def writer(log: Log, stream: str = "s", **options: Any) -> TopicWriter:
    """Returns the writer of a process that starts or continues a stream."""
    p = hr.Pipeline()
    p | hr.Create(["a"]) | "to" >> hr.WriteTopic("visits", log=str(log.path), **options)
    [*_, node] = p.graph()
    topic_writer = TopicWriter(node)
    topic_writer.begin(stream)
    return topic_writer


def blocks(elements: list[tuple[str | None, int]], partitions: int) -> list[pa.Buffer]:
    output = ToRecords("to", Values("json"), partitions, None, lambda pair: pair[0], None)
    batches = [*output.add(Bundle(elements)), *output.finish()] if elements else []
    return [cell.as_buffer() for batch in batches for cell in batch.column(0)]


def test_a_writer_with_a_name_is_the_same_with_another_checkpoint(tmp_path: Path) -> None:
    topic = Log(tmp_path).create("visits")
    for stream, low in (("first", 60), ("second", 50), ("second", 70)):
        writer(topic.log, stream, watermarks=True, writer="windows").append([], low, lambda: 0, low)
    said = [each for _, batch in topic.partition(0).read(0) for each in split_watermarks(batch)[1]]
    assert said == [WriterWatermark("windows", low) for low in (60, 50, 70)]
    with pytest.raises(hr.PipelineError, match="give watermarks=True, too"):
        hr.WriteTopic("visits", log=str(tmp_path), writer="windows")


ELEMENTS = st.lists(st.tuples(st.none() | st.sampled_from("abcdef"), st.integers(0, 9)), max_size=8)
ATTEMPTS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=3)


@given(st.lists(st.tuples(ELEMENTS, ATTEMPTS), max_size=4), st.integers(1, 4))
def test_batches_that_fail_and_come_again_are_there_once(batches: list[tuple[Any, Any]], partitions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(folder)
        topic = log.create("visits", partitions=partitions)
        expected: dict[int, list[list[tuple[str | None, int]]]] = {}
        for number, (elements, attempts) in enumerate(batches):
            for at, done in attempts:
                with suppress(WorkerFailure), fault(at, done=done):
                    writer(log).append(blocks(elements, partitions), number, lambda: 7)
            writer(log).append(blocks(elements, partitions), number, lambda: 7)
            for key, value in elements:
                place = number % partitions if key is None else partition_of(key.encode(), partitions)
                expected.setdefault(place, [[] for _ in batches])[number].append((key, value))
        for place in range(partitions):
            there = [tuple(record.value) for record in topic.read(place)]
            for batch in expected.get(place, []):
                assert sorted(map(str, there[: len(batch)])) == sorted(map(str, batch))
                there = there[len(batch) :]
            assert there == []


def test_another_stream_is_another_producer(log: Log) -> None:
    topic = log.create("visits")
    for stream in ("s", "s", "a fork of s"):
        writer(log, stream).append(blocks([(None, 1)], 1), 0, lambda: 7)
    assert values(topic) == [[None, 1], [None, 1]]


def test_a_full_disk_is_told_and_nothing_is_lost(log: Log) -> None:
    """A file that may not grow, for which the kernel raises the same error as for a full disk."""
    topic = log.create("visits")
    data = next(topic.partition(0).folder.glob("*.arrow"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (data.stat().st_size, before[1]))
    try:
        with pytest.raises(WorkerFailure, match="visits/0: cannot append 1 records: File too large; correct that"):
            writer(log).append(blocks([("a", 1)], 1), 0, lambda: 7)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert values(topic) == []
    writer(log).append(blocks([("a", 1)], 1), 0, lambda: 7)
    assert values(topic) == [["a", 1]]


def test_a_log_that_cannot_be_written_is_told(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create("visits")

    def read_only(path: str, flags: int) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(segments, "private_opener", read_only)
    with pytest.raises(WorkerFailure, match="visits/0: cannot append 1 records: Read-only file system; correct that"):
        writer(log).append(blocks([("a", 1)], 1), 0, lambda: 7)
