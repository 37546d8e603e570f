"""Asks Kafka's brokers for the partitions of a topic and for offsets in them; creates topics.

Records are read by Spark's connector and written by `kafkatransactions`. The client is an optional dependency. `who`
is the node or object that asks, which errors name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, Final

from headrace.edges.kafkasettings import librdkafka_settings
from headrace.model.errors import PipelineError
from headrace.model.kafkasecurity import KafkaSecurity
from headrace.model.topics import Address, Bound

_PATIENCE: Final = 15.0
"""Seconds to wait for an answer."""
_AWAY: Final = 2.0
"""Seconds in which brokers that did not answer are not asked again, so that not every topic waits for them."""
_LONGEST: Final = 500  # characters of a broker's message
_PAUSE: Final = 0.05  # seconds until brokers that have not agreed yet are asked again
_silent: Final[dict[str, float]] = {}  # brokers that did not answer, and until when they are not asked
_log: Final = logging.getLogger("headrace.kafka")
_log.addHandler(logging.NullHandler())


def client(who: object) -> Any:
    """Imports the client's package. Refuses if it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise PipelineError(f"{who}: Kafka needs a client; install it with pip install 'headrace[kafka]'") from None
    return confluent_kafka


def settings(address: Address) -> dict[str, Any]:
    """Returns the settings of every client of these brokers. It logs to `headrace.kafka`, and not to the terminal."""
    return {
        "bootstrap.servers": address.brokers,
        "logger": _log,
        **librdkafka_settings(address, address.security),
    }


def partitions(who: object, address: Address, *, patience: float | None = None) -> list[int]:
    """Returns the partitions of a topic, which must exist."""
    wanted = client(who).TopicCollection([address.name])
    (topic,) = _answers(
        who, address, lambda admin, wait: admin.describe_topics(wanted, request_timeout=wait), patience=patience
    ).values()
    return sorted(partition.id for partition in topic.partitions)


def create(who: object, address: Address, count: int) -> bool:
    """Creates a topic with so many partitions, unless it exists; returns whether it did.

    The brokers' default decides how it is replicated.
    """
    kafka, created = client(who), True
    wanted = kafka.admin.NewTopic(address.name, count, -1)
    try:
        admin = _admin(address.brokers, address.security)
        admin.ask(lambda client: client.create_topics([wanted], request_timeout=_PATIENCE), 2 * _PATIENCE)
    except TimeoutError:
        raise _no_answer(who, address) from None
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise refused(who, address, error.args[0]) from None
        created = False
    # It takes a moment until all brokers know a new topic.
    topics = kafka.TopicCollection([address.name])
    unknown = (kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,)
    _answers(who, address, lambda admin, wait: admin.describe_topics(topics, request_timeout=wait), unknown)
    return created


