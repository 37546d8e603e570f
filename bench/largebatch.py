"""One micro-batch with many output rows, on a driver of 1 GB: to files, a topic of Kafka, and a table.

    python bench/largebatch.py [--rows 20000000] [--to files table kafka] [--quick]

Each sink is a run of its own, in a process of its own, whose driver has a heap of 1 GB; what is measured is the time of
the run, and the peak of the resident memory of the driver's two processes, Python and the JVM. The rival is the same
stream with a fiftieth of the rows: the ratio says by how much the driver grew. Rows go to PostgreSQL if DATABASE_URL
names one, otherwise to SQLite; to Kafka if KAFKA names a broker (HOST:PORT).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Final

import psutil

import headrace as hr
from headrace.engine.spark.session import spark_session

SINKS: Final = ("files", "table", "kafka")
FILES: Final = 8


def stream(sink: str, rows: int, folder: Path) -> None:
    """Runs the stream: each line of the input becomes `rows / FILES` rows."""
    settings = {"spark.driver.memory": "1g", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
    p = hr.Pipeline(spark=spark_session("local[2]", settings))
    each = rows // FILES

    def numbers(line: str) -> range:
        return range(int(line) * each, int(line) * each + each)

    read = p | hr.ReadText(str(folder / "in")) | hr.FlatMap(numbers).with_output_types(int)
    made = read | hr.Map(lambda n: (n, f"row {n}")).with_output_types(tuple[int, str])
    if sink == "files":
        made | hr.WriteParquet(str(folder / "out"))
    elif sink == "table":
        url = os.environ.get("DATABASE_URL") or f"sqlite:///{folder}/table.db"
        made | hr.WriteTable(url, f"large_{uuid.uuid4().hex[:8]}", columns=["n", "text"])
    else:
        made | hr.Map(lambda pair: pair[1]).with_output_types(str) | hr.WriteTopic(_new_topic(os.environ["KAFKA"]))
    p.run(stream=True, checkpoint=str(folder / "checkpoint")).wait()


def _new_topic(address: str) -> str:
    """Creates a topic; returns its URI."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"large-{uuid.uuid4().hex[:8]}"
    AdminClient({"bootstrap.servers": address}).create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return f"kafka://{address}/{name}"


def measured(sink: str, rows: int) -> dict[str, float]:
    """Runs a stream in a process; returns its seconds, and the peaks of memory in megabytes."""
    with tempfile.TemporaryDirectory(prefix="headrace-large-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number in range(FILES):
            (folder / "in" / f"{number}.txt").write_text(f"{number}\n")
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, __file__, "--stream", sink, "--rows", str(rows), "--folder", name])
        peaks = {"python_mb": 0.0, "jvm_mb": 0.0}
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks, ended))
        watcher.start()
        code = process.wait()
        ended.set()
        watcher.join()
        if code != 0:
            raise SystemExit(f"the stream to {sink} ended with status {code}")
        return {"seconds": round(time.monotonic() - began, 1), **{key: round(value) for key, value in peaks.items()}}


def _watch(pid: int, peaks: dict[str, float], ended: threading.Event) -> None:
    """Notes the peaks of the memory of the driver: its Python, and the JVM that this has started."""
    driver = psutil.Process(pid)
    while not ended.wait(0.2):
        try:
            jvms = [child for child in driver.children() if "java" in child.name()]
            found = {"python_mb": driver.memory_info().rss, "jvm_mb": sum(jvm.memory_info().rss for jvm in jvms)}
        except psutil.Error:
            continue
        for key, value in found.items():
            peaks[key] = max(peaks[key], value / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--to", nargs="+", choices=SINKS, default=SINKS if "KAFKA" in os.environ else SINKS[:2])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stream", choices=SINKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream(options.stream, options.rows, options.folder)
        return
    rows = 400_000 if options.quick else options.rows
    answer: dict[str, object] = {"benchmark": "largebatch", "rows": rows}
    for sink in options.to:
        few, many = measured(sink, max(rows // 50, FILES)), measured(sink, rows)
        print(f"{sink}: {few} for {rows // 50:,} rows, {many} for {rows:,} rows", file=sys.stderr)
        answer[sink] = {**many, "python_growth": round(many["python_mb"] / few["python_mb"], 2)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
