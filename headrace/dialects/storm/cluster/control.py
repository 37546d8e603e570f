"""Control of a cluster from another process: reads the status that it publishes, and leaves requests for it.

All of these are files in the cluster's directory, each written completely by a rename. Whoever may write to the
directory may command the cluster; only its owner may.
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
from headrace.dialects.storm.cluster.messages import Answer, Publication, Request
from headrace.dialects.storm.cluster.topologystatus import TopologyStatus
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.local.atomicfile import replace_file
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import check_folder, make_folder
from headrace.local.processlock import lock_holder
from headrace.log import Log, Record

POLL_SECONDS: Final = 0.1
"""The time between two looks at the directory."""

_TRIES: Final = 50  # looks for the first status, which a cluster publishes as it starts


class Control:
    """The cluster of a directory, as other processes see it.

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
        check_folder(self.directory)
        self.requests, self.status_file = self.directory / "requests", self.directory / "status.json"

    @property
    def served(self) -> bool:
        """Whether a cluster runs there: it then holds the lock."""
        return lock_holder(self.directory / "lock") is not None

    # Status

    def published(self) -> dict[str, Any] | None:
        """Returns the status that the cluster published last, as `Publication.record` has it.

        None if no cluster runs there.
        """
        for _ in range(_TRIES):
            if not self.served:
                return None
            try:
                published: dict[str, Any] = json.loads(read_private(self.status_file))
                return published
            except FileNotFoundError:  # it has only just started
                time.sleep(POLL_SECONDS)
        return None

    def statuses(self) -> list[TopologyStatus]:
        """Returns the status of every topology."""
        published = self.published()
        if published is None:
            raise self._no_cluster()
        return list(Publication.read(published).topologies)

    def status(self, name: str) -> TopologyStatus:
        """Returns the status of a topology."""
        statuses = {status.name: status for status in self.statuses()}
        if name not in statuses:
            names = ", ".join(map(repr, statuses)) or "none"
            raise TopologyError(f"no topology {name!r} is running; there are: {names}")
        return statuses[name]

    def errors(self, name: str, limit: int) -> list[dict[str, Any]]:
        """Returns the newest errors that components of a topology reported, oldest first."""
        return [record.value for record in self._newest(self._topics(name).errors, limit)]

    def dead_letters(self, name: str, limit: int) -> list[dict[str, Any]]:
        """Returns the newest dead letters of a topology with their times, oldest first."""
        return [
            {"time": record.timestamp, **record.value}
            for record in self._newest(self._topics(name).dead_letters, limit)
        ]

    def _topics(self, name: str) -> TopologyTopics:
        self.status(name)  # refuses a topology that does not run
        return TopologyTopics(name, str(self.directory / "log"))

    def _newest(self, name: str, limit: int) -> Iterator[Record]:
        topic = Log(self.directory / "log").topic(name)
        partition = topic.partition(0)
        end = partition.next_offset()
        return topic.read(0, max(end - limit, partition.earliest()), end)

    # Commands

    def ask(self, command: str, *, patience: float = 600, **arguments: Any) -> Any:
        """Sends a command to the cluster; returns the result."""
        if not self.served:
            raise self._no_cluster()
        make_folder(self.requests)
        number = uuid.uuid4().hex
        request, answer_file = self.requests / f"{number}.request", self.requests / f"{number}.answer"
        replace_file(request, Request(command, arguments).dump())
        deadline = time.monotonic() + patience
        try:
            while not answer_file.exists():
                if not self.served or time.monotonic() > deadline:
                    raise TopologyError(f"the cluster in {str(self.directory)!r} has not answered {command!r}")
                time.sleep(POLL_SECONDS)
            answer = Answer.load(read_private(answer_file))
        finally:
            request.unlink(missing_ok=True)
            answer_file.unlink(missing_ok=True)
        if answer.error is not None:
            raise TopologyError(answer.error)
        return answer.result

    def _no_cluster(self) -> TopologyError:
        return TopologyError(f"no cluster runs in {str(self.directory)!r}; start one with `headrace storm submit`")
