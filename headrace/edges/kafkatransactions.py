"""Writes batches of records to Kafka, each once: in a transaction that also commits the batch's number.

The number is stored as the offset of a consumer group with the name of the producer. A new producer of that name aborts
the open transaction of its predecessor, which can then write no more, and reads the number of the last batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from headrace.edges.deadlines import within
from headrace.edges.kafkaclient import client, refused, settings
from headrace.model.errors import PipelineError
from headrace.model.times import MAX_TIME
from headrace.model.topics import Address

_PATIENCE: Final = 120.0
"""Seconds that a batch waits for brokers to come back."""
_STEP: Final = 10.0
"""Seconds that a single request waits."""
_OPEN_FOR: Final = 60.0
"""Seconds after which the broker aborts a transaction whose writer is silent; readers wait for it that long."""
_LONG: Final = 900.0
"""The same for batches with very many records: the longest that brokers allow by default."""

EARLIEST: Final = 1_000
"""The earliest time that a record can have, in microseconds: the client takes 0 milliseconds for now."""


class Message(NamedTuple):
    """A record: key, value, time in milliseconds, headers, and the partition if it is not that of the key."""

    key: bytes | None
    value: bytes | None
    time: int
    headers: list[tuple[str, bytes]]
    partition: int = -1


def kafka_watermark(watermark: int) -> int:
    """Returns the watermark of records whose watermark was this before Kafka cut their times to milliseconds.

    >>> kafka_watermark(15_000_700), kafka_watermark(MAX_TIME) == MAX_TIME
    (15000000, True)
    """
    return watermark if watermark >= MAX_TIME else watermark // 1000 * 1000


class TransactionalProducer:
    """Writes numbered batches to a topic under a name. `written` is the number of the last batch in the topic.

    `note` is the text that was committed with it. `patience` is how many seconds a batch waits for brokers. With
    `track_offsets`, `first_offsets` has the first offset of the last batch in each partition.
    """

    def __init__(
        self, who: object, address: Address, name: str, *, patience: float = _PATIENCE, track_offsets: bool = False
    ) -> None:
        self.who, self.address, self.name, self.patience, self.track_offsets = (
            who,
            address,
            name,
            patience,
            track_offsets,
        )
        self.written, self.note = -1, ""
        self.first_offsets: dict[int, int] = {}
        self._kafka = client(who)
        self._producer: Any = None
        self._group: Any = None
        self._refusal: Any = None
        self._fenced: PipelineError | None = None
        self._open_for = _OPEN_FOR
        self._until_done(lambda: self._producer is not None, lambda: None)

    def write(
        self, messages: Iterable[Message], number: int, note: Callable[[], str] = str, *, long: bool = False
    ) -> None:
        """Writes a batch, unless it was written before; waits for brokers that do not answer, but not for ever.

        `messages` are iterated over anew in each attempt. `note` is called when the broker has the records, and returns
        the text to commit with them. A `long` batch, and all after it, may take a quarter of an hour.
        """
        if long and self._open_for < _LONG:
            self.close()  # the time of a transaction is a setting of the producer
            self._open_for = _LONG
        self._until_done(lambda: number <= self.written, lambda: self._transaction([messages], number, note))

    def write_all(self, pieces: Iterable[Iterable[Message]]) -> None:
        """Writes all pieces as one batch."""
        try:
            self._transaction(pieces, 0)
        except self._kafka.KafkaException as failure:
            raise self._error_for_user(self._refusal or failure.args[0]) from None

    def _transaction(self, pieces: Iterable[Iterable[Message]], number: int, note: Callable[[], str] = str) -> None:
        self.first_offsets = {}
        self._producer.begin_transaction()
        for messages in pieces:
            self._send(messages)
        if self._poll(self._producer.flush, self._open_for):
            raise self._timed_out()
        mark = self._kafka.TopicPartition(self.address.name, 0, number + 1, note())
        self._within(_STEP, partial(self._producer.send_offsets_to_transaction, [mark], self._group, _STEP))
        self._producer.commit_transaction(_STEP)
        self.written = number

    def _within(self, seconds: float, call: Callable[[], object]) -> None:
        """Calls a function that may ignore its own time-out (librdkafka's issue 5456); its thread is then abandoned."""
        try:
            within(seconds + 1, call)
        except TimeoutError:
            raise self._timed_out() from None

    def _timed_out(self) -> Exception:
        known = self._kafka.KafkaError
        error: Exception = self._kafka.KafkaException(known(known._TIMED_OUT))
        return error

    def _send(self, messages: Iterable[Message]) -> None:
        produce, topic = self._producer.produce, self.address.name
        for key, value, milliseconds, headers, partition in messages:
            while True:
                try:
                    produce(topic, value, key, partition, timestamp=milliseconds, headers=headers)
                    break
                except BufferError:  # the client's queue is full: it sends some
                    self._poll(self._producer.poll, 0.1)

    def close(self) -> None:
        """Aborts an open transaction, so that readers need not wait for it to expire."""
        if self._producer is not None:
            with suppress(self._kafka.KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(1.0)
        self._producer = self._refusal = None

    def _until_done(self, done: Callable[[], bool], attempt: Callable[[], None]) -> None:
        """Attempts something until it is done; after a failure it reconnects and asks the broker what was written."""
        deadline = time.monotonic() + self.patience
        while not done():
            if self._fenced is not None:  # a new producer would take over from whoever has taken over
                raise self._fenced
            try:
                if self._producer is None:
                    self._open()
                else:
                    attempt()
            except self._kafka.KafkaException as failure:
                error = self._refusal or failure.args[0]
                transient = self._is_transient(error)
                self.close()
                if not transient or time.monotonic() > deadline:
                    raise self._error_for_user(error) from None

    def _open(self) -> None:
        producer = self._kafka.Producer(
            {
                **settings(self.address),
                "transactional.id": self.name,
                "transaction.timeout.ms": int(self._open_for * 1000),
                "partitioner": "murmur2_random",  # as in Java's clients and the embedded log
                "delivery.report.only.error": not self.track_offsets,
                "on_delivery": self._delivered,
            }
        )
        producer.init_transactions(_STEP)
        reader = self._kafka.Consumer({**settings(self.address), "group.id": self.name, "enable.auto.commit": False})
        try:
            (mark,) = reader.committed([self._kafka.TopicPartition(self.address.name, 0)], _STEP)
            self._group = reader.consumer_group_metadata()
        finally:
            reader.close()
        self.written, self.note = max(mark.offset - 1, -1), mark.metadata or ""
        self._producer = producer

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            number, offset = message.partition(), message.offset()
            self.first_offsets[number] = min(offset, self.first_offsets.get(number, offset))
        elif error.code() > 0 and self._refusal is None:  # negative codes are the client's own errors
            self._refusal = error

    def _poll(self, call: Callable[[float], int], seconds: float) -> int:
        """Calls a function that runs `_delivered`, and raises the error of a record that the broker refused."""
        answer = 0
        with suppress(SystemError):  # raised by the client if an error is fatal; the next call raises that error
            answer = call(seconds)
        if self._refusal is not None:
            raise self._kafka.KafkaException(self._refusal)
        return answer

    def _is_transient(self, error: Any) -> bool:
        """Tells whether another attempt may succeed."""
        known = self._kafka.KafkaError
        away = (known._TIMED_OUT, known._MSG_TIMED_OUT, known._TRANSPORT, known._ALL_BROKERS_DOWN)
        starting = (known.NOT_COORDINATOR, known.COORDINATOR_NOT_AVAILABLE, known.COORDINATOR_LOAD_IN_PROGRESS)
        if error is self._refusal:
            return bool(error.retriable())
        return bool(error.retriable() or error.txn_requires_abort()) or error.code() in (*away, *starting)

    def _error_for_user(self, error: Any) -> PipelineError:
        known = self._kafka.KafkaError
        if error.code() in (known._FENCED, known.PRODUCER_FENCED, known.INVALID_PRODUCER_EPOCH):
            self._fenced = PipelineError(
                f"{self.who}: another run of the same stream writes to {self.address} now, or the broker aborted "
                f"a transaction of over {self._open_for:.0f} s; run the stream once: it goes on from its checkpoint"
            )
            return self._fenced
        if error.code() == known.INVALID_TIMESTAMP:
            return PipelineError(
                f"{self.who}: {self.address} refuses a record's timestamp; the topic's message.timestamp.after.max.ms "
                "limits how far it may be in the future: raise it, or choose another with WriteTopic(timestamp=...)"
            )
        return refused(self.who, self.address, error)
