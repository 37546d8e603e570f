"""Topologies that run, without the stream: what is left of those that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from headrace import storm
from headrace.dialects.storm.cluster import runningtopology
from headrace.dialects.storm.cluster.runningtopology import RunningTopology
from headrace.log import Log
from tests.dialects.storm.cluster.test_spouthost import Few


def submitted(folder: Path) -> RunningTopology:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Few())
    topology, log = builder.create(), str(folder / "log")
    return RunningTopology("t", topology, storm.Config(), folder / "t", log, None, lambda: 0)


def turned(topology: RunningTopology) -> list[Any]:
    """What the spout has emitted after a turn of it."""
    (host,) = topology._hosts.values()
    host.turn()
    return [each.values[0] for each in host.log.read(0)]


class Interrupted(Exception):
    pass


def interrupt(*_: Any, **__: Any) -> None:
    raise Interrupted


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_kill_that_is_interrupted_is_finished_when_the_name_is_submitted_again(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a topology of that name would begin with some of what the one before had left."""
    topology = submitted(tmp_path)
    assert turned(topology) == turned(submitted(tmp_path)) == [1, 2, 3]  # it goes on where it was
    monkeypatch.setattr(topology, "_stop_hosts", lambda: None)
    monkeypatch.setattr(topology, "_handle", MagicMock())
    delete, deleted = Log.delete, []

    def deleting(log: Log, name: str) -> None:
        if len(deleted) == after:
            raise Interrupted
        deleted.append(name)
        delete(log, name)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "delete", deleting)
        patched.setattr(runningtopology, "shutil", MagicMock(rmtree=interrupt))
        with pytest.raises(Interrupted):
            topology.kill(0)
    assert len(deleted) == after
    again = submitted(tmp_path)
    (host,) = again._hosts.values()
    assert (again.id != topology.id, len(host.pending), list(host.log.read(0))) == (True, 0, [])
    assert turned(again) == [1, 2, 3]


@pytest.mark.parametrize(("batches", "restarts"), [(2, 20), (1, 5), (0, 5)])
def test_a_stream_that_fails_is_started_again_as_long_as_it_gets_on(
    batches: int, restarts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look may come only after the failure: what the stream had done before then counts."""
    topology, started = submitted(tmp_path), []
    status = MagicMock(state="failed", batches=batches)
    status.sources = {"numbers": MagicMock(offsets={0: 3})}
    handle = MagicMock(status=lambda: status)
    handle.wait.side_effect = ValueError("no")
    monkeypatch.setattr(topology, "_handle", handle)
    monkeypatch.setattr(topology, "_start_stream", lambda: started.append(1))
    for _ in range(20):
        topology._watch_stream()
    assert len(started) == restarts
    assert isinstance(topology.failure, ValueError) == (restarts < 20)
