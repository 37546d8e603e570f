"""Kills producers, readers and retention of a log with SIGKILL at seeded steps, and checks what was kept and read.

    python tests/log/kill.py --seeds 200

prints a table in Markdown. Each seed has a log of its own, on which two producers, two readers of a group and perhaps a
process for retention work at once, all forked from one that has imported everything. One of them dies, at a step of its
work or at any moment, and another takes its place; in one seed of four that one dies as well. Nothing waits for time to
pass.
"""

from __future__ import annotations

import argparse
import gc
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
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from lives import GROUP, PARTITIONS, TOPIC, Life, produce, read, retain, values
from steps import Steps

from headrace.log import Consumer, Group, Log

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
    ".departed.new created",
    ".departed.new half written",
    "before fsync of .departed.new",
    "before rename to departed",
    "before removal of *.index",
    "before removal of *.torn",
    "before removal of *.arrow",
)
_JOINING: Final = (
    "group/members/* created",
    "group/members/* locked",
    "group/.shares.json.new created",
    "group/.shares.json.new half written",
    "before fsync of group/.shares.json.new",
    "before rename to group/shares.json",
)
_READING: Final = (
    "group/lock locked",
    "group/.offsets.json.new created",
    "group/.offsets.json.new half written",
    "before fsync of group/.offsets.json.new",
    "before rename to group/offsets.json",
    "before fsync of group",
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
    "reader": (*_JOINING, *_READING, ANY_MOMENT, ANY_MOMENT),
    "retention": (*_REMOVING, ANY_MOMENT),
    "mending producer": _MENDING,
    "mending reader": _MENDING,
    "following reader": ("before removal of group/members/*",),
}
"""Where who dies: every step of an undisturbed run, and those that only follow upon a death."""

HARMLESS: Final = {
    f"before removal of {name}.new" for name in (".departed", "group/.shares.json", "group/.offsets.json")
}
"""Where nobody dies: one has died while it wrote the file, and who died before removing it would leave the same."""


@dataclass(frozen=True)
class Death:
    """Who dies where: at the nth step of a kind, or at any moment, which is when all have told so much."""

    role: str
    step: str
    nth: int = 1


BEFORE: Final = {
    "mending producer": Death("producer", "*.arrow half written", 3),
    "mending reader": Death("producer", "*.arrow half written", 3),
    "following reader": Death("reader", "told, not committed"),
}
"""Who died before them, alone, and left something that they see to."""

SECONDS: Final = 120
"""How long the processes of a seed may take before they are said to hang."""


def deaths(seed: int) -> list[Death]:
    """Seeds in a row take all steps in turn; one in four has a second death."""
    rng = random.Random(seed)
    places = [(role, step) for role, steps in STEPS.items() for step in steps]
    chosen = [places[(seed - 1) % len(places)]]
    if rng.random() < 0.25:
        role = rng.choice(["producer", "reader", "retention"]) if chosen[0][0] in BEFORE else chosen[0][0]
        chosen.append((role, rng.choice(STEPS[role])))
    often = {ANY_MOMENT: 60, **dict.fromkeys(_JOINING, 1), **dict.fromkeys(_REMOVING, 2)}
    return [Death(role, step, 1 if role in BEFORE else rng.randint(1, often.get(step, 4))) for role, step in chosen]


