"""Reads topics of the embedded log: as the frames of a batch or a stream, or by a stream's own program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from headrace.edges.topicranges import Offsets, end_offsets, topic_at
from headrace.engine.connectors import topicdatasource, topicframes
from headrace.engine.connectors.directread import ColumnsRead, DirectRead, pruned
from headrace.engine.connectors.fromrecords import Records, has_times, value_kind
from headrace.engine.connectors.mappedtopics import mapped_records
from headrace.engine.connectors.streamtopics import Positions, StreamTopics, offsets_of
from headrace.engine.connectors.topicdatasource import Scan
from headrace.engine.handle import SourceStatus
from headrace.engine.worker.hidden import PART
from headrace.log import Group, Topic
from headrace.log.groups import Offset, start_of
from headrace.model.pipeline import Node


class EmbeddedReader:
    """Reads the embedded topic of one source."""

    def __init__(self, node: Node) -> None:
        self.node, self.source = node, topicframes.source_of(node)
        address = self.source.address
        assert address.log is not None
        self.log, self.name = os.path.abspath(address.log), address.name  # as all processes see the directory

    @property
    def topic(self) -> Topic:
        return topic_at(self.log, self.name)

    def partitions(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.topic.partitions))))

    def batch_frame(self, spark: SparkSession) -> DataFrame:
        topic = self.topic
        start = {number: start_of(topic, number, self._start(number)) for number in range(len(topic.partitions))}
        tasks = spark.sparkContext.defaultParallelism
        scan = Scan(self.node.label, self.log, self.name, start, self._end(start), tasks)
        if value_kind(topicframes.values_of(self.source)) == "json" and self.source.schema is None:
            return topicdatasource.load(spark, replace(scan, form="blocks"))
        scan = replace(self._columns_of(scan), placed=self.source.checks)
        if (records := mapped_records(spark, scan)) is None:
            records = topicdatasource.load(spark, scan)
        return topicframes.elements(self.node, records).drop(PART)

    def stream_frame(self, topics: StreamTopics) -> DataFrame:
        scan = replace(self._columns_of(self._scan(topics)), watermarks=topicframes.reads_watermarks(self.source))
        return topicframes.elements(self.node, topicdatasource.load_stream(topics.spark, scan))

    def direct(self, topics: StreamTopics, columns: ColumnsRead) -> DirectRead | None:
        """Returns how a program reads these columns by itself; None if Catalyst has to do with the records."""
        source, schema = self.source, topicframes.columns(self.node)
        if source.schema is not None and value_kind(topicframes.values_of(source)) != "rows":
            return None
        if source.event_time is not None and not has_times(schema.field(source.event_time).type):
            return None
        if (read := columns(schema)) is None:
            return None
        records = Records(self.log, self.name, pruned(schema, read), source.event_time)
        return DirectRead(schema, partial(self._ranges, topics), records, checks=source.event_time is not None)

    def _ranges(self, topics: StreamTopics) -> DataFrame:
        """Returns the frame of ranges of offsets; one for all taps of the source, so that Spark reads it once."""
        label = self.node.label
        if label not in topics.range_frames:
            scan = replace(self._scan(topics), form="ranges")
            topics.range_frames[label] = topicdatasource.load_stream(topics.spark, scan)
        return topics.range_frames[label]

    def status(self, status: SourceStatus, progress: Mapping[str, Any], seconds: float) -> SourceStatus:
        offsets, before = offsets_of(progress["endOffset"] or {}), offsets_of(progress["startOffset"] or {})
        # Spark does not count the records of a program that reads them itself.
        rows = sum(at - before.get(number, at) for number, at in offsets.items())
        lag = sum(at - offsets.get(number, at) for number, at in end_offsets(self.topic).items())
        return replace(status, rows=rows, rows_per_second=rows / seconds if seconds else None, offsets=offsets, lag=lag)

    def _scan(self, topics: StreamTopics) -> Scan:
        label = self.node.label
        group = topics.group(label, self.log, self.name)
        start, end = topics.positions(label, lambda: self._first_positions(group))
        tasks = topics.spark.sparkContext.defaultParallelism
        return Scan(label, self.log, self.name, start, end, tasks, group=group.name, max_records=topics.max_records)

    def _columns_of(self, scan: Scan) -> Scan:
        """Returns a scan of the columns that elements are made of."""
        if value_kind(topicframes.values_of(self.source)) != "rows":
            return scan
        names = tuple(topicframes.columns(self.node).names)
        return replace(scan, columns=names, timed=self.source.event_time is None)

    def _first_positions(self, group: Group) -> Positions:
        """Returns where a new stream begins and ends. From here on retention leaves it what it has still to read."""
        start: Offsets = {}
        for number in range(len(group.topic.partitions)):
            start |= group.reset(self._start(number), number)
        return start, self._end(start)

    def _start(self, number: int) -> Literal["earliest", "latest"] | int:
        start = self.source.start
        return Offset(start.get(number, 0)) if isinstance(start, Mapping) else start

    def _end(self, start: Offsets) -> Offsets | None:
        topic, end = self.topic, self.source.end
        return None if end is None else {number: max(at, start_of(topic, number, end)) for number, at in start.items()}
