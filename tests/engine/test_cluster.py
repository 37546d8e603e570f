"""A real Spark cluster of several processes on loopback: the package reaches the executors, and so do failures."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

SPARK_HOME = Path(pyspark.__file__).parent

JOB = """
import json
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
print(json.dumps({"sums": sorted(sums), "files": list(files), "groups": sorted(groups), "failure": failure}))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def started(arguments: list[str], log: Path, ready: str) -> subprocess.Popen[str]:
    """A Spark daemon, once it has said that it is ready."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if ready in line:
            return process
    pytest.fail(f"{arguments[0]} ended before it said {ready!r}:\n{''.join(said[-20:])}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers."""
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[str]] = []
    try:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        processes.append(started([*master, "--webui-port", str(page)], tmp_path, "elected leader"))
        for number in range(2):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1100M"]
            folder = ["-d", str(tmp_path / f"worker{number}"), "--webui-port", str(free_port()), url]
            processes.append(started([*worker, *folder], tmp_path, "Successfully registered"))
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.communicate(timeout=30)


@pytest.mark.cluster
def test_a_pipeline_runs_on_a_cluster(cluster: str, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {
        **os.environ,
        "SPARK_MASTER": cluster,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run([sys.executable, str(job)], env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["sums"] == [[0, 1683], [1, 1617], [2, 1650]]
    assert told["groups"] == [[False, 50], [True, 50]]
    assert told["files"] and all("headrace.zip" in file for file in told["files"])
    assert told["failure"] == "'invert' failed on the element 0: ZeroDivisionError: division by zero"