class Warnings(logging.Handler):
    """Tells what the log cut off."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell("torn", record.getMessage())


@dataclass
class Process:
    """A process, what it told, and how it ended."""

    role: str
    number: int
    pid: int = 0
    pipe: int = -1
    death: Death | None = None
    rest: bytes = b""
    reads: list[list[Any]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    torn: int = 0
    died_at: str | None = None


class Scene:
    """The processes of a seed and their log."""

    def __init__(self, folder: Path, seed: int, plan: list[Death]) -> None:
        self.seed, self.plan = seed, list(plan)
        self.log = Log(folder)
        self.log.create(TOPIC, partitions=PARTITIONS, segment_bytes=1_500, keep_bytes=3_000)
        Group(self.log, TOPIC, GROUP).reset("earliest")
        self.stop, self._stopping = os.pipe()
        self.waiting = mmap.mmap(-1, 1)
        self.living: dict[int, Process] = {}
        self.all: list[Process] = []
        self.acknowledged = [[-1] * PARTITIONS for _ in range(2)]
        self.told = 0
        self.errors: list[str] = []

    def run(self) -> None:
        """Lets all work until all is appended and read."""
        if self.plan and self.plan[0].role in BEFORE:
            death = self.plan.pop(0)
            for alone in (BEFORE[death.role], death):
                self._start(alone.role.split()[-1], 0, alone)
                self._until(lambda: not self.living)
        self.waiting[0] = 0
        due = self.plan[0].role if self.plan else None
        roles = [("producer", 0), ("producer", 1), ("reader", 0), ("reader", 1)]
        if due == "retention":  # else producers see to it by themselves
            roles.append(("retention", 0))
        for role, number in roles:
            self._start(role, number, self._next_death() if role == due and number == 0 else None)
        self._until(lambda: not any(each.role == "producer" or each.death for each in self.living.values()))
        os.write(self._stopping, b"!")
        self._until(lambda: not self.living)
        os.close(self.stop)
        os.close(self._stopping)
        last = Process("reader", 9)  # reads what those who died had not committed
        self.all.append(last)
        with Consumer(self.log, TOPIC, GROUP) as consumer:
            while records := consumer.poll():
                last.reads.append([[record.partition, record.offset, record.value] for record in records])

    def _next_death(self) -> Death | None:
        if not self.plan:
            return None
        death = self.plan.pop(0)
        return Death(death.role, death.step, self.told + death.nth) if death.step == ANY_MOMENT else death

    def _start(self, role: str, number: int, death: Death | None) -> None:
        if death is not None:
            self.waiting[0] = 1
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            self._live(role, number, death, theirs)
        os.close(theirs)
        self.living[ours] = Process(role, number, pid, ours, death)
        self.all.append(self.living[ours])

    def _live(self, role: str, number: int, death: Death | None, pipe: int) -> None:
        """The life of a process, which has no end but this."""

        def tell(kind: str, what: Any) -> None:
            left = memoryview(json.dumps([kind, what]).encode() + b"\n")
            while left:
                left = left[os.write(pipe, left) :]

        try:
            logger = logging.getLogger("headrace.log")
            logger.handlers, logger.propagate = [Warnings(tell)], False
            steps = Steps(lambda step: tell("dying", step))
            if death is not None and death.step != ANY_MOMENT:
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

    def _until(self, done: Callable[[], bool]) -> None:
        """Hears what they tell until it is done; who dies is replaced."""
        deadline = time.monotonic() + SECONDS
        while not done():
            ready, _, _ = select.select(list(self.living), [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                self.end()
                raise TimeoutError(f"they did not come to an end: {list(self.living.values())}")
            for pipe in ready:
                self._hear(self.living[pipe])
            over = not any(process.role == "producer" for process in self.living.values())  # then nobody may tell more
            for process in self.living.values():
                death = process.death
                due = death is not None and death.step == ANY_MOMENT and (over or self.told >= death.nth)
                if due and not process.died_at:
                    process.died_at = ANY_MOMENT
                    os.kill(process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Ends whoever lives."""
        for process in self.living.values():
            os.kill(process.pid, signal.SIGKILL)

    def _hear(self, process: Process) -> None:
        data = os.read(process.pipe, 1 << 16)
        *lines, process.rest = (process.rest + data).split(b"\n")
        for line in lines:
            kind, what = json.loads(line)
            self.told += 1
            if kind == "appended":
                partition, sequence = what
                self.acknowledged[process.number][partition] = sequence
            elif kind == "read":
                process.reads.append(what)
            elif kind == "passed":
                process.passed = what
            elif kind == "torn":
                process.torn += 1
            elif kind == "dying":
                process.died_at = what
            elif kind == "error":
                self.errors.append(f"{process.role} {process.number}: {what}")
        if not data:
            self._ended(process)

    def _ended(self, process: Process) -> None:
        _, status = os.waitpid(process.pid, 0)
        os.close(process.pipe)
        del self.living[process.pipe]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if killed != (process.death is not None) or (not killed and status):
            self.errors.append(
                f"{process.role} {process.number} ended with status {status}, planned was {process.death}"
            )
        if process.death is not None and process.death.role not in BEFORE and process.death not in BEFORE.values():
            self._start(process.role, process.number, self._next_death())
            self.waiting[0] = any(each.death for each in self.living.values())


# What must hold


