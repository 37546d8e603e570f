"""Remembers for one stream where it began in each topic that it reads, and which consumer groups it has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.edges.topicranges import Offsets
from headrace.engine.checkpoint.streamnames import group_name
from headrace.engine.spark.files import Folder, plain_name
from headrace.log import Group, Log

Positions = tuple[Offsets, Offsets | None]
"""Where reading of a topic begins and where it ends, if it does."""


class StreamTopics:
    """The topics that one stream reads.

    Where reading begins and ends is written to `control`, a directory in the checkpoint, so that the stream means the
    same when it goes on. The consumer groups of embedded topics are named after the checkpoint; if that is
    `temporary`, they are deleted after the run.
    """

    def __init__(self, spark: SparkSession, control: Folder, stream: str, *, temporary: bool) -> None:
        self.spark, self.control, self.stream, self.temporary = spark, control, stream, temporary
        self.max_records: int | None = None  # that a batch takes from each topic at first
        self.range_frames: dict[str, DataFrame] = {}  # of embedded topics, by the label of the source
        self._groups: dict[str, Group] = {}

    def positions(self, label: str, choose: Callable[[], Positions]) -> Positions:
        """Returns where this source began and ends; `choose` is called when the stream runs for the first time."""
        name = _positions_file(label)
        data = self.control.read(name)
        if data is None:
            data = json.dumps(choose()).encode()
            self.control.write(name, data)
        start, end = json.loads(data)
        return offsets_of(start), None if end is None else offsets_of(end)

    def group(self, label: str, log: str, topic: str) -> Group:
        """Returns the consumer group of a source of an embedded topic."""
        if label not in self._groups:
            self._groups[label] = Group(Log(log), topic, group_name(self.stream, plain_name(label)))
        return self._groups[label]

    def close(self) -> None:
        """Deletes the consumer groups of a stream that nobody will go on with."""
        for group in self._groups.values() if self.temporary else ():
            group.delete()


def reads_topic(control: Folder, label: str) -> bool:
    """Returns whether the source with this label reads a topic."""
    return control.exists(_positions_file(label))


def moved_positions(control: Folder, label: str, offsets: Offsets | None) -> None:
    """Lets a stream that has not begun yet read a topic from these offsets on; without, it forgets where it began."""
    _, end = json.loads(control.read(_positions_file(label)) or b"[{}, null]")
    control.folder(_positions_file(label)).delete()
    if offsets is not None:
        control.write(_positions_file(label), json.dumps([offsets, end]).encode())


def began_at(control: Folder, label: str) -> Offsets:
    """Returns where a stream began to read the topic of a source, by the source's label."""
    data = control.read(_positions_file(label))
    if data is None:
        raise LookupError(f"no stream has read {label!r} yet, says {control}")
    return offsets_of(json.loads(data)[0])


def offsets_of(by_text: dict[str, Any]) -> Offsets:
    """Returns offsets from JSON, whose names are text."""
    return {int(partition): int(offset) for partition, offset in by_text.items()}


def _positions_file(label: str) -> str:
    return f"topic-{plain_name(label)}.json"
