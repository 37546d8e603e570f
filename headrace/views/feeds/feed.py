"""What a feed is: the records of one topic, wherever they are, as master data, speed layers and ingestion need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from headrace.log import Log
from headrace.model.errors import HeadraceError, PipelineError
from headrace.model.topics import ReadTopic, address
from headrace.model.watermarks import WatermarkPolicy
from headrace.views.declare.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.offsets import Offsets

# Columns beside the topic's own, whose names begin with a letter.
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
BAD: Final = "_bad"
"""Null, or the reason, a message and the value as it came, of a record that is no row of the topic's columns."""


class OtherRequest(HeadraceError, ValueError):
    """A key that came with other records before."""


class Unavailable(HeadraceError):
    """A topic cannot be reached, or not now; the message says what that means for what was to be appended."""


class Tried(NamedTuple):
    """The name under which a client sends a request again if it heard nothing, and the number of the request."""

    key: str
    sequence: int = 0


@dataclass(frozen=True)
class Receipt:
    """What became of a request: how many records, the offset of the first in each partition, and whether it had come
    before."""

    records: int
    offsets: dict[int, int]
    repeated: bool = False


class Feed(Protocol):
    """The records of a declared topic. Any number of threads may ask it.

    `dense` says whether every offset between the first and the end has a record, and `strict` whether all values are
    rows of the topic's columns. If they need not be, records have the column BAD, too.
    """

    topic: Topic
    dense: bool
    strict: bool

    def create(self) -> None:
        """Makes the topic as it is declared, if it is not there; refuses one that is not as declared."""
        ...

    def check(self) -> None:
        """Refuses a topic that is not there, or whose values have no columns."""
        ...

    def starts(self) -> dict[int, int]:
        """The offset of the first record of each partition."""
        ...

    def ends(self) -> dict[int, int]:
        """The offset that the next record of each partition will have."""
        ...

    def groups(self) -> dict[str, Offsets]:
        """How far consumer groups have read, by name, as far as the feed knows."""
        ...

    def read(self, start: Offsets | None, watermark: WatermarkPolicy) -> ReadTopic:
        """The source of a stream of its events, from these offsets on or from the first record."""
        ...

    def logged(self, end: Any) -> Offsets:
        """The offsets in what Spark logs of such a stream, before each micro-batch, as the end of its source."""
        ...

    def hold(self, archived: Offsets) -> None:
        """All before these offsets is archived, and what follows is to be kept, as far as that is the feed's to say."""
        ...

    def append(self, events: Sequence[Mapping[str, Any]], times: Sequence[int] | None, tried: Tried | None) -> Receipt:
        """Adds events of the topic with these times, or that of now; of a request that came before, nothing.

        They are safe when it returns.
        """
        ...


def feed_of(where: str | Path | Log, topic: Topic) -> Feed:
    """The feed of a topic: in the embedded log in a directory, or with Kafka's brokers, as "kafka://HOST:PORT".

    >>> import headrace as hr, tempfile
    >>> visits = hr.Topic("visits", schema="user string", partitions=2)
    >>> feed = feed_of(tempfile.mkdtemp(), visits)
    >>> feed.create()
    >>> feed.append([{"user": "ann"}], None, None).records, feed.starts(), sum(feed.ends().values())
    (1, {0: 0, 1: 0}, 1)
    >>> print(feed_of("kafka://127.0.0.1:9092", visits))
    kafka://127.0.0.1:9092/visits
    >>> feed_of("https://example.com", visits)
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: a log is a directory, or 'kafka://HOST:PORT'; got 'https://example.com'
    """
    from headrace.views.feeds.embedded import EmbeddedFeed
    from headrace.views.feeds.kafka import KafkaFeed

    if isinstance(where, str) and where.startswith("kafka:"):
        try:
            return KafkaFeed(topic, address(f"{where.rstrip('/')}/{topic.name}"))
        except PipelineError as error:
            raise ViewError(f"a log is a directory, or 'kafka://HOST:PORT'; {error}") from None
    if isinstance(where, str) and "://" in where:
        shown = where.replace(urlsplit(where).netloc.rpartition("@")[0] + "@", "")
        raise ViewError(f"a log is a directory, or 'kafka://HOST:PORT'; got {shown!r}")
    return EmbeddedFeed(topic, where if isinstance(where, Log) else Log(where))
