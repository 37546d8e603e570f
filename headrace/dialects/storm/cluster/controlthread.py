"""The control thread of a cluster: publishes the status of its topologies, and executes requests of `Control`.

Each request has a thread of its own, because killing or rebalancing a topology waits for its pending tuples.
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
from headrace.dialects.storm.cluster.control import POLL_SECONDS, Control
from headrace.dialects.storm.cluster.messages import Answer, Publication, Request
from headrace.local.atomicfile import replace_file
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import make_folder

if TYPE_CHECKING:
    from headrace.dialects.storm.cluster.localcluster import LocalCluster

_PUBLISH_SECONDS: Final = 1.0  # seconds between publications
_MAX_REQUESTS: Final = 32  # at once

_log = logging.getLogger("headrace.storm")


class ControlThread:
    """The control thread of one cluster, for the time of a `with` block."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster, self.control = cluster, Control(cluster.directory)
        self._stopping = threading.Event()
        self._publishing = threading.Lock()
        self._threads = ThreadPoolExecutor(_MAX_REQUESTS, thread_name_prefix="headrace-storm-requests")
        self._thread = threading.Thread(target=self._run, name="headrace-storm-control", daemon=True)

    def __enter__(self) -> ControlThread:
        requests = self.control.requests
        make_folder(requests)
        for abandoned in requests.iterdir():  # requests to an earlier cluster
            abandoned.unlink()
        self._publish()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the requests that are being executed, and removes the published status."""
        self._stopping.set()
        self._thread.join()
        self._threads.shutdown()
        self.control.status_file.unlink(missing_ok=True)

    def _run(self) -> None:
        published = monotonic()
        while not self._stopping.wait(POLL_SECONDS):
            try:
                for request in sorted(self.control.requests.glob("*.request")):
                    try:
                        data = read_private(request)
                    finally:  # also one that is refused: it would be refused for ever
                        request.unlink()
                    self._threads.submit(self._answer, request.with_suffix(".answer"), data)
                if monotonic() - published >= _PUBLISH_SECONDS:
                    published = monotonic()
                    self._publish()
            except Exception:  # a full disk, or a client that withdrew its request: the next look may succeed
                _log.exception("cannot read requests or write status in %s", self.control.directory)

    def _publish(self) -> None:
        with self._publishing:
            published = Publication(self.cluster.clock(), tuple(self.cluster.statuses()))
            replace_file(self.control.status_file, json.dumps(published.record()).encode())

    def _answer(self, path: Path, data: bytes) -> None:
        try:
            answer = Answer(_execute(self.cluster, Request.load(data)))
        except Exception as error:
            answer = Answer(error=str(error) or type(error).__name__)
        try:
            self._publish()  # before the answer, so that its reader finds the new status
            replace_file(path, answer.dump())
        except Exception:
            _log.exception("cannot answer a request in %s", self.control.directory)


def _execute(cluster: LocalCluster, request: Request) -> Any:
    if request.command not in _COMMANDS:
        raise TopologyError(f"there is no command {request.command!r}; there are {', '.join(_COMMANDS)}")
    return _COMMANDS[request.command](cluster, **request.arguments)


def submit_file(cluster: LocalCluster, name: str, file: str) -> None:
    """Submits the topology of a Python file: its variable `topology`, with `config` if there is one."""
    if not Path(file).is_file():
        raise TopologyError(f"there is no file {file!r}; name a Python file with topology = builder.create()")
    names = runpy.run_path(file, run_name="headrace_topology")
    topology, config = names.get("topology"), names.get("config", Config())
    if not isinstance(topology, Topology) or not isinstance(config, Config):
        raise TopologyError(
            f"{file} has no topology; assign topology = builder.create(), and config = storm.Config(...) if needed"
        )
    cluster.submit(name, topology, config)


_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "submit": submit_file,
    "activate": lambda cluster, name: cluster.activate(name),
    "deactivate": lambda cluster, name: cluster.deactivate(name),
    "rebalance": lambda cluster, name, tasks, wait=None: cluster.rebalance(name, tasks, wait=wait),
    "kill": lambda cluster, name, wait=None: cluster.kill(name, wait),
}
