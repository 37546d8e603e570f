"""Ranges of a topic's offsets: what a micro-batch takes of each partition, and how tasks share it. Nothing of Spark."""

from __future__ import annotations

import threading
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

_LEAST: Final = 20_000
"""So many records are worth a task of their own."""


@dataclass(frozen=True)
class Range:
    """The records of a partition from the offset `first` to before `until`."""

    partition: int
    first: int
    until: int


def topic_at(log: str, name: str) -> Topic:
    """A topic; a thread opens it once, since it remembers what it knows of its index."""
    made = Path(log, "topics", name, "topic.json")
    try:
        stamp = made.stat()
    except OSError:
        return Log(log).topic(name)  # which says what is wrong
    return _opened(log, name, stamp.st_ino, stamp.st_mtime_ns, threading.get_ident())


def open_topic(node: object, address: Address) -> Topic:
    """Opens the embedded topic at an address, for a node of a pipeline. Refuses one that does not exist."""
    assert address.log is not None
    try:
        return Log(address.log).topic(address.name)
    except LogError as error:
        raise PipelineError(f"{node}: {error}") from None


@lru_cache(maxsize=64)
def _opened(log: str, name: str, *made_and_thread: int) -> Topic:
    return Log(log).topic(name)


def available(topic: Topic) -> Offsets:
    """Where each partition ends now."""
    return {number: partition.next_offset() for number, partition in enumerate(topic.partitions)}


def admitted(start: Mapping[int, int], end: Mapping[int, int], most: int | None) -> Offsets:
    """Up to where a batch reads that takes at most so many records: of each partition as large a part of what it has.

    If there is something to read, something is read.

    >>> admitted({0: 0, 1: 0}, {0: 900, 1: 100}, 100)
    {0: 90, 1: 10}
    >>> admitted({0: 0, 1: 0}, {0: 1, 1: 3}, 1)
    {0: 0, 1: 1}
    """
    waiting = {number: max(until - start[number], 0) for number, until in end.items()}
    total = sum(waiting.values())
    if most is None or total <= most:
        return {number: start[number] + count for number, count in waiting.items()}
    shares = {number: count * most // total for number, count in waiting.items()}
    left = most - sum(shares.values())  # by rounding: one each to those who lost most by it
    for number in sorted(waiting, key=lambda number: -(waiting[number] * most % total))[:left]:
        shares[number] += 1
    return {number: start[number] + share for number, share in shares.items()}


def dealt(topic: Topic, start: Mapping[int, int], end: Mapping[int, int], tasks: int) -> list[list[Range]]:
    """The ranges that each of at most so many tasks reads: about equally many records, in whole batches."""
    ranges = [Range(number, start[number], until) for number, until in end.items() if until > start[number]]
    if not ranges:
        return []
    for each in ranges:
        check_kept(topic, each)
    target = max(-(-sum(each.until - each.first for each in ranges) // tasks), _LEAST)
    hands: list[list[Range]] = [[]]
    room = target
    for each in ranges:
        borders = [*topic.partition(each.partition).borders(each.first, each.until), each.until]
        first = each.first
        while first < each.until:
            if room <= 0:
                hands.append([])
                room = target
            until = borders[min(bisect_left(borders, first + room), len(borders) - 1)]
            hands[-1].append(Range(each.partition, first, until))
            room -= until - first
            first = until
    return hands


def check_kept(topic: Topic, wanted: Range) -> None:
    """Refuses a range that retention has removed the beginning of."""
    earliest = topic.partition(wanted.partition).earliest()
    if wanted.first < earliest:
        raise LogError(
            f"{topic.name}/{wanted.partition}: offset {wanted.first}, where the stream goes on, is gone: retention has "
            f"removed all before {earliest}; run the pipeline with a new checkpoint, which begins with what is there"
        )
