"""Topics as sources and sinks: what is meant only. Whether a topic is embedded or Kafka's, the meaning is the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from headrace.model.badrecords import Bad, RecordSource
from headrace.model.errors import PipelineError
from headrace.model.pipeline import PCollection
from headrace.model.schema import ROWS, schema_of
from headrace.model.sinks import BatchSink
from headrace.model.sources import Source
from headrace.model.times import InstantLike, instant
from headrace.model.watermarks import Monotonic, WatermarkPolicy, checked_policy

Bound = Literal["earliest", "latest"] | int
"""A place in every partition of a topic: its first record, its end, or the first not older than a time."""

_DEFAULT_LOG: Final = "headrace-log"
_SUPPORTED: Final = (
    "a name in the embedded log, 'topic:DIRECTORY/NAME' for one in another directory, or 'kafka://HOST:PORT/NAME'"
)


@dataclass(frozen=True)
class Address:
    """Where a topic is: in an embedded log, which is a directory, or with Kafka's brokers. One of both is None.

    >>> address("visits", log="/data/log"), address("topic:///data/log/visits")
    (Address(name='visits', log='/data/log', brokers=None), Address(name='visits', log='/data/log', brokers=None))
    >>> print(address("kafka://127.0.0.1:9092/visits"))
    kafka://127.0.0.1:9092/visits
    >>> address("http://example.com/visits")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: a topic is a name in the embedded log, 'topic:DIRECTORY/NAME' for one in \
