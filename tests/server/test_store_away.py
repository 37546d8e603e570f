"""A database that goes and comes back while the server runs: it says so, keeps its secrets, and answers again."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from headrace.edges import databases
from headrace.edges.boundedconnection import BoundedConnection
from headrace.log import Log
from headrace.model.errors import PipelineError
from headrace.server import Server, Service
from headrace.views.declare.app import App
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from tests.edges.hostile import Proxy, playing
from tests.edges.postgresql import PASSWORD, administering
from tests.scale import only_full
from tests.server.conftest import LINES, feed, partial_row, visitors


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_while_the_database_is_away_the_server_says_so_and_then_answers_again(
    client: httpx.Client, view: StoredView, postgresql_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[str] = []

    def ask(path: str, **sent: Any) -> tuple[int, Any]:
        answer = client.request("POST" if sent else "GET", path, **sent)
        answers.append(f"{answer.headers} {answer.text}")
        return answer.status_code, answer.json()

    feed(view, partial_row("a", 0, "x", "y"))
    assert ask("/readyz") == (200, {"status": "ready"})
    status, before = ask("/views/visitors?url=a")
    assert (status, before["rows"][0]["values"]["hits"]) == (200, 2)

    event = '{"user": "u", "url": "a", "ts": 5}'
    with administering(postgresql_server) as admin:
        admin.exec_driver_sql("ALTER DATABASE served ALLOW_CONNECTIONS false")
        admin.exec_driver_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'served'")
        assert ask("/readyz") == (503, {"status": "not ready", "failing": ["store"]})
        for path, sent in (
            ("/views", {}),
            ("/views/visitors?url=a", {}),
            ("/views/visitors?top=hits:1", {}),
            ("/views/visitors/changes", {}),
            ("/views/visitors/versions", {}),
            ("/views/visitors/rollback", {"json": {}}),
            ("/sql", {"json": {"sql": "SELECT * FROM visitors"}}),
        ):
            reason = "the store does not answer now; ask again, /readyz says when it does"
            assert ask(path, **sent) == (503, {"reason": reason}), path
        assert ask("/healthz") == (200, {"status": "alive"})
        assert ask("/topics/visits", content=event, headers=LINES)[0] == 200  # which needs the log alone
        admin.exec_driver_sql("ALTER DATABASE served ALLOW_CONNECTIONS true")

    assert ask("/readyz") == (200, {"status": "ready"})
    assert ask("/views/visitors?url=a") == (200, before)
    assert "the store does not answer GET '/views/visitors'" in caplog.text
    assert PASSWORD not in caplog.text + "".join(answers)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_password_is_in_no_message(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for wrong in (store_url.replace(f":{PASSWORD}@", ":wr0ng@"), store_url.replace("served", "n0where")):
        with pytest.raises(PipelineError, match="cannot open the database postgresql") as refused:
            Store(wrong)
        texts = str(refused.value) + repr(refused.value) + caplog.text
        assert PASSWORD not in texts and "wr0ng" not in texts


@only_full("the other tests of a store that is away")
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_while_the_database_stalls_other_routes_answer(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts connections and statements, and is silent: each question waits for a limited time."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(BoundedConnection, "patience", 1.0)
    monkeypatch.setitem(databases._POSTGRESQL, "connect_timeout", 2)
    real = sa.make_url(store_url)
    assert real.host is not None and real.port is not None
    proxy = Proxy(real.host, real.port)
    with playing(proxy.play) as port:
        store = Store(real.set(port=port).render_as_string(hide_password=False))
        service = Service.of(App.of({"visitors": visitors}), store, Log(tmp_path / "log"))
        feed(service.views["visitors"], partial_row("a", 0, "x", "y"))
        with Server(service, port=0) as server, httpx.Client(base_url=server.url, timeout=30) as client:
            before = client.get("/views/visitors?url=a").json()["rows"]
            proxy.stalled = True
            with ThreadPoolExecutor(12) as asking:  # more than there are threads for queries
                answers = [asking.submit(client.get, "/views/visitors?url=a") for _ in range(12)]
                began = time.monotonic()
                assert client.get("/healthz").status_code == 200
                event = '{"user": "u", "url": "a", "ts": 5}'
                assert client.post("/topics/visits", content=event, headers=LINES).status_code == 200
                assert time.monotonic() - began < 5
                assert [answer.result().status_code for answer in answers] == [503] * 12
            assert client.post("/views/visitors/rollback", json={}).status_code == 503
            proxy.stalled = False
            assert client.get("/views/visitors?url=a").json()["rows"] == before
        store.close()
    assert PASSWORD not in caplog.text
