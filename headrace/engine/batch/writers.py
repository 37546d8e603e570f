"""Writers of sinks whose elements come to the driver, micro-batch by micro-batch; a batch run is one micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from headrace.engine.connectors.kafkawriter import KafkaWriter
from headrace.engine.connectors.topicwriter import TopicWriter
from headrace.engine.worker.blame import blame
from headrace.model.pipeline import Node
from headrace.model.sinks import Collect, ForEachBatch, WindowedValue
from headrace.model.tables import WriteTable
from headrace.model.topics import WriteTopic


class Writer(Protocol):
    """Writes the batches of one sink, each once: a batch that is repeated after a crash has the same elements.

    It is created before anything runs, and then refuses a target that it cannot write to.
    """

    def begin(self, stream: str) -> None:
        """Prepares for the first batch of a run. A stream that goes on has the same id; a batch run has a new one."""

    def write(self, elements: list[WindowedValue], batch_id: int) -> None:
        """Writes the elements of a batch; it is not called for an empty batch."""

    def close(self) -> None:
        """Releases resources after the last batch of a run, even if the run failed."""


class CollectWriter:
    """The writer of Collect."""

    def __init__(self, sink: Collect, columns: Callable[[], pa.Schema | None]) -> None:
        self.collected, self._columns = sink.collected, columns

    def begin(self, stream: str) -> None:
        self.collected.begin(stream, self._columns())

    def write(self, elements: list[WindowedValue], batch_id: int) -> None:
        self.collected.take(batch_id, elements)

    def close(self) -> None:
        pass


class ForEachBatchWriter:
    """The writer of ForEachBatch."""

    def __init__(self, label: str, sink: ForEachBatch) -> None:
        self.label, self.fn = label, sink.fn

    def begin(self, stream: str) -> None:
        pass

    def write(self, elements: list[WindowedValue], batch_id: int) -> None:
        with blame(self.label):
            self.fn(elements, batch_id)

    def close(self) -> None:
        pass


RecordWriter = TopicWriter | KafkaWriter
"""A writer of a topic, which takes records that workers encoded."""


def writer_of(node: Node, columns: Callable[[], pa.Schema | None]) -> Writer | RecordWriter:
    """Returns the writer of a sink whose elements come to the driver.

    `columns` returns those of the elements, once the run has begun; None if elements are Python objects.
    """
    sink = node.transform
    if isinstance(sink, Collect):
        return CollectWriter(sink, columns)
    if isinstance(sink, ForEachBatch):
        return ForEachBatchWriter(node.label, sink)
    if isinstance(sink, WriteTable):
        from headrace.engine.connectors.tablewriter import (
            TableWriter,
        )  # imports SQLAlchemy, which other sinks do not need

        return TableWriter(node, columns)
    if isinstance(sink, WriteTopic):
        return TopicWriter(node) if sink.address.brokers is None else KafkaWriter(node)
    raise NotImplementedError(f"no writer for {sink!r}")
