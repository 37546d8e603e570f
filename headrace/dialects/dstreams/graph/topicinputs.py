"""Topics as inputs: of an embedded log or of Kafka; and sockets, whose lines go to a topic first."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from pyspark import RDD

from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.graph.inputs import Cut, Input, InputContext, read_shares
from headrace.edges import kafkaclient
from headrace.edges.linereceiver import LineReceiver
from headrace.edges.topicranges import Range, divided_ranges, end_offsets, topic_at
from headrace.engine.connectors.kafkareader import between
from headrace.engine.connectors.topicframes import KEY
from headrace.engine.spark import kafkajars
from headrace.engine.spark.session import spark_session
from headrace.log import Group, Log, Topic
from headrace.log.values import VALUE, WATERMARK_KEY
from headrace.model.kafkasecurity import VARIABLE, KafkaSecurity
from headrace.model.topics import Address

_log = logging.getLogger(__name__)

_RELEASES: Final = 16
"""Batches after which a topic hears what is needed no more."""
_SEGMENT: Final = 16 << 20
_RETAINED: Final = 64 << 20
"""Bytes of a socket's lines that are kept when no batch needs them any more. What is needed is kept, however much."""


class TopicInput(Input):
    """Records of a topic of an embedded log: its rows or JSON values; with `column`, the values of one column."""

    def __init__(
        self, log: str, name: str, start: str = "latest", column: str | None = None, *, number: int = 0
    ) -> None:
        self.log, self.name, self.column, self.first, self.number = log, name, column, start, number
        self.released = 0

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        topic = self._run_topic = topic_at(self.log, self.name)
        program = hashlib.sha256(str(context.folder).encode()).hexdigest()[:16]  # others have a run-1, too
        self._run_group = Group(Log(self.log), self.name, f"dstreams-{program}-{self.number}")
        if (last := next(earlier, None)) is not None:
            self._run_at: dict[str, int] = last["until"]
        elif self.first == "latest":
            self._run_at = self._ends()
        else:
            self._run_at = {str(number): each.earliest() for number, each in enumerate(topic.partitions)}
        if not self._run_group.committed():  # from here on retention waits for this program
            self._run_group.commit({int(number): at for number, at in self._run_at.items()})

    def leave(self) -> None:
        if (group := self.__dict__.pop("_run_group", None)) is not None:
            group.delete()

    def cut(self) -> Cut:
        cut = {"from": self._run_at, "until": self._ends()}
        self._run_at = cut["until"]
        return cut

    def release(self, cut: Cut) -> None:
        self.released += 1
        if self.released % _RELEASES == 1:
            self._run_group.commit({int(number): at for number, at in cut["from"].items()})

    def waiting(self) -> bool:
        return self._ends() != self._run_at

    def size(self, cut: Cut) -> int:
        return sum(until - cut["from"].get(number, 0) for number, until in cut["until"].items())

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        topic = topic_at(self.log, self.name)
        begin, end = ({int(number): at for number, at in cut[name].items()} for name in ("from", "until"))
        begin = {number: begin.get(number, 0) for number in end}
        shares = divided_ranges(topic, begin, end, context.sc.defaultParallelism)
        return read_shares(context, shares, _ranges_reader(self.log, self.name, self.column))

    def _ends(self) -> dict[str, int]:
        return {str(number): at for number, at in end_offsets(self._run_topic).items()}


