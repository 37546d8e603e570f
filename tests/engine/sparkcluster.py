"""A real Spark cluster of processes on loopback: a master and three workers of one core each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pyspark

from tests.ports import free_port

SPARK_HOME: Final = Path(pyspark.__file__).parent
WORKERS: Final = 3
_PATIENCE: Final = 120  # seconds until a daemon must be ready; a loaded machine is no reason to fail
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_SMALL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEFAULTS: Final = f"""
spark.executor.memory 600m
spark.executor.extraJavaOptions {_SMALL} -Xss8m
spark.driver.memory 700m
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
spark.default.parallelism {WORKERS}
spark.sql.shuffle.partitions {WORKERS}
"""
"""Settings that suit a small machine; drivers read them, as they read those of a cluster that somebody runs."""


class Worker:
    """A worker daemon with a directory of its own. What its executors and their Python workers write is in there."""

    def __init__(self, folder: Path, master: str, environment: Mapping[str, str]) -> None:
        self.folder, self._master, self._environment = folder, master, environment
        folder.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        """Starts the daemon, also after it was killed."""
        options = ["--host", "127.0.0.1", "-c", "1", "-m", "1100M", "-d", str(self.folder / "work")]
        command = [_WORKER, *options, "--webui-port", str(free_port()), self._master]
        local = {"SPARK_LOCAL_DIRS": str(self.folder / "local")}
        log = self.folder.with_suffix(".log")
        self.process = _started(command, log, "Successfully registered", {**self._environment, **local})

    def alive(self) -> bool:
        """Whether the daemon runs."""
        return self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Lists the daemon, its executors, and their Python processes, parents first."""
        daemon = psutil.Process(self.process.pid)
        return [daemon, *daemon.children(recursive=True)]

    def executors(self) -> list[psutil.Process]:
        """Lists the JVMs that run tasks."""
        return [each for each in self.tree() if "CoarseGrainedExecutorBackend" in " ".join(_command(each))]

    def python_workers(self) -> list[psutil.Process]:
        """Lists the Python processes that run tasks: those that Spark's daemon of Python processes forked."""
        daemons = [each for each in self.tree() if "pyspark.daemon" in _command(each)]
        return [child for each in daemons for child in each.children()]

    def kill(self) -> None:
        """Kills the daemon and all below it with SIGKILL, as when a machine is lost."""
        for each in self.tree():
            send(each, signal.SIGKILL)
        self.process.wait(_PATIENCE)

    def freeze(self) -> list[psutil.Process]:
        """Stops the daemon and all below it with SIGSTOP, as when a machine hangs; returns what `thaw` continues."""
        frozen = self.tree()
        for each in frozen:
            send(each, signal.SIGSTOP)
        return frozen

    def thaw(self, frozen: list[psutil.Process]) -> None:
        """Lets what was frozen continue, as if no time had passed for it."""
        for each in reversed(frozen):
            send(each, signal.SIGCONT)


class Cluster:
    """A master and its workers; `environment` is what drivers need to find small settings."""

    def __init__(self, folder: Path) -> None:
        (folder / "conf").mkdir()
        (folder / "conf" / "spark-defaults.conf").write_text(_DEFAULTS)
        self.environment = {"SPARK_CONF_DIR": str(folder / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"}
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._daemons = {
            **variables,
            "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}",  # no environment is on PATH
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL,
        }
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        command = [_MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        self._master = _started(command, folder / "master.log", "elected leader", self._daemons)
        self.workers: list[Worker] = []
        try:
            for number in range(WORKERS):
                self.workers.append(Worker(folder / f"worker{number}", self.url, self._daemons))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all daemons."""
        processes = [worker.process for worker in self.workers] + [self._master]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=_PATIENCE)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Runs a cluster in a `with` block."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()


def _started(arguments: list[str], log: Path, ready: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A Spark daemon, once its log says that it is ready."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    deadline = time.monotonic() + _PATIENCE
    while ready not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{arguments[0]} has not said {ready!r}:\n{said[-3000:]}")
        time.sleep(0.05)
    return process


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def send(process: psutil.Process, number: int) -> None:
    """Sends a signal, unless the process has just ended."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
