"""Page views at 2,000/s with bursts to 47,000/s; users who view more than 100 pages of one advertiser are suspects.

    python examples/storm_fraud.py [SECONDS]

views -> check (by user and advertiser) -> suspects, and -> charge (by advertiser) -> topic

In a burst the spouts run ahead of the bolts by what may be under way, and no further; nothing is lost, and it is
caught up with afterwards.
"""

import random
import sys
import tempfile
import time

from headrace import storm
from headrace.log import Log

CALM, BURST = 2_000, 47_000  # views a second, of all tasks
TASKS = 2
MANY = 100  # views of one advertiser by one user, which no person makes


class Views(storm.Spout):
    """Emits as many views as the clock asks for: bursts are the fourth and fifth second of every twenty."""

    fields = ("user", "advertiser")

    def open(self, context: storm.TopologyContext) -> None:
        self.random = random.Random(context.task)
        self.began, self.sent = time.time(), 0

    def next_tuple(self) -> None:
        if self.sent < self.due(time.time() - self.began) / TASKS:
            self.sent += 1
            # One user in a thousand is a machine, which always views the same.
            user = self.random.randrange(100_000)
            advertiser = 7 if user < 100 else self.random.randrange(50)
            self.emit([user % 100 if user < 100 else user, advertiser], message_id=self.sent)

    @staticmethod
    def due(seconds: float) -> float:
        """How many views there were until now."""
        whole, rest = divmod(seconds, 20)
        return CALM * seconds + (BURST - CALM) * (2 * whole + min(max(rest - 3, 0), 2))


class Check(storm.Bolt):
    """Passes views of people on, and names machines, each once."""

    fields = ("advertiser",)
    streams = {"suspects": ("user", "advertiser")}  # noqa: RUF012

    def prepare(self, context: storm.TopologyContext) -> None:
        self.views: dict[tuple[int, int], int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        pair = tup["user"], tup["advertiser"]
        self.views[pair] = views = self.views.get(pair, 0) + 1
        if views <= MANY:
            self.emit([tup["advertiser"]], anchors=[tup])
        elif views == MANY + 1:
            self.emit(pair, anchors=[tup], stream="suspects")
        self.ack(tup)


class Charge(storm.BasicBolt):
    """What each advertiser pays for."""

    def prepare(self, context: storm.TopologyContext) -> None:
        self.charged: dict[int, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        self.charged[tup["advertiser"]] = self.charged.get(tup["advertiser"], 0) + 1


def build(log: str) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("views", Views(), parallelism=TASKS)
    builder.set_bolt("check", Check(), parallelism=4).fields_grouping("views", ["user", "advertiser"])
    builder.set_bolt("charge", Charge(), parallelism=2).fields_grouping("check", ["advertiser"])
    builder.set_bolt("out", storm.ToTopic("suspects", log=log)).global_grouping("check", stream="suspects")
    return builder.create()


def main(seconds: float = 60) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("fraud", build(log), storm.Config(max_spout_pending=20_000, message_timeout="2min"))
        for _ in range(int(seconds // 5)):
            time.sleep(5)
            views = cluster.status("fraud").of("views")
            emitted, pending = sum(task.emitted for task in views), sum(task.pending or 0 for task in views)
            print(f"{emitted:>12,} emitted {pending:>8,} under way")
        cluster.deactivate("fraud")
        cluster.running("fraud").settle(120)
        print(cluster.status("fraud"))
    suspects = [record.value for record in Log(log).topic("suspects").read(0)]
    print(f"{len(suspects)} suspects, e.g. {suspects[:3]}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
