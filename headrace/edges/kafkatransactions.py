"""Batches of records in Kafka, each once: a transaction for each, in which its number is written down, too.

The number is kept as the offset of a consumer group that has the name of the transactions. Whoever begins under a name
ends what was under way there and asks the broker for it; who wrote there before can write no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from headrace.edges.kafkaclient import client, refused, settings
from headrace.model.errors import PipelineError
from headrace.model.topics import Address

_PATIENCE: Final = 120.0
"""Seconds that a batch waits for brokers to come back."""
_STEP: Final = 10.0
"""Seconds that a single request waits."""
_OPEN_FOR: Final = 60.0
"""Seconds after which the broker gives up a transaction whose writer is silent; readers wait for it that long."""


class Message(NamedTuple):
    """A record: key, value, time in milliseconds, and headers."""

    key: bytes | None
    value: bytes | None
    time: int
    headers: list[tuple[str, bytes]]


class Transactions:
    """Writes numbered batches to a topic under a name. `written` is the number of the last one that is there.

    `note` is what was noted with it. `patience` says how many seconds a batch waits for brokers. With `placed`,
    `places` has the first offset of the last batch in each partition.
    """

    def __init__(
        self, who: object, address: Address, name: str, *, patience: float = _PATIENCE, placed: bool = False
    ) -> None:
        self.who, self.address, self.name, self.patience, self.placed = who, address, name, patience, placed
        self.written, self.note = -1, ""
        self.places: dict[int, int] = {}
        self._kafka = client(who)
        self._producer: Any = None
        self._group: Any = None
        self._refusal: Any = None
        self._until_done(lambda: self._producer is not None, lambda: None)

    def write(self, messages: Sequence[Message], number: int, note: Callable[[], str] = str) -> None:
        """Writes a batch, unless it is there already; waits for brokers that are away, but not for ever.

        What is to be noted is asked for when the broker has the records.
        """
        self._until_done(lambda: number <= self.written, lambda: self._transaction([messages], number, note))

    def write_all(self, pieces: Iterable[Iterable[Message]]) -> None:
        """Writes all there is to write, piece by piece, as one batch."""
        try:
            self._transaction(pieces, 0)
        except self._kafka.KafkaException as failure:
            raise self._told(self._refusal or failure.args[0]) from None

    def _transaction(self, pieces: Iterable[Iterable[Message]], number: int, note: Callable[[], str] = str) -> None:
        self.places = {}
        self._producer.begin_transaction()
        for messages in pieces:
            self._send(messages)
        if self._hear(self._producer.flush, _OPEN_FOR):
            raise self._timed_out()
        mark = self._kafka.TopicPartition(self.address.name, 0, number + 1, note())
        self._within(_STEP, partial(self._producer.send_offsets_to_transaction, [mark], self._group, _STEP))
        self._producer.commit_transaction(_STEP)
        self.written = number

    def _within(self, seconds: float, call: Callable[[], object]) -> None:
        """Calls what may not keep to its own time-out: librdkafka's issue 5456. If it does not, its thread is left."""
        done: Future[object] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        try:
            done.result(seconds + 1)
        except TimeoutError:
            raise self._timed_out() from None

    def _timed_out(self) -> Exception:
        known = self._kafka.KafkaError
        error: Exception = self._kafka.KafkaException(known(known._TIMED_OUT))
        return error

    def _send(self, messages: Iterable[Message]) -> None:
        produce, topic = self._producer.produce, self.address.name
        for key, value, milliseconds, headers in messages:
            while True:
                try:
                    produce(topic, value, key, timestamp=milliseconds, headers=headers)
                    break
                except BufferError:  # the client has as many as it can hold: it sends some
                    self._hear(self._producer.poll, 0.1)

    def close(self) -> None:
        """Gives up a transaction that is under way, so that readers need not wait for it to expire."""
        if self._producer is not None:
            with suppress(self._kafka.KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(1.0)
        self._producer = self._refusal = None

    def _until_done(self, done: Callable[[], bool], attempt: Callable[[], None]) -> None:
        """Attempts something until it is done, each time after asking the broker what was."""
        deadline = time.monotonic() + self.patience
        while not done():
            try:
                if self._producer is None:
                    self._open()
                else:
                    attempt()
            except self._kafka.KafkaException as failure:
                error = self._refusal or failure.args[0]
                passing = self._passing(error)
                self.close()
                if not passing or time.monotonic() > deadline:
                    raise self._told(error) from None

    def _open(self) -> None:
        producer = self._kafka.Producer(
            {
                **settings(self.address),
                "transactional.id": self.name,
                "transaction.timeout.ms": int(_OPEN_FOR * 1000),
                "partitioner": "murmur2_random",  # as Java's clients and the embedded log
                "delivery.report.only.error": not self.placed,
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
            self.places[number] = min(offset, self.places.get(number, offset))
        elif error.code() > 0 and self._refusal is None:  # others are the client's own
            self._refusal = error

    def _hear(self, call: Callable[[float], int], seconds: float) -> int:
        """Calls what tells of records that the broker refused, and raises it."""
        answer = 0
        with suppress(SystemError):  # the client's, if an error is fatal: it raises that in the next call
            answer = call(seconds)
        if self._refusal is not None:
            raise self._kafka.KafkaException(self._refusal)
        return answer

    def _passing(self, error: Any) -> bool:
        """Whether it may be better soon."""
        known = self._kafka.KafkaError
        away = (known._TIMED_OUT, known._MSG_TIMED_OUT, known._TRANSPORT, known._ALL_BROKERS_DOWN)
        starting = (known.NOT_COORDINATOR, known.COORDINATOR_NOT_AVAILABLE, known.COORDINATOR_LOAD_IN_PROGRESS)
        if error is self._refusal:
            return bool(error.retriable())
        return bool(error.retriable() or error.txn_requires_abort()) or error.code() in (*away, *starting)

    def _told(self, error: Any) -> PipelineError:
        known = self._kafka.KafkaError
        if error.code() in (known._FENCED, known.PRODUCER_FENCED, known.INVALID_PRODUCER_EPOCH):
            return PipelineError(
                f"{self.who}: another run of the same stream writes to {self.address} now, or the broker gave up a "
                f"transaction of more than {_OPEN_FOR:.0f} s; run it once, and it goes on from its checkpoint"
            )
        if error.code() == known.INVALID_TIMESTAMP:
            return PipelineError(
                f"{self.who}: {self.address} does not take a record's time; the topic's message.timestamp.after.max.ms"
                " says how far it may be ahead: change that, or give another time with WriteTopic(timestamp=...)"
            )
        return refused(self.who, self.address, error)
