"""Storm's exclamation: words, and two bolts that add an exclamation mark; the second reads both.

    python examples/storm_exclamation.py [SECONDS]

"Hi" through both gives "Hi!!", straight to the second "Hi!".
"""

import itertools
import sys
import tempfile
import time
from collections import Counter

from headrace import storm
from headrace.log import Log

WORDS = ["Hi", "nathan", "mike", "jackson", "golda", "bertels"]


class Words(storm.Spout):
    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        self.emit([WORDS[self.number % len(WORDS)]], message_id=self.number)
        self.number += 1


class Exclaim(storm.BasicBolt):
    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup["word"] + "!"])


def build(log: str) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=10)
    builder.set_bolt("exclaim1", Exclaim(), parallelism=3).shuffle_grouping("words")
    builder.set_bolt("exclaim2", Exclaim(), parallelism=5).shuffle_grouping("words").shuffle_grouping("exclaim1")
    builder.set_bolt("out", storm.ToTopic("exclaimed", log=log)).global_grouping("exclaim2")
    return builder.create()


def main(seconds: float = 45) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("exclamation", build(log), storm.Config(max_spout_pending=50))
        time.sleep(seconds)
        print(cluster.status("exclamation"))
    counts = Counter(record.value["word"] for record in Log(log).topic("exclaimed").read(0))
    for word, count in itertools.islice(sorted(counts.items()), 4):
        print(f"{word:12} {count:,}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
