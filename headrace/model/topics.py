"""Declares topics as sources and sinks, of the embedded log or of Kafka alike."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, get_args
from urllib.parse import unquote, urlsplit

from headrace.model.badrecords import Bad, RecordSource
from headrace.model.errors import PipelineError
from headrace.model.kafkasecurity import KafkaSecurity
from headrace.model.pipeline import PCollection
from headrace.model.schema import ROWS, schema_of
from headrace.model.schemaregistry import Format, SchemaRegistry
from headrace.model.sinks import BatchSink
from headrace.model.sources import Source
from headrace.model.times import InstantLike, instant
from headrace.model.watermarks import Monotonic, WatermarkPolicy, WrittenWatermark, checked_policy

Bound = Literal["earliest", "latest"] | int
"""A position in every partition of a topic: its first record, its end, or the first record at or after a time."""

UNKNOWN_VALUES: Final = "the topic's values"
"""The element type of an embedded topic that has not been looked at."""

_DEFAULT_LOG: Final = "headrace-log"
_SUPPORTED: Final = (
    "a name in the embedded log, 'topic:DIRECTORY/NAME' for one in another directory, or 'kafka://HOST:PORT/NAME'"
)


@dataclass(frozen=True)
class Address:
    """The address of a topic: its name, and the directory of its embedded log or the Kafka brokers; the other is None.

    `security` is how these brokers are reached; no text of an address has it.

    >>> address("visits", log="/data/log"), address("topic:///data/log/visits")
    (Address(name='visits', log='/data/log', brokers=None), Address(name='visits', log='/data/log', brokers=None))
    >>> print(address("kafka://127.0.0.1:9092/visits"))
    kafka://127.0.0.1:9092/visits
    >>> address("http://example.com/visits")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: a topic must be a name in the embedded log, 'topic:DIRECTORY/NAME' for one in \
another directory, or 'kafka://HOST:PORT/NAME'; got 'http://example.com/visits'
    """

    name: str
    log: str | None
    brokers: str | None
    security: KafkaSecurity | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"kafka://{self.brokers}/{self.name}" if self.brokers else f"topic:{self.log}/{self.name}"


def address(topic: str, *, log: str | None = None, security: KafkaSecurity | None = None) -> Address:
    """Parses a topic's name or URI. Brokers are reached by `security`, or else as the environment says."""
    wrong = PipelineError(f"a topic must be {_SUPPORTED}; got {topic!r}")
    if not isinstance(topic, str) or not topic:
        raise wrong
    if not (security is None or isinstance(security, KafkaSecurity)):
        raise PipelineError(
            f"security of the topic {topic!r} must be an hr.KafkaSecurity, got a {type(security).__name__}"
        )
    parts = urlsplit(topic)
    if security is not None and parts.scheme != "kafka":
        raise PipelineError(f"security is for brokers of Kafka, but the topic is {topic!r}; leave it out")
    if not parts.scheme:
        if "/" in topic:
            raise wrong
        return Address(topic, log or os.environ.get("HEADRACE_LOG") or _DEFAULT_LOG, None)
    if log is not None:
        raise PipelineError(f"the topic's place is both in the URI {topic!r} and in log={log!r}; give one of them")
    if "@" in parts.netloc:
        raise PipelineError(
            f"a topic's URI has no user or password, got one for {parts.hostname!r}; give "
            "security=hr.KafkaSecurity(...)"
        )
    folder, _, name = unquote(parts.path).rpartition("/")
    if parts.scheme == "topic" and not parts.netloc and folder and name:
        return Address(name, folder, None)
    if parts.scheme == "kafka" and parts.netloc and not folder and name:
        return Address(name, None, parts.netloc, security or KafkaSecurity.from_environment())
    raise wrong


