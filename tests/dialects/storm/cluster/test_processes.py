"""`headrace storm submit` as a process of its own: commanded by other processes, stopped, and submitted again.

The second time, with FULL, it runs on a real Spark cluster, on the state that the first one left; `headrace up` has one
in every run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import storm
from headrace.log import Log
from tests.commands.test_storm import run_storm
from tests.scale import FULL, only_full

SECONDS = 240  # a loaded machine is no reason to fail

TOPOLOGY = """
from pathlib import Path
from headrace import storm

class Numbers(storm.Spout):
    fields = ["n", "key"]
    def open(self, context):
        self.n = 0
    def next_tuple(self):
        if self.n < int(Path("limit").read_text()):
            self.emit([self.n, self.n % 5], message_id=self.n)
            self.n += 1

class Count(storm.Bolt):
    fields = ["key", "count"]
    def prepare(self, context):
        self.counts = {}
    def execute(self, tup):
        if tup["n"] == 13:
            self.report_error(ValueError("13 is odd"))
        key = tup["key"]
        self.counts[key] = self.counts.get(key, 0) + 1
        self.emit([key, self.counts[key]], anchors=[tup])
        self.ack(tup)

builder = storm.TopologyBuilder()
builder.set_spout("numbers", Numbers())
builder.set_bolt("count", Count(), parallelism=2).fields_grouping("numbers", ["key"])
builder.set_bolt("out", storm.ToTopic("counts", log="results")).global_grouping("count")
topology = builder.create()
config = storm.Config(guarantee="effectively_once", max_spout_pending=40, message_timeout="1 hour")
"""


@contextmanager
def submitted(folder: Path, name: str = "wc", master: str = "local[2]") -> Iterator[subprocess.Popen[str]]:
    """The process that runs the topology, once it does."""
    command = [
        sys.executable,
        "-c",
        "from headrace.commands.main import main; main()",
        "storm",
        "submit",
        "wc.py",
        name,
    ]
    with subprocess.Popen(
        [*command, "--directory", "cluster", "--master", master],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith(f"{name} is running; Ctrl-C stops it"), line + process.stderr.read()
            yield process
        finally:
            if process.poll() is None:
                process.kill()


class Numbers:
    """What the topology is to do, and has done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "wc.py").write_text(TOPOLOGY)
        self.limit(0)

    def limit(self, count: int) -> None:
        new = self.folder / "limit.new"
        new.write_text(str(count))
        new.rename(self.folder / "limit")

    def counted(self) -> list[tuple[int, int]]:
        log = Log(self.folder / "results")
        rows = [record.value for record in log.topic("counts").read(0)] if "counts" in log.topics() else []
        return [(row["key"], row["count"]) for row in rows]

    def until(self, process: subprocess.Popen[str], count: int) -> None:
        """Waits until so many are counted, each once."""
        self.limit(count)
        wait(process, lambda: len(self.counted()) >= count)
        expected = Counter((n % 5, n // 5 + 1) for n in range(count))
        assert Counter(self.counted()) == expected


def wait(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest) -> str:
    """The master of the second driver."""
    return str(request.getfixturevalue("spark_cluster").url) if FULL else "local[2]"


@only_full("its commands and rebalances run in one process, and `up` and stop in another test")
@pytest.mark.usefixtures("spark_cluster" if FULL else "tmp_path")  # it stays with the others that share a cluster
@pytest.mark.slow("two drivers, one after the other")
@pytest.mark.timeout(900)
def test_submit_command_stop_and_submit_again_elsewhere(elsewhere: str, tmp_path: Path) -> None:
    numbers, directory = Numbers(tmp_path), tmp_path / "cluster"
    with submitted(tmp_path) as process:
        numbers.until(process, 40)
        assert run_storm(directory, "list").startswith("wc  active  ")
        with pytest.raises(storm.TopologyError, match=f"in use by the cluster of process {process.pid}"):
            storm.LocalCluster(directory).__enter__()
        again = run_storm(directory, "submit", str(tmp_path / "wc.py"), "wc", code=1)
        assert "a topology 'wc' is running already" in again
        assert "ValueError: 13 is odd" in run_storm(directory, "errors", "wc")
        run_storm(directory, "deactivate", "wc")
        wait(process, lambda: run_storm(directory, "status", "wc").startswith("wc is inactive"))
        numbers.limit(60)
        run_storm(directory, "rebalance", "wc", "count=3")
        assert len(numbers.counted()) == 40
        run_storm(directory, "activate", "wc")
        numbers.until(process, 60)
        numbers.limit(220)  # so that it is stopped in the midst of its work
        wait(process, lambda: len(numbers.counted()) > 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert len(numbers.counted()) < 220

    with submitted(tmp_path, master=elsewhere) as process:
        numbers.until(process, 220)
        status = run_storm(directory, "status", "wc")
        assert status.startswith("wc is active")
        assert sum(line.startswith("count ") for line in status.splitlines()) >= 3
        run_storm(directory, "kill", "wc")
        assert process.wait(SECONDS) == 0  # nothing is left to run
    assert not (directory / "wc").exists()
