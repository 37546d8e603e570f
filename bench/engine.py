"""The streaming engine against Spark's own streams, in one run, on data it makes.

    python bench/engine.py [--quick] [--only throughput,growth,age,floor,cold,early,stateful]

throughput  fixed-window sums, an updated pane per key and batch    rivals: groupBy(window, key) in update mode,
                                                                    and a transformWithState per key in Python
growth      a running count, few keys touched of many held          against few touched of few held
age         the last of many batches                                against the first ones
floor       small batches through one and two groupings             a time
cold        a fresh process to its first pane                       a time
early       panes in every batch                                    against one pane at the end of the window
stateful    a DoFn with state, every key touched                    rival: a transformWithState per key in Python

A stream is fed one batch at a time; the first ones warm it up, of the others the median counts. Both sides write what
they give as Parquet. The last line is JSON.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _cpu import cpu_seconds, per_batch
from _sections import Bench, Verdict, run
from _streams import SCHEMA, Feed, Running, arriving, headrace_stream, rival_stream, rows_of
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

import headrace as hr

HOUR = hr.FixedWindows("1 hour")
EVERY_BATCH: Any = {"trigger": hr.AfterWatermark(early=hr.AfterCount(1)), "accumulation": "accumulating"}
RUNNING: Any = {"trigger": hr.Repeatedly(hr.AfterCount(1)), "accumulation": "accumulating"}


# Throughput


def throughput(bench: Bench) -> Iterator[Verdict]:
    rows, warm, timed = (200_000, 2, 3) if bench.quick else (1_000_000, 8, 5)
    for keys, target in ((1_000, 1.0), (100_000, 1.5), (1_000_000, 4.0)):
        keys = keys // 5 if bench.quick else keys
        folder = bench.folder / f"keys-{keys}"
        ours = _fed(_sums(bench, folder / "ours", EVERY_BATCH), rows, keys, warm + timed)
        mine = bench.measured(f"{keys:,} keys, headrace", ours, timed)
        native = _fed(_native_sums(bench, folder / "native"), rows, keys, warm + timed)
        rival = bench.measured(f"{keys:,} keys, groupBy in Spark", native, timed)
        _check_totals(bench, folder)
        yield Verdict(
            f"throughput at {keys:,} keys",
            rival / mine,
            target,
            True,
            "few keys leave Python 50 ms of work: the rest is the JVM's, whose compiler takes half of a batch's CPU "
            "in the first hundred batches, then planning, and encoders of state that Spark makes anew in each task",
        )
        shutil.rmtree(folder)
    keys, rows = (10_000, 100_000) if bench.quick else (100_000, 1_000_000)
    folder = bench.folder / "per-key"
    ours = _fed(_sums(bench, folder / "ours", EVERY_BATCH), rows, keys, warm + timed)
    mine = bench.measured(f"{keys:,} keys, headrace", ours, timed)
    per_key = _fed(_per_key(bench, folder / "native", Sums()), rows // 10, keys // 10, 1, then=(rows, keys))
    rival = bench.measured(f"{keys:,} keys, a call per key", per_key, 1)
    yield Verdict("throughput against a call per key", rival / mine, 30, True, "see above")


def _sums(bench: Bench, folder: Path, windowing: dict[str, Any]) -> tuple[Feed, Running]:
    feed, p = Feed(folder), hr.Pipeline(spark=bench.spark)
    windowed = rows_of(p, feed) | hr.WindowInto(HOUR, **windowing)
    totals = windowed | hr.GroupBy("user").aggregate(total=hr.sum("amount"))
    totals | hr.WriteParquet(f"{folder}/out")
    return feed, headrace_stream(p, folder, "ours")


def _native_sums(bench: Bench, folder: Path) -> tuple[Feed, Running]:
    feed = Feed(folder)
    grouped = arriving(bench.spark, feed).groupBy(F.window("ts", "1 hour"), "user")
    totals = grouped.agg(F.sum("amount").alias("total")).select("user", "total")
    return feed, rival_stream(bench.spark, totals, "update", folder, "out")


def _fed(
    stream: tuple[Feed, Running], rows: int, keys: int, batches: int, then: tuple[int, int] | None = None
) -> Running:
    """Feeds batches of rows to a stream and stops it; `then` is the size of one more."""
    feed, running = stream
    with running:
        for _ in range(batches):
            feed.arrive(feed.users(rows, keys))
            running.done()
        if then is not None:
            feed.arrive(feed.users(*then))
            running.done()
    return running


def _check_totals(bench: Bench, folder: Path) -> None:
    """Sums only grow, so the largest of a key is its last."""
    ours, native = (
        bench.spark.read.parquet(f"{folder}/{path}/*").groupBy("user").agg(F.max("total").alias("total"))
        for path in ("ours/out", "native/out-out")
    )
    assert ours.exceptAll(native).isEmpty() and native.exceptAll(ours).isEmpty(), "the answers differ"


class Sums(StatefulProcessor):
    """The sum of a key's amounts, the way Spark's documentation has it."""

    schema = StructType([StructField("total", LongType())])

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", self.schema)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:
        held = self.total.get()
        total = (0 if held is None else held[0]) + sum(row.amount for row in rows)
        self.total.update((total,))
        yield Row(user=key[0], total=total)

    def close(self) -> None:
        pass


def _per_key(bench: Bench, folder: Path, processor: StatefulProcessor) -> tuple[Feed, Running]:
    feed = Feed(folder)
    grouped = arriving(bench.spark, feed).select("user", "amount").groupBy("user")
    totals = grouped.transformWithState(processor, "user long, total long", "Append", "None")
    return feed, rival_stream(bench.spark, totals, "append", folder, "out")


# State


def growth(bench: Bench) -> Iterator[Verdict]:
    touched, batches = 10_000, 12
    few, many = (20_000, 1_000_000) if bench.quick else (100_000, 5_000_000)
    medians = []
    for held in (few, many):
        feed, running = _counts(bench, bench.folder / f"held-{held}")
        with running:
            for first in range(0, held, 1_000_000):
                feed.arrive(np.arange(first, min(first + 1_000_000, held)))
                running.done()
            for _ in range(batches + 3):
                feed.arrive(feed.users(touched, held))
                running.done()
            medians.append(bench.measured(f"{touched:,} of {held:,} keys", running, batches))
    yield Verdict(
        f"growth, {many:,} keys against {few:,}",
        medians[1] / medians[0],
        2.0,
        False,
        "whatever grows with what is held: the search for windows, passes over all slots, a worker that loads anew",
    )


def _counts(bench: Bench, folder: Path) -> tuple[Feed, Running]:
    feed, p = Feed(folder), hr.Pipeline(spark=bench.spark)
    windowed = rows_of(p, feed) | hr.WindowInto(hr.GlobalWindows(), **RUNNING)
    windowed | hr.GroupBy("user").aggregate(n=hr.count()) | hr.WriteParquet(f"{folder}/out")
    return feed, headrace_stream(p, folder, "counts")


def age(bench: Bench) -> Iterator[Verdict]:
    warm, batches, some = (5, 40, 10) if bench.quick else (20, 200, 20)
    stream = _counts(bench, bench.folder)
    times = _fed(stream, 10_000, 10_000, warm + batches).batches()[warm:]
    first, last = statistics.median(times[:some]), statistics.median(times[-some:])
    bench.say(f"{'first batches':34} {first:8.0f} ms\n   {'last batches':34} {last:8.0f} ms")
    yield Verdict(f"age, last {some} of {batches} batches", last / first, 1.3, False, "what is kept of batches past")


def early(bench: Bench) -> Iterator[Verdict]:
    keys, warm, timed = (20_000, 2, 5) if bench.quick else (100_000, 4, 9)
    once: Any = {"accumulation": "accumulating"}
    medians = []
    for name, windowing in (("once", once), ("in every batch", EVERY_BATCH)):
        feed, running = _sums(bench, bench.folder / name.replace(" ", "-"), windowing)
        with running:
            for _ in range(warm + timed):
                feed.arrive(np.arange(keys))
                running.done()
            medians.append(bench.measured(f"{keys:,} windows, panes {name}", running, timed))
    remedy = "the panes themselves: they are found, packed, sent and written"
    yield Verdict("early panes in every batch", medians[1] / medians[0], 2.0, False, remedy)


# Time


def floor(bench: Bench) -> Iterator[Verdict]:
    warm, timed = (5, 10) if bench.quick else (10, 40)
    for stages, target in ((1, 250), (2, 380)):
        feed, p = Feed(bench.folder / str(stages)), hr.Pipeline(spark=bench.spark)
        windowed = rows_of(p, feed) | hr.WindowInto(HOUR, **EVERY_BATCH)
        totals = windowed | hr.GroupBy("user").aggregate(total=hr.sum("amount"))
        if stages == 2:
            by_ten = totals | hr.Map(lambda row: (row.user % 10, row.total))
            totals = by_ten | hr.CombinePerKey(max)
        totals | hr.ForEachBatch(lambda elements, number: None)
        with headrace_stream(p, feed.folder, "floor") as running:
            for batch in range(warm + timed):
                if batch == warm:
                    before = cpu_seconds()
                feed.arrive(feed.users(1_000, 100))
                running.done()
            bench.say(per_batch(before, cpu_seconds(), timed))
        median = bench.measured(f"1,000 rows, {stages} grouping{'s' * (stages > 1)}", running, timed)
        remedy = (
            "where its CPU goes is told above; two fifths are the JVM's compilers, for some hundred batches, then "
            "Spark's own planning, and tasks"
        )
        yield Verdict(f"floor of a batch, {stages} stateful, ms", median, target, False, remedy)


COLD = """
import time; begun = float({begun!r}); told = lambda what: print(what, round(time.time() - begun, 2), flush=True)
told("python")
import headrace as hr
from headrace.engine.spark.session import spark_session
told("import")
spark = spark_session("local[2]")
told("session")
p = hr.Pipeline(spark=spark)
rows = p | hr.ReadParquet({path!r}, schema={schema!r}, event_time="ts") | hr.WindowInto(hr.FixedWindows("1 hour"),
    trigger=hr.AfterWatermark(early=hr.AfterCount(1)), accumulation="accumulating")
