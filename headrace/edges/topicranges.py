"""Computes which offsets of an embedded topic a micro-batch reads, and how tasks share them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from headrace.log import Log, LogError, Topic
from headrace.model.errors import PipelineError
from headrace.model.topics import Address

Offsets = dict[int, int]
"""The offset of the next record, by partition."""

_RECORDS_PER_TASK: Final = 20_000
"""The number of records for which a task of their own pays off."""


@dataclass(frozen=True)
class Range:
    """The records of a partition from the offset `first` to before `until`."""

    partition: int
    first: int
    until: int


def topic_at(log: str, name: str) -> Topic:
    """Opens a topic, once in each process, since a topic caches what it has read of its index."""
    settings = Path(log, "topics", name, "topic.json")
    try:
        stamp = settings.stat()
    except OSError:
        return Log(log).topic(name)  # raises an error that says what is wrong
    return _opened(log, name, stamp.st_ino, stamp.st_mtime_ns)


def open_topic(node: object, address: Address) -> Topic:
    """Opens the embedded topic at an address, for a node of a pipeline. Refuses one that does not exist."""
    assert address.log is not None
    try:
        return Log(address.log).topic(address.name)
    except LogError as error:
        raise PipelineError(f"{node}: {error}") from None


@lru_cache(maxsize=64)
def _opened(log: str, name: str, *version: int) -> Topic:
    return Log(log).topic(name)


def end_offsets(topic: Topic) -> Offsets:
    """Returns the offset at which each partition ends now."""
    return {number: partition.next_offset() for number, partition in enumerate(topic.partitions)}


def limited_end(start: Mapping[int, int], end: Mapping[int, int], most: int | None) -> Offsets:
    """Returns up to which offsets a batch of at most so many records reads: the same share of each partition.

    If there is something to read, at least one record is read.

    >>> limited_end({0: 0, 1: 0}, {0: 900, 1: 100}, 100)
    {0: 90, 1: 10}
    >>> limited_end({0: 0, 1: 0}, {0: 1, 1: 3}, 1)
    {0: 0, 1: 1}
    """
    waiting = {number: max(until - start[number], 0) for number, until in end.items()}
    total = sum(waiting.values())
    if most is None or total <= most:
        return {number: start[number] + count for number, count in waiting.items()}
    shares = {number: count * most // total for number, count in waiting.items()}
    left = most - sum(shares.values())  # lost by rounding: one more for each of those that lost most
    for number in sorted(waiting, key=lambda number: -(waiting[number] * most % total))[:left]:
        shares[number] += 1
    return {number: start[number] + share for number, share in shares.items()}


def divided_ranges(topic: Topic, start: Mapping[int, int], end: Mapping[int, int], tasks: int) -> list[list[Range]]:
    """Divides ranges of offsets among at most so many tasks: about equally many records each, in whole batches."""
    ranges = [Range(number, start[number], until) for number, until in end.items() if until > start[number]]
    if not ranges:
        return []
    for wanted in ranges:
        check_retained(topic, wanted)
    target = max(-(-sum(wanted.until - wanted.first for wanted in ranges) // tasks), _RECORDS_PER_TASK)
    shares: list[list[Range]] = [[]]
    room = target
    for wanted in ranges:
        borders = [*topic.partition(wanted.partition).batch_starts(wanted.first, wanted.until), wanted.until]
        first = wanted.first
        while first < wanted.until:
            if room <= 0:
                shares.append([])
                room = target
            until = borders[min(bisect_left(borders, first + room), len(borders) - 1)]
            shares[-1].append(Range(wanted.partition, first, until))
            room -= until - first
            first = until
    return shares


def check_retained(topic: Topic, wanted: Range) -> None:
    """Refuses a range whose first records retention has removed."""
    earliest = topic.partition(wanted.partition).earliest()
    if wanted.first < earliest:
        raise LogError(
            f"{topic.name}/{wanted.partition}: offset {wanted.first}, where the stream goes on, is gone: retention has "
            f"removed all before {earliest}; run the pipeline with a new checkpoint, which begins with what is there"
        )
