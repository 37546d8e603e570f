"""Programs of every dialect, run by one driver on a cluster, and the answers they must give.

    python tests/engine/clusterprograms.py FOLDER [NAME...]

runs them on the master of SPARK_MASTER, one after the other, and prints a line of JSON for each. Functions and classes
are imported by executors from this very file, which travels with the script, as do modules beside it.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from operator import add
from pathlib import Path
from typing import Any, Final

import apache_beam as beam
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.trigger import AccumulationMode, AfterWatermark

import headrace as hr
from headrace import millwheel as mw
from headrace import naiad, storm
from headrace.dialects.beam import HeadraceRunner
from headrace.dstreams import ManualClock, StreamingContext
from headrace.engine.spark.session import spark_session
from headrace.log import Log

WORDS: Final = [f"w{n % 7}" for n in range(60)]
SECONDS: Final = 200


def batch(folder: Path) -> Any:
    (folder / "in").mkdir()
    for part in range(6):
        (folder / "in" / f"{part}.txt").write_text("\n".join(WORDS[10 * part : 10 * part + 10]))
    p = hr.Pipeline()
    words = p | hr.ReadText(str(folder / "in"))
    counts = words | hr.Count.per_element()
    lengths = hr.AsDict(counts)
    words | hr.Distinct() | hr.Map(lambda word, n: f"{word} {n[word]}", lengths) | hr.WriteText(str(folder / "out"))
    p.run().wait()
    return Counter(line for part in (folder / "out").glob("part-*") for line in part.read_text().splitlines())


class Words(storm.Spout):
    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < len(WORDS):
            self.emit([WORDS[self.at]], message_id=self.at)
            self.at += 1


class CountWords(storm.BasicBolt):
    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


def topology(folder: Path) -> Any:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words())
    builder.set_bolt("count", CountWords(), parallelism=3).fields_grouping("words", ["word"])
    builder.set_bolt("out", storm.ToTopic("counts", log=str(folder / "results"))).global_grouping("count")
    config = storm.Config(guarantee="effectively_once", message_timeout="1 hour")

    def counted() -> list[Any]:
        log = Log(folder / "results")
        return [each.value for each in log.topic("counts").read(0)] if "counts" in log.topics() else []

    with storm.LocalCluster(folder / "cluster") as cluster:
        cluster.submit("words", builder.create(), config)
        _until(lambda: len(counted()) >= len(WORDS), lambda: cluster.running("words").check())
        cluster.kill("words")
    return Counter(f"{each['word']} {each['count']}" for each in counted())


def sql(folder: Path) -> Any:
    with hr.SqlSession(str(folder / "home")) as session:
        session.execute("CREATE STREAM visits (user text, amount bigint) WITH (partitions = 2)")
        users = "SELECT user, count(*) AS n FROM visits GROUP BY user"
        session.execute(f"CREATE VIEW often AS SELECT n, count(*) AS users FROM ({users}) GROUP BY n")
        session.execute("INSERT INTO visits VALUES " + ", ".join(f"('u{n * n % 5}', {n})" for n in range(20)))
        session.catch_up()
        table = session.execute("SELECT n, users FROM often")[0].table
        assert table is not None
        return Counter(f"{row['n']} {row['users']}" for row in table.to_pylist())


class Running(mw.Computation):
    """Adds up the numbers of a letter, and says every sum."""

    inputs = {"numbers": mw.key("letter")}
    outputs = ("sums",)
    total = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.total += record.value["n"]
        self.produce("sums", f"{record.key} {self.total}")


def millwheel(folder: Path) -> Any:
    log = Log(folder / "mill" / "log")
    log.create("numbers", partitions=2)
    injector = mw.Injector("numbers", log=folder / "mill" / "log", name="test")
    for second in range(12):
        injector.send({"letter": "abc"[second % 3], "n": second}, timestamp=second, key="abc"[second % 3])
    injector.advance(12)
    injector.flush()

    def said() -> list[Any]:
        return [each.value for each in log.topic("sums").read(0)] if "sums" in log.topics() else []

    with mw.Mill(folder / "mill", spark=spark_session()) as mill:
        mill.run(Running(), "running")
        _until(lambda: len(said()) >= 12, lambda: mill.handle("running").wait(0))
    return Counter(said())


def dstreams(folder: Path) -> Any:
    clock = ManualClock(1_700_000_000_000)
    ssc = StreamingContext(spark_session().sparkContext, 1, clock=clock)
    ssc.checkpoint(str(folder / "checkpoint"))
    totals: list[Any] = []
    lines = ssc.queueStream([["a b", "b"], ["a"], ["c a"]])
    pairs = lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(add)
    state = pairs.updateStateByKey(lambda values, total: sum(values) + (total or 0))
    state.foreachRDD(lambda rdd: totals.append(sorted(rdd.collect())))
    ssc.start()
    clock.advance(3)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    ssc.awaitTermination(0)
    return Counter(f"{batch} {key} {n}" for batch, found in enumerate(totals) for key, n in found)


class DistinctCount(naiad.Vertex):
    """Sends the number of different messages of an epoch when it is over."""

    def __init__(self) -> None:
        self.seen: dict[Any, set[Any]] = {}

    def on_recv(self, message: Any, time: Any) -> None:
        if time not in self.seen:
            self.seen[time] = set()
            self.notify_at(time)
        self.seen[time].add(message)

    def on_notify(self, time: Any) -> None:
        self.send(len(self.seen.pop(time)), time)


def timely(folder: Path) -> Any:
    p = hr.Pipeline()
    graph = naiad.Graph()
    read = graph.input("words", p | hr.TestStream().add(WORDS[:5]).add(WORDS[5:30]).finish())
    counts = naiad.messages(graph.stage(DistinctCount, read)) | hr.Collect()
    p.run(stream=True, checkpoint=str(folder / "checkpoint")).wait()
    return Counter(f"{time[0]} {count}" for count, time in counts)


def beam_batch(folder: Path) -> Any:
    with beam.Pipeline(runner=HeadraceRunner()) as p:
        counts = p | beam.Create(WORDS) | beam.Reshuffle() | beam.combiners.Count.PerElement()
        counts | beam.Map(lambda pair: f"{pair[0]} {pair[1]}") | beam.io.WriteToText(str(folder / "counts"))
    return Counter(line for part in folder.glob("counts*") for line in part.read_text().splitlines())


def beam_stream(folder: Path) -> Any:
    options = ["--streaming", f"--checkpoint={folder / 'checkpoint'}"]
    with beam.Pipeline(runner=HeadraceRunner(), argv=options) as p:
        script = TestStream().add_elements([("a", 1), ("b", 2)]).advance_watermark_to(5)
        script = script.add_elements([("a", 3)]).advance_watermark_to_infinity()
        windows = beam.WindowInto(
            beam.window.FixedWindows(10), trigger=AfterWatermark(), accumulation_mode=AccumulationMode.DISCARDING
        )
        sums = p | script | windows | beam.CombinePerKey(sum)
        sums | beam.Map(lambda pair: (folder / f"{pair[0]} {pair[1]}.sum").touch())
    return Counter(path.stem for path in folder.glob("*.sum"))


PROGRAMS: Final[dict[str, Callable[[Path], Any]]] = {
    "batch": batch,
    "topology": topology,
    "sql": sql,
    "millwheel": millwheel,
    "dstreams": dstreams,
    "naiad": timely,
    "beam_batch": beam_batch,
    "beam_stream": beam_stream,
}

_COUNTS: Final = Counter(f"{word} {n}" for word, n in Counter(WORDS).items())
ANSWERS: Final[dict[str, Counter[str]]] = {
    "batch": _COUNTS,
    "topology": Counter(f"w{n % 7} {n // 7 + 1}" for n in range(len(WORDS))),
    "sql": Counter({"4 1": 1, "8 2": 1}),
    "millwheel": Counter(["a 0", "a 3", "a 9", "a 18", "b 1", "b 5", "b 12", "b 22", "c 2", "c 7", "c 15", "c 26"]),
    "dstreams": Counter(["0 a 1", "0 b 2", "1 a 2", "1 b 2", "2 a 3", "2 b 2", "2 c 1"]),
    "naiad": Counter(["0 5", "1 7"]),
    "beam_batch": _COUNTS,
    "beam_stream": Counter(["a 1", "a 3", "b 2"]),  # the first elements come before the beginning of time
}


def _until(reached: Callable[[], bool], check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        check()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def main(root: str, *names: str) -> None:
    import clusterprograms  # by its own name, which executors can import

    for name in names or PROGRAMS:
        folder = Path(root, name)
        folder.mkdir()
        try:
            print(json.dumps([name, clusterprograms.PROGRAMS[name](folder)]), flush=True)
        except Exception:
            print(json.dumps([name, traceback.format_exc()]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
