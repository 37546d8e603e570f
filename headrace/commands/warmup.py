"""`headrace warmup`: stores Spark's Java classes in the form that a JVM loads fastest, once for an environment.

It runs a batch and a stream in a process of its own, whose JVM writes the classes that it has loaded to an archive when
it ends; see `engine/spark/classarchive`. Run as a script, this module is that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.commands.errors import fail


def warmup() -> None:
    """Make Spark start faster on this machine: stores its Java classes in this Python environment, once."""
    from headrace.engine.spark import classarchive

    path = classarchive.archive_path()
    if path.exists():
        print(f"Spark's classes are in {path} already")
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder, path.name)
            ran = subprocess.run([sys.executable, "-m", __name__, str(new)], capture_output=True, text=True)
            if ran.returncode or not new.exists():
                fail(f"Spark's classes could not be stored: {(ran.stderr.strip().splitlines() or ['no archive'])[-1]}")
            size = new.stat().st_size
            os.replace(new, path)
    except OSError as error:
        fail(f"Spark's classes cannot be stored in {str(path.parent)!r}: {error.strerror}")
    print(f"Spark's classes are in {path} ({size / 1e6:.0f} MB)")


def run_pipelines(archive: str) -> None:
    """Runs what most pipelines consist of, in a JVM that then writes its classes to an archive."""
    import headrace as hr
    from headrace.engine.spark.classarchive import making_options
    from headrace.engine.spark.session import java_options, spark_session

    session = spark_session(
        "local[1]", {"spark.driver.extraJavaOptions": f"{java_options()} {making_options(Path(archive))}"}
    )
    with tempfile.TemporaryDirectory() as folder:
        with hr.Pipeline() as p:
            lines = ['{"word": "a", "n": 1, "at": "2026-01-31T12:00:00Z"}']
            p | hr.Create(lines) | hr.WriteText(f"{folder}/words")
        for stream in (False, True):
            p = hr.Pipeline()
            words = p | hr.ReadJson(f"{folder}/words", schema="word string, n long, at timestamp", event_time="at")
            sums = words | hr.Where("n > 0") | hr.WindowInto(hr.FixedWindows("1 minute"))
            sums | hr.GroupBy("word").aggregate(n=hr.sum("n")) | hr.WriteParquet(f"{folder}/sums-{stream}")
            pairs = words | hr.Map(lambda row: (row.word, row.n)) | hr.WindowInto(hr.FixedWindows("1 minute"))
            pairs | hr.Count.per_key() | hr.Collect()
            (p.run(stream=True) if stream else p.run()).wait()
    session.stop()


if __name__ == "__main__":
    run_pipelines(sys.argv[1])
