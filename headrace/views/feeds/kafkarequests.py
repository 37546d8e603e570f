"""Requests as records of Kafka's. One with a key is a transaction, in which the broker also keeps what the request was.

A request without a key goes through an idempotent producer: what the client itself sends again is there once, but if
the broker fails in the middle, a part of the request may be there.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from headrace.edges import kafkaclient
from headrace.edges.jsoncolumns import json_objects
from headrace.edges.kafkatransactions import Message, Transactions
from headrace.log.errors import LogError
from headrace.log.values import Values
from headrace.model.errors import PipelineError
from headrace.model.times import now
from headrace.model.topics import Address
from headrace.views.declare.declarations import Topic
from headrace.views.feeds.feed import OtherRequest, Receipt, Tried, Unavailable
from headrace.views.feeds.requests import key_of, refusal

_PATIENCE: Final = 10.0
"""Seconds for the broker to take a request."""
_POLL: Final = 0.01  # seconds; another thread may have heard of our records meanwhile
_LARGEST: Final = 950_000
"""Bytes of a record, less than brokers take by default: one of a request must not be refused after others were sent."""
_LANES: Final = 64
_Event = Mapping[str, Any]


class KafkaRequests:
    """Sends requests to a topic. Any number of threads may."""

    def __init__(self, topic: Topic, address: Address) -> None:
        self.topic, self.address = topic, address
        self._who = f"topic {topic.name!r}"
        # Two transactions of one name would end each other; these are the ones of this process.
        self._lanes = [threading.Lock() for _ in range(_LANES)]

    def append(self, events: Sequence[_Event], tried: Tried | None) -> Receipt:
        """Sends the events of a request; the broker has them when it returns."""
        messages = messages_of(events, self.topic, now() // 1000)
        if tried is None:
            return Receipt(len(messages), self._send(messages))
        with self._lanes[hash(tried.key) % _LANES]:
            return self._send_once(messages, tried)

    def _send_once(self, messages: list[Message], tried: Tried) -> Receipt:
        digest = blake2b(repr([each[:2] for each in messages]).encode(), digest_size=16).hexdigest()
        name = f"headrace-request-{self.topic.name}-{tried.key}"
        writer: Transactions | None = None

        def note() -> str:
            assert writer is not None
            return json.dumps({"request": digest, "offsets": writer.places})

        try:
            writer = Transactions(self._who, self.address, name, patience=_PATIENCE, placed=True)
            if tried.sequence < writer.written:  # all that is known of it is that it was there
                return Receipt(len(messages), {}, repeated=True)
            if tried.sequence == writer.written:
                held = json.loads(writer.note)
                if held["request"] != digest:
                    raise OtherRequest(refusal(tried))
                offsets = {int(number): offset for number, offset in held["offsets"].items()}
                return Receipt(len(messages), offsets, repeated=True)
            writer.write(messages, tried.sequence, note)
            return Receipt(len(messages), dict(sorted(writer.places.items())))
        except PipelineError as error:
            raise Unavailable(f"{error}; send the request again with the same key") from None
        finally:
            if writer is not None:
                writer.close()

    def _send(self, messages: list[Message]) -> dict[int, int]:
        """Sends records; the first offset in each partition."""
        producer, heard, errors = self._producer, list[tuple[int, int]](), list[Any]()

        def hear(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                heard.append((message.partition(), message.offset()))

        deadline = time.monotonic() + _PATIENCE
        for key, value, milliseconds, _ in messages:
            while True:
                try:
                    producer.produce(self.address.name, value, key, timestamp=milliseconds, on_delivery=hear)
                    break
                except BufferError:  # the client has as many as it can hold: it sends some
                    producer.poll(_POLL)
        while len(heard) + len(errors) < len(messages):  # each is told of after _PATIENCE at the latest
            producer.poll(_POLL)
            if time.monotonic() > deadline + _PATIENCE:
                break
        if len(heard) < len(messages):
            why = kafkaclient.refused(self._who, self.address, errors[0]) if errors else f"{self._who}: no answer"
            raise Unavailable(
                f"{why}; of the {len(messages)} records, {len(heard)} are known to be in the topic: with an "
                "Idempotency-Key it would be all or none"
            )
        return {number: min(at for each, at in heard if each == number) for number in sorted(dict(heard))}

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
    """Events as records: JSON objects of the topic's columns.

    >>> import headrace as hr
    >>> visits = hr.Topic("visits", schema="user string, at timestamp, n int", key="user")
    >>> messages_of([{"user": "ann", "at": 60}], visits, 7)[0][:3]
    (b'ann', b'{"user":"ann","at":"1970-01-01T00:01:00.000000Z","n":null}', 7)
    """
    columns = Values(topic.schema).encoded(events)
    by_name = {field.name: _written(column) for field, column in zip(columns.type, columns.flatten(), strict=True)}
    try:
        values = json_objects(by_name, len(events)).to_pylist()
    except ValueError as error:
        raise LogError(f"a value cannot be written: {error}") from None
    if (longest := max(map(len, values), default=0)) > _LARGEST:
        raise LogError(f"an event has {longest:,} bytes; one for Kafka has at most {_LARGEST:,}")
    keys = [key_of(event, topic.key) for event in events]
    return [Message(key, value, milliseconds, []) for key, value in zip(keys, values, strict=True)]


def _written(column: pa.Array) -> pa.Array:
    """A column as JSON can have it, and Spark reads it."""
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([None if each is None else base64.b64encode(each).decode() for each in column.to_pylist()])
