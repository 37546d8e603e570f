"""A real Spark cluster of processes on loopback: a master and two workers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from tests.ports import free_port

SPARK_HOME: Final = Path(pyspark.__file__).parent
_PATIENCE: Final = 120  # seconds until a daemon must be ready; a loaded machine is no reason to fail


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        processes.append(_started([*master, "--webui-port", str(free_port())], folder / "master.log", "elected leader"))
        for number in range(2):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1100M"]
            options = ["-d", str(folder / f"worker{number}"), "--webui-port", str(free_port()), url]
            log = folder / f"worker{number}.log"
            processes.append(_started([*worker, *options], log, "Successfully registered"))
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=_PATIENCE)


def _started(arguments: list[str], log: Path, ready: str) -> subprocess.Popen[bytes]:
    """A Spark daemon, once its log says that it is ready."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    deadline = time.monotonic() + _PATIENCE
    while ready not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{arguments[0]} has not said {ready!r}:\n{said[-3000:]}")
        time.sleep(0.05)
    return process
