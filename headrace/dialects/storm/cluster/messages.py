"""The messages between a cluster and other processes, as files of JSON: requests, answers and published status."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.dialects.storm.cluster.topologystatus import TopologyStatus


@dataclass(frozen=True)
class Request:
    """A command to a cluster, with its arguments.

    >>> Request.load(Request("kill", {"name": "words"}).dump())
    Request(command='kill', arguments={'name': 'words'})
    """

    command: str
    arguments: dict[str, Any]

    def dump(self) -> bytes:
        """Writes it as JSON."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def load(data: bytes) -> Request:
        """Reads what `dump` wrote; anything else raises a ValueError."""
        match json.loads(data):
            case {"command": str(command), "arguments": dict(arguments)}:
                return Request(command, arguments)
        raise ValueError(f"a request has a command and arguments, got {data[:100]!r}")


@dataclass(frozen=True)
class Answer:
    """The answer of a cluster to a request: the result, or the error that kept it from being done.

    >>> Answer(error="no topology 'words' is running").dump()
    b'{"error": "no topology \\'words\\' is running"}'
    >>> Answer.load(b'{"result": null}')
    Answer(result=None, error=None)
    """

    result: Any = None
    error: str | None = None

    def dump(self) -> bytes:
        """Writes it as JSON: an object with a result or an error."""
        return json.dumps({"result": self.result} if self.error is None else {"error": self.error}).encode()

    @staticmethod
    def load(data: bytes) -> Answer:
        """Reads what `dump` wrote."""
        return Answer(**json.loads(data))


@dataclass(frozen=True)
class Publication:
    """The status that a cluster publishes: the time in microseconds, and the status of each topology."""

    time: int
    topologies: tuple[TopologyStatus, ...]

    def record(self) -> dict[str, Any]:
        """Returns it as an object of JSON."""
        return {"time": self.time, "topologies": [status.record() for status in self.topologies]}

    @staticmethod
    def read(record: Mapping[str, Any]) -> Publication:
        """Reads what `record` returned.

        >>> published = Publication(5, (TopologyStatus("words", "active", 3, 0.5, 0, ()),))
        >>> Publication.read(json.loads(json.dumps(published.record()))) == published
        True
        """
        return Publication(record["time"], tuple(map(TopologyStatus.read, record["topologies"])))
