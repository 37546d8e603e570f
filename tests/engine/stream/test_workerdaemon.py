"""The daemon that forks Python workers: they have their modules from it, and no thread of it is lost in a fork."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def test_workers_have_their_modules_when_they_are_forked(spark: SparkSession) -> None:
    def look(_: object) -> tuple[bool, list[str]]:
        threads = [path.read_text().strip() for path in Path("/proc", str(os.getppid())).glob("task/*/comm")]
        return "headrace.engine.stream.shards" in sys.modules, [name for name in threads if "python" not in name]

    ((imported, threads),) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert imported
    assert threads in ([], ["jemalloc_bg_thd"])  # Arrow's allocator stops its own before a fork
