"""Topics as outputs: a batch is appended under its time, so that one that is run again is there once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark import RDD

from headrace.edges.numberedbatches import numbered_batches
from headrace.edges.recordparts import Part, key_bytes, parts_of
from headrace.log.partitioning import partition_of
from headrace.log.producers import Pending
from headrace.model.errors import PipelineError
from headrace.model.times import format_instant, instant
from headrace.model.topics import address


class SavedToTopic:
    """Appends the elements of each RDD to a topic, as a writer that is stored with the program."""

    def __init__(self, topic: str, log: str | None, key: Part, timestamp: Part) -> None:
        place = address(topic, log=log)  # refuses what is no topic
        for name, value in (("key", key), ("timestamp", timestamp)):
            if not (value is None or isinstance(value, str) or callable(value)):
                raise PipelineError(f"saveToTopic: {name} must be a column or a function of the element, got {value!r}")
        self.key, self.timestamp = key, timestamp
        # The program may be continued from another directory; and brokers' passwords are not stored with it.
        self.topic = topic if place.log is None else place.name
        self.log = None if place.log is None else str(Path(place.log).absolute())
        self.writer = f"dstreams/{uuid.uuid4().hex}"
        self._batches: Any = None

    def __str__(self) -> str:
        return f"saveToTopic({self.topic!r})"

    def __call__(self, time: datetime, rdd: RDD[Any]) -> None:
        number = round(time.timestamp() * 1000)
        records = rdd.mapPartitions(_records(self.key, self.timestamp, number * 1000)).collect()
        if self._batches is None:
            self._batches = numbered_batches(str(self), address(self.topic, log=self.log), self.writer)
        parts: dict[int, Pending] = {}
        for key, timestamp, value in records:
            if timestamp < self._batches.earliest:
                earliest, found = map(format_instant, (self._batches.earliest, timestamp))
                raise PipelineError(f"{self}: Kafka has no times before {earliest}, and an element has {found}")
            count = self._batches.partitions
            part = parts.setdefault(number % count if key is None else partition_of(key, count), Pending())
            part.keys.append(key)
            part.timestamps.append(timestamp)
            part.values.append(value)
        if parts:
            self._batches.write(number, parts, number * 1000)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}


def _records(
    key: Part, timestamp: Part, time: int
) -> Callable[[Iterable[Any]], Iterator[tuple[bytes | None, int, Any]]]:
    """Returns a function that makes records of elements in a worker: keys, timestamps, values."""

    def records(elements: Iterable[Any]) -> Iterator[tuple[bytes | None, int, Any]]:
        values = list(elements)
        times = [time if each is None else int(instant(each)) for each in parts_of(values, timestamp)]
        return zip(map(key_bytes, parts_of(values, key)), times, values, strict=True)

    return records
