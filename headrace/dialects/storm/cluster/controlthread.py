"""The other end of `Control`: a thread of a cluster that publishes how far its topologies are, and does what is asked.

Each request is done in a thread of its own, since to kill a topology or to rebalance it waits for what is under way.
"""

from __future__ import annotations

import json
import logging
import runpy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Topology, TopologyError
from headrace.dialects.storm.cluster.control import LOOK, Control
from headrace.local.atomicfile import replace_file

if TYPE_CHECKING:
    from headrace.dialects.storm.cluster.localcluster import LocalCluster

_PERIOD: Final = 1.0  # seconds from one publication to the next
_AT_ONCE: Final = 32  # requests under way

_log = logging.getLogger("headrace.storm")


class ControlThread:
    """Of one cluster, for the time of a block."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster, self.control = cluster, Control(cluster.directory)
        self._stopping = threading.Event()
        self._publishing = threading.Lock()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headrace-storm-requests")
        self._thread = threading.Thread(target=self._run, name="headrace-storm-control", daemon=True)

    def __enter__(self) -> ControlThread:
        requests = self.control.requests
        requests.mkdir(exist_ok=True, mode=0o700)
        for left in requests.iterdir():  # of those who asked a cluster that is no more
            left.unlink()
        self._publish()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Lets what is under way end, and publishes no more."""
        self._stopping.set()
        self._thread.join()
        self._threads.shutdown()
        self.control.status_file.unlink(missing_ok=True)

    def _run(self) -> None:
        published = monotonic()
        while not self._stopping.wait(LOOK):
            try:
                for request in sorted(self.control.requests.glob("*.request")):
                    asked = request.read_bytes()
                    request.unlink()
                    self._threads.submit(self._answer, request.with_suffix(".answer"), asked)
                if monotonic() - published >= _PERIOD:
                    published = monotonic()
                    self._publish()
            except Exception:  # a full disk, a client that took its request back: the next look may find it well
                _log.exception("requests and status in %s", self.control.directory)

    def _publish(self) -> None:
        with self._publishing:
            found = {"time": self.cluster.clock(), "topologies": [each.told() for each in self.cluster.statuses()]}
            replace_file(self.control.status_file, json.dumps(found).encode())

    def _answer(self, path: Path, asked: bytes) -> None:
        try:
            told: dict[str, Any] = {"result": _done(self.cluster, json.loads(asked))}
        except Exception as error:
            told = {"error": str(error) or type(error).__name__}
        try:
            self._publish()  # before the answer, so that who reads it finds what was done
            replace_file(path, json.dumps(told).encode())
        except Exception:
            _log.exception("the answer to a request in %s", self.control.directory)


def _done(cluster: LocalCluster, asked: dict[str, Any]) -> Any:
    command = asked["command"]
    if command not in _COMMANDS:
        raise TopologyError(f"there is no command {command!r}; there are {', '.join(_COMMANDS)}")
    return _COMMANDS[command](cluster, **asked["arguments"])


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


_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "submit": submit,
    "activate": lambda cluster, name: cluster.activate(name),
    "deactivate": lambda cluster, name: cluster.deactivate(name),
    "rebalance": lambda cluster, name, tasks, wait=None: cluster.rebalance(name, tasks, wait=wait),
    "kill": lambda cluster, name, wait=None: cluster.kill(name, wait),
}
