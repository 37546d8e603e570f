"""The embedded topics that a stream reads: where it begins, who remembers how far it is, and what Spark is given."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.edges.topicranges import Offsets, topic_at
from headrace.engine.connectors import topicdatasource, topicframes
from headrace.engine.connectors.fromrecords import Records, has_times, kind_of
from headrace.engine.connectors.topicdatasource import Scan, offsets_of
from headrace.engine.plan.taps import Tap
from headrace.engine.spark.files import Folder, plain_name
from headrace.engine.worker.hidden import PART
from headrace.log import Group, Log, Topic
from headrace.log.groups import Offset, start_of
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node
from headrace.model.topics import ReadTopic
from headrace.model.windows import FixedWindows, GlobalWindows


def is_embedded(node: Node) -> bool:
    """Whether a node reads a topic of the embedded log."""
    return isinstance(node.transform, ReadTopic) and node.transform.address.log is not None


def topic_of(node: Node) -> Topic:
    """The topic that a node reads."""
    return topic_at(*_place(node))


def batch_frame(spark: SparkSession, node: Node) -> DataFrame:
    """The frame of a topic's elements up to its end, in a batch."""
    source, topic = _source(node), topic_of(node)
    start = {number: start_of(topic, number, _start(source, number)) for number in range(len(topic.partitions))}
    scan = Scan(node.label, *_place(node), start, _end(node, start), spark.sparkContext.defaultParallelism)
    if _as_objects(source):
        return topicdatasource.load(spark, replace(scan, form="blocks"))
    return topicframes.elements(node, topicdatasource.load(spark, scan)).drop(PART)


class Topics:
    """The embedded topics of one stream.

    Where reading begins and ends is kept in `control`, so that the stream means the same when it goes on. The consumer
    groups of the stream are named after its checkpoint; if that is `temporary`, they are gone after the run.
    """

    def __init__(self, spark: SparkSession, control: Folder, stream: str, *, temporary: bool) -> None:
        self.spark, self.control, self.stream, self.temporary = spark, control, stream, temporary
        self.max_records: int | None = None  # that a batch takes from each topic at first
        self._scans: dict[int, Scan] = {}
        self._ranges: dict[int, DataFrame] = {}
        self._groups: list[Group] = []

    def frame(self, node: Node) -> DataFrame:
        """The frame of a topic's elements: their columns, TIME and PART."""
        return topicframes.elements(node, topicdatasource.load_stream(self.spark, self.scan(node)))

    def ranges(self, node: Node) -> DataFrame:
        """The frame of a topic's ranges of offsets, for programs that read the records themselves."""
        if id(node) not in self._ranges:
            scan = replace(self.scan(node), form="ranges")
            self._ranges[id(node)] = topicdatasource.load_stream(self.spark, scan)
        return self._ranges[id(node)]

    def scan(self, node: Node) -> Scan:
        """What is read of a topic."""
        if id(node) not in self._scans:
            tasks = self.spark.sparkContext.defaultParallelism
            group = self._group(node)
            start, end = self._positions(node, group)
            self._scans[id(node)] = Scan(
                node.label, *_place(node), start, end, tasks, group=group.name, max_records=self.max_records
            )
        return self._scans[id(node)]

    def direct(self, tap: Tap, read: list[set[str] | None]) -> Records | None:
        """How a program reads these columns of a topic by itself; None if it is none, or Catalyst is to work on it."""
        node = tap.source
        if not is_embedded(node) or not all(_is_window(each) for reading in tap.readings for each in reading.columns):
            return None
        source, columns = _source(node), topicframes.columns(node)
        if source.schema is not None and kind_of(topicframes.values_of(source)) != "rows":
            return None
        if source.event_time is not None and not has_times(columns.field(source.event_time).type):
            return None
        named = [names for names in read if names is not None]
        if len(named) == len(read):
            wanted = set().union(*named)
            columns = pa.schema([field for field in columns if field.name in wanted])
        return Records(*_place(node), columns, source.event_time)

    def nothing(self, node: Node) -> DataFrame:
        """A frame with the columns of a topic's elements, and no rows."""
        return self.spark.createDataFrame([], from_arrow_schema(topicframes.columns(node)))

    def close(self) -> None:
        """After the run."""
        for group in self._groups if self.temporary else ():
            group.delete()

    def _group(self, node: Node) -> Group:
        log, name = _place(node)
        group = Group(Log(log), name, f"{self.stream}-{plain_name(node.label)}")
        self._groups.append(group)
        return group

    def _positions(self, node: Node, group: Group) -> tuple[Offsets, Offsets | None]:
        """Those that this stream had when it began. From then on retention leaves it what it needs."""
        name = _positions_of(node.label)
        if (held := self.control.read(name)) is None:
            first: Offsets = {}
            for number in range(len(group.topic.partitions)):
                first |= group.reset(_start(_source(node), number), number)
            held = json.dumps([first, _end(node, first)]).encode()
            self.control.write(name, held)
        start, end = json.loads(held)
        return offsets_of(start), None if end is None else offsets_of(end)


def began_at(control: Folder, label: str) -> Offsets:
    """Where a stream began to read the topic of a source, by its label, as Topics keeps it in `control`."""
    held = control.read(_positions_of(label))
    if held is None:
        raise LookupError(f"no stream has read {label!r} yet, says {control}")
    return offsets_of(json.loads(held)[0])


def _positions_of(label: str) -> str:
    """The file of where a stream reads a topic."""
    return f"topic-{plain_name(label)}.json"


def _start(source: ReadTopic, number: int) -> Literal["earliest", "latest"] | int:
    """Where reading of a partition begins."""
    return Offset(source.start.get(number, 0)) if isinstance(source.start, Mapping) else source.start


def _end(node: Node, start: Offsets) -> Offsets | None:
    """Where reading ends, if it does."""
    topic, end = topic_of(node), _source(node).end
    return None if end is None else {number: max(at, start_of(topic, number, end)) for number, at in start.items()}


def _is_window(node: Node) -> bool:
    """Whether a column transform only says in which window rows are, and it is one that arrays tell."""
    transform = node.transform
    return isinstance(transform, WindowInto) and isinstance(transform.windowing.window, FixedWindows | GlobalWindows)


def _as_objects(source: ReadTopic) -> bool:
    """Whether the elements are what JSON says, rather than columns."""
    return kind_of(topicframes.values_of(source)) == "json" and source.schema is None


def _place(node: Node) -> tuple[str, str]:
    """The log and the name of a topic; the directory as all processes see it."""
    address = _source(node).address
    assert address.log is not None
    return os.path.abspath(address.log), address.name


def _source(node: Node) -> ReadTopic:
    assert isinstance(node.transform, ReadTopic)
    return node.transform
