from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headrace as hr
from headrace.log import Log


def test_trial(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    topic = log.create("visits", partitions=3, values="user string, n bigint, ts timestamp")
    for p in range(3):
        topic.append(
            p,
            topic.batch(
                [{"user": f"u{i % 2}", "n": i, "ts": i} for i in range(10)],
                timestamps=[i * 1_000_000 for i in range(10)],
            ),
        )

    def run(**o: Any):
        p = hr.Pipeline(spark=spark)
        out = (
            p
            | hr.ReadTopic("visits", log=str(tmp_path / "log"), event_time="ts", end="latest")
            | hr.WindowInto(hr.FixedWindows(5))
            | hr.GroupBy("user").aggregate(n=hr.count(), s=hr.sum("n"))
            | hr.Collect()
        )
        p.run(**o).wait()
        return sorted((w.value, w.window.start) for w in out.windowed)

    a = run()
    b = run(stream=True)
    print(a)
    assert a == b
    c = run(stream=True, max_records_per_batch=7)
    assert a == c
