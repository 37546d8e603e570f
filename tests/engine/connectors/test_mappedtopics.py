"""What Spark reads of mapped segments is what workers of Python read of them, row by row."""

from __future__ import annotations

import datetime as dt
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.edges.topicranges import end_offsets
from headrace.engine.connectors import embeddedreader, mappedtopics
from headrace.engine.connectors.mappedtopics import mapped_records
from headrace.engine.connectors.topicdatasource import Scan, TopicReader, with_parts
from headrace.engine.worker.blame import plain_error
from headrace.log import Log, Topic
from headrace.log.watermarkrecords import WriterWatermark, watermark_record
from tests.scale import examples

COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "text string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "yes boolean": st.booleans(),
    "small int": st.integers(-(2**31), 2**31 - 1),
    "large bigint": st.integers(-(2**63), 2**63 - 1),
    "half float": st.floats(width=32),
    "whole double": st.floats(),
    "octets binary": st.binary(max_size=5),
    "day date": st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "at timestamp": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),
}
KINDS = ", ".join(COLUMNS)
topics = itertools.count()

rows = st.fixed_dictionaries({name.split()[0]: st.none() | values for name, values in COLUMNS.items()})
batches = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.none() | rows, min_size=1, max_size=12), st.booleans()), max_size=6
)


def filled(log: Log, drawn: list[tuple[int, list[Any], bool]], segment_bytes: int = 2_000) -> Topic:
    """A topic of two partitions with these batches, some of which have watermark records and keys among theirs."""
    topic = log.create(f"topic{next(topics)}", partitions=2, values=KINDS, segment_bytes=segment_bytes)
    kind = topic.schema.field("value").type
    for partition, values, said in drawn:
        times = list(range(len(values)))
        keys = [None if at % 3 else b"key" for at in times]
        plain = topic.batch([{}] * len(values), timestamps=times, keys=keys)
        stamped = [None if each is None else {**each, "at": _utc(each["at"])} for each in values]
        batch = plain.set_column(3, topic.schema.field("value"), pa.array(stamped, kind))
        if said:
            word = watermark_record(WriterWatermark("writer", 5), topic.schema)
            batch = pa.concat_batches([word, batch, word, batch, word])
            batch = batch.set_column(1, topic.schema.field("timestamp"), pa.array(range(batch.num_rows), pa.int64()))
        topic.append(partition, batch)
    return topic


def _utc(time: dt.datetime | None) -> dt.datetime | None:
    return None if time is None else time.replace(tzinfo=dt.UTC)


def scan_of(log: Log, topic: Topic, **options: Any) -> Scan:
    start = options.pop("start", {0: 0, 1: 0})
    return Scan("read", str(log.path), topic.name, start, options.pop("end", end_offsets(topic)), tasks=2, **options)


def read_by_python(spark: SparkSession, scan: Scan) -> pa.Table:
    """What the data source in Python gives, without Spark but for the types of the result."""
    reader = TopicReader(scan)
    read = [batch for share in reader.partitions() for batch in reader.read(share)]
    return pa.Table.from_batches(read, scan.schema())


@pytest.fixture
def mapping(spark: SparkSession, log: Log) -> None:
    """From now on few records are mapped, too."""
    topic = log.create("first", values="n int")
    topic.append(0, topic.batch([{"n": 1}], timestamps=[0]))
    assert mapped_records(spark, replace(scan_of(log, topic), start={0: 0}), at_least=1) is not None


@pytest.mark.slow("a job for each example")
@examples(40)
@given(drawn=batches, cut=st.tuples(st.floats(0, 1), st.floats(0, 1)), chosen=st.sets(st.sampled_from(list(COLUMNS))))
def test_columns_are_those_that_python_reads(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, list[Any], bool]],
    cut: tuple[float, float],
    chosen: set[str],
) -> None:
    """All columns, some of them, and from the middle of batches to the middle of others."""
    log = Log(tmp_path_factory.mktemp("log"))
    topic = filled(log, drawn)
    ends = end_offsets(topic)
    start = {number: int(end * min(cut)) for number, end in ends.items()}
    end = {number: int(end * max(cut)) for number, end in ends.items()}
    names = tuple(name.split()[0] for name in sorted(chosen))
    for scan in (scan_of(log, topic), scan_of(log, topic, start=start, end=end, columns=names, placed=bool(names))):
        mapped = mapped_records(spark, scan, at_least=1)
        expected = read_by_python(spark, scan)
        if mapped is None:
            assert not expected.num_rows
            continue
        placed = with_parts(spark.createDataFrame(expected)).toArrow()
        assert mapped.schema.names == placed.schema.names
        read = mapped.toArrow().cast(placed.schema)
        assert repr(read.to_pylist()) == repr(placed.to_pylist())  # repr: nan is nan, and -0.0 is not 0.0
        assert mapped.count() == placed.num_rows


