"""The writer of Kafka's topics: sends what workers made of elements, each micro-batch in a transaction, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.edges import kafkaclient
from headrace.edges.kafkatransactions import Message, Transactions
from headrace.engine.connectors.topicwriter import gathered
from headrace.engine.spark.persistence import computed
from headrace.engine.worker.blame import blame
from headrace.engine.worker.torecords import unblocked
from headrace.log.partitions import TIMESTAMP
from headrace.log.values import HEADERS, KEY, VALUE
from headrace.model.pipeline import Node
from headrace.model.times import now
from headrace.model.topics import WriteTopic


class KafkaWriter:
    """Sends the records of one sink. Who reads them with isolation.level=read_committed has every batch once."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.transform, WriteTopic)
        self.node, self.address = node, node.transform.address
        kafkaclient.partitions(node, self.address)  # which refuses a topic that is not there
        self._transactions: Transactions | None = None

    def begin(self, stream: str) -> None:
        """Before the first batch of a run: whoever else writes for this stream can do so no more."""
        self._transactions = Transactions(self.node, self.address, f"headrace-{stream}-{self.node.label}")

    def append(self, blocks: Iterable[pa.Buffer], number: int, time: Callable[[], int]) -> None:
        """The blocks of batch `number`, whose `time` is that of records which have none."""
        assert self._transactions is not None
        if number > self._transactions.written:
            with blame(self.node.label):
                self._transactions.write(list(_messages(blocks, time)), number)

    def append_all(self, data: DataFrame) -> None:
        """All that a batch run gives, in one transaction."""
        assert self._transactions is not None
        began = now()
        with computed(data), blame(self.node.label):  # a transaction must not wait for work
            rows = data.toLocalIterator(prefetchPartitions=True)
            self._transactions.write_all(_messages(blocks, lambda: began) for blocks in gathered(rows))

    def close(self) -> None:
        """After the run."""
        if self._transactions is not None:
            self._transactions.close()


def _messages(blocks: Iterable[pa.Buffer], time: Callable[[], int]) -> Iterator[Message]:
    """Records as the client takes them. Kafka has no times before 1970: such records get that of their batch, too."""
    for _, records in unblocked(blocks):
        times = records.column(TIMESTAMP)
        known = pc.greater_equal(times, 0).fill_null(False)
        if not pc.all(known).as_py():
            times = pc.if_else(known, times, time())
        columns = (
            records.column(KEY).to_pylist(),
            records.column(VALUE).to_pylist(),
            pc.divide(times, 1000).to_pylist(),
            records.column(HEADERS).to_pylist(),
        )
        yield from map(Message._make, zip(*columns, strict=True))
