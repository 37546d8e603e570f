"""A cluster watched and commanded from another process, with topologies that only record commands."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.cluster.control import Control
from headrace.dialects.storm.cluster.controlthread import submit_file
from headrace.dialects.storm.cluster.topologystatus import ComponentStatus, InputStatus, TaskStatus, TopologyStatus
from headrace.local.processlock import exclusive, lock_holder
from tests.dialects.storm.clusters import TOPOLOGY, Cluster, wait_until, write_reports


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, "words", "pages") as made:
        yield made


def test_one_that_takes_long_holds_up_nobody_else(cluster: Cluster, tmp_path: Path) -> None:
    control = Control(tmp_path)
    killing = threading.Thread(target=lambda: control.ask("kill", name="words"))
    killing.start()
    wait_until(lambda: control.status("words").state == "killed")
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
    assert cluster.topologies["words"].commands == []
    cluster.topologies["words"].settled.set()
    killing.join(60)
    waiting.join(60)
    assert late == ["no topology 'words' is running; there are: 'pages'"]
    assert cluster.topologies["words"].commands == [("kill", 30)]


def test_what_is_published_is_whole_and_recent(cluster: Cluster, tmp_path: Path) -> None:
    control = Control(tmp_path)
    first = control.published()
    assert first is not None
    assert [TopologyStatus.read(each) for each in first["topologies"]] == cluster.statuses()
    wait_until(lambda: (control.published() or first)["time"] > first["time"])


def test_a_topology_that_cannot_tell_does_not_hide_the_others(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topologies["words"].has_status = False
    cluster.topologies["pages"].failure = ValueError("disk full")
    Control(tmp_path).ask("deactivate", name="pages")
    pages, words = Control(tmp_path).statuses()
    assert (pages.state, pages.error) == ("failed", "disk full")
    assert (words.state, words.error) == ("failed", "no status: the JVM is gone")
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
    errors, letters = write_reports(tmp_path, "words", *(f"ValueError: {n}" for n in range(5)))
    control = Control(tmp_path)
    assert control.errors("words", 2) == errors[3:]
    assert control.dead_letters("words", 2) == letters[3:]
    assert control.dead_letters("words", 100) == letters
    with pytest.raises(storm.TopologyError, match="no topology"):
        control.errors("../words", 2)


@pytest.mark.parametrize("request_", [b"", b"{", b"[]", b'{"command": 7}', b'{"command": "kill"}', b"\xff"])
def test_requests_that_make_no_sense_are_answered_and_end_nothing(
    cluster: Cluster, tmp_path: Path, request_: bytes
) -> None:
    (tmp_path / "requests" / ".new").write_bytes(request_)
    (tmp_path / "requests" / ".new").rename(tmp_path / "requests" / "a.request")
    answer = tmp_path / "requests" / "a.answer"
    wait_until(answer.exists)
    assert "error" in json.loads(answer.read_bytes())
    Control(tmp_path).ask("deactivate", name="words")


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
