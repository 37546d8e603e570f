"""Forks of the fork server behave as processes that begin anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forkserver
from tests.waiting import wait_for

WORKER = Path(__file__).with_name("worker-python")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with forkserver.running() as path:
        wait_for(lambda: os.path.exists(path))
        yield path


@pytest.fixture
def command(server: str, tmp_path: Path) -> dict[str, Any]:
    """Options of a process that runs a module `asked`, which tells what it has."""
    (tmp_path / "asked.py").write_text(
        "import os, sys, time\n"
        "print(sys.argv[1:], __name__, os.getcwd(), os.environ['ASKED'], 'pandas' in sys.modules, flush=True)\n"
        "print(sys.stdin.readline(), file=sys.stderr)\n"
        "if sys.argv[1] == 'wait':\n"
        "    time.sleep(600)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    environment = {**os.environ, "ASKED": "\udcff", "PYTHONPATH": str(tmp_path), forkserver.FORK_SERVER: server}
    return {"env": environment, "cwd": tmp_path}


def arguments(server: str, *rest: str) -> list[str]:
    return [sys.executable, str(WORKER.with_name("forkclient.py")), server, sys.executable, "asked", *rest]


def test_a_fork_has_the_files_environment_directory_and_status_of_a_process(
    server: str, command: dict[str, Any], tmp_path: Path
) -> None:
    for status in (0, 3):
        done = subprocess.run(arguments(server, str(status)), input=b"told", capture_output=True, **command)
        shown = f"['{status}'] __main__ {tmp_path} \udcff True\n".encode(errors="surrogateescape")
        assert (done.returncode, done.stdout, done.stderr) == (status, shown, b"told\n")
    alone = subprocess.run(arguments(f"{tmp_path}/none", "4"), input=b"", capture_output=True, **command)
    assert (alone.returncode, alone.stdout.endswith(b"False\n")) == (4, True)


def test_a_fork_ends_with_its_client(server: str, command: dict[str, Any]) -> None:
    with subprocess.Popen(
        arguments(server, "wait"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, **command
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        assert client.stdout.readline().startswith(b"['wait']")
        client.send_signal(signal.SIGKILL)
        assert client.stdout.read() == b""  # which has no other writer any more


def test_spark_starts_its_processes_by_it(server: str, command: dict[str, Any]) -> None:
    """As `worker-python -m` of a module of PySpark, but not other commands."""
    asked = [str(WORKER), "-m", "pyspark.none"]
    done = subprocess.run(asked, capture_output=True, text=True, **command)
    assert done.returncode == 1 and "No module named pyspark.none" in done.stderr and "forkserver.py" in done.stderr
    done = subprocess.run([str(WORKER), "-c", "print(1)"], capture_output=True, text=True, **command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
