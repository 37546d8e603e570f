"""How commands reach a cluster that runs in another process: requests and answers are files in its directory.

A file appears whole, by a rename. Who may write to the directory may command the cluster; it is its owner's alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import runpy
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace.dialects.storm.cluster import LocalCluster
from headrace.dialects.storm.config import Config
from headrace.dialects.storm.topology import Topology, TopologyError
from headrace.wholefiles import replace_file

_LOOK: Final = 0.1  # seconds from one look at the directory to the next


class Control:
    """The requests to the cluster of a directory.

    >>> import tempfile
    >>> control = Control(tempfile.mkdtemp())
    >>> control.served
    False
    >>> control.ask("list")
    Traceback (most recent call last):
        ...
    headrace.dialects.storm.topology.TopologyError: no cluster runs in '...'; start one with `headrace storm submit`
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self._folder = self.directory / "requests"

    @property
    def served(self) -> bool:
        """Whether a cluster runs there: it holds the lock."""
        try:
            with (self.directory / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def ask(self, command: str, *, patience: float = 600, **arguments: Any) -> Any:
        """Has the cluster do something; returns what comes of it."""
        if not self.served:
            raise TopologyError(f"no cluster runs in {str(self.directory)!r}; start one with `headrace storm submit`")
        self._folder.mkdir(exist_ok=True, mode=0o700)
        number = uuid.uuid4().hex
        request, answer = self._folder / f"{number}.request", self._folder / f"{number}.answer"
        replace_file(request, json.dumps({"command": command, "arguments": arguments}).encode())
        deadline = time.monotonic() + patience
        while not answer.exists():
            if not self.served or time.monotonic() > deadline:
                request.unlink(missing_ok=True)
                raise TopologyError(f"the cluster in {str(self.directory)!r} has not answered {command!r}")
            time.sleep(_LOOK)
        told = json.loads(answer.read_bytes())
        answer.unlink()
        if "error" in told:
            raise TopologyError(told["error"])
        return told["result"]

    def serve(self, cluster: LocalCluster, *, until: threading.Event) -> None:
        """Answers requests until told otherwise, or no topology is left."""
        self._folder.mkdir(exist_ok=True, mode=0o700)
        for left in self._folder.iterdir():  # of those who asked a cluster that is no more
            left.unlink()
        while cluster.names() and not until.wait(_LOOK):
            for name in cluster.names():
                cluster.running(name).check()
            for request in sorted(self._folder.glob("*.request")):
                asked = json.loads(request.read_bytes())
                request.unlink()
                try:
                    told: dict[str, Any] = {"result": _COMMANDS[asked["command"]](cluster, **asked["arguments"])}
                except Exception as error:
                    told = {"error": str(error) or type(error).__name__}
                replace_file(request.with_suffix(".answer"), json.dumps(told).encode())


def submit(cluster: LocalCluster, name: str, file: str) -> None:
    """Submits the topology of a Python file: its variable `topology`, with `config` if there is one."""
    if not Path(file).is_file():
        raise TopologyError(f"there is no file {file!r}; give a Python file with topology = builder.create()")
    names = runpy.run_path(file, run_name="headrace_topology")
    topology, config = names.get("topology"), names.get("config", Config())
    if not isinstance(topology, Topology) or not isinstance(config, Config):
        raise TopologyError(
            f"{file} has no topology; let it say topology = builder.create(), and config = storm.Config(...) if need be"
        )
    cluster.submit(name, topology, config)


def _listed(cluster: LocalCluster) -> list[dict[str, Any]]:
    statuses = [cluster.status(name) for name in cluster.names()]
    return [
        {"name": each.name, "state": each.state, "tasks": len(each.tasks), "batches": each.batches, "trees": each.trees}
        for each in statuses
    ]


def _errors(cluster: LocalCluster, name: str) -> list[dict[str, Any]]:
    return [vars(each) for each in cluster.errors(name)]


_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "submit": submit,
    "list": _listed,
    "status": lambda cluster, name: str(cluster.status(name)),
    "errors": _errors,
    "activate": lambda cluster, name: cluster.activate(name),
    "deactivate": lambda cluster, name: cluster.deactivate(name),
    "rebalance": lambda cluster, name, tasks: cluster.rebalance(name, **tasks),
    "kill": lambda cluster, name, wait: cluster.kill(name, wait),
}
