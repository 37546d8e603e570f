"""A real Spark cluster of several processes on loopback: the package reaches the executors, and so do failures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import json, os, sys
import headrace as hr

def where(x):
    import headrace
    return headrace.__file__

with hr.Pipeline() as p:
    numbers = p | hr.Create(range(100)) | hr.Reshuffle()
    sums = numbers | hr.Map(lambda x: (x % 3, x)) | hr.CombinePerKey(sum) | hr.Collect()
    files = numbers | hr.Map(where) | hr.Distinct() | hr.Collect()
    groups = numbers | hr.KeyBy(lambda x: x % 2 == 0) | hr.GroupByKey() | hr.MapTuple(
        lambda k, vs: (k, len(vs))) | hr.Collect()
try:
    with hr.Pipeline() as q:
        q | hr.Create([0]) | "invert" >> hr.Map(lambda x: 1 / x)
except hr.TransformError as error:
    failure = str(error).splitlines()[0]

failed = sys.argv[1]

def flaky(x):
    hr.metrics.counter("seen").inc()
    if x == 99 and not os.path.exists(failed):
        open(failed, "w").close()
        raise OSError("the first attempt fails")
    return x

r = hr.Pipeline()
r | hr.Create(range(100)) | "flaky" >> hr.Map(flaky) | hr.Collect()
handle = r.run()
handle.wait()
seen = [handle.metrics()["flaky"]["seen"], os.path.exists(failed)]
answers = {"sums": sorted(sums), "files": list(files), "groups": sorted(groups)}
print(json.dumps({**answers, "failure": failure, "seen": seen}))
"""


@pytest.mark.slow("a driver on a cluster")
def test_a_pipeline_runs_on_a_cluster(spark_cluster: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {**os.environ, "SPARK_MASTER": spark_cluster}
    command = [sys.executable, str(job), str(tmp_path / "failed")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["sums"] == [[0, 1683], [1, 1617], [2, 1650]]
    assert told["groups"] == [[False, 50], [True, 50]]
    assert told["files"] and all("headrace.zip" in file for file in told["files"])
    assert told["seen"] == [100, True]  # metrics of the attempt that failed do not count
    assert told["failure"] == "'invert' failed on the element 0: ZeroDivisionError: division by zero"
