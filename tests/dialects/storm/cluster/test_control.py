"""A cluster seen and commanded from another process, with topologies that only note it; and the command line."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from headrace import storm
from headrace.commands.main import main
from headrace.commands.storm import _attend
from headrace.dialects.storm.cluster.control import Control
from headrace.dialects.storm.cluster.controlthread import submit_file
from headrace.dialects.storm.cluster.topologystatus import ComponentStatus, InputStatus, TaskStatus, TopologyStatus
from headrace.local.processlock import exclusive, lock_holder
from tests.dialects.storm.clusters import Cluster, write_wrongs

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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, "words", "pages") as made:
        yield made


def said(directory: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["storm", *words, "--directory", str(directory)])
    assert result.exit_code == code, result.output
    return result.output


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_commands_reach_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    words = cluster.noting["words"]
    words.settled.set()
    said(tmp_path, "submit", str(tmp_path / "words.py"), "more")
    assert said(tmp_path, "list").splitlines() == [
        "pages  active  1 tasks  0 trees under way",
        "words  active  1 tasks  0 trees under way",
    ]
    assert said(tmp_path, "status", "words").startswith("words is active: 3 micro-batches")
    said(tmp_path, "deactivate", "words")
    assert said(tmp_path, "list").splitlines()[1].startswith("words  inactive")  # a command is over when it is seen
    said(tmp_path, "activate", "words")
    said(tmp_path, "rebalance", "words", "print=4", "other-one=2")
    said(tmp_path, "kill", "words", "--wait", "10s")
    assert cluster.submitted == [("more", ["words", "print"], 7)]
    assert words.noted == ["deactivate", "activate", ("rebalance", {"print": 4, "other-one": 2}, 30), ("kill", 10)]
    assert said(tmp_path, "list") == "pages  active  1 tasks  0 trees under way\n"
    assert list((tmp_path / "requests").iterdir()) == []


def test_one_that_takes_long_holds_up_nobody_else(cluster: Cluster, tmp_path: Path) -> None:
    control = Control(tmp_path)
    killing = threading.Thread(target=lambda: control.ask("kill", name="words"))
    killing.start()
    until(lambda: control.status("words").state == "killed")
    control.ask("deactivate", name="pages")
    assert control.status("pages").state == "inactive"
    # What is asked of the same topology has its turn after that, and finds it gone.
    late: list[str] = []

    def activate() -> None:
        try:
            control.ask("activate", name="words")
        except storm.TopologyError as error:
            late.append(str(error))

    waiting = threading.Thread(target=activate)
    waiting.start()
    assert cluster.noting["words"].noted == []
    cluster.noting["words"].settled.set()
    killing.join(60)
    waiting.join(60)
    assert late == ["no topology 'words' is running; there are: 'pages'"]
    assert cluster.noting["words"].noted == [("kill", 30)]


def test_what_is_published_is_whole_and_recent(cluster: Cluster, tmp_path: Path) -> None:
    control = Control(tmp_path)
    first = control.published()
    assert first is not None
    assert [TopologyStatus.read(each) for each in first["topologies"]] == cluster.statuses()
    until(lambda: (control.published() or first)["time"] > first["time"])


def test_a_topology_that_cannot_tell_does_not_hide_the_others(cluster: Cluster, tmp_path: Path) -> None:
    cluster.noting["words"].tells = False
    cluster.noting["pages"].failure = ValueError("disk full")
    Control(tmp_path).ask("deactivate", name="pages")
    pages, words = Control(tmp_path).statuses()
    assert (pages.state, pages.error) == ("failed", "disk full")
    assert (words.state, words.error) == ("failed", "no status: the JVM is gone")
    assert "it failed: disk full" in said(tmp_path, "status", "pages")
    assert list(cluster.failures()) == ["pages"]


def test_nobody_else_may_look_or_command(tmp_path: Path) -> None:
    with Cluster(tmp_path / "new", "words"):
        for folder in (tmp_path / "new", tmp_path / "new" / "requests"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (tmp_path / "new" / "status.json").exists()
    assert Control(tmp_path / "new").published() is None


def test_a_cluster_without_a_directory_is_not_to_be_reached() -> None:
    with storm.LocalCluster() as cluster:
        assert Control(cluster.directory).served
        assert [each.name for each in cluster.directory.iterdir()] == ["lock"]


def test_errors_and_dead_letters_are_read_from_the_log(cluster: Cluster, tmp_path: Path) -> None:
    errors, letters = write_wrongs(tmp_path, "words", *(f"ValueError: {n}" for n in range(5)))
    control = Control(tmp_path)
    assert control.errors("words", 2) == errors[3:]
    assert control.dead_letters("words", 2) == letters[3:]
    assert control.dead_letters("words", 100) == letters
    assert said(tmp_path, "errors", "words").splitlines()[3] == "1970-01-01T00:00:03Z  split  task 2  ValueError: 3"
    with pytest.raises(storm.TopologyError, match="no topology"):
        control.errors("../words", 2)


def test_what_goes_wrong_is_told(cluster: Cluster, tmp_path: Path) -> None:
    assert "no topology 'word' is running; there are: 'pages', 'words'" in said(tmp_path, "kill", "word", code=1)
    assert "there is no file" in said(tmp_path, "submit", str(tmp_path / "none.py"), "more", code=1)
    (tmp_path / "empty.py").write_text("")
    assert "has no topology" in said(tmp_path, "submit", str(tmp_path / "empty.py"), "more", code=1)
    assert "say BOLT=TASKS" in said(tmp_path, "rebalance", "words", "print", code=1)
    assert "'words' is a spout" in said(tmp_path, "rebalance", "words", "words=2", code=1)
    with pytest.raises(storm.TopologyError, match="there is no command 'format'; there are submit, activate"):
        Control(tmp_path).ask("format")


def test_a_topology_that_fails_ends_the_command_only_if_no_other_is_left(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, ended = threading.Event(), list[str]()

    def attend() -> None:
        try:
            _attend(cluster, stop)
        except storm.TopologyError as error:
            ended.append(str(error))

    attending = threading.Thread(target=attend)
    attending.start()
    cluster.noting["words"].failure = ValueError("disk full")
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "words has failed: disk full" in said

    until(told)
    assert attending.is_alive() and ended == []
    cluster.noting["pages"].failure = ValueError("no memory")
    attending.join(60)
    assert ended == ["every topology that is left has failed: pages, words"]


@pytest.mark.parametrize("request_", [b"", b"{", b"[]", b'{"command": 7}', b'{"command": "kill"}', b"\xff"])
def test_requests_that_make_no_sense_are_answered_and_end_nothing(
    cluster: Cluster, tmp_path: Path, request_: bytes
) -> None:
    (tmp_path / "requests" / ".new").write_bytes(request_)
    (tmp_path / "requests" / ".new").rename(tmp_path / "requests" / "a.request")
    answer = tmp_path / "requests" / "a.answer"
    until(answer.exists)
    assert "error" in json.loads(answer.read_bytes())
    Control(tmp_path).ask("deactivate", name="words")


def test_without_a_cluster_nobody_answers(tmp_path: Path) -> None:
    assert "no cluster runs" in said(tmp_path, "list", code=1)
    assert "no cluster runs" in said(tmp_path, "kill", "words", code=1)


def test_a_directory_has_one_cluster(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(storm.TopologyError, match="is in use by the cluster of process"), storm.LocalCluster(tmp_path):
        pass


def test_who_looks_whether_a_cluster_runs_keeps_none_from_starting(tmp_path: Path) -> None:
    """Regression: to ask for the holder of a lock takes the lock for an instant."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            lock_holder(tmp_path / "lock")

    looking = [threading.Thread(target=look) for _ in range(2)]
    for each in looking:
        each.start()
    try:
        for _ in range(50):
            with exclusive(tmp_path / "lock", lambda other: AssertionError(f"refused for {other}")):
                pass
    finally:
        over.set()
        for each in looking:
            each.join()