another directory, or 'kafka://HOST:PORT/NAME'; got 'http://example.com/visits'
    """

    name: str
    log: str | None
    brokers: str | None

    def __str__(self) -> str:
        return f"kafka://{self.brokers}/{self.name}" if self.brokers else f"topic:{self.log}/{self.name}"


def address(topic: str, *, log: str | None = None) -> Address:
    """The address a user means by a name or a URI."""
    wrong = PipelineError(f"a topic is {_SUPPORTED}; got {topic!r}")
    if not isinstance(topic, str) or not topic:
        raise wrong
    parts = urlsplit(topic)
    if not parts.scheme:
        if "/" in topic:
            raise wrong
        return Address(topic, log or os.environ.get("HEADRACE_LOG") or _DEFAULT_LOG, None)
    if log is not None:
        raise PipelineError(f"the URI {topic!r} says where the topic is, and so does log={log!r}; give one of them")
    if "@" in parts.netloc:
        raise PipelineError(f"a topic's URI has no user or password; got one for {parts.hostname!r}")
    folder, _, name = unquote(parts.path).rpartition("/")
    if parts.scheme == "topic" and not parts.netloc and folder and name:
        return Address(name, folder, None)
    if parts.scheme == "kafka" and parts.netloc and not folder and name:
        return Address(name, None, parts.netloc)
    raise wrong


class ReadTopic(Source, RecordSource):
    """The records of a topic, from `start` on: as they come, or up to `end` if that is given.

    `topic` is a name in the embedded log in the directory `log` (else HEADRACE_LOG, else headrace-log), or a URI:
    "topic:DIRECTORY/NAME", or "kafka://HOST:PORT/NAME". `start` and `end` are "earliest", "latest" or a time; `start`
    can be an offset for each partition, too, e.g. {0: 25, 1: 7}; that of a partition which is not named is 0.

    Elements are Rows where values have columns: those of the embedded topic, or `schema` for values that are JSON (DDL
    text, a Spark StructType, or a NamedTuple or dataclass whose objects they become). Otherwise they are what JSON says
    in an embedded topic of JSON, and bytes elsewhere.

    `event_time` names the column of the event time; without it, it is the timestamp of the record. Each partition has
    a watermark, by the policy `watermark`, and the topic's is the least of them.

    With `schema` for values that are JSON, or `event_time`, records may be bad: `bad` is as for ReadJson, and the
    position of a dead letter is topic/partition@offset.

    >>> import headrace as hr, tempfile
    >>> from headrace.log import Log
    >>> log = tempfile.mkdtemp()
    >>> _ = Log(log).create("visits", values="user string, ts timestamp")
    >>> p = hr.Pipeline()
    >>> p | hr.ReadTopic("visits", log=log, event_time="ts", watermark=hr.BoundedDisorder("10 seconds"))
    <PCollection of rows from 'ReadTopic', unbounded>
    """

    def __init__(
        self,
        topic: str,
        *,
        log: str | None = None,
        schema: Any = None,
        event_time: str | None = None,
        start: Literal["earliest", "latest"] | InstantLike | Mapping[int, int] = "earliest",
        end: Literal["latest"] | InstantLike | None = None,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        self.address = address(topic, log=log)
        self.schema, self.event_time = schema, event_time
        self.watermark = checked_policy(type(self).__name__, watermark)
        self.bad = self.checked_bad(bad)
        self.start = self._offsets(start) if isinstance(start, Mapping) else _bound("start", start)
        self.end = None if end is None else _bound("end", end)
        if self.end == "earliest":
            raise PipelineError("ReadTopic: end='earliest' would read nothing; end is 'latest', a time, or None")
        self.bounded = self.end is not None

    def _offsets(self, start: Mapping[int, int]) -> Mapping[int, int]:
        whole = all(type(each) is int and each >= 0 for each in (*start, *start.values()))
        if not whole:
            raise PipelineError(
                f"ReadTopic: start is an offset for each partition, e.g. {{0: 25, 1: 7}}, got {dict(start)!r} for "
                f"{str(self.address)!r}"
            )
        return dict(start)

    def __str__(self) -> str:
        return f"ReadTopic({str(self.address)!r})"

    @property
    def checks(self) -> bool:
        parses = self.schema is not None and self.values() in ("json", "bytes")
        return parses or self.event_time is not None

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        values = self.values()
        if values not in ("json", "bytes") or self.schema is not None:
            return self.schema if isinstance(self.schema, type) and schema_of(self.schema) is not None else ROWS
        return bytes if values == "bytes" else None

    def values(self) -> str:
        """What the values of the topic are: "json", "bytes", or columns as DDL text. Of Kafka's, nobody knows."""
        if self.address.log is None:
            return "bytes"
        from headrace.log import Log  # which is not needed by pipelines that read no topic

        return Log(self.address.log).topic(self.address.name).settings.values


class WriteTopic(BatchSink):
    """Appends each element to a topic, as a record, once even after a crash. `topic` and `log` are as for ReadTopic.

    `key` and `timestamp` name the columns of the record's key and its time, or are functions of the element. Records
    of a key are in one partition; without a key, those of a micro-batch are. Without `timestamp` it is the event time.

    >>> import headrace as hr
    >>> print(hr.WriteTopic("hits", log="/data/log", key="url"))
    WriteTopic('topic:/data/log/hits')
    """

    def __init__(
        self,
        topic: str,
        *,
        log: str | None = None,
        key: str | Callable[[Any], Any] | None = None,
        timestamp: str | Callable[[Any], Any] | None = None,
    ) -> None:
        self.address = address(topic, log=log)
        for name, given in (("key", key), ("timestamp", timestamp)):
            if not (given is None or isinstance(given, str) or callable(given)):
                raise PipelineError(f"WriteTopic: {name} names a column or is a function of the element, got {given!r}")
        self.key, self.timestamp = key, timestamp

    def __str__(self) -> str:
        return f"WriteTopic({str(self.address)!r})"


def _bound(name: str, given: Any) -> Bound:
    if given in ("earliest", "latest"):
        return given  # type: ignore[no-any-return]
    try:
        return instant(given)
    except (ValueError, TypeError) as error:
        raise PipelineError(f"ReadTopic: {name} is 'earliest', 'latest' or a time; {error}") from None
