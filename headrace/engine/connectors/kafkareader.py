"""Kafka's topics as sources, by Spark's own connector: where reading begins and ends, and what Spark is given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.edges import kafkaclient
from headrace.edges.topicranges import Offsets
from headrace.engine.connectors import topicframes
from headrace.engine.connectors.fromrecords import OFFSET
from headrace.engine.connectors.topicdatasource import offsets_of
from headrace.engine.spark import kafkajars
from headrace.engine.spark.files import Folder, plain_name
from headrace.engine.worker.hidden import PART, TIME
from headrace.log.values import VALUE
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.topics import Address, ReadTopic


def is_kafka(node: Node) -> bool:
    """Whether a node reads a topic of Kafka's."""
    return isinstance(node.transform, ReadTopic) and node.transform.address.brokers is not None


def partitions_of(node: Node) -> tuple[str, ...]:
    """The partitions of the topic that a node reads, by the names they have in PART."""
    return tuple(map(str, kafkaclient.partitions(node, _source(node).address)))


def batch_frame(spark: SparkSession, node: Node) -> DataFrame:
    """The frame of a topic's elements up to its end. Where that is, is asked once, however often it is read."""
    kafkajars.check(spark, node)
    start, end = _positions(node)
    assert end is not None
    return topicframes.elements(node, between(spark, _source(node).address, start, end)).drop(PART)


def between(spark: SparkSession, address: Address, start: Offsets, end: Offsets) -> DataFrame:
    """The records of a topic from offsets to before others, of these partitions: VALUE, TIME, PART and OFFSET."""
    options = {
        **_options(address),
        "assign": json.dumps({address.name: sorted(end)}),
        "startingOffsets": _json(address.name, {number: start[number] for number in end}),
        "endingOffsets": _json(address.name, end),
    }
    return _records(spark.read.format("kafka").options(**options).load())


def stream_frame(spark: SparkSession, node: Node, control: Folder, max_records: int | None) -> DataFrame:
    """The frame of a topic's elements as they come: their columns, TIME and PART.

    Where reading begins and ends is kept in `control`, so that the stream means the same when it goes on.
    """
    kafkajars.check(spark, node)
    start, end = _kept_positions(node, control)
    address = _source(node).address
    options = {**_options(address), "subscribe": address.name, "startingOffsets": _json(address.name, start)}
    if max_records is not None:
        options["maxOffsetsPerTrigger"] = str(max_records)
    records = _records(spark.readStream.format("kafka").options(**options).load())
    return topicframes.elements(node, records if end is None else records.where(_before(end)))


def offsets_told(node: Node, told: Mapping[str, Any] | None) -> Offsets:
    """The offsets of a topic in what Spark tells of its progress."""
    return offsets_of((told or {}).get(_source(node).address.name, {}))


def _options(address: Address) -> dict[str, str]:
    assert address.brokers is not None
    return {"kafka.bootstrap.servers": address.brokers, "kafka.isolation.level": "read_committed"}


def _records(data: DataFrame) -> DataFrame:
    """Records as `topicframes` takes them."""
    return data.select(
        F.col("value").alias(VALUE),
        F.unix_micros("timestamp").alias(TIME),
        F.col("partition").cast("string").alias(PART),
        F.col("offset").alias(OFFSET),
    )


def _before(end: Offsets) -> Column:
    """Whether a record is before the end of its partition; of one that came later, none is."""
    ends = F.create_map(*[F.lit(each) for partition, at in end.items() for each in (str(partition), at)])
    return F.coalesce(F.col(OFFSET) < ends[F.col(PART)], F.lit(False))


def _kept_positions(node: Node, control: Folder) -> tuple[Offsets, Offsets | None]:
    name = f"topic-{plain_name(node.label)}.json"
    if (held := control.read(name)) is None:
        held = json.dumps(_positions(node)).encode()
        control.write(name, held)
    start, end = json.loads(held)
    return offsets_of(start), None if end is None else offsets_of(end)


def _positions(node: Node) -> tuple[Offsets, Offsets | None]:
    source = _source(node)
    if isinstance(source.start, Mapping):
        start = _given(node, source.start)
    else:
        start = kafkaclient.offsets(node, source.address, source.start)
    if source.end is None:
        return start, None
    ends = kafkaclient.offsets(node, source.address, source.end)
    return start, {number: max(at, ends[number]) for number, at in start.items()}


def _given(node: Node, wanted: Mapping[int, int]) -> Offsets:
    """Offsets that a user says, for each partition. Spark would take those that are gone, and fail later."""
    address = _source(node).address
    firsts, ends = (kafkaclient.offsets(node, address, at) for at in ("earliest", "latest"))
    if unknown := sorted(set(wanted) - set(ends)):
        raise PipelineError(f"{node}: {address} has no partition {unknown[0]}; it has {len(ends)}")
    for number, first in firsts.items():
        if not first <= wanted.get(number, 0) <= ends[number]:
            raise PipelineError(
                f"{node}: {address} has no offset {wanted.get(number, 0)} in partition {number}; choose one from "
                f"{first} to {ends[number]}"
            )
    return {number: wanted.get(number, 0) for number in ends}


def _json(topic: str, offsets: Offsets) -> str:
    return json.dumps({topic: offsets})


def _source(node: Node) -> ReadTopic:
    assert isinstance(node.transform, ReadTopic)
    return node.transform