rows | hr.GroupBy("user").aggregate(total=hr.sum("amount")) | hr.ForEachBatch(lambda elements, n: told("pane"))
handle = p.run(stream=True, trigger=0, checkpoint={checkpoint!r})
told("started")
handle.query.processAllAvailable()
import sys; sys.path.append({bench!r})
from _cpu import cpu_seconds
print("CPU", *(f"{{kind}} {{seconds:.1f}}," for kind, seconds in cpu_seconds().items()), flush=True)
print("parts", dict(handle.query.recentProgress[0]["durationMs"]), flush=True)
handle.stop()
"""


def cold(bench: Bench) -> Iterator[Verdict]:
    feed = Feed(bench.folder)
    feed.arrive(feed.users(1_000, 100))
    script = COLD.format(
        begun=repr(time.time()),
        path=feed.path,
        schema=SCHEMA,
        checkpoint=f"{bench.folder}/checkpoint",
        bench=os.path.dirname(os.path.abspath(__file__)),
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=os.environ, check=True
    ).stdout.splitlines()
    *timed, cpu, parts = told
    moments = {what: float(at) for what, at in map(str.split, timed)}
    before = [0.0, *moments.values()]
    steps = ", ".join(f"{what} {at - b:.1f}" for (what, at), b in zip(moments.items(), before, strict=False))
    bench.say(f"seconds: {steps}")
    bench.say(f"seconds of CPU: {cpu.removeprefix('CPU ').rstrip(',')}")
    bench.say(f"first batch, ms: {parts.removeprefix('parts ')}")
    remedy = (
        "a JVM that starts and compiles, two daemons of Python workers and a process for each operator with state; "
        "a warm session, or an archive of classes (headrace warmup)"
    )
    yield Verdict("cold start to the first pane, s", moments["pane"], 12, False, remedy)


# State of a DoFn


class Totals(hr.DoFn):
    """The sum of a key's amounts, one by one."""

    held = hr.ValueState("held")

    def process(self, pair: tuple[int, int], held: Any = hr.DoFn.StateParam(held)) -> Iterator[tuple[int, int]]:
        total = (held.read() or 0) + pair[1]
        held.write(total)
        yield pair[0], total


