"""A server in a process of its own: it answers what the store holds now, calls its system, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace.log import Log
from headrace.server import Proxies, Service, Tokens
from headrace.server.process.childprocess import ServerProcess
from headrace.system.served import Served, server_process
from headrace.views.declare.app import App
from headrace.views.declare.layout import Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from tests.dialects.storm.clusters import Cluster
from tests.scale import examples
from tests.server.routes.test_operations import Scripted

APP = """
import headrace as hr

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")

@hr.view(visits, window=hr.FixedWindows("1 hour"))
def hits(events):
    return events | hr.GroupBy("url").aggregate(n=hr.count())
"""
HOUR = 3_600_000_000
SECRET = "read:correct-horse-battery"


class Failing(Scripted):
    """Its dead letters cannot be read."""

    def dead_letters(self, limit: int) -> list[dict[str, Any]]:
        raise OSError("disk of postgresql://user:hunter2@host is gone")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("apart")
    (folder / "app.py").write_text(APP)
    store, log, master = f"sqlite:///{folder}/views.db", folder / "log", folder / "master"
    return Served(str(folder / "app.py"), store, str(log), str(master), "local[2]", str(folder / "storm"))


@pytest.fixture(scope="module")
def system() -> Failing:
    return Failing()


@pytest.fixture(scope="module")
def server(served: Served, system: Failing) -> Iterator[ServerProcess]:
    with server_process(served, system, port=0) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def view(served: Served, server: ServerProcess) -> Iterator[StoredView]:
    """The same view in this process."""
    store = Store(served.store)
    yield Service.of(App.load(served.app), store, Log(served.log)).views["hits"]
    store.close()


def waited_for(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_operations_are_those_of_the_other_process(client: httpx.Client, system: Failing) -> None:
    begun = client.post("/views/hits/batch", json={"incremental": True})
    assert (begun.status_code, begun.json()) == (202, {"id": 1, "view": "hits", "incremental": True})
    assert client.get("/status").json() == {"pid": 7, "jobs": system.jobs}
    again = client.post("/views/hits/batch", json={})
    assert (again.status_code, again.json()) == (409, {"reason": "a batch of view 'hits' is under way; wait for it"})
    failed = client.get("/deadletters")
    assert (failed.status_code, "hunter2" in failed.text) == (500, False)
    assert client.get("/status").status_code == 200  # the next call has its own reply


def test_topologies_are_those_of_the_cluster_beside_it(client: httpx.Client, served: Served) -> None:
    assert client.get("/topologies").json()["runs"] is False
    with Cluster(Path(served.storm), "words"):
        assert client.get("/topologies/words").json()["state"] == "active"
        assert client.post("/topologies/words/deactivate", json={}).json()["done"] is True
        assert client.get("/topologies/words").json()["state"] == "inactive"


steps = st.lists(st.sampled_from(["add", "publish", "rollback"]), min_size=1, max_size=12)


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_an_answer_is_never_older_than_what_another_process_has_done(
    client: httpx.Client, view: StoredView, steps: list[str]
) -> None:
    """What it says of the version, the offsets and the count is what was there when it was asked."""
    for step in steps:
        reached = dict(view.provenance().reached)
        at = reached.get(0, 0)
        if step == "add":
            view.add(MicroBatch("s", view.provenance().batch + 1, {0: at}, {0: at + 2}), [_hits(2)])
        elif step == "publish":
            with view.build(cut := view.cut()) as version:
                version.load([_hits(cut.boundary.get(0, 0))])
                version.publish()
        elif len(view.versions()) > 1 and view.versions()[0].number != view.provenance().version:
            view.rollback()
        now, answer = view.provenance(), client.get("/views/hits?url=a").json()
        assert answer["version"] == now.version
        assert answer["reached"] == {str(partition): offset for partition, offset in now.reached.items()}
        assert answer["boundary"] == {str(partition): offset for partition, offset in now.boundary.items()}
        assert sum(row["values"]["n"] for row in answer["rows"]) == now.reached.get(0, 0)


def _hits(count: int) -> Partial:
    return Partial(("a",), 0, HOUR, (count,))


def test_one_that_ends_is_started_anew_where_it_was(served: Served) -> None:
    with server_process(served, Scripted(), port=0, tokens=Tokens.parse(SECRET), proxies=Proxies(https=True)) as server:
        first, headers = server.pid, {"Authorization": f"Bearer {SECRET.partition(':')[2]}"}
        for file in ("cmdline", "environ"):
            assert SECRET.partition(":")[2].encode() not in Path(f"/proc/{first}/{file}").read_bytes()
        os.kill(first, signal.SIGKILL)
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        server.restart_if_ended()
        assert server.pid != first
        assert httpx.get(f"{server.url}/views/hits", timeout=60).status_code == 401
        assert httpx.get(f"{server.url}/status", headers=headers, timeout=60).json() == {"pid": 7, "jobs": []}
        signed_in = httpx.post(f"{server.url}/login", data={"token": SECRET.partition(":")[2]}, timeout=60)
        assert "; Secure" in signed_in.headers["set-cookie"]
    assert not Path(f"/proc/{server.pid}").exists()


def test_an_app_that_cannot_be_served(served: Served, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("1 / 0")
    broken = replace(served, app=str(tmp_path / "app.py"))
    with (
        pytest.raises(ViewError, match=r"the process of the server did not start: .*app\.py:1: ZeroDivisionError"),
        server_process(broken, Scripted(), port=0),
    ):
        pass


PARENT = """
import sys, threading
from headrace.system.served import Served, server_process
with server_process(Served(*sys.argv[1:]), None, port=0) as server:
    print(server.pid, flush=True)
    threading.Event().wait()
"""


def test_it_ends_with_its_system_however_that_ends(served: Served) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *astuple(served)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert waited_for(lambda: not Path(f"/proc/{child}").exists() or _is_dead(child))


def _is_dead(process: int) -> bool:
    """Dead, but not yet taken note of by whoever inherited it."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
