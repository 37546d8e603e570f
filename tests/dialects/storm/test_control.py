"""Commands to a cluster in another process, with a cluster that only notes them; and the command line over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace import storm
from headrace.cli import main
from headrace.dialects.storm.control import Control, submit
from headrace.dialects.storm.status import TaskStatus, TopologyStatus

TOPOLOGY = """
from headrace import storm
class Words(storm.Spout):
    fields = ["word"]
class Print(storm.Bolt):
    pass
builder = storm.TopologyBuilder()
builder.set_spout("words", Words())
builder.set_bolt("print", Print()).shuffle_grouping("words")
topology = builder.create()
config = storm.Config(max_spout_pending=7)
"""


class Noting(storm.LocalCluster):
    """A cluster that runs nothing."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.noted: list[Any] = []
        self._running: dict[str, Any] = {"words": self}

    def check(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def submit(self, name: str, topology: storm.Topology, config: storm.Config | None = None) -> None:
        assert config is not None
        self.noted.append(("submit", name, [node.id for node in topology.nodes], config.max_spout_pending))

    def activate(self, name: str) -> None:
        self.noted.append(("activate", name))

    def deactivate(self, name: str) -> None:
        self.noted.append(("deactivate", name))

    def rebalance(self, name: str, *, wait: Any = None, **tasks: int) -> None:
        self.noted.append(("rebalance", name, tasks))

    def kill(self, name: str, wait: Any = None) -> None:
        self.running(name)
        self.noted.append(("kill", name, wait))

    def status(self, name: str) -> TopologyStatus:
        return TopologyStatus(name, "active", 3, 0.5, 0, (TaskStatus("print", 1),))

    def errors(self, name: str) -> list[storm.ErrorReport]:
        return [storm.ErrorReport("print", 1, 0, "ValueError: no", "...")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Noting]:
    with Noting(tmp_path) as made:
        over = threading.Event()
        thread = threading.Thread(target=lambda: Control(tmp_path).serve(made, until=over))
        thread.start()
        yield made
        over.set()
        thread.join()


def said(directory: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["storm", *words, "--directory", str(directory)])
    assert result.exit_code == code, result.output
    return result.output


def test_commands_reach_the_cluster(cluster: Noting, tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    said(tmp_path, "submit", str(tmp_path / "words.py"), "more")
    assert said(tmp_path, "list") == "words  active  1 tasks  0 trees under way\n"
    assert said(tmp_path, "status", "words").startswith("words is active: 3 micro-batches")
    assert said(tmp_path, "errors", "words") == "1970-01-01T00:00:00Z  print  task 1  ValueError: no\n"
    said(tmp_path, "deactivate", "words")
    said(tmp_path, "activate", "words")
    said(tmp_path, "rebalance", "words", "print=4", "other=2")
    said(tmp_path, "kill", "words", "--wait", "10s")
    assert cluster.noted == [
        ("submit", "more", ["words", "print"], 7),
        ("deactivate", "words"),
        ("activate", "words"),
        ("rebalance", "words", {"print": 4, "other": 2}),
        ("kill", "words", "10s"),
    ]
    assert list((tmp_path / "requests").iterdir()) == []


def test_what_goes_wrong_is_told(cluster: Noting, tmp_path: Path) -> None:
    assert "no topology 'word' is running; there are: 'words'" in said(tmp_path, "kill", "word", code=1)
    assert "there is no file" in said(tmp_path, "submit", str(tmp_path / "none.py"), "more", code=1)
    (tmp_path / "empty.py").write_text("")
    assert "has no topology" in said(tmp_path, "submit", str(tmp_path / "empty.py"), "more", code=1)
    assert "say BOLT=TASKS" in said(tmp_path, "rebalance", "words", "print", code=1)


def test_without_a_cluster_nobody_answers(tmp_path: Path) -> None:
    assert "no cluster runs" in said(tmp_path, "list", code=1)


def test_a_directory_has_one_cluster(cluster: Noting, tmp_path: Path) -> None:
    with pytest.raises(storm.TopologyError, match="is in use by the cluster of process"), storm.LocalCluster(tmp_path):
        pass


def test_a_cluster_runs_only_inside_its_block(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    with pytest.raises(storm.TopologyError, match="the cluster is not running"):
        submit(storm.LocalCluster(tmp_path), "words", str(tmp_path / "words.py"))


@pytest.mark.parametrize("name", ["", "a b", "../up", ".hidden", "x" * 101])
def test_names_are_plain(tmp_path: Path, name: str) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    with storm.LocalCluster(tmp_path) as cluster, pytest.raises(storm.TopologyError, match="the name of a topology"):
        submit(cluster, name, str(tmp_path / "words.py"))
