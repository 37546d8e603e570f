"""Appends requests to a Kafka topic. One with a key is a transaction, which also stores the request's digest.

A request without a key goes through an idempotent producer: a record that the client sends again is appended once, but
if the broker fails in the middle, a part of the request may be appended.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from headrace.edges import kafkaclient
from headrace.edges.jsoncolumns import json_objects
from headrace.edges.kafkatransactions import Message, TransactionalProducer
from headrace.log.errors import LogError
from headrace.log.values import Values
from headrace.model.errors import PipelineError
from headrace.model.times import now
from headrace.model.topics import Address
from headrace.views.declare.declarations import Topic
from headrace.views.feeds.feed import Receipt, RequestConflict, RequestKey, TopicUnavailable
from headrace.views.feeds.requests import key_of, refusal

_PATIENCE: Final = 10.0
"""Seconds for the broker to accept a request."""
_POLL: Final = 0.01  # seconds; another thread may have got the reports of our records meanwhile
_LARGEST: Final = 950_000
"""Bytes of a record, less than brokers accept by default: none must be refused after others of a request were sent."""
_LOCKS: Final = 64
_Event = Mapping[str, Any]


@dataclass(frozen=True)
class _Note:
    """Summary of a request, stored in its transaction: the digest of its records, their first offset by partition."""

    request: str
    offsets: Mapping[int, int]

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> _Note:
        note = cls(**json.loads(text))
        return replace(note, offsets={int(number): offset for number, offset in note.offsets.items()})


class KafkaRequests:
    """Appends requests to a topic. Safe for any number of threads."""

    def __init__(self, topic: Topic, address: Address) -> None:
        self.topic, self.address = topic, address
        self._who = f"topic {topic.name!r}"
        # Two transactions of one name would end each other; these locks are for those of this process.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def append(self, events: Sequence[_Event], request: RequestKey | None) -> Receipt:
        """Appends the events of a request; the broker has them when it returns."""
        messages = messages_of(events, self.topic, now() // 1000)
        if request is None:
            return Receipt(len(messages), self._send(messages))
        with self._locks[hash(request.name) % _LOCKS]:
            return self._send_once(messages, request)

    def _send_once(self, messages: list[Message], request: RequestKey) -> Receipt:
        digest = blake2b(repr([message[:2] for message in messages]).encode(), digest_size=16).hexdigest()
        name = f"headrace-request-{self.topic.name}-{request.name}"
        writer: TransactionalProducer | None = None

        def write_note() -> str:
            assert writer is not None
            return _Note(digest, writer.first_offsets).dump()

        try:
            writer = TransactionalProducer(self._who, self.address, name, patience=_PATIENCE, track_offsets=True)
            if request.sequence < writer.written:  # nothing else of it is known any more
                return Receipt(len(messages), {}, repeated=True)
            if request.sequence == writer.written:
                note = _Note.load(writer.note)
                if note.request != digest:
                    raise RequestConflict(refusal(request))
                return Receipt(len(messages), dict(note.offsets), repeated=True)
            writer.write(messages, request.sequence, write_note)
            return Receipt(len(messages), dict(sorted(writer.first_offsets.items())))
        except PipelineError as error:
            raise TopicUnavailable(f"{error}; send the request again with the same key") from None
        finally:
            if writer is not None:
                writer.close()

    def _send(self, messages: list[Message]) -> dict[int, int]:
        """Sends records; returns the first offset in each partition."""
        producer, delivered, errors = self._producer, list[tuple[int, int]](), list[Any]()

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                delivered.append((message.partition(), message.offset()))

        deadline = time.monotonic() + _PATIENCE
        for key, value, milliseconds, *_ in messages:
            while True:
                try:
                    producer.produce(self.address.name, value, key, timestamp=milliseconds, on_delivery=on_delivery)
                    break
                except BufferError:  # the client's queue is full
                    producer.poll(_POLL)
        while len(delivered) + len(errors) < len(messages):  # each is reported after _PATIENCE at the latest
            producer.poll(_POLL)
            if time.monotonic() > deadline + _PATIENCE:
                break
        if len(delivered) < len(messages):
            why = kafkaclient.refused(self._who, self.address, errors[0]) if errors else f"{self._who}: no answer"
            raise TopicUnavailable(
                f"{why}; of the {len(messages)} records, {len(delivered)} are known to be in the topic: with an "
                "Idempotency-Key it would be all or none"
            )
        return {
            number: min(offset for partition, offset in delivered if partition == number)
            for number in sorted(dict(delivered))
        }

    @cached_property
    def _producer(self) -> Any:
        kafka = kafkaclient.client(self._who)
        return kafka.Producer(
            {
                **kafkaclient.settings(self.address),
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # as Java's clients and the embedded log
                "linger.ms": 0,
                "message.timeout.ms": int(_PATIENCE * 1000),
            }
        )


def messages_of(events: Sequence[_Event], topic: Topic, milliseconds: int) -> list[Message]:
    """Encodes events as records: JSON objects of the topic's columns.

    >>> import headrace as hr
    >>> visits = hr.Topic("visits", schema="user string, at timestamp, n int", key="user")
    >>> messages_of([{"user": "ann", "at": 60}], visits, 7)[0][:3]
    (b'ann', b'{"user":"ann","at":"1970-01-01T00:01:00.000000Z","n":null}', 7)
    """
    columns = Values(topic.schema).encode(events)
    by_name = {field.name: _json_column(column) for field, column in zip(columns.type, columns.flatten(), strict=True)}
    try:
        values = json_objects(by_name, len(events)).to_pylist()
    except ValueError as error:
        raise LogError(f"a value cannot be written as JSON: {error}") from None
    if (longest := max(map(len, values), default=0)) > _LARGEST:
        raise LogError(f"an event has {longest:,} bytes; the limit for Kafka is {_LARGEST:,}")
    keys = [key_of(event, topic.key) for event in events]
    return [Message(key, value, milliseconds, []) for key, value in zip(keys, values, strict=True)]


def _json_column(column: pa.Array) -> pa.Array:
    """Converts a column to what JSON can have and Spark reads."""
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()])