def stateful(bench: Bench) -> Iterator[Verdict]:
    keys, warm, timed = (10_000, 2, 3) if bench.quick else (100_000, 2, 5)
    feed, p = Feed(bench.folder / "ours"), hr.Pipeline(spark=bench.spark)
    pairs = rows_of(p, feed) | hr.Map(lambda row: (row.user, row.amount)).with_output_types(tuple[int, int])
    totals = pairs | hr.ParDo(Totals()).with_output_types(tuple[int, int])
    totals | hr.WriteParquet(f"{feed.folder}/out")
    with headrace_stream(p, feed.folder, "ours") as ours:
        for _ in range(warm + timed):
            feed.arrive(np.arange(keys))
            ours.done()
        mine = bench.measured(f"{keys:,} keys, headrace", ours, timed)
    feed, running = _per_key(bench, bench.folder / "per-key", Sums())
    with running:
        for size in (keys // 10, keys):
            feed.arrive(np.arange(size))
            running.done()
        rival = bench.measured(f"{keys:,} keys, a call per key", running, 1)
    remedy = "the user's function is called once per element, which no array does"
    yield Verdict("stateful DoFn against a call per key", rival / mine, 20, True, remedy)


if __name__ == "__main__":
    run("engine", __doc__, throughput, growth, age, floor, cold, early, stateful)
