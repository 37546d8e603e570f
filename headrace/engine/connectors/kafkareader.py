"""Reads topics of Kafka by Spark's own connector: where reading begins and ends, and as what frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.edges import kafkaclient
from headrace.edges.kafkasettings import java_settings
from headrace.edges.topicranges import Offsets
from headrace.engine.connectors import topicframes
from headrace.engine.connectors.directread import ColumnsRead
from headrace.engine.connectors.fromrecords import OFFSET
from headrace.engine.connectors.streamtopics import Positions, StreamTopics, offsets_of
from headrace.engine.handle import SourceStatus
from headrace.engine.shard.clocks import WRITTEN_BY
from headrace.engine.spark import kafkajars
from headrace.engine.spark.unlogged import unlogged_calls
from headrace.engine.worker.hidden import LOW, PART, TIME
from headrace.log.values import VALUE, WATERMARK_KEY
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.topics import Address

_EARLIEST: Final = -2
"""In place of an offset: the first that there is."""


class KafkaReader:
    """Reads the topic of one source from Kafka, by Spark's own connector."""

    def __init__(self, node: Node) -> None:
        self.node, self.source = node, topicframes.source_of(node)
        self.address = self.source.address

    def partitions(self) -> tuple[str, ...]:
        return tuple(map(str, kafkaclient.partitions(self.node, self.address)))

    def batch_frame(self, spark: SparkSession) -> DataFrame:
        """As the protocol says. Where the end is, is asked once, however often the frame is read."""
        kafkajars.check(spark, self.node)
        start, end = self._positions()
        assert end is not None
        return topicframes.elements(self.node, between(spark, self.address, start, end)).drop(PART)

    def stream_frame(self, topics: StreamTopics) -> DataFrame:
        kafkajars.check(topics.spark, self.node)
        start, end = topics.positions(self.node.label, self._positions)
        # Spark wants to know of every partition; one that came later is read from its beginning.
        start = dict.fromkeys(kafkaclient.partitions(self.node, self.address), _EARLIEST) | start
        name = self.address.name
        options = {**_options(self.address), "subscribe": name, "startingOffsets": _json(name, start)}
        if topics.max_records is not None:
            options["maxOffsetsPerTrigger"] = str(topics.max_records)
        with unlogged_calls():
            reader = topics.spark.readStream.format("kafka").options(**options)
        records = _records(reader.load(), watermarks=topicframes.reads_watermarks(self.source))
        return topicframes.elements(self.node, records if end is None else records.where(_before(end)))

    def direct(self, topics: StreamTopics, columns: ColumnsRead) -> None:
        """Always None: only Spark's connector reads Kafka."""

    def status(self, status: SourceStatus, progress: Mapping[str, Any], seconds: float) -> SourceStatus:
        """As the protocol says. The end of the topic is that before the last batch."""
        offsets, ends = self._offsets(progress["endOffset"]), self._offsets(progress["latestOffset"])
        return replace(status, offsets=offsets, lag=sum(max(at - offsets.get(n, at), 0) for n, at in ends.items()))

    def _offsets(self, reported: Mapping[str, Any] | None) -> Offsets:
        return offsets_of((reported or {}).get(self.address.name, {}))

    def _positions(self) -> Positions:
        """Returns where a new run begins and ends."""
        source = self.source
        if isinstance(source.start, Mapping):
            start = self._checked(source.start)
        else:
            start = kafkaclient.offsets(self.node, self.address, source.start)
        if source.end is None:
            return start, None
        ends = kafkaclient.offsets(self.node, self.address, source.end)
        return start, {number: max(at, ends[number]) for number, at in start.items()}

    def _checked(self, wanted: Mapping[int, int]) -> Offsets:
        """Returns an offset for each partition. Refuses those that are gone, with which Spark would fail later."""
        node, address = self.node, self.address
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


def between(spark: SparkSession, address: Address, start: Offsets, end: Offsets) -> DataFrame:
    """Returns the records between these offsets, `end` excluded, of the partitions in it: VALUE, TIME, PART, OFFSET."""
    options = {
        **_options(address),
        "assign": json.dumps({address.name: sorted(end)}),
        "startingOffsets": _json(address.name, {number: start[number] for number in end}),
        "endingOffsets": _json(address.name, end),
    }
    with unlogged_calls():
        reader = spark.read.format("kafka").options(**options)
    return _records(reader.load())


def _options(address: Address) -> dict[str, str]:
    assert address.brokers is not None
    settings = {
        "bootstrap.servers": address.brokers,
        "isolation.level": "read_committed",
        **java_settings(address, address.security),
    }
    return {f"kafka.{name}": value for name, value in settings.items()}


def _records(data: DataFrame, *, watermarks: bool = False) -> DataFrame:
    """Returns records with the columns that `topicframes.elements` reads; with `watermarks`, also what writers say."""
    said = F.col("value").isNull() & F.coalesce(F.col("key").startswith(F.lit(WATERMARK_KEY)), F.lit(False))
    part, low = F.col("partition").cast("string"), []
    if watermarks:
        text = F.when(said, F.substr("key", F.lit(len(WATERMARK_KEY) + 1)).cast("string"))
        part = F.concat_ws(WRITTEN_BY, part, F.get_json_object(text, "$[1]"))
        low = [F.get_json_object(text, "$[0]").cast("long").alias(LOW)]
    return (data if watermarks else data.where(~said)).select(
        F.col("key").alias(topicframes.KEY),
        F.col("value").alias(VALUE),
        F.unix_micros("timestamp").alias(TIME),
        part.alias(PART),
        F.col("offset").alias(OFFSET),
        *low,
    )


def _before(end: Offsets) -> Column:
    """Tells whether a record is before the end of its partition; none is in a partition that came later."""
    ends = F.create_map(*[F.lit(value) for partition, at in end.items() for value in (str(partition), at)])
    return F.coalesce(F.col(OFFSET) < ends[F.col(PART)], F.lit(False))


def _json(topic: str, offsets: Offsets) -> str:
    return json.dumps({topic: offsets})
