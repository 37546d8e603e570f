"""Producers that set the epochs of records and close epochs, in a topic that graphs and collections read."""

from __future__ import annotations

from typing import Any, Self

from headrace.log.producers import Producer as TopicProducer
from headrace.log.topics import Topic
from headrace.model.errors import PipelineError
from headrace.model.times import MAX_TIME, SECOND


class Producer:
    """Sends records of epochs to a topic, and closes epochs; `ReadTopic(..., watermark="stream")` reads them.

    A record's timestamp is its epoch, in seconds, and closed epochs are the producer's watermark. A topic with several
    producers is as far as the slowest: each counts from when it is made, so make all of them before the first closes an
    epoch. By its name, a producer that starts again goes on in its epoch; `close()` says that it will send no more.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> topic = Log(tempfile.mkdtemp()).create("words")
    >>> with Producer(topic, "writer 1") as producer:
    ...     producer.send("ash")
    ...     producer.advance_to(1)
    ...     producer.send("elm")
    ...     producer.send("oak", epoch=4)
    >>> [(record.timestamp // 1_000_000, record.value) for record in topic.read(0)]
    [(0, 'ash'), (1, 'elm'), (4, 'oak')]
    >>> Producer(topic, "writer 1").epoch
    1
    """

    def __init__(self, topic: Topic, name: str, *, durable: bool = True) -> None:
        if topic.settings.keep_age is not None:
            raise PipelineError(
                f"the topic {topic.name!r} removes records by age, and the timestamps of these are epochs; create it "
                "without keep_age"
            )
        if not isinstance(name, str) or not name:
            raise PipelineError(f"a producer of epochs has a name, by which it goes on in its epoch, got {name!r}")
        self._producer = TopicProducer(topic, name, durable=durable)
        said = self._producer.said_watermark()
        if said is None:
            said = 0
            self._producer.advance_watermark(0)
        self._ended = said >= MAX_TIME
        self._epoch = said // SECOND

    @property
    def epoch(self) -> int:
        """The first epoch that this producer has not closed."""
        return self._epoch

    def send(
        self, value: Any, *, epoch: int | None = None, key: bytes | str | None = None, partition: int | None = None
    ) -> None:
        """Sends a record of the epoch that is open, or of a later one."""
        epoch = self._epoch if epoch is None else epoch
        self._check("sends a record of", epoch)
        self._producer.send(value, key=key, timestamp=epoch * SECOND, partition=partition)

    def advance_to(self, epoch: int) -> None:
        """Closes all epochs before this one: flushes, and says so in the topic."""
        self._check("advances to", epoch)
        if epoch > self._epoch:
            self._producer.advance_watermark(epoch * SECOND)
            self._epoch = epoch

    def close(self) -> None:
        """Closes all epochs: nobody waits for this producer any more."""
        if not self._ended:
            self._producer.advance_watermark(MAX_TIME)
            self._ended = True

    def flush(self) -> None:
        """Appends all that was sent."""
        self._producer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.flush()

    def _check(self, does: str, epoch: Any) -> None:
        name = self._producer.name
        if self._ended:
            raise PipelineError(f"the producer {name!r} has closed all of its epochs; send by one of another name")
        if type(epoch) is not int or not self._epoch <= epoch < MAX_TIME // SECOND:
            raise PipelineError(
                f"the producer {name!r} {does} epoch {epoch!r}, but it is in epoch {self._epoch}; epochs are whole "
                "numbers, and those that are closed stay closed"
            )
