"""Builds the pipeline of a computation, one stream of its own: topics, keys, a stateful DoFn, topics.

ReadTopic(watermark="stream") -> key -> the computation -> WriteTopic(watermarks=True) for each output
                                              └-> its counts
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.dialects.millwheel.api.computation import COUNTS, Computation
from headrace.dialects.millwheel.api.keyextractor import Key
from headrace.dialects.millwheel.api.recordsandtimers import ComputationError
from headrace.dialects.millwheel.api.streamaddress import log_of, stream_address
from headrace.dialects.millwheel.graph.computationfn import computation_fn
from headrace.dialects.millwheel.graph.weakproductions import WeakProductions
from headrace.edges import kafkaclient
from headrace.edges.topicranges import open_topic
from headrace.log import Log, LogError
from headrace.log.fences import Fence
from headrace.log.producers import producer_id
from headrace.log.values import parse_json
from headrace.model.dofn import DoFn
from headrace.model.elementwise import Map, ParDo
from headrace.model.keyed import Flatten
from headrace.model.pipeline import Pipeline
from headrace.model.topics import Address, ReadTopic, WriteTopic

_LONGEST: Final = 60  # bytes of a value in a message


def counts_topic(name: str) -> str:
    """Returns the topic of a computation's counts: of each step what it read, dropped, set, fired and produced."""
    return f"{name}..counts"


def outputs_of(computation: Computation) -> dict[str, Any]:
    """Returns the output streams of a computation, each with what the keys of its records are, if they have any."""
    outputs = computation.outputs
    return dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs)


def create_streams(computation: Computation, log: str, name: str, *, partitions: int = 1) -> list[str]:
    """Creates the streams of a computation that do not exist yet, as topics of JSON; returns those it made."""
    created = [
        stream
        for stream in (*computation.inputs, *computation.outputs)
        if _create(f"the computation {name!r}", stream_address(stream, log), partitions)
    ]
    there = Log(log)
    if counts_topic(name) not in there.topics():
        with suppress(LogError):
            # Whoever shows the counts has read them long before that many are removed.
            there.create(counts_topic(name), segment_bytes=1 << 20, keep_bytes=16 << 20)
    return created


def _create(who: str, address: Address, partitions: int) -> bool:
    """Creates a topic if it does not exist; returns whether it did."""
    if address.log is None:
        return kafkaclient.create(who, address, partitions)
    there = Log(address.log)
    if address.name in there.topics():
        return False
    with suppress(LogError):  # another process may just have created it
        there.create(address.name, partitions=partitions)
    there.topic(address.name)
    return True


def build(
    p: Pipeline,
    name: str,
    computation: Computation,
    log: str,
    *,
    start: Literal["earliest", "latest"] = "earliest",
    own: bool = False,
) -> None:
    """Applies the transforms of a computation to a pipeline; its streams are topics of the log, or URIs of others.

    With `own`, weak productions of other processes that run the computation of this name are refused from now on; those
    of strong ones are when the stream begins.
    """
    if not isinstance(computation, Computation):
        raise ComputationError(f"{name}: a computation is an object of a mw.Computation, got {computation!r}")
    several = len(computation.inputs) > 1
    keyed = [
        p
        | stream >> ReadTopic(stream, log=log_of(stream, log), watermark=key.watermark, start=start)
        | f"{stream}/key" >> Map(KeyedRecord(key, stream, several, stream_address(stream, log).brokers is not None))
        for stream, key in computation.inputs.items()
    ]
    records = tuple(keyed) | f"{name}/records" >> Flatten() if several else keyed[0]
    outputs = outputs_of(computation)
    weak = None
    if computation.productions == "weak":
        producer = producer_id(f"{name}/weak")
        fences: dict[str, Fence] = {}
        if own:
            topics = {stream: open_topic(name, stream_address(stream, log)) for stream in outputs}
            fences = {stream: topic.take_over(producer) for stream, topic in topics.items()}
        weak = WeakProductions(log, outputs, fences)
    single = next(iter(outputs)) if len(outputs) == 1 else None
    tags = [*(stream for stream in outputs if stream != single), COUNTS]
    computed = records | name >> ParDo(computation_fn(computation, weak)).with_outputs(*tags, main=single)
    for stream, key in outputs.items():
        # Added again after it was discarded, it is the same writer: readers would wait for the former one for ever.
        write = WriteTopic(stream, log=log_of(stream, log), key=key, watermarks=True, writer=f"{name}/{stream}")
        computed[stream] | f"{stream}/write" >> write
    computed[COUNTS] | f"{COUNTS}/write" >> WriteTopic(counts_topic(name), log=log)


@dataclass(frozen=True)
class KeyedRecord:
    """Makes pairs of key and value; with several inputs, of key and (stream, value).

    With `parses`, values are bytes of JSON: Kafka knows no more of them.
    """

    key: Key
    stream: str
    several: bool
    parses: bool = False

    def __call__(self, value: Any, timestamp: Any = DoFn.TimestampParam) -> tuple[Any, Any]:
        if self.parses and value is not None:
            value = _parsed(self.stream, value)
        key = self.key(value, timestamp, self.stream)
        return key, (self.stream, value) if self.several else value


def _parsed(stream: str, value: bytes) -> Any:
    """Parses the value of a record of Kafka, where anybody may write anything."""
    try:
        return parse_json(value.decode())
    except ValueError as error:
        shown = value if len(value) <= _LONGEST else value[:_LONGEST] + b"..."
        raise ComputationError(
            f"{stream}: a value is not JSON: {shown!r} ({error}); correct its writer. If others write the topic, "
            "read it by a pipeline, whose ReadTopic(schema=...) keeps bad records as dead letters, and let that write "
            "the stream: WriteTopic(..., watermarks=True)"
        ) from None
