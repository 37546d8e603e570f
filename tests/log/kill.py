"""Kills producers, readers and retention of a log with SIGKILL at seeded steps, and checks what is in the log and was read.

    python tests/log/kill.py --seeds 200

prints a table in Markdown. Each seed has a log of its own, on which two producers, two readers of a group and a process
for retention work at once, all forked from one that has imported everything. One of them dies, at a step of its work or
at any moment, and another takes its place; in one seed of four that one dies as well. Nothing waits for time to pass.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import mmap
import multiprocessing
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from steps import Steps

from headrace.log import Consumer, Group, Log, Producer, Topic
from headrace.log.producers import producer_id

ANY_MOMENT: Final = "any moment"

_APPENDING: Final = (
    "lock locked",
    "*.arrow half written",
    "before fsync of *.arrow",
    "*.index half written",
    "*.arrow created",  # a segment begins
    "*.index created",
    "before fsync of *.index",
    "before fsync of partition",
    "appended, not acknowledged",
)
_REMOVING: Final = (
    "departed.new created",
    "departed.new half written",
    "before fsync of departed.new",
    "before rename to departed",
    "before removal of *.index",
    "before removal of *.torn",
    "before removal of *.arrow",
)
_READING: Final = (
    "group/lock locked",
    "group/members/* created",
    "group/members/* locked",
    "group/shares.new created",
    "group/shares.new half written",
    "before fsync of group/shares.new",
    "before rename to group/shares.json",
    "group/offsets.new created",
    "group/offsets.new half written",
    "before fsync of group/offsets.new",
    "before rename to group/offsets.json",
    "read, not told",
    "told, not committed",
)
_MENDING: Final = (
    "*.new created",
    "*.new half written",
    "before rename to *.index",
    "*.torn created",
    "*.torn half written",
    "before *.arrow is cut",
)
STEPS: Final = {
    "producer": (*_APPENDING, *_REMOVING, ANY_MOMENT, ANY_MOMENT),
    "reader": (*_READING, ANY_MOMENT, ANY_MOMENT),
    "retention": (*_REMOVING, ANY_MOMENT),
    "mending producer": _MENDING,
    "mending reader": _MENDING,
}
"""Where who dies. Who mends finds half a batch at the end of a partition, which one who died before it left."""

RARE: Final = ("group/members/* created", "group/members/* locked", *(step for step in _READING if "shares" in step))
"""Steps that a process takes once, when it joins."""

GROUP, TOPIC, PARTITIONS, BATCHES = "readers", "visits", 2, 10
LIMIT: Final = 400
"""How many batches a producer appends at most, in wait for somebody's death."""
SECONDS: Final = 120


@dataclass(frozen=True)
class Death:
    """Who dies where: at the nth step of a kind, or when all have told so much."""

    role: str
    step: str
    nth: int


def deaths(seed: int) -> list[Death]:
    """Seeds in a row take all steps in turn; one in four has a second death."""
    rng = random.Random(seed)
    places = [(role, step) for role, steps in STEPS.items() for step in steps]
    chosen = [places[(seed - 1) % len(places)]]
    if rng.random() < 0.25:
        role = chosen[0][0].removeprefix("mending ")
        chosen.append((role, rng.choice(STEPS[role])))
    return [Death(role, step, _nth(role, step, rng)) for role, step in chosen]


def _nth(role: str, step: str, rng: random.Random) -> int:
    if step == ANY_MOMENT:
        return rng.randint(1, 60)
    return 1 if step in RARE or role.startswith("mending") else rng.randint(1, 4)


# The processes


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
        return not select.select([self.stop], [], [], 0.002)[0]


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
    while min(nexts) < BATCHES or (life.waiting[0] and min(nexts) < LIMIT):
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
    topic = life.topic
    while life.idle():
        topic.retain()


