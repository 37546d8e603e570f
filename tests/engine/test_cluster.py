"""A real Spark cluster of several processes on loopback: the package reaches the executors, and so do failures."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.clusterprograms import ANSWERS
from tests.engine.sparkcluster import Cluster
from tests.scale import only_full

ROOT = Path(__file__).parents[2]

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
def test_a_pipeline_runs_on_a_cluster(spark_cluster: Cluster, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {**os.environ, **spark_cluster.environment, "SPARK_MASTER": spark_cluster.url}
    command = [sys.executable, str(job), str(tmp_path / "failed")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["sums"] == [[0, 1683], [1, 1617], [2, 1650]]
    assert told["groups"] == [[False, 50], [True, 50]]
    assert told["files"] and all("headrace.zip" in file for file in told["files"])
    assert told["seen"] == [100, True]  # metrics of the attempt that failed do not count
    assert told["failure"] == "'invert' failed on the element 0: ZeroDivisionError: division by zero"


@pytest.fixture(scope="module")
def answers(spark_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """What the programs of all dialects answered, one after the other in one driver."""
    environment = {**os.environ, **spark_cluster.environment, "SPARK_MASTER": spark_cluster.url}
    command = [sys.executable, "tests/engine/clusterprograms.py", str(tmp_path_factory.mktemp("programs"))]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stderr[-3000:]
    yield dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


@only_full("test_a_pipeline_runs_on_a_cluster, and the tests of each dialect on this machine")
@pytest.mark.slow("a driver on a cluster that runs all of them")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(ANSWERS))
def test_every_dialect_runs_on_a_cluster(answers: dict[str, object], name: str) -> None:
    assert answers[name] == ANSWERS[name]


PACKED_JOB = """
import json, sys
from pathlib import Path
import headrace as hr
import beside

folder = sys.argv[1]
with hr.Pipeline() as p:
    numbers = p | hr.Create(range(100)) | hr.Reshuffle()
    places = numbers | hr.Map(beside.place) | hr.Distinct() | hr.Collect()
q = hr.Pipeline()
script = hr.TestStream().add([hr.TimestampedValue(("a", 1), 1), hr.TimestampedValue(("b", 2), 2)])
script = script.add([hr.TimestampedValue(("a", 3), 3)]).finish()
sums = q | script | hr.WindowInto(hr.FixedWindows(60)) | hr.CombinePerKey(sum) | hr.Collect()
q.run(stream=True, checkpoint=folder + "/checkpoint").wait()
print(json.dumps({"places": sorted(places), "sums": sorted(sums)}))
"""

BESIDE = """
import sys

def place(x):
    import numpy, pandas, pyarrow
    import package.inner
    return (package.inner.NAME, sys.prefix, *(each.__file__ for each in (numpy, pandas, pyarrow)))
"""


@only_full("test_a_pipeline_runs_on_a_cluster, and the docstrings of environmentarchive.py")
@pytest.mark.slow("an environment is packed, and a driver on a cluster ships it")
def test_executors_need_nothing_but_python(spark_cluster: Cluster, tmp_path: Path) -> None:
    """Their Python has none of our packages; modules and packages beside the script travel."""
    (tmp_path / "job.py").write_text(PACKED_JOB)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").write_text("NAME = 'inner'")
    headrace = [sys.executable, "-m", "headrace"]
    subprocess.run([*headrace, "pack", "packages.tar.gz", "--only", "headrace"], cwd=tmp_path, check=True, timeout=200)
    command = [*headrace, "run", "--master", spark_cluster.url, "--archive", "packages.tar.gz", "job.py", str(tmp_path)]
    environment = {**os.environ, **spark_cluster.environment}
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["sums"] == [["a", 4], ["b", 2]]
    assert told["places"]
    for name, prefix, *files in told["places"]:
        assert (name, prefix) == ("inner", sys.base_prefix)
        assert all("headrace-environment/python3." in file for file in files), files
