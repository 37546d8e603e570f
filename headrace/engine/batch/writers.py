"""Writers: what takes the elements of a sink in the driver, micro-batch by micro-batch. A batch run is one of them."""

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
    """Takes the batches of one sink. Each counts once: one that comes again, after a crash, has the same elements.

    It is made before anything runs, and refuses then what cannot be written to.
    """

    def begin(self, stream: str) -> None:
        """Before the first batch of a run. A stream keeps its id when it goes on; a batch run has a new one."""

    def write(self, elements: list[WindowedValue], batch_id: int) -> None:
        """The elements of a batch; of one without elements it hears nothing."""

    def close(self) -> None:
        """After the last batch of a run, whatever became of it."""


class Gathers:
    """The writer of Collect."""

    def __init__(self, sink: Collect) -> None:
        self.collected = sink.collected

    def begin(self, stream: str) -> None:
        self.collected.begin(stream)

    def write(self, elements: list[WindowedValue], batch_id: int) -> None:
        self.collected.take(batch_id, elements)

    def close(self) -> None:
        pass


class Calls:
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
"""A writer of a topic: it takes records that workers made of elements."""


def writer_of(node: Node, columns: Callable[[], pa.Schema | None]) -> Writer | RecordWriter:
    """The writer of a sink whose elements come to the driver.

    `columns` tells those of the elements, and may be asked when the run begins; None where they are Python objects.
    """
    sink = node.transform
    if isinstance(sink, Collect):
        return Gathers(sink)
    if isinstance(sink, ForEachBatch):
        return Calls(node.label, sink)
    if isinstance(sink, WriteTable):
        from headrace.engine.connectors.tablewriter import TableWriter  # and SQLAlchemy, which others do not need

        return TableWriter(node, columns)
    if isinstance(sink, WriteTopic):
        return TopicWriter(node) if sink.address.brokers is None else KafkaWriter(node)
    raise NotImplementedError(f"no writer for {sink!r}")