class Warnings(logging.Handler):
    """Tells what the log cut off."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell("torn", record.getMessage())


# Their lives


@dataclass
class Process:
    """A process, what it told, and how it ended."""

    role: str
    pid: int
    pipe: int
    number: int
    death: Death | None = None
    rest: bytes = b""
    reads: list[list[Any]] = field(default_factory=list)
    torn: int = 0
    died_at: str | None = None
    killed: bool = False


class Scene:
    """The processes of a seed and their log."""

    def __init__(self, folder: Path, seed: int, plan: list[Death]) -> None:
        self.seed, self.plan = seed, list(plan)
        self.log = Log(folder)
        self.log.create(TOPIC, partitions=PARTITIONS, segment_bytes=1_500, keep_bytes=3_000)
        Group(self.log, TOPIC, GROUP).reset("earliest")
        self.stop, self._stopping = os.pipe()
        self.waiting = mmap.mmap(-1, 1)
        self.waiting[0] = bool(plan)
        self.living: dict[int, Process] = {}
        self.all: list[Process] = []
        self.acknowledged = [[-1] * PARTITIONS for _ in range(2)]
        self.told = 0
        self.errors: list[str] = []

    def run(self) -> None:
        """Lets all work until all is appended and read."""
        if self.plan and self.plan[0].role.startswith("mending"):
            # Alone, so that it is the one who mends.
            self.start("producer", 0, Death("producer", "*.arrow half written", 3))
            self.finish(lambda: not self.living)
            self.start(self.plan[0].role.removeprefix("mending "), 0, self.plan.pop(0))
            self.finish(lambda: not self.living)
        victims = {("producer", 0): None, ("producer", 1): None, ("reader", 0): None, ("reader", 1): None}
        victims |= {("retention", 0): None}
        for role, number in victims:
            first = bool(self.plan) and self.plan[0].role == role and number == 0
            self.start(role, number, self.plan.pop(0) if first else None)
        self.waiting[0] = any(process.death for process in self.living.values())
        self.finish(lambda: not any(process.role == "producer" or process.death for process in self.living.values()))
        os.write(self._stopping, b"!")
        self.finish(lambda: not self.living)
        with Consumer(self.log, TOPIC, GROUP) as last:  # what those who died had not committed
            drained = Process("reader", 0, 0, 9)
            self.all.append(drained)
            while records := last.poll():
                drained.reads.append([[record.partition, record.offset, record.value] for record in records])

    def start(self, role: str, number: int, death: Death | None) -> None:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            self._live(role, number, death, theirs)
        os.close(theirs)
        self.living[ours] = process = Process(role, pid, ours, number, death)
        self.all.append(process)

    def _live(self, role: str, number: int, death: Death | None, pipe: int) -> None:
        """The life of a process, which has no end but this."""

        def tell(kind: str, what: Any = None) -> None:
            left = memoryview(json.dumps([kind, what]).encode() + b"\n")
            while left:
                left = left[os.write(pipe, left) :]

        try:
            logger = logging.getLogger("headrace.log")
            logger.handlers, logger.propagate = [Warnings(tell)], False
            at_step = death is not None and death.step != ANY_MOMENT
            steps = Steps(lambda step: tell("dying", step))
            if death is not None and at_step:
                steps.fatal, steps.nth = death.step, death.nth
            steps.watch()
            life = Life(self.log, tell, steps, self.stop, self.waiting)
            if role == "producer":
                produce(life, number, self.acknowledged[number], retries=self.seed % 2 == 0)
            elif role == "reader":
                read(life, self.seed + number)
            else:
                retain(life)
            tell("passed", sorted(steps.passed))
            os._exit(0)
        except BaseException:
            tell("error", traceback.format_exc())
            os._exit(1)

    def finish(self, done: Callable[[], bool]) -> None:
        """Hears what they tell until it is done; who dies is replaced."""
        deadline = time.monotonic() + SECONDS
        while not done():
            ready, _, _ = select.select(list(self.living), [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                for process in self.living.values():
                    os.kill(process.pid, signal.SIGKILL)
                self.errors.append(
                    f"{[(each.role, each.death) for each in self.living.values()]} did not come to an end"
                )
                raise TimeoutError
            for pipe in ready:
                self._hear(self.living[pipe])
            for process in self.living.values():
                if process.death and process.death.step == ANY_MOMENT and self.told >= process.death.nth:
                    process.killed = True
                    os.kill(process.pid, signal.SIGKILL)

    def _hear(self, process: Process) -> None:
        data = os.read(process.pipe, 1 << 16)
        *lines, process.rest = (process.rest + data).split(b"\n")
        for line in lines:
            kind, what = json.loads(line)
            self.told += 1
            if kind == "appended":
                number, sequence = what
                self.acknowledged[process.number][number] = sequence
            elif kind == "read":
                process.reads.append(what)
            elif kind == "torn":
                process.torn += 1
            elif kind == "dying":
                process.died_at = what
            elif kind == "error":
                self.errors.append(f"{process.role}: {what}")
        if not data:
            self._ended(process)

    def _ended(self, process: Process) -> None:
        _, status = os.waitpid(process.pid, 0)
        os.close(process.pipe)
        del self.living[process.pipe]
        died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if process.death is None:
            if status != 0:
                self.errors.append(f"{process.role} {process.number} ended with status {status}")
            return
        if not died:
            self.errors.append(f"{process.role} was to die at {process.death} and did not")
        if process.killed:
            process.died_at = ANY_MOMENT
        alone = process.death.step == "*.arrow half written" and len(self.all) == 1
        if process.death.role.startswith("mending") or (
            alone and self.plan and self.plan[0].role.startswith("mending")
        ):
            return  # its successor is started when it is its turn
        following = self.plan.pop(0) if self.plan else None
        if following and following.step == ANY_MOMENT:
            following = Death(following.role, following.step, self.told + following.nth)
        self.start(process.role, process.number, following)
        self.waiting[0] = any(each.death for each in self.living.values())


# What must hold


def wrong(scene: Scene) -> Iterator[str]:
    """What is not as it should be in the end."""
    topic = scene.log.topic(TOPIC)
    read: dict[tuple[int, int], Any] = {}
    first: dict[tuple[int, int], tuple[Process, int]] = {}
    for process in scene.all:
        for poll, records in enumerate(process.reads):
            for partition, offset, value in records:
                place = partition, offset
                if place not in read:
                    read[place], first[place] = value, (process, poll)
                    continue
                if read[place] != value:
                    yield f"{place} was {read[place]} and is {value}"
                before, number = first[place]
                if not before.died_at or number != len(before.reads) - 1:
                    yield f"{place} came twice, and was committed before"
    for number, partition in enumerate(topic.partitions):
        end = partition.next_offset()
        offsets = sorted(offset for where, offset in read if where == number)
        if offsets != list(range(end)):
            yield f"of {end} records of partition {number}, {end - len(offsets)} were not read"
        kept = {(number, record.offset): record.value for record in topic.read(number)}
        if any(read.get(place) != value for place, value in kept.items()):
            yield f"partition {number} has not what was read of it"
        in_order = [read[number, offset] for offset in offsets]
        for producer, acknowledged in enumerate(scene.acknowledged):
            mine = [value for value in in_order if value[0] == producer]
            sent = [
                value for sequence in range(acknowledged[number] + 1) for value in values(producer, number, sequence)
            ]
            if mine != sent:
                yield f"of producer {producer}, partition {number} has {len(mine)} records of {len(sent)}, or out of order"
    behind = Group(scene.log, TOPIC, GROUP).lag()
    if any(behind.values()):
        yield f"the group is behind: {behind}"
    torn = {path for path in scene.log.path.rglob("*.new")}
    if any(path.parent.name.isdecimal() and path.stem == "departed" for path in torn) and not scene.plan:
        pass  # what a death left half written is written over by the next who writes it


@dataclass(frozen=True)
class Result:
    """What came of a seed."""

    seed: int
    died: tuple[tuple[str, str], ...]
    records: int
    again: int
    removed: int
    torn: int
    wrong: tuple[str, ...]


def survived(seed: int) -> Result:
    """Plays a seed in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-kill-{seed}-"))
    plan = deaths(seed)
    scene = Scene(folder, seed, plan)
    try:
        scene.run()
        problems = [*scene.errors, *wrong(scene)]
        died = tuple((each.death.role, each.died_at) for each in scene.all if each.death and each.died_at)
        died = tuple(each for each in died if each[0] != "producer" or each in {(d.role, d.step) for d in plan})
        if len(died) != len(plan):
            problems.append(f"{len(plan)} were to die, {len(died)} did: {plan}")
        partitions = scene.log.topic(TOPIC).partitions
        records = sum(partition.next_offset() for partition in partitions)
        told = sum(len(records) for process in scene.all for records in process.reads)
        removed = sum(partition.earliest() for partition in partitions)
        torn = sum(process.torn for process in scene.all)
        result = Result(seed, died, records, told - records, removed, torn, tuple(problems))
    except Exception:
        result = Result(seed, (), 0, 0, 0, 0, (*scene.errors, traceback.format_exc()))
    if not result.wrong:
        shutil.rmtree(folder)
    return result


