"""The server as a process sees it: health, metrics, OpenAPI, and answers while versions change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headrace.server import Limits, Server, Service
from headrace.views.stores.store import StoredView
from tests.server.conftest import LINES, feed, on_both, partial_row, publish
from tests.test_project import REFUSE_SPARK, output_of


def test_no_spark_is_needed() -> None:
    output_of(sys.executable, "-c", REFUSE_SPARK, "headrace.server")


def test_alive_and_ready(client: httpx.Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}

    def failing() -> Any:
        raise OSError("secret reason")

    monkeypatch.setattr(service.topics["visits"], "offsets", failing)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready", "failing": ["log"]})
    assert client.get("/healthz").status_code == 200


def test_metrics(client: httpx.Client, view: StoredView, clock: list[int]) -> None:
    feed(view, partial_row("a", 0, "x"), watermark=60_000_000)
    clock[0] += 2_000_000
    client.get("/views/visitors?url=a")
    client.get("/views/none")
    client.post("/topics/visits", content='{"user": "u", "url": "a", "ts": 5}', headers=LINES)
    client.post("/topics/visits", content="x\ny", headers=LINES)
    samples = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#"))
    assert samples['headrace_http_requests_total{method="GET",route="/views/visitors",status="200"}'] == "1.0"
    assert samples['headrace_http_requests_total{method="GET",route="none",status="404"}'] == "1.0"
    assert samples['headrace_http_request_seconds_count{route="/views/visitors"}'] == "1.0"
    assert samples['headrace_ingested_records_total{topic="visits"}'] == "1.0"
    assert samples['headrace_refused_lines_total{topic="visits"}'] == "2.0"
    assert samples['headrace_view_freshness_seconds{view="visitors"}'] == "2.0"
    assert samples['headrace_view_watermark_seconds{view="visitors"}'] == "60.0"
    assert samples['headrace_view_reached_offset{partition="0",view="visitors"}'] == "1.0"
    assert sum(float(samples[f'headrace_topic_next_offset{{partition="{n}",topic="visits"}}']) for n in range(3)) == 1


def test_openapi_names_the_keys_of_each_view(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    named = [parameter["name"] for parameter in paths["/views/visitors"]["get"]["parameters"]]
    assert {"url", "url.prefix", "from", "to", "top", "limit", "after"} <= set(named)
    assert "requestBody" in paths["/topics/visits"]["post"] and "requestBody" in paths["/sql"]["post"]
    assert client.get("/docs").status_code == 404  # its page would load scripts from elsewhere


def test_methods_that_a_path_does_not_have(client: httpx.Client) -> None:
    answer = client.delete("/views/visitors")
    assert (answer.status_code, answer.json()["reason"][:18]) == (405, "Method Not Allowed")
    assert answer.headers["allow"] == "GET"
    assert client.get("/sql").headers["allow"] == "POST"


@on_both
def test_each_event_counts_once_while_versions_change(client: httpx.Client, view: StoredView) -> None:
    """Totals only grow, and by what was added, however often a version is published meanwhile."""
    users: list[str] = []
    over = threading.Event()
    totals: list[int] = []

    def watch() -> None:
        while not over.is_set():
            rows = client.get("/views/visitors?url=a").json()["rows"]
            totals.append(rows[0]["values"]["hits"] if rows else 0)

    watching = threading.Thread(target=watch)
    watching.start()
    for number in range(20):
        users.append(f"user {number}")
        feed(view, partial_row("a", 0, users[-1]))
        if number % 4 == 3:
            publish(view, partial_row("a", 0, *users))
    over.set()
    watching.join()
    assert totals == sorted(totals) and set(totals) <= set(range(21))
    assert client.get("/views/visitors?url=a").json()["rows"][0]["values"]["hits"] == 20


def test_too_many_questions_and_questions_that_take_too_long(
    started: Callable[..., httpx.Client], view: StoredView, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = started(limits=Limits(queries=1, query_seconds=0.05))
    go = threading.Event()
    answer = view.answer
    monkeypatch.setattr(view, "answer", lambda query: (go.wait(), answer(query))[1])
    late = client.get("/views/visitors")
    assert (late.status_code, late.json()["reason"]) == (
        503,
        "this took longer than 0.05 seconds; ask for less at once",
    )
    assert client.get("/views/visitors").status_code == 429  # the first is still under way
    go.set()
    while (last := client.get("/views/visitors")).status_code in (429, 503):  # 0.05 s are short
        pass
    assert last.status_code == 200


def test_a_server_says_where_it_is(service: Service) -> None:
    with Server(service, host="localhost", port=0) as server:
        assert server.url == f"http://localhost:{server.port}"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz")
