"""The batch engine against the same jobs written by hand on Spark, in one run, on data it makes.

    python bench/batch.py [--quick]

column path   GroupBy on rows with a schema          rival: the same query on DataFrames
python path   FlatMap, Map, CombinePerKey, lambdas   rival: the same job on PySpark RDDs
json          JSON lines to Parquet, CPU seconds     rival: Spark's own reader, with its column of bad records
memory        pairs through GroupByKey               driver heap 2 GB; the largest Python worker is measured

Each job and its rival take turns; the ratio is that of their medians. The last line is JSON. The target
of json is 1.2 times the CPU of its rival.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from _nexmark.processes import cpu_seconds
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.spark.session import spark_session

TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
HEAP = "2g"  # of the driver, which in local mode runs the tasks too


def make_words(path: Path, words: int, vocabulary: int = 50_000) -> None:
    """Lines of ten words, drawn from a Zipf-like vocabulary."""
    path.mkdir(parents=True)
    random = np.random.default_rng(1)
    names = np.array([f"word{i}" for i in range(vocabulary)])
    weights = 1.0 / np.arange(1, vocabulary + 1)
    per_file = words // 8
    for part in range(8):
        drawn = random.choice(names, size=(per_file // 10, 10), p=weights / weights.sum())
        (path / f"{part}.txt").write_text("\n".join(map(" ".join, drawn)) + "\n")


def make_rows(path: Path, rows: int, keys: int = 100_000) -> None:
    """Rows of user, amount and time."""
    path.mkdir(parents=True)
    random = np.random.default_rng(2)
    for part in range(8):
        size = rows // 8
        table = pa.table(
            {
                "user": pa.array(random.integers(0, keys, size)),
                "amount": pa.array(random.random(size) * 100),
                "ts": pa.array(random.integers(0, 86_400_000_000, size), pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, path / f"{part}.parquet")


def columns_by_headrace(spark: SparkSession, rows: Path, out: Path) -> None:
    with hr.Pipeline(spark=spark) as p:
        (
            p
            | hr.ReadParquet(str(rows), event_time="ts")
            | hr.WindowInto(hr.FixedWindows("1 hour"))
            | hr.GroupBy("user").aggregate(n=hr.count(), total=hr.sum("amount"), most=hr.max("amount"))
            | hr.Select("user", "n", "total", "most", start=hr.WINDOW_START)
            | hr.WriteParquet(str(out), existing="replace")
        )


def columns_by_hand(spark: SparkSession, rows: Path, out: Path) -> None:
    (
        spark.read.parquet(str(rows))
        .groupBy("user", F.window("ts", "1 hour").alias("window"))
        .agg(F.count(F.lit(1)).alias("n"), F.sum("amount").alias("total"), F.max("amount").alias("most"))
        .select("user", "n", "total", "most", F.col("window.start").alias("start"))
        .write.mode("overwrite")
        .parquet(str(out))
    )


JSON_COLUMNS = "user bigint, amount double, ts timestamp"


def json_by_headrace(spark: SparkSession, lines: Path, out: Path) -> None:
    with hr.Pipeline(spark=spark) as p:
        rows = p | hr.ReadJson(str(lines), schema=JSON_COLUMNS, event_time="ts")
        rows | hr.WriteParquet(str(out), existing="replace")


def json_by_hand(spark: SparkSession, lines: Path, out: Path) -> None:
    read = spark.read.schema(f"{JSON_COLUMNS}, _corrupt_record string").json(str(lines))
    read.where("_corrupt_record is null").drop("_corrupt_record").write.mode("overwrite").parquet(str(out))


def agree(spark: SparkSession, a: Path, b: Path) -> bool:
    """Whether the answers are the same, up to the rounding of sums, whose order Spark does not fix."""
    ours, hand = spark.read.parquet(str(a)).alias("x"), spark.read.parquet(str(b)).alias("y")
    off = F.coalesce(F.abs(F.col("x.total") - F.col("y.total")), F.lit(1.0)) > 1e-6
    different = off | (F.col("x.n") != F.col("y.n")) | (F.col("x.most") != F.col("y.most"))
    return ours.join(hand, ["user", "start"], "full_outer").where(different).isEmpty()


def words_by_headrace(spark: SparkSession, words: Path, out: Path) -> None:
    with hr.Pipeline(spark=spark) as p:
        (
            p
            | hr.ReadText(str(words))
            | hr.FlatMap(lambda line: line.split())
            | hr.Map(lambda word: (word, 1))
            | hr.CombinePerKey(sum)
            | hr.Map(lambda pair: f"{pair[0]} {pair[1]}")
            | hr.WriteText(str(out), existing="replace")
        )


def words_by_hand(spark: SparkSession, words: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    (
        spark.sparkContext.textFile(str(words))
        .flatMap(lambda line: line.split())
        .map(lambda word: (word, 1))
        .reduceByKey(lambda a, b: a + b)
        .map(lambda pair: f"{pair[0]} {pair[1]}")
        .saveAsTextFile(str(out))
    )


class Pairs(hr.DoFn):
    """Makes `size` pairs for each number it gets."""

    def __init__(self, size: int, keys: int) -> None:
        self.size, self.keys = size, keys

    def process(self, part: int):
        random = np.random.default_rng(part)
        yield from zip(random.integers(0, self.keys, self.size).tolist(), range(self.size), strict=True)


def group(spark: SparkSession, pairs: int, keys: int) -> tuple[int, int]:
    """Groups the pairs; how many groups and how many values there were."""
    parts = 50
    with hr.Pipeline(spark=spark) as p:
        sizes = (
            p
            | hr.Create(range(parts))
            | hr.Reshuffle()
            | hr.ParDo(Pairs(pairs // parts, keys))
            | hr.GroupByKey()
            | hr.MapTuple(lambda key, values: (1, sum(1 for _ in values)))
            | hr.CombineGlobally(lambda a, b: (a[0] + b[0], a[1] + b[1]))
            | hr.Collect()
        )
    return sizes[0]


class WorkerMemory:
    """The largest resident size any Python worker below this process reaches while it watches."""

    def __enter__(self) -> "WorkerMemory":
        self.largest = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._ended.wait(0.2):
            for process in me.children(recursive=True):
                try:
                    if "python" in process.name():
                        self.largest = max(self.largest, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


def compare(
    name: str,
    runs: int,
    ours: Callable[[], None],
    rival: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of both, taken in turns after one unmeasured run each."""
    times: dict[str, list[float]] = {"headrace": [], "by hand": []}
    for turn in range(runs + 1):
        for who, job in (("headrace", ours), ("by hand", rival)):
            started = clock()
            job()
            if turn:
                times[who].append(clock() - started)
    ours_s, rival_s = statistics.median(times["headrace"]), statistics.median(times["by hand"])
    print(f"{name:12} headrace {ours_s:6.2f} s   by hand {rival_s:6.2f} s   {times}", flush=True)
    return {"headrace_s": round(ours_s, 2), "by_hand_s": round(rival_s, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the data, under three minutes on 2 cores")
    quick = parser.parse_args().quick
    scale = 5 if quick else 1
    words, rows, pairs, keys = 10_000_000 // scale, 5_000_000 // scale, 50_000_000 // scale, 1_000_000 // scale
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    result: dict[str, object] = {"bench": "batch", "quick": quick}
    spark = spark_session("local[2]", {"spark.driver.memory": HEAP})
    try:
        make_words(folder / "words", words)
        make_rows(folder / "rows", rows)
        out = folder / "out"
        columns = compare(
            "column path",
            5,
            lambda: columns_by_headrace(spark, folder / "rows", out / "a"),
            lambda: columns_by_hand(spark, folder / "rows", out / "b"),
        )
        assert agree(spark, out / "a", out / "b"), "the answers differ"
        python = compare(
            "python path",
            3,
            lambda: words_by_headrace(spark, folder / "words", out / "c"),
            lambda: words_by_hand(spark, folder / "words", out / "d"),
        )
        assert spark.read.text(str(out / "c")).exceptAll(spark.read.text(str(out / "d"))).isEmpty(), (
            "the answers differ"
        )
        lines = folder / "lines"
        spark.read.parquet(str(folder / "rows")).write.option("timestampFormat", TIMES).json(str(lines))
        parsed = compare(
            "json, CPU",
            5,
            lambda: json_by_headrace(spark, lines, out / "e"),
            lambda: json_by_hand(spark, lines, out / "f"),
            cpu_seconds,
        )
        assert spark.read.parquet(str(out / "e")).exceptAll(spark.read.parquet(str(out / "f"))).isEmpty(), (
            "the answers differ"
        )
        started = time.perf_counter()
        with WorkerMemory() as memory:
            groups, values = group(spark, pairs, keys)
        seconds = time.perf_counter() - started
        assert values == pairs, (groups, values)
        print(
            f"group        {pairs:,} pairs, {groups:,} keys: {seconds:.1f} s; largest worker {memory.largest >> 20} MB"
        )
        result |= {
            "rows": rows,
            "words": words,
            "pairs": pairs,
            "column_path": columns | {"ratio_to_dataframes": round(columns["headrace_s"] / columns["by_hand_s"], 2)},
            "python_path": python | {"speedup_over_rdds": round(python["by_hand_s"] / python["headrace_s"], 2)},
            "json": parsed | {"cpu_ratio_to_spark": round(parsed["headrace_s"] / parsed["by_hand_s"], 2)},
            "group_by_key": {
                "seconds": round(seconds, 1),
                "keys": groups,
                "driver_heap": HEAP,
                "largest_worker_mb": memory.largest >> 20,
            },
        }
    finally:
        spark.stop()
        shutil.rmtree(folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