HEAD: Final = "| who | killed at | seeds | kills | records | read again | cut | removed | outcome |\n|---|---|---|---|---|---|---|---|---|"


def table(results: list[Result]) -> Iterator[str]:
    """The results by what was killed where first."""
    yield HEAD
    rows: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        death = deaths(result.seed)[0]
        rows[death.role, death.step].append(result)
    for (role, step), group in rows.items():
        sums = [sum(getattr(each, name) for each in group) for name in ("records", "again", "torn", "removed")]
        bad = [each.seed for each in group if each.wrong]
        outcome = f"WRONG: {bad}" if bad else "equal"
        seeds = ", ".join(str(each.seed) for each in group)
        kills = sum(len(each.died) for each in group)
        yield f"| {role} | {step} | {seeds} | {kills} | " + " | ".join(f"{each:,}" for each in sums) + f" | {outcome} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to try")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    options = parser.parse_args()
    begun = time.monotonic()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        results = pool.map(survived, range(options.first, options.first + options.seeds), chunksize=1)
    print("\n".join(table(results)))
    kills = sum(len(result.died) for result in results)
    print(f"\n{len(results)} seeds, {kills} kills, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    for result in results:
        for each in result.wrong:
            print(f"seed {result.seed}: {each}", file=sys.stderr)
    return int(any(result.wrong for result in results))


if __name__ == "__main__":
    sys.exit(main())
