"""MillWheel's computations on the engine, in one run, on data it makes.

    python bench/millwheel.py [--quick] [--only latency,keys]

latency   a record at a time, from its injection to its production, through one and two computations, with strong and
          with weak productions; beside it the floor: a stream without state between two topics
keys      100,000 keys a batch, each with state and a timer: a computation     rival: the same as a stateful DoFn

Of `keys` the first batch is not counted. The last line is JSON.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from _sections import Bench, Verdict, run

import headrace as hr
from headrace import millwheel as mw
from headrace.log import Log, Topic

POLL = 0.002  # seconds between two looks at the topic of results
GAP = 0.05  # seconds from a production to the next record
LONGEST = 120  # seconds to wait for a production


class Count(mw.Computation):
    """Counts the records of a key, and produces each at once."""

    inputs = {"records": mw.key("key")}
    outputs = ("once",)
    seen = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.seen += 1
        self.produce(next(iter(self.outputs)), record.value)


class CountAgain(Count):
    inputs = {"once": mw.key("key")}
    outputs = ("twice",)


class WeakCount(Count):
    inputs = Count.inputs
    productions = "weak"


class WeakCountAgain(CountAgain):
    inputs = CountAgain.inputs
    productions = "weak"


def latency(bench: Bench) -> Iterator[Verdict]:
    tries, warm = (10, 3) if bench.quick else (60, 5)
    found: dict[str, list[float]] = {}
    handles: list[hr.Handle] = []

    def start(log: str, name: str, kind: type[mw.Computation], stack: ExitStack) -> None:
        mw.create_streams(kind(), log, name)
        p = hr.Pipeline(spark=bench.spark)
        mw.build(p, name, kind(), log, own=True)
        handles.append(p.run(checkpoint=str(bench.folder / f"{Path(log).name}-{name}")))
        stack.callback(handles[-1].stop)

    def floor(log: str, stack: ExitStack) -> str:
        Log(log).create("once")
        p = hr.Pipeline(spark=bench.spark)
        p | hr.ReadTopic("records", log=log) | hr.Map(lambda value: value) | hr.WriteTopic("once", log=log)
        handles.append(p.run(checkpoint=str(bench.folder / "floor")))
        stack.callback(handles[-1].stop)
        return "once"

    def one(kind: type[mw.Computation]) -> Any:
        def begin(log: str, stack: ExitStack) -> str:
            start(log, "first", kind, stack)
            return "once"

        return begin

    def two(first: type[mw.Computation], second: type[mw.Computation]) -> Any:
        def begin(log: str, stack: ExitStack) -> str:
            start(log, "first", first, stack)
            start(log, "second", second, stack)
            return "twice"

        return begin

    ways = {
        "floor": floor,
        "one, strong": one(Count),
        "one, weak": one(WeakCount),
        "two, strong": two(Count, CountAgain),
        "two, weak": two(WeakCount, WeakCountAgain),
    }
    for number, (way, begin) in enumerate(ways.items()):
        log = str(bench.folder / f"log-{number}")
        Log(log).create("records")
        with ExitStack() as stack:
            result = Log(log).topic(begin(log, stack))
            injector = mw.Injector("records", log=log, name="bench")
            measured = zip(delays(injector, result, handles), range(tries + warm), strict=False)
            found[way] = [each for each, _ in measured][warm:]
            handles.clear()
        p50, p95 = np.percentile(found[way], [50, 95]).tolist()
        bench.say(f"{way:12} p50 {1000 * p50:6.0f} ms   p95 {1000 * p95:6.0f} ms   of {tries} records")
        bench.figures.append({"way": way, "p50_ms": round(1000 * p50), "p95_ms": round(1000 * p95)})
    median = {way: statistics.median(each) for way, each in found.items()}
    gain = median["one, strong"] / median["one, weak"]
    yield Verdict("one computation against the floor", median["one, strong"] / median["floor"], 2, False, "see batches")
    yield Verdict("strong against weak, one", gain, 1, True, "weak productions gain nothing here")


def delays(injector: mw.Injector, result: Topic, handles: list[hr.Handle]) -> Iterator[float]:
    """Yields the seconds from the injection of a record to its production, of one after the other."""
    partition, seen = result.partition(0), 0
    for number in itertools.count():
        began = time.perf_counter()
        injector.send({"key": number % 7, "number": number}, timestamp=number)
        injector.advance(number)
        injector.flush()
        for turn in itertools.count(1):
            before, seen = seen, partition.next_offset()
            if any(record.value["number"] == number for record in result.read(0, before, seen)):
                break
            time.sleep(POLL)
            if turn % 500 == 0:
                for handle in handles:
                    handle.wait(0)  # raises an error if it has failed
                if time.perf_counter() - began > LONGEST:
                    states = [handle.status() for handle in handles]
                    raise RuntimeError(f"record {number} was not produced in {LONGEST} s; {states}")
        yield time.perf_counter() - began
        time.sleep(GAP)


class Sums(mw.Computation):
    """Sums the numbers of a key, and produces the sum when the batch's time is over."""

    inputs = {"numbers": mw.key("key")}
    outputs = ("sums",)
    total = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.total += record.value["n"]
        self.set_timer(at=record.timestamp + 1)

    def process_timer(self, timer: mw.Timer) -> None:
        self.produce("sums", {"key": timer.key, "total": self.total})


