"""Charges page views to advertisers, except those of bots, at 2,000 views/s with bursts of 47,000/s.

    python examples/storm_fraud.py [SECONDS]

views -> check (by user and advertiser) -> charge (by advertiser, a tick every second) -> topic
             └-> suspects: users with more than 100 views of one advertiser -> topic

In a burst, views wait in the log or at their source, and none is lost. Prints rates, backlog and latency every two
seconds. At the end, plain Python checks all views again: suspects and charges must be the same.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace import storm
from headrace.log import Log

CALM, BURST = 2_000, 47_000  # views per second, of all tasks
PERIOD, BEGINS, LASTS = 60, 20, 3  # seconds: in every minute there is a burst of three
TASKS = 2
MANY = 100  # views of one advertiser by one user; a person makes fewer
CONFIG = storm.Config(max_spout_pending=100_000, message_timeout="10min")

Pair = tuple[int, int]


def due(seconds: float) -> float:
    """Returns how many views there are in the first seconds.

    >>> due(20), due(21) - due(20), due(23) - due(20), due(80) - due(20)
    (40000, 47000, 141000, 255000)
    """
    periods, remainder = divmod(seconds, PERIOD)
    return CALM * seconds + (BURST - CALM) * (LASTS * periods + min(max(remainder - BEGINS, 0), LASTS))


class Views(storm.Spout):
    """Emits the views that are due since it was activated. One view of fifty is by one of ten bots."""

    fields = ("user", "advertiser")

    def open(self, context: storm.TopologyContext) -> None:
        self.begin(context.task)

    def begin(self, task: int) -> None:
        self.random, self.number = random.Random(task), 0

    def activate(self) -> None:
        self.began = time.time()

    def next_tuple(self) -> None:
        target = int(due(time.time() - self.began) / TASKS)
        for _ in range(min(target - self.number, 100)):
            self.number += 1
            self.emit(self.pick(), message_id=self.number)

    def pick(self) -> Pair:
        draw = self.random.random()
        if draw < 0.02:
            return int(draw * 500), 7
        return int(draw * 100_000), int(self.random.random() * 50)


class Check(storm.Bolt):
    """Passes on up to a hundred views of each user and advertiser; a user with more is emitted once as a suspect."""

    fields = ("advertiser",)
    streams = {"suspects": ("user", "advertiser")}

    def prepare(self, context: storm.TopologyContext) -> None:
        self.views: dict[Pair, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        pair = tup["user"], tup["advertiser"]
        self.views[pair] = views = self.views.get(pair, 0) + 1
        if views <= MANY:
            self.emit([tup["advertiser"]], anchors=[tup])
        elif views == MANY + 1:
            self.emit(pair, anchors=[tup], stream="suspects")
        self.ack(tup)


class Charge(storm.BasicBolt):
    """Counts the views that each advertiser pays for, and emits the changed counts with each tick."""

    fields = ("advertiser", "views")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.charged: dict[int, int] = {}
        self.changed: set[int] = set()

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            for advertiser in sorted(self.changed):
                self.emit([advertiser, self.charged[advertiser]])
            self.changed.clear()
        else:
            advertiser = tup["advertiser"]
            self.charged[advertiser] = self.charged.get(advertiser, 0) + 1
            self.changed.add(advertiser)


def build(log: str) -> storm.Topology:
    """Builds the topology, which writes to topics of this log."""
    builder = storm.TopologyBuilder()
    builder.set_spout("views", Views(), parallelism=TASKS)
    builder.set_bolt("check", Check(), parallelism=2).fields_grouping("views", ["user", "advertiser"])
    builder.set_bolt("charge", Charge(), parallelism=2, tick="1s").fields_grouping("check", ["advertiser"])
    builder.set_bolt("suspects", storm.ToTopic("suspects", log=log)).global_grouping("check", stream="suspects")
    builder.set_bolt("charges", storm.ToTopic("charges", log=log)).global_grouping("charge")
    return builder.create()


@dataclass(frozen=True)
class Answers:
    """The result: the suspects as (user, advertiser), and the charged views of each advertiser."""

    suspects: frozenset[Pair]
    charges: dict[int, int]


def written(log: str) -> Answers:
    """Reads what the topology wrote: all suspects, and the last charge of each advertiser."""
    values = [record.value for record in Log(log).topic("suspects").read(0)]
    suspects = [(value["user"], value["advertiser"]) for value in values]
    assert len(suspects) == len(set(suspects)), "a suspect was written twice"
    charges = {record.value["advertiser"]: record.value["views"] for record in Log(log).topic("charges").read(0)}
    return Answers(frozenset(suspects), charges)


def checked_again(status: storm.TopologyStatus) -> Answers:
    """Computes the answers for all acked views, in plain Python: each task draws the same views again."""
    views: Counter[Pair] = Counter()
    for task in status.of("views"):
        spout = Views()
        spout.begin(task.task)
        views.update(spout.pick() for _ in range(task.acked))
    charges: Counter[int] = Counter()
    for (_, advertiser), count in views.items():
        charges[advertiser] += min(count, MANY)
    return Answers(frozenset(pair for pair, count in views.items() if count > MANY), dict(charges))


@dataclass(frozen=True)
class Sample:
    """The topology's progress at a time after the first view; rates and latency are those since the last sample."""

    seconds: float
    emitted: int
    acked: int
    emit_rate: float
    ack_rate: float
    latency: float | None  # seconds from emit to ack, on average

    @property
    def at_source(self) -> int:
        return max(int(due(self.seconds)) - self.emitted, 0)

    def __str__(self) -> str:
        latency = "-" if self.latency is None else f"{self.latency:.2f} s"
        numbers = (self.emit_rate, self.ack_rate, self.at_source, self.emitted - self.acked)
        burst = "burst" if BEGINS <= self.seconds % PERIOD - 0.5 <= BEGINS + LASTS else ""
        return (
            f"{self.seconds:5.0f} s {burst:5}" + "".join(f"{number:>13,.0f}" for number in numbers) + f"{latency:>11}"
        )