class SocketInput(TopicInput):
    """Lines that a server sends; a thread of the driver writes them to a topic before they count as received."""

    def __init__(self, host: str, port: int, number: int) -> None:
        super().__init__("", f"socket-{number}", "earliest", "value", number=number)
        self.host, self.port = host, port

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        self.log = str(context.folder / "log")
        if self.name not in Log(self.log).topics():
            Log(self.log).create(self.name, values="value string", segment_bytes=_SEGMENT, keep_bytes=_RETAINED)
        super().start(context, earlier)
        receiver = LineReceiver(self._run_topic, self.host, self.port, attempts=1 << 30, failed=self._failed)
        self._run_receiver = receiver
        receiver.start()

    def cut(self) -> Cut:
        if "_run_receiver" in self.__dict__:
            self._warn_of_refused_lines()
        return super().cut()

    def stop(self) -> None:
        if "_run_receiver" in self.__dict__:
            self._run_receiver.stop()
            self._warn_of_refused_lines()
            del self._run_receiver

    def _warn_of_refused_lines(self) -> None:
        counts = self._run_receiver.counts()
        refused = {reason: counts[reason] for reason in ("too_long", "not_text", "torn") if counts[reason]}
        if refused != self.__dict__.get("_run_refused", {}):
            self._run_refused = refused
            _log.warning("socketTextStream(%r, %s): lines that were refused so far: %s", self.host, self.port, refused)

    def _failed(self) -> None:
        self.failure = self._run_receiver.failure


class KafkaInput(Input):
    """Records of a topic of Kafka: pairs of key and value, as bytes."""

    lasting = False

    def __init__(self, address: Address, start: str = "latest") -> None:
        self.address, self.first, self.secured = address, start, address.security is not None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "address": replace(self.address, security=None)}  # no passwords on disk

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        if self.secured and self.address.security is None:  # the program is continued
            if (security := KafkaSecurity.from_environment()) is None:
                raise StreamingContextError(
                    f"{self}: passwords are not stored with a program; to continue it, name a file of the brokers' "
                    f"security with the environment variable {VARIABLE}"
                )
            self.address = replace(self.address, security=security)
        kafkajars.check(spark_session(), self)
        last = next(earlier, None)
        self._run_at: dict[str, int] = self._offsets(self.first) if last is None else last["until"]

    def __str__(self) -> str:
        return f"topicStream({str(self.address)!r})"

    def cut(self) -> Cut:
        cut = {"from": self._run_at, "until": self._offsets("latest")}
        self._run_at = cut["until"]
        return cut

    def waiting(self) -> bool:
        return self._offsets("latest") != self._run_at

    def size(self, cut: Cut) -> int:
        return sum(until - cut["from"].get(number, 0) for number, until in cut["until"].items())

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        begin, end = ({int(number): at for number, at in cut[name].items()} for name in ("from", "until"))
        moved = {number: at for number, at in end.items() if at > begin.get(number, 0)}
        if not moved:
            return context.sc.emptyRDD()
        frame = between(spark_session(), self.address, {number: begin.get(number, 0) for number in moved}, moved)
        return frame.select(KEY, VALUE).rdd.map(_pair)

    def _offsets(self, at: str) -> dict[str, int]:
        found = kafkaclient.offsets(self, self.address, "earliest" if at == "earliest" else "latest")
        return {str(number): offset for number, offset in found.items()}


def _pair(row: Any) -> tuple[bytes | None, bytes | None]:
    key, value = row
    return key if key is None else bytes(key), value if value is None else bytes(value)


def _ranges_reader(log: str, name: str, column: str | None) -> Callable[[Iterable[list[Range]]], Iterator[Any]]:
    def read(shares: Iterable[list[Range]]) -> Iterator[Any]:
        topic = topic_at(log, name)
        for wanted in (each for share in shares for each in share):
            for _, batch in topic.partition(wanted.partition).read(wanted.first, wanted.until):
                yield from values_of(topic, batch, column)

    return read


def values_of(topic: Topic, batch: Any, column: str | None) -> list[Any]:
    """Returns the values of a record batch; watermarks of a stream that wrote it are none."""
    keys = batch.column("key")
    if keys.null_count < len(keys):
        own = [key is None or not key.startswith(WATERMARK_KEY) for key in keys.to_pylist()]
        if not all(own):
            batch = batch.filter(own)
    values = batch.column(VALUE)
    return values.field(column).to_pylist() if column is not None else topic.values.decode(values)