class ReadTopic(Source, RecordSource):
    """Reads the records of a topic from `start` on: without end as they arrive, or up to `end`.

    `topic` is a name in the embedded log in the directory `log` (else HEADRACE_LOG, else headrace-log), or a URI:
    "topic:DIRECTORY/NAME", or "kafka://HOST:PORT/NAME", whose brokers are reached by `security`. `start` and `end` are
    "earliest", "latest" or a time; `start` can also be an offset for each partition, e.g. {0: 25, 1: 7}; partitions
    that are not named start at 0.

    Elements are Rows if values have columns: those of the embedded topic, or those of `schema` for JSON values (DDL
    text, a Spark StructType, or a NamedTuple or dataclass whose objects the elements become). Otherwise they are the
    parsed JSON values of an embedded topic of JSON, and bytes elsewhere.

    `event_time` is the name of the column with the event time; without it, the event time is the record's timestamp.
    Each partition has a watermark, computed by the policy `watermark`; the topic's watermark is the smallest of them.
    With watermark="stream" it is what the writers of the topic say, see WriteTopic.

    With `format`, "avro" or "protobuf", values have the schemas of a schema `registry`, an address or a SchemaRegistry.
    Columns are then those of `schema`, or else of the topic's latest schema there. `key` is the name of the column with
    the keys of a topic of Kafka: text, or with `key_format` what their schemas in the registry say.

    With a `schema` for JSON values, a `format`, or `event_time`, records may be bad: `bad` is as for ReadJson, and the
    position of a dead letter is topic/partition@offset.

    The topic is looked at when the pipeline is run or explained, not before.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> p | hr.ReadTopic("visits", log="/data/log", event_time="ts", watermark=hr.BoundedDisorder("10 seconds"))
    <PCollection of the topic's values from 'ReadTopic', unbounded>
    """

    values: str | None = None
    """What the values of the topic are: "json", "bytes", or columns as DDL text; None until the topic is looked at."""
    reader_schema: Any = None
    """The schema of the registry whose columns these are, to which records of other schemas are resolved."""

    def __init__(
        self,
        topic: str,
        *,
        log: str | None = None,
        schema: Any = None,
        event_time: str | None = None,
        start: Literal["earliest", "latest"] | InstantLike | Mapping[int, int] = "earliest",
        end: Literal["latest"] | InstantLike | None = None,
        watermark: WatermarkPolicy | Literal["stream"] = Monotonic(),
        bad: Bad = "dead_letters",
        security: KafkaSecurity | None = None,
        format: Format | None = None,
        key: str | None = None,
        key_format: Format | None = None,
        registry: str | SchemaRegistry | None = None,
    ) -> None:
        self.address = address(topic, log=log, security=security)
        self.format: Format | None = format
        self.key, self.key_format = _key(self.address, key, key_format, schema, format), key_format
        self.registry = _registry("ReadTopic", self.address, format, key, key_format, registry)
        if self.address.log is None:
            self.values = "bytes"  # Kafka knows no more
        self.schema, self.event_time = schema, event_time
        policy = WrittenWatermark() if watermark == "stream" else watermark
        self.watermark = checked_policy(type(self).__name__, policy)
        self.bad = self.checked_bad(bad)
        self.start = self._offsets(start) if isinstance(start, Mapping) else _bound("start", start)
        self.end = None if end is None else _bound("end", end)
        if self.end == "earliest":
            raise PipelineError("ReadTopic: end='earliest' would read nothing; give 'latest', a time, or None")
        self.bounded = self.end is not None

    def _offsets(self, start: Mapping[int, int]) -> Mapping[int, int]:
        if not all(type(number) is int and number >= 0 for number in (*start, *start.values())):
            raise PipelineError(
                f"ReadTopic: start must be an offset for each partition, e.g. {{0: 25, 1: 7}}, got {dict(start)!r} for "
                f"{str(self.address)!r}"
            )
        return dict(start)

    def __str__(self) -> str:
        return f"ReadTopic({str(self.address)!r})"

    def with_values(self, values: str) -> Self:
        """Returns this source with the kind of the topic's values: "json", "bytes", or columns as DDL text."""
        source = copy.copy(self)
        source.values = values
        if source.handles_exceptions and not source.checks:
            raise source.cannot_be_bad()
        return source

    @property
    def is_known(self) -> bool:
        """Whether it is known what the values of the topic are: the embedded log, or a schema registry, may know."""
        return self.values is not None and (self.format is None or self.schema is not None)

    def with_registered(self, columns: Any, schema: Any) -> Self:
        """Returns this source with the columns of a schema of the registry."""
        source = copy.copy(self)
        source.schema, source.reader_schema = columns, schema
        return source

    @property
    def checks(self) -> bool:
        """Whether a record can be bad, as far as the topic's values are known."""
        parses = self.schema is not None and self.values in ("json", "bytes", None)
        return parses or self.format is not None or self.event_time is not None

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        if self.schema is not None:
            return self.schema if isinstance(self.schema, type) and schema_of(self.schema) is not None else ROWS
        if self.format is not None:
            return ROWS
        types = {None: UNKNOWN_VALUES, "json": None, "bytes": bytes}
        return types.get(self.values, ROWS)