class SumsFn(hr.DoFn):
    """The same as a stateful DoFn."""

    total, due = hr.ValueState("total"), hr.TimerSpec("due")

    def process(
        self,
        pair: Any,
        at: Any = hr.DoFn.TimestampParam,
        total: Any = hr.DoFn.StateParam(total),
        due: Any = hr.DoFn.TimerParam(due),
    ) -> None:
        total.write((total.read() or 0) + pair[1]["n"])
        due.set(at + 1)

    @hr.on_timer(due)
    def ring(self, key: Any = hr.DoFn.ElementParam, total: Any = hr.DoFn.StateParam(total)) -> Iterator[Any]:
        yield {"key": key, "total": total.read()}


def keys(bench: Bench) -> Iterator[Verdict]:
    count, batches = (20_000 if bench.quick else 100_000), 5
    log = str(bench.folder / "log")
    for name in ("numbers", "sums", "rival numbers", "rival sums"):
        Log(log).create(name.replace(" ", "-"), partitions=2)
    Log(log).create("computation..counts")

    def computation() -> hr.Pipeline:
        p = hr.Pipeline(spark=bench.spark)
        mw.build(p, "computation", Sums(), log, own=True)
        return p

    def rival() -> hr.Pipeline:
        p = hr.Pipeline(spark=bench.spark)
        read = p | hr.ReadTopic("rival-numbers", log=log, watermark="stream")
        sums = read | hr.Map(lambda value: (value["key"], value)) | hr.ParDo(SumsFn())
        sums | hr.WriteTopic("rival-sums", log=log, watermarks=True)
        return p

    feeds = {"computation": "numbers", "DoFn": "rival-numbers"}
    injectors = {name: mw.Injector(feed, log=log, name="bench") for name, feed in feeds.items()}
    times: dict[str, list[float]] = {"computation": [], "DoFn": []}
    with ExitStack() as stack:
        running: dict[str, Any] = {}
        for name, pipeline in (("computation", computation()), ("DoFn", rival())):
            running[name] = pipeline.run(checkpoint=str(bench.folder / name))
            stack.callback(running[name].stop)
        for batch in range(batches + 1):
            for name in sorted(running, reverse=batch % 2 == 1):  # one after the other, in turns
                for key in range(count):
                    injectors[name].send({"key": key, "n": key % 10}, timestamp=2 * batch, key=str(key).encode())
                injectors[name].advance(2 * batch + 2)  # so that the timers of the batch are due at its end
                injectors[name].flush()
                began = time.perf_counter()
                running[name].query.processAllAvailable()
                times[name].append(time.perf_counter() - began)
    for name in running:
        del times[name][0]
        rate = count / statistics.median(times[name])
        bench.say(f"{name:12} {rate:10,.0f} keys/s   batches of {[round(each, 2) for each in times[name]]} s")
    ratio = statistics.median(times["DoFn"]) / statistics.median(times["computation"])
    yield Verdict("a computation against a DoFn", ratio, 0.8, True, "profile ComputationFn.on_record and on_timer")


if __name__ == "__main__":
    run("millwheel", __doc__, latency, keys)