def wrong(scene: Scene) -> Iterator[str]:
    """What is not as it should be in the end."""
    topic = scene.log.topic(TOPIC)
    read: dict[tuple[int, int], Any] = {}
    committed: set[tuple[int, int]] = set()
    for process in scene.all:
        for poll, records in enumerate(process.reads):
            for partition, offset, value in records:
                place = partition, offset
                if read.setdefault(place, value) != value:
                    yield f"{place} was {read[place]} and is {value}"
                if process.died_at and poll == len(process.reads) - 1:
                    continue  # perhaps not committed, so others may get it, too
                if place in committed:
                    yield f"{place} came again, and had been committed"
                committed.add(place)
    for number, partition in enumerate(topic.partitions):
        end = partition.next_offset()
        offsets = sorted(offset for where, offset in read if where == number)
        if offsets != list(range(end)):
            yield f"partition {number} has {end} records, read were {offsets}"
        if any(read.get((number, record.offset)) != record.value for record in topic.read(number)):
            yield f"partition {number} has not what was read of it"
        in_order = [read[number, offset] for offset in offsets]
        for producer, acknowledged in enumerate(scene.acknowledged):
            batches = range(acknowledged[number] + 1)
            sent = [value for sequence in batches for value in values(producer, number, sequence)]
            mine = [value for value in in_order if value[0] == producer]
            if mine != sent:
                yield f"partition {number} has of producer {producer} {mine}, acknowledged were {sent}"
    behind = Group(scene.log, TOPIC, GROUP).lag()
    if any(behind.values()):
        yield f"the group is behind: {behind}"
    known = {step for steps in STEPS.values() for step in steps} | HARMLESS
    for step in sorted({step for process in scene.all for step in process.passed} - known):
        yield f"nobody ever dies at this step: {step}"


@dataclass(frozen=True)
class Result:
    """What came of a seed."""

    seed: int
    kills: int = 0
    records: int = 0
    again: int = 0
    torn: int = 0
    removed: int = 0
    wrong: tuple[str, ...] = ()


def survived(seed: int) -> Result:
    """Plays a seed in a folder of its own."""
    # What a killed process has written is in the operating system's memory; the test is quicker if the log is, too.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-kill-{seed}-", dir=memory))
    scene = Scene(folder, seed, deaths(seed))
    try:
        scene.run()
        problems = [*scene.errors, *wrong(scene)]
    except Exception:
        scene.end()
        return Result(seed, wrong=(*scene.errors, traceback.format_exc(), f"see {folder}"))
    partitions = scene.log.topic(TOPIC).partitions
    records = sum(partition.next_offset() for partition in partitions)
    result = Result(
        seed,
        kills=sum(process.died_at is not None for process in scene.all),
        records=records,
        again=sum(len(records) for process in scene.all for records in process.reads) - records,
        torn=sum(process.torn for process in scene.all),
        removed=sum(partition.earliest() for partition in partitions),
        wrong=(*problems, f"see {folder}") if problems else (),
    )
    if not problems:
        shutil.rmtree(folder)
    return result


def table(results: list[Result]) -> Iterator[str]:
    """The results by who died where first."""
    yield "| who | killed at | seeds | kills | records | read again | batches cut | removed | outcome |"
    yield "|---|---|---|---|---|---|---|---|---|"
    rows: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        death = deaths(result.seed)[0]
        rows[death.role, death.step].append(result)
    for (role, step), those in rows.items():
        sums = [sum(getattr(each, name) for each in those) for name in ("kills", "records", "again", "torn", "removed")]
        bad = [str(each.seed) for each in those if each.wrong]
        cells = [
            role,
            step.replace("*", "\\*"),
            ", ".join(str(each.seed) for each in those),
            *(f"{each:,}" for each in sums),
            f"WRONG: {', '.join(bad)}" if bad else "as it must be",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to try")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    options = parser.parse_args()
    begun = time.monotonic()
    pa.array([0])  # imports pandas; a process that is forked has it then
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        results = pool.map(survived, range(options.first, options.first + options.seeds), chunksize=1)
    print("\n".join(table(results)))
    kills = sum(result.kills for result in results)
    print(f"\n{len(results)} seeds, {kills} kills, in {time.monotonic() - begun:.0f} s")
    for result in results:
        for each in result.wrong:
            print(f"seed {result.seed}: {each}", file=sys.stderr)
    return int(any(result.wrong for result in results))


if __name__ == "__main__":
    sys.exit(main())
