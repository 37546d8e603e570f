"""What Headrace asks Kafka's brokers itself: which partitions a topic has, and where in them a time or an end is.

Records come and go by Spark's connector and by `kafkasink`. The client is an optional dependency.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.topics import Address, Bound

_PATIENCE: Final = 15.0
"""Seconds to wait for an answer."""
_log: Final = logging.getLogger("headrace.kafka")
_log.addHandler(logging.NullHandler())


def client(node: Node) -> Any:
    """The client's package."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise PipelineError(f"{node}: Kafka needs a client; install it with pip install 'headrace[kafka]'") from None
    return confluent_kafka


def settings(address: Address) -> dict[str, Any]:
    """What every client of these brokers is made with. It logs to `headrace.kafka`, and not to the terminal."""
    return {"bootstrap.servers": address.brokers, "logger": _log}


def partitions(node: Node, address: Address) -> list[int]:
    """The partitions of a topic, which must exist."""
    wanted = client(node).TopicCollection([address.name])
    (topic,) = _answers(node, address, lambda admin: admin.describe_topics(wanted, request_timeout=_PATIENCE)).values()
    return sorted(each.id for each in topic.partitions)


def offsets(node: Node, address: Address, at: Bound) -> dict[int, int]:
    """For each partition, the offset of its first record, of its end, or of the first record not older than a time."""
    kafka = client(node)
    places = [kafka.TopicPartition(address.name, number) for number in partitions(node, address)]

    def listed(spec: Any) -> dict[int, int]:
        level = kafka.IsolationLevel.READ_COMMITTED
        wanted = {place: spec for place in places}
        found = _answers(
            node, address, lambda admin: admin.list_offsets(wanted, isolation_level=level, request_timeout=_PATIENCE)
        )
        return {place.partition: int(each.offset) for place, each in found.items()}

    spec = kafka.admin.OffsetSpec
    if isinstance(at, str):
        return listed(spec.earliest() if at == "earliest" else spec.latest())
    ends = listed(spec.latest())
    # Kafka knows milliseconds, and of a partition without such a record says -1.
    found = listed(spec.for_timestamp(-(-at // 1000)))
    return {number: ends[number] if offset < 0 else offset for number, offset in found.items()}


def _answers(node: Node, address: Address, ask: Callable[[Any], dict[Any, Future[Any]]]) -> dict[Any, Any]:
    kafka = client(node)
    admin = kafka.admin.AdminClient(settings(address))
    try:
        return {key: answer.result(2 * _PATIENCE) for key, answer in ask(admin).items()}
    except kafka.KafkaException as error:
        raise refused(node, address, error.args[0]) from None


def refused(node: Node, address: Address, error: Any) -> PipelineError:
    """What an error of the client means to a user."""
    kafka = client(node).KafkaError
    if error.code() in (kafka.UNKNOWN_TOPIC_OR_PART, kafka._UNKNOWN_TOPIC):
        return PipelineError(
            f"{node}: there is no topic {address.name!r} at {address.brokers}; create it, for instance with "
            f"kafka-topics.sh --create --topic {address.name} --bootstrap-server {address.brokers}"
        )
    if error.code() in (kafka._TRANSPORT, kafka._TIMED_OUT, kafka._ALL_BROKERS_DOWN, kafka._RESOLVE):
        return PipelineError(
            f"{node}: no Kafka broker answers at {address.brokers}; see that it runs, and that host and port are right"
        )
    return PipelineError(f"{node}: the Kafka broker at {address.brokers} says: {error.str()}")
