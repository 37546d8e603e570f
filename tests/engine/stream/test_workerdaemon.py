"""The daemon that forks Python workers: they have their modules from it, and no thread of it is lost in a fork."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession


def test_workers_have_their_modules_when_they_are_forked(spark: SparkSession) -> None:
    def look(_: object) -> tuple[bool, list[str]]:
        threads = [path.read_text().strip() for path in Path("/proc", str(os.getppid())).glob("task/*/comm")]
        return "headrace.engine.stream.shards" in sys.modules, [name for name in threads if "python" not in name]

    ((imported, threads),) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert imported
    assert threads in ([], ["jemalloc_bg_thd"])  # Arrow's allocator stops its own before a fork


def test_workers_have_pyspark_compiled(spark: SparkSession) -> None:
    """They have it from the package, and not from the archive that Spark puts first on their path."""
    (file,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark.worker"].__file__).collect()
    assert Path(str(file)).resolve() == Path(pyspark.__file__).resolve().parent / "worker.py"
