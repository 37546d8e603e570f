"""How others reach a cluster that runs in another process: they read what it publishes, and leave it requests.

All of that is files in its directory, and each appears whole, by a rename. Who may write to the directory may command
the cluster; it is its owner's alone.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headrace.dialects.storm.api.topology import TopologyError
from headrace.dialects.storm.cluster.topologystatus import TopologyStatus
from headrace.dialects.storm.graph.pipelinebuilder import Topics
from headrace.local.atomicfile import replace_file
from headrace.local.processlock import lock_holder
from headrace.log import Log, Record

LOOK: Final = 0.1
"""Seconds from one look at the directory to the next."""

_TRIES: Final = 50  # looks for the first that a cluster publishes, which it does as it begins


class Control:
    """The cluster of a directory, as others see it.

    >>> import tempfile
    >>> control = Control(tempfile.mkdtemp())
    >>> control.served, control.published()
    (False, None)
    >>> control.ask("kill", name="word-count")
    Traceback (most recent call last):
        ...
    headrace.dialects.storm.api.topology.TopologyError: no cluster runs in '...'; start one with `headrace storm submit`
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.requests, self.status_file = self.directory / "requests", self.directory / "status.json"

    @property
    def served(self) -> bool:
        """Whether a cluster runs there: it holds the lock."""
        return lock_holder(self.directory / "lock") is not None

    # Seeing

    def published(self) -> dict[str, Any] | None:
        """What the cluster published last, which is not long ago: when that was, and the status of its topologies.

        None if no cluster runs there.
        """
        for _ in range(_TRIES):
            if not self.served:
                return None
            try:
                found: dict[str, Any] = json.loads(self.status_file.read_bytes())
                return found
            except FileNotFoundError:  # it has only just begun
                time.sleep(LOOK)
        return None

    def statuses(self) -> list[TopologyStatus]:
        """Those of all topologies."""
        published = self.published()
        if published is None:
            raise self._nobody()
        return [TopologyStatus.read(each) for each in published["topologies"]]

    def status(self, name: str) -> TopologyStatus:
        """That of a topology."""
        found = {each.name: each for each in self.statuses()}
        if name not in found:
            there = ", ".join(map(repr, found)) or "none"
            raise TopologyError(f"no topology {name!r} is running; there are: {there}")
        return found[name]

    def errors(self, name: str, limit: int) -> list[dict[str, Any]]:
        """The newest errors that components of a topology reported, oldest first."""
        return [record.value for record in self._newest(self._topics(name).errors, limit)]

    def dead_letters(self, name: str, limit: int) -> list[dict[str, Any]]:
        """The newest tuples of a topology that were given up, and when that was, oldest first."""
        return [
            {"time": record.timestamp, **record.value}
            for record in self._newest(self._topics(name).dead_letters, limit)
        ]

    def _topics(self, name: str) -> Topics:
        self.status(name)  # refuses names of what does not run
        return Topics(name, str(self.directory / "log"))

    def _newest(self, name: str, limit: int) -> Iterator[Record]:
        topic = Log(self.directory / "log").topic(name)
        partition = topic.partition(0)
        end = partition.next_offset()
        return topic.read(0, max(end - limit, partition.earliest()), end)

    # Commanding

    def ask(self, command: str, *, patience: float = 600, **arguments: Any) -> Any:
        """Has the cluster do something; returns what comes of it."""
        if not self.served:
            raise self._nobody()
        self.requests.mkdir(exist_ok=True, mode=0o700)
        number = uuid.uuid4().hex
        request, answer = self.requests / f"{number}.request", self.requests / f"{number}.answer"
        replace_file(request, json.dumps({"command": command, "arguments": arguments}).encode())
        deadline = time.monotonic() + patience
        try:
            while not answer.exists():
                if not self.served or time.monotonic() > deadline:
                    raise TopologyError(f"the cluster in {str(self.directory)!r} has not answered {command!r}")
                time.sleep(LOOK)
            told = json.loads(answer.read_bytes())
        finally:
            request.unlink(missing_ok=True)
            answer.unlink(missing_ok=True)
        if "error" in told:
            raise TopologyError(told["error"])
        return told["result"]

    def _nobody(self) -> TopologyError:
        return TopologyError(f"no cluster runs in {str(self.directory)!r}; start one with `headrace storm submit`")
