"""The processes that are killed: what a producer, a reader of a group and retention do all their lives."""

from __future__ import annotations

import mmap
import random
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from steps import Steps

from headrace.log import Consumer, Log, Producer, Topic
from headrace.log.producers import producer_id

TOPIC: Final = "visits"
GROUP: Final = "readers"
PARTITIONS: Final = 2
BATCHES: Final = 6
"""How many batches a producer appends to a partition."""
LIMIT: Final = 400
"""How many at most, in wait for somebody's death."""


@dataclass
class Life:
    """What a process has for its work: how it tells, the steps it takes, and whether it is to go on."""

    log: Log
    tell: Callable[..., None]
    steps: Steps
    stop: int  # readable when all is appended
    waiting: mmap.mmap  # not 0 while somebody has still to die

    @property
    def topic(self) -> Topic:
        return self.log.topic(TOPIC)

    def idle(self) -> bool:
        """Lets others work; tells if it is to go on."""
        return not select.select([self.stop], [], [], 0.02)[0]


def values(producer: int, partition: int, sequence: int) -> list[object]:
    """The records of a batch."""
    return [[producer, partition, sequence, number] for number in range(1 + (producer + sequence) % 4)]


def produce(life: Life, producer: int, acknowledged: list[int], retries: bool) -> None:
    """Appends batches. After a restart it sends again what nobody acknowledged, or asks the log how far it was."""
    topic, name = life.topic, f"producer {producer}"
    sending = Producer(topic, name)
    nexts = [
        acknowledged[number] + 1 if retries else partition.last_sequence(producer_id(name)) + 1
        for number, partition in enumerate(topic.partitions)
    ]
    while True:
        for number in range(PARTITIONS):
            sequence = nexts[number]
            sent = values(producer, number, sequence)
            if retries:
                batch = topic.batch(sent, timestamps=[sequence] * len(sent))
                topic.partition(number).append(batch, producer=producer_id(name), sequence=sequence)
            else:
                for value in sent:
                    sending.send(value, timestamp=sequence, partition=number)
                sending.flush()
            life.steps("appended, not acknowledged")
            life.tell("appended", [number, sequence])
            nexts[number] += 1
        if min(nexts) >= (LIMIT if life.waiting[0] else BATCHES):
            return


def read(life: Life, seed: int) -> None:
    """Reads as a member of the group, and tells what it read before it counts as read."""
    rng = random.Random(seed)
    with Consumer(life.log, TOPIC, GROUP) as consumer:
        while True:
            records = consumer.poll(rng.randint(3, 12))
            life.steps("read, not told")
            if records:
                life.tell("read", [[record.partition, record.offset, record.value] for record in records])
            life.steps("told, not committed")
            if not records and not life.idle():
                return


def retain(life: Life) -> None:
    """Does what `headrace topic retain` does, over and over."""
    topic = life.topic
    while life.idle():
        topic.retain()