def offsets(who: object, address: Address, at: Bound, *, patience: float | None = None) -> dict[int, int]:
    """Returns for each partition the offset of its first record, of its end, or of the first record at or after a time.

    `patience` limits the seconds that brokers have to answer.
    """
    kafka = client(who)
    numbers = partitions(who, address, patience=patience)
    places = [kafka.TopicPartition(address.name, number) for number in numbers]

    def listed(spec: Any) -> dict[int, int]:
        level = kafka.IsolationLevel.READ_COMMITTED
        wanted = {place: spec for place in places}
        answers = _answers(
            who,
            address,
            lambda admin, wait: admin.list_offsets(wanted, isolation_level=level, request_timeout=wait),
            patience=patience,
        )
        return {place.partition: int(answer.offset) for place, answer in answers.items()}

    spec = kafka.admin.OffsetSpec
    if isinstance(at, str):
        return listed(spec.earliest() if at == "earliest" else spec.latest())
    ends = listed(spec.latest())
    # Kafka's times are in milliseconds; for a partition without such a record it answers -1.
    firsts = listed(spec.for_timestamp(-(-at // 1000)))
    return {number: ends[number] if offset < 0 else offset for number, offset in firsts.items()}


def _answers(
    who: object,
    address: Address,
    ask: Callable[[Any, float], dict[Any, Future[Any]]],
    transient: Collection[int] = (),
    patience: float | None = None,
) -> dict[Any, Any]:
    """Returns the brokers' answers. Asks again, for a limited time, after errors about leaders or `transient` ones."""
    kafka = client(who)
    assert address.brokers is not None
    error = kafka.KafkaError
    if time.monotonic() < _silent.get(address.brokers, 0):
        raise _no_answer(who, address)
    retried = {error.NOT_LEADER_FOR_PARTITION, error.LEADER_NOT_AVAILABLE, *transient}
    wait = _PATIENCE if patience is None else patience
    deadline = time.monotonic() + wait
    while True:
        try:
            return _admin(address.brokers, address.security).ask(lambda client: ask(client, wait), 2 * wait)
        except TimeoutError:  # of the client, which answers by itself when brokers do not
            raise _no_answer(who, address) from None
        except kafka.KafkaException as failure:
            code = failure.args[0].code()
            if code in _unreachable(kafka):
                _silent[address.brokers] = time.monotonic() + _AWAY
            if code not in retried or time.monotonic() > deadline:
                raise refused(who, address, failure.args[0]) from None
        time.sleep(_PAUSE)


class _Admin:
    """A client that asks brokers. It remembers if they refused its connection, of which answers say nothing."""

    def __init__(self, brokers: str | None, security: KafkaSecurity | None) -> None:
        import confluent_kafka.admin

        self._kafka, self._refusal = confluent_kafka, None
        address = Address("", None, brokers, security)
        configuration: dict[str, Any] = {**settings(address), "error_cb": self._failed}
        self._client = confluent_kafka.admin.AdminClient(configuration)

    def _failed(self, error: Any) -> None:
        handshake = error.code() == self._kafka.KafkaError._TRANSPORT and "SSL_HANDSHAKE" in error.str()
        if handshake or error.code() in _refusals(self._kafka):
            self._refusal = error

    def ask(self, question: Callable[[Any], dict[Any, Future[Any]]], seconds: float) -> dict[Any, Any]:
        """Returns the answers to a question. Fails at once if brokers refuse the connection: the client would retry."""
        self._client.poll(0)
        self._refusal = None
        deadline = time.monotonic() + seconds
        return {key: self._result(answer, deadline) for key, answer in question(self._client).items()}

    def _result(self, answer: Future[Any], deadline: float) -> Any:
        while True:
            try:
                return answer.result(_PAUSE)
            except TimeoutError:
                self._client.poll(0)  # which calls _failed
                if self._refusal is not None:
                    refusal = self._kafka.KafkaError(self._kafka.KafkaError._AUTHENTICATION, self._refusal.str())
                    raise self._kafka.KafkaException(refusal) from None
                if time.monotonic() > deadline:
                    raise


@lru_cache(8)  # a system asks every second
def _admin(brokers: str | None, security: KafkaSecurity | None) -> _Admin:
    return _Admin(brokers, security)


def refused(who: object, address: Address, error: Any) -> PipelineError:
    """Returns the error of the client as an error for a user, with a remedy."""
    package = client(who)
    kafka = package.KafkaError
    if error.code() in (kafka.UNKNOWN_TOPIC_OR_PART, kafka._UNKNOWN_TOPIC):
        return PipelineError(
            f"{who}: there is no topic {address.name!r} at {address.brokers}; create it, for instance with "
            f"kafka-topics.sh --create --topic {address.name} --bootstrap-server {address.brokers}"
        )
    if error.code() in _unreachable(package):
        return _no_answer(who, address)
    if error.code() in _refusals(package):
        return PipelineError(
            f"{who}: the Kafka broker at {address.brokers} refuses the connection: {_text(error, address)}; check "
            "user, password, mechanism and certificates of security=hr.KafkaSecurity(...), and that the port is one "
            "for them"
        )
    return PipelineError(f"{who}: the Kafka broker at {address.brokers} says: {_text(error, address)}")


def _text(error: Any, address: Address) -> str:
    """Returns the message of an error. It may be the broker's own, who knows the password that PLAIN sends."""
    text, security = " ".join(str(error.str()).split()), address.security
    if security is not None and security.password:
        text = text.replace(security.password, "***")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _unreachable(kafka: Any) -> set[int]:
    """Returns the codes of errors of a client that reaches no broker."""
    error = kafka.KafkaError
    return {error._TRANSPORT, error._TIMED_OUT, error._ALL_BROKERS_DOWN, error._RESOLVE}


def _refusals(kafka: Any) -> set[int]:
    """Returns the codes of errors of a client that a broker refuses, or that refuses a broker."""
    return {kafka.KafkaError._AUTHENTICATION, kafka.KafkaError._SSL}


def _no_answer(who: object, address: Address) -> PipelineError:
    return PipelineError(
        f"{who}: no Kafka broker answers at {address.brokers}; check that it runs, that host and port are right, and "
        "whether it asks for TLS, a user or a certificate (security=hr.KafkaSecurity(...))"
    )