class WriteTopic(BatchSink):
    """Appends each element to a topic as a record, once even after a crash.

    `topic`, `log` and `security` are as for ReadTopic.

    `key` and `timestamp` are the names of the columns with the record's key and time, or functions of the element.
    Records with the same key go to the same partition; without a key, those of a micro-batch do. Without `timestamp`,
    a record has the event time of its element.

    With `format`, "avro" or "protobuf", values are written by the topic's latest schema in the schema `registry`, an
    address or a SchemaRegistry; if it has none, by one that is made of the columns and registered. So are keys, with
    `key_format`.

    With `watermarks`, the topic also has the watermark of what is written: after each micro-batch in which it moved,
    every partition gets a record without a value that says so, and that only `ReadTopic(..., watermark="stream")` sees.
    So another stream, in another process, has the same watermark. There must be a grouping between sources and topic.
    Whoever reads it waits for all writers that ever said something. A writer is known by its checkpoint, or as
    `writer`: then one that begins anew, with another checkpoint, is the same.

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
        security: KafkaSecurity | None = None,
        format: Format | None = None,
        key_format: Format | None = None,
        registry: str | SchemaRegistry | None = None,
        watermarks: bool = False,
        writer: str | None = None,
    ) -> None:
        self.address = address(topic, log=log, security=security)
        self.watermarks, self.writer = watermarks, writer
        if writer is not None and not watermarks:
            raise PipelineError(f"WriteTopic: writer={writer!r} is who says watermarks; give watermarks=True, too")
        self.format: Format | None = format
        self.key_format: Format | None = key_format
        self.registry = _registry("WriteTopic", self.address, format, key, key_format, registry)
        for name, value in (("key", key), ("timestamp", timestamp)):
            if not (value is None or isinstance(value, str) or callable(value)):
                raise PipelineError(f"WriteTopic: {name} must be a column or a function of the element, got {value!r}")
        self.key, self.timestamp = key, timestamp

    def __str__(self) -> str:
        return f"WriteTopic({str(self.address)!r})"


def _registry(
    name: str,
    address: Address,
    format: Format | None,
    key: object,
    key_format: Format | None,
    registry: str | SchemaRegistry | None,
) -> SchemaRegistry | None:
    """Returns the registry of formats. Refuses one without the other, and both for embedded topics."""
    formats = {label: each for label, each in (("format", format), ("key_format", key_format)) if each is not None}
    for label, each in formats.items():
        if each not in get_args(Format):
            raise PipelineError(
                f"{name}: {label} must be 'avro' or 'protobuf', got {each!r}; without it, values with a schema are "
                "JSON, and keys are text"
            )
        if address.brokers is None:
            raise PipelineError(f"{name}: {label}={each!r} is for topics of Kafka, but this is {address}; leave it out")
    if bool(formats) != (registry is not None):
        missing = "format='avro' or 'protobuf'" if not formats else "registry='http://HOST:PORT'"
        raise PipelineError(f"{name}: format and registry belong together; give {missing}, too")
    if key_format is not None and not isinstance(key, str):
        raise PipelineError(f"{name}: key_format={key_format!r} is for a column of keys; name it with key=")
    return SchemaRegistry(registry) if isinstance(registry, str) else registry


def _key(address: Address, key: str | None, key_format: object, schema: object, format: object) -> str | None:
    """Returns the name of a source's column of keys. Refuses it where there is none."""
    if key is not None and address.brokers is None:
        raise PipelineError(f"ReadTopic: key={key!r} is for topics of Kafka, but this is {address}; leave it out")
    if key is not None and schema is None and format is None:
        raise PipelineError(f"ReadTopic: key={key!r} is a column, but values have none; give schema=, or format=")
    if key_format is not None and format is None:
        raise PipelineError(
            f"ReadTopic: key_format={key_format!r} is only for values that have a format, too; give both"
        )
    return key


def _bound(name: str, value: Any) -> Bound:
    if value in ("earliest", "latest"):
        return value  # type: ignore[no-any-return]
    try:
        return instant(value)
    except (ValueError, TypeError) as error:
        raise PipelineError(f"ReadTopic: {name} must be 'earliest', 'latest' or a time; {error}") from None