def test_spark_reads_the_columns_that_are_used(spark: SparkSession, log: Log, mapping: None) -> None:
    topic = filled(log, [(0, [None, None], False)])
    frame = mapped_records(spark, scan_of(log, topic))
    assert frame is not None
    plan = frame.select("large")._jdf.queryExecution().executedPlan().toString()
    assert "BatchScan topic" in plan and "[large#" in plan and "text#" not in plan


def test_a_pipeline_gives_the_same_either_way(
    spark: SparkSession, log: Log, mapping: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad records have the same place and the same words."""
    topic = log.create("visits", partitions=2, values="user string, ts timestamp")
    for partition in (0, 1):
        values = [{"user": f"u{n}", "ts": None if n == 3 else n} for n in range(5)]
        topic.append(partition, topic.batch(values, timestamps=[0] * 5))

    def answers() -> Any:
        p = hr.Pipeline(spark=spark)
        read = hr.ReadTopic("visits", log=str(log.path), event_time="ts", end="latest").with_exception_handling()
        visits = p | read
        good = visits.main | hr.GroupBy("user").aggregate(n=hr.count()) | hr.Collect()
        bad = visits.dead_letters | "dead" >> hr.Collect()
        p.run(stream=False).wait()
        return sorted(good), sorted(map(str, bad))

    mapped = answers()
    monkeypatch.setattr(embeddedreader, "mapped_records", lambda *_: None)
    assert answers() == mapped
    assert len(mapped[0]) == 4 and len(mapped[1]) == 2


def test_few_records_and_many_batches_are_read_by_python(
    spark: SparkSession, log: Log, mapping: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(log, [(0, [None], False)] * 3)
    assert mapped_records(spark, scan_of(log, topic)) is not None
    for name, most in (("_MOST_BLOCKS", 2), ("_LARGEST", 100)):
        with monkeypatch.context() as patch:
            patch.setattr(mappedtopics, name, most)
            assert mapped_records(spark, scan_of(log, topic)) is None
    with monkeypatch.context() as patch:
        patch.setattr(mappedtopics, "is_compiled", lambda _: False)
        assert mapped_records(spark, scan_of(log, topic)) is None
    assert mapped_records(spark, scan_of(log, topic, form="ranges")) is None


def test_damage_and_removal_are_named(spark: SparkSession, log: Log, mapping: None) -> None:
    """In the words of the log; and nothing is read of a batch of which one byte is another."""
    topic = filled(log, [(1, [None] * 4, False), (1, [None] * 6, False)], 100_000)
    [(segment, entries)] = topic.partition(1).entries(0)
    whole = segment.data.read_bytes()
    middle = int(entries[1]["position"] + entries[1]["length"] // 2)
    total = F.sum("large")

    def error(scan: Scan) -> str:
        frame = mapped_records(spark, scan)
        assert frame is not None
        with pytest.raises(Py4JJavaError) as raised:
            frame.agg(total).collect()
        return str(plain_error(raised.value))

    for at in (middle, int(entries[1]["position"]), int(entries[1]["position"]) + 6):
        segment.data.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        place = f"{topic.name}/1"
        assert f"{place}: the batch at offsets 4 to 9 is damaged: its bytes in {segment.data.name}" in error(
            scan_of(log, topic)
        )
    assert mapped_records(spark, scan_of(log, topic, end={0: 0, 1: 4})).count() == 4  # type: ignore[union-attr]
    segment.data.write_bytes(whole)
    scan = scan_of(log, topic)
    frame = mapped_records(spark, scan)
    assert frame is not None
    os.rename(segment.data, Path(segment.data).with_suffix(".gone"))
    with pytest.raises(Py4JJavaError) as raised:
        frame.agg(total).collect()
    assert "'read' failed: headrace.log.errors.LogError" in str(plain_error(raised.value))
    assert f"{topic.name}/1: offset 0 was removed by retention while it was being read" in str(
        plain_error(raised.value)
    )
