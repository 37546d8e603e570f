"""`headrace storm`: the commands that it sends, what it prints, and with which exit code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import storm
from headrace.commands.main import main
from headrace.commands.storm import _wait
from headrace.dialects.storm.cluster.control import Control
from tests.dialects.storm.clusters import TOPOLOGY, Cluster, wait_until, write_reports


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, "words", "pages") as made:
        yield made


def run_storm(directory: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["storm", *words, "--directory", str(directory)])
    assert result.exit_code == code, result.output
    return result.output


def test_commands_reach_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    words = cluster.topologies["words"]
    words.settled.set()
    run_storm(tmp_path, "submit", str(tmp_path / "words.py"), "more")
    assert run_storm(tmp_path, "list").splitlines() == [
        "pages  active  1 tasks  0 pending trees",
        "words  active  1 tasks  0 pending trees",
    ]
    assert run_storm(tmp_path, "status", "words").startswith("words is active: 3 micro-batches")
    run_storm(tmp_path, "deactivate", "words")
    assert run_storm(tmp_path, "list").splitlines()[1].startswith("words  inactive")  # at once
    run_storm(tmp_path, "activate", "words")
    run_storm(tmp_path, "rebalance", "words", "print=4", "other-one=2")
    run_storm(tmp_path, "kill", "words", "--wait", "10s")
    assert cluster.submitted == [("more", ["words", "print"], 7)]
    assert words.commands == ["deactivate", "activate", ("rebalance", {"print": 4, "other-one": 2}, 30), ("kill", 10)]
    assert run_storm(tmp_path, "list") == "pages  active  1 tasks  0 pending trees\n"
    assert list((tmp_path / "requests").iterdir()) == []


def test_errors_and_failures_are_printed(cluster: Cluster, tmp_path: Path) -> None:
    write_reports(tmp_path, "words", *(f"ValueError: {n}" for n in range(5)))
    printed = run_storm(tmp_path, "errors", "words").splitlines()
    assert printed[3] == "1970-01-01T00:00:03Z  split  task 2  ValueError: 3"
    cluster.topologies["pages"].failure = ValueError("disk full")
    run_storm(tmp_path, "deactivate", "pages")  # which publishes the status
    assert "it failed: disk full" in run_storm(tmp_path, "status", "pages")


def test_wrong_commands_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    assert "no topology 'word' is running; there are: 'pages', 'words'" in run_storm(tmp_path, "kill", "word", code=1)
    assert "there is no file" in run_storm(tmp_path, "submit", str(tmp_path / "none.py"), "more", code=1)
    (tmp_path / "empty.py").write_text("")
    assert "has no topology" in run_storm(tmp_path, "submit", str(tmp_path / "empty.py"), "more", code=1)
    assert "write BOLT=TASKS" in run_storm(tmp_path, "rebalance", "words", "print", code=1)
    assert "'words' is a spout" in run_storm(tmp_path, "rebalance", "words", "words=2", code=1)
    with pytest.raises(storm.TopologyError, match="there is no command 'format'; there are submit, activate"):
        Control(tmp_path).ask("format")


def test_a_topology_that_fails_ends_the_command_only_if_no_other_is_left(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, ended = threading.Event(), list[str]()

    def wait() -> None:
        try:
            _wait(cluster, stop)
        except storm.TopologyError as error:
            ended.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    cluster.topologies["words"].failure = ValueError("disk full")
    printed = ""

    def has_printed() -> bool:
        nonlocal printed
        printed += capsys.readouterr().err
        return "words has failed: disk full" in printed

    wait_until(has_printed)
    assert waiting.is_alive() and ended == []
    cluster.topologies["pages"].failure = ValueError("no memory")
    waiting.join(60)
    assert ended == ["every topology that is left has failed: pages, words"]


def test_commands_need_a_cluster(tmp_path: Path) -> None:
    assert "no cluster runs" in run_storm(tmp_path, "list", code=1)
    assert "no cluster runs" in run_storm(tmp_path, "kill", "words", code=1)
