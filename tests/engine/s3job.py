"""A stream with all it has in an object store: input, checkpoint and outputs.

    python -m tests.engine.s3job URL SCRATCH [SAVEPOINT]

begins the stream at the store of this address, or goes on with it. With a savepoint it makes one there when it is done,
and puts files where there are some.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine.spark.files import Folder
from headrace.engine.spark.session import spark_session
from headrace.log import Log
from headrace.views.feeds import feed_of
from headrace.views.master.masterdata import Master
from tests.engine.s3store import BUCKET, Store, session_settings

ROOT = f"s3a://{BUCKET}"
FILES = 4
NAMES = ("counts", "raw", "rows")


def fill(store: Store) -> None:
    """Puts the input of the stream."""
    for number in range(FILES):
        lines = [f'{{"user": "{user}", "n": {n}, "at": {10 * number + n}}}' for n in range(5) for user in "abc"]
        store.put(f"in/{number}.json", "\n".join(lines).encode())


def read(p: hr.Pipeline) -> hr.PCollection:
    return p | hr.ReadJson(f"{ROOT}/in", schema="user string, n long, at long", event_time="at")


def pipeline(p: hr.Pipeline, out: str) -> None:
    events = read(p)
    counts = events | hr.WindowInto(hr.FixedWindows(10)) | hr.GroupBy("user").aggregate(n=hr.count(), sum=hr.sum("n"))
    counts | "counts" >> hr.WriteJson(f"{out}/counts")
    events | hr.Map(repr) | "raw" >> hr.WriteText(f"{out}/raw")
    events | "rows" >> hr.WriteParquet(f"{out}/rows")


def batch(spark: SparkSession) -> None:
    """Writes files of a batch run; what cannot be done without a rename is refused."""
    for attempt in (1, 2):
        p = hr.Pipeline(spark=spark)
        events = read(p)
        events | "csv" >> hr.WriteCsv(f"{ROOT}/batch/csv", existing="replace")
        events | hr.Map(repr) | "text" >> hr.WriteText(f"{ROOT}/batch/text", existing="replace")
        try:
            p.run().wait()
        except hr.PipelineError as error:
            Folder(spark, f"{ROOT}/puts").write(f"refused-{attempt}", str(error).encode())
    p = hr.Pipeline(spark=spark)
    read(p) | hr.Map(lambda event: 1 // 0) | hr.WriteText(f"{ROOT}/batch/failed")
    with suppress(hr.TransformError):
        p.run().wait()


def master(spark: SparkSession, scratch: Path) -> None:
    """Archives a topic to master data in the store, step after step, and makes few files of many."""
    topic = Log(scratch / "topics").create("numbers", values="n int, at timestamp")
    declared = hr.Topic("numbers", schema="n int, at timestamp", event_time="at")
    archive = Master(spark, feed_of(Log(scratch / "topics"), declared), path=f"{ROOT}/master")
    for number in range(3):
        topic.append(0, topic.batch([{"n": number, "at": number}], timestamps=[0]))
        archive.archive()
    archive.compact()
    archive.audit()
    archive.folder.write("count", str(archive.count({0: 0}, archive.reached())).encode())


def output(store: Store, name: str, out: str = "out") -> Counter[bytes]:
    """The lines of batches that have a manifest, as many as it says."""
    lines: Counter[bytes] = Counter()
    for key in store.names(f"{out}/{name}/"):
        if key.endswith("/_manifest.json"):
            manifest = json.loads(store.read(key))
            folder = key.rpartition("/")[0]
            rows = [line for file in manifest["files"] for line in store.read(f"{folder}/{file['name']}").splitlines()]
            assert name == "rows" or len(rows) == manifest["rows"]
            lines.update(rows if name != "rows" else [b"rows"] * manifest["rows"])
    return lines


def main(url: str, scratch: str, savepoint: str | None = None) -> None:
    spark = spark_session("local[2]", session_settings(url, Path(scratch)))
    p = hr.Pipeline(spark=spark)
    pipeline(p, f"{ROOT}/out")
    handle = p.run(stream=True, checkpoint=f"{ROOT}/checkpoint", max_files_per_batch=1)
    handle.wait()
    if savepoint is not None:
        handle.savepoint(f"{ROOT}/{savepoint}")
        fork = hr.Pipeline(spark=spark)
        pipeline(fork, f"{ROOT}/fork")
        fork.run(stream=True, checkpoint=f"{ROOT}/forked", savepoint=f"{ROOT}/{savepoint}").wait()
        batch(spark)
        master(spark, Path(scratch))
        puts = Folder(spark, f"{ROOT}/puts")
        for name in ("first", "first", "raced"):
            try:
                puts.put(name, b"mine")
            except FileExistsError:
                puts.write(f"refused-{name}", b"")


if __name__ == "__main__":
    main(*sys.argv[1:])
