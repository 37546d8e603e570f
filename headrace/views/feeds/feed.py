"""The protocol of a feed: the records of one topic, as master data, speed layers and ingestion need them."""

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

# Columns beside those of the topic, whose names begin with a letter.
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
BAD: Final = "_bad"
"""Null, or reason, message and raw value of a record that is no row of the topic's columns."""


class RequestConflict(HeadraceError, ValueError):
    """A request was refused because its key was used before with other records."""


class TopicUnavailable(HeadraceError):
    """A topic cannot be reached now; the message says what that means for the records to append."""


class RequestKey(NamedTuple):
    """The idempotency key under which a client may send a request again, and the number of the request.

    Keys of different owners are different keys, also with the same text. An owner is a word of its own; without one,
    the key is everybody's.

    >>> RequestKey("a1").name, RequestKey("a1", owner="5d41402abc4b2a76").name
    ('a1', '5d41402abc4b2a76 a1')
    """

    key: str
    sequence: int = 0
    owner: str = ""

    @property
    def name(self) -> str:
        """The name under which requests with the key are stored; a key has no spaces."""
        return f"{self.owner} {self.key}" if self.owner else self.key


@dataclass(frozen=True)
class Receipt:
    """The result of a request: its records, the first offset in each partition, and whether it was repeated."""

    records: int
    offsets: dict[int, int]
    repeated: bool = False


class Feed(Protocol):
    """The records of a declared topic. Safe for any number of threads.

    `dense` says whether every offset between the first and the end has a record, and `strict` whether all values are
    rows of the topic's columns. If not strict, records also have the column BAD.
    """

    topic: Topic
    dense: bool
    strict: bool

    def create(self) -> None:
        """Creates the topic if it does not exist; refuses one that differs from its declaration."""
        ...

    def check(self) -> None:
        """Refuses a topic that does not exist, or whose values have no columns."""
        ...

    def starts(self) -> dict[int, int]:
        """Returns the offset of the first record of each partition."""
        ...

    def ends(self) -> dict[int, int]:
        """Returns the offset that the next record of each partition will have."""
        ...

    def groups(self) -> dict[str, Offsets]:
        """Returns the committed offsets of consumer groups by name, as far as the feed knows them."""
        ...

    def read(self, start: Offsets | None, watermark: WatermarkPolicy) -> ReadTopic:
        """Returns the source of a stream of its events, from these offsets on or from the first record."""
        ...

    def offsets_in_log(self, end: Any) -> Offsets:
        """Returns the offsets in an entry of Spark's offset log, which is the end of the source in a micro-batch."""
        ...

    def mark_archived(self, archived: Offsets) -> None:
        """Notes that records before these offsets are archived; the log must keep those after, if it can be told so."""
        ...

    def append(
        self, events: Sequence[Mapping[str, Any]], times: Sequence[int] | None, request: RequestKey | None
    ) -> Receipt:
        """Appends events durably, with these times or the current one; nothing of a request that came before."""
        ...


def feed_of(where: str | Path | Log, topic: Topic) -> Feed:
    """Returns the feed of a topic, in the embedded log of a directory or in Kafka, given as "kafka://HOST:PORT".

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
    headrace.views.errors.ViewError: a log is a directory or 'kafka://HOST:PORT'; got 'https://example.com'
    """
    from headrace.views.feeds.embedded import EmbeddedFeed
    from headrace.views.feeds.kafka import KafkaFeed

    if isinstance(where, str) and where.startswith("kafka:"):
        try:
            return KafkaFeed(topic, address(f"{where.rstrip('/')}/{topic.name}"))
        except PipelineError as error:
            raise ViewError(f"a log is a directory or 'kafka://HOST:PORT'; {error}") from None
    if isinstance(where, str) and "://" in where:
        shown = where.replace(urlsplit(where).netloc.rpartition("@")[0] + "@", "")
        raise ViewError(f"a log is a directory or 'kafka://HOST:PORT'; got {shown!r}")
    return EmbeddedFeed(topic, where if isinstance(where, Log) else Log(where))