def test_a_cluster_runs_only_inside_its_block(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    with pytest.raises(storm.TopologyError, match="the cluster is not running"):
        submit_file(storm.LocalCluster(tmp_path), "words", str(tmp_path / "words.py"))


@pytest.mark.parametrize("name", ["", "a b", "../up", ".hidden", "x" * 101, "requests", "status.json", "log", "lock"])
def test_names_are_plain(tmp_path: Path, name: str) -> None:
    (tmp_path / "words.py").write_text(TOPOLOGY)
    with storm.LocalCluster(tmp_path) as cluster, pytest.raises(storm.TopologyError, match="the name of a topology"):
        submit_file(cluster, name, str(tmp_path / "words.py"))


NUMBERS = st.none() | st.floats(0, 1e9)
COUNTS = st.integers(0, 2**63)
TASKS = st.builds(
    TaskStatus, st.text(), COUNTS, COUNTS, COUNTS, execute_ms=NUMBERS, throttled=st.none() | st.booleans()
)
INPUTS = st.builds(InputStatus, st.text(), st.text(), st.text(), COUNTS)
COMPONENTS = st.builds(ComponentStatus, st.text(), st.sampled_from(["spout", "bolt"]), COUNTS, st.tuples(INPUTS))
STATUSES = st.builds(
    TopologyStatus,
    st.text(),
    st.just("active"),
    COUNTS,
    NUMBERS,
    COUNTS,
    st.lists(TASKS).map(tuple),
    st.lists(COMPONENTS).map(tuple),
    st.none() | st.text(),
)


@given(STATUSES)
def test_a_status_is_the_same_after_its_way_as_json(status: TopologyStatus) -> None:
    assert TopologyStatus.read(json.loads(json.dumps(status.record()))) == status
