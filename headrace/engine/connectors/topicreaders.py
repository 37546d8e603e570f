"""Finds the reader of a topic, which is in the embedded log or with Kafka's brokers. Nobody else asks which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from headrace.engine.connectors.directread import ColumnsRead, DirectRead
from headrace.engine.connectors.embeddedreader import EmbeddedReader
from headrace.engine.connectors.kafkareader import KafkaReader
from headrace.engine.connectors.streamtopics import StreamTopics
from headrace.engine.handle import SourceStatus
from headrace.model.pipeline import Node
from headrace.model.topics import ReadTopic


class TopicReader(Protocol):
    """Reads the topic of one source."""

    def partitions(self) -> tuple[str, ...]:
        """Returns the names that the partitions have in the column PART."""
        ...

    def batch_frame(self, spark: SparkSession) -> DataFrame:
        """Returns the frame of the elements up to the end of reading: their columns, or blocks, and TIME."""
        ...

    def stream_frame(self, topics: StreamTopics) -> DataFrame:
        """Returns the frame of the elements as they come: their columns, TIME and PART."""
        ...

    def direct(self, topics: StreamTopics, columns: ColumnsRead) -> DirectRead | None:
        """Returns how a stream's own program reads these columns, if it can do so without Spark."""
        ...

    def status(self, status: SourceStatus, progress: Mapping[str, Any], seconds: float) -> SourceStatus:
        """Adds offsets and lag to a status, from Spark's progress of the source in a batch of so many seconds."""
        ...


def reader_of(node: Node) -> TopicReader | None:
    """Returns the reader of the topic that a node reads; None if it reads none."""
    if not isinstance(node.transform, ReadTopic):
        return None
    return KafkaReader(node) if node.transform.address.brokers is not None else EmbeddedReader(node)