HEAD = (
    f"{'':13}" + "".join(f"{name:>13}" for name in ("emitted/s", "acked/s", "at source", "under way")) + "    latency"
)


def samples(cluster: storm.LocalCluster, began: float, every: float = 2) -> Iterator[Sample]:
    """Takes a sample every two seconds."""
    before, emitted, acked, spent = began, 0, 0, 0.0
    while True:
        time.sleep(every)
        now, tasks = time.time(), cluster.status("fraud").of("views")
        all_emitted, all_acked = sum(task.emitted for task in tasks), sum(task.acked for task in tasks)
        all_spent = sum((task.complete_ms or 0) / 1000 * task.acked for task in tasks)
        latency = (all_spent - spent) / (all_acked - acked) if all_acked > acked else None
        elapsed = now - before
        emit_rate, ack_rate = (all_emitted - emitted) / elapsed, (all_acked - acked) / elapsed
        yield Sample(now - began, all_emitted, all_acked, emit_rate, ack_rate, latency)
        before, emitted, acked, spent = now, all_emitted, all_acked, all_spent


def answers(cluster: storm.LocalCluster, log: str, seconds: float = 300) -> tuple[Answers, Answers]:
    """Stops the spouts, waits for the last charges, and returns the written answers and the expected ones."""
    cluster.deactivate("fraud")
    cluster.running("fraud").settle(seconds)
    expected, deadline = checked_again(cluster.status("fraud")), time.monotonic() + seconds
    while (actual := written(log)) != expected and time.monotonic() < deadline:
        time.sleep(0.2)
    return actual, expected


def run(seconds: float, say: Callable[[str], object]) -> list[Sample]:
    """Runs the topology for some seconds and until all views are done; prints samples and checks the answers."""
    log, all_samples = tempfile.mkdtemp(), []
    with storm.LocalCluster() as cluster:
        cluster.submit("fraud", build(log), CONFIG)
        cluster.deactivate("fraud")
        while cluster.status("fraud").batches < 3:  # Spark has to warm up; ticks make batches meanwhile
            cluster.running("fraud").check()
            time.sleep(0.1)
        cluster.activate("fraud")
        began = time.time()
        say(HEAD)
        for sample in samples(cluster, began):
            all_samples.append(sample)
            say(str(sample))
            if sample.seconds > seconds:
                break
        actual, expected = answers(cluster, log)
        status = cluster.status("fraud")
        letters = cluster.dead_letters("fraud")
    say(str(status))
    views = sum(task.acked for task in status.of("views"))
    if actual != expected or letters:
        sys.exit(f"✗ {len(letters)} dead letters; suspects and charges of {views:,} views differ from the check")
    say(f"✓ all {views:,} views were acked, none was replayed or dropped; checked again, the answers are the same:")
    charged, advertisers = sum(actual.charges.values()), len(actual.charges)
    say(f"  {len(actual.suspects)} suspects, {charged:,} views charged to {advertisers} advertisers")
    throttled = max(task.throttled_seconds or 0 for task in status.of("views"))
    say(f"  spouts were throttled for at most {throttled:.1f} s by max_spout_pending: views waited at the source")
    return all_samples


def main(seconds: float = 60) -> None:
    run(seconds, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
