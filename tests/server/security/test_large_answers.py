"""Attacks with answers: too large ones, and ones that nobody reads."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import headrace as hr
from headrace.log import Log
from headrace.server import Limits, Server, Service
from headrace.server.http.workerpool import WorkerPool
from headrace.server.routes import serversentevents, views
from headrace.views import adhoc, jsonencoding
from headrace.views.declare.app import App
from headrace.views.declare.layout import Layout, Partial
from headrace.views.query.queries import Query
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from tests.scale import only_full
from tests.server.conftest import HOUR, feed, on_both, partial_row, visitors
from tests.waiting import wait_for

LONG_KEYS = 100  # rows whose answer has 8 MB: more than the operating system takes for a client that does not read
SQL = adhoc.Limits(seconds=30)


def fill(view: StoredView) -> None:
    feed(view, *(partial_row(f"{number:03}{'x' * 80_000}", 0, "ann") for number in range(LONG_KEYS)))


def request_of(path: str, sql: str | None = None) -> bytes:
    if sql is None:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    body = json.dumps({"sql": sql}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@contextmanager
def sending(port: int | None, request: bytes, buffer: int = 4096) -> Iterator[socket.socket]:
    """A client that has sent a request and reads nothing yet."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(30)
        client.connect(("127.0.0.1", port))
        client.sendall(request)
        yield client


def count_cut_off(client: httpx.Client) -> int:
    found = re.search(r"^headrace_http_cut_off_total (\d+)", client.get("/metrics").text, re.MULTILINE)
    return int(found[1]) if found else 0


NAME = "n" * 50_000


HUGE = {
    "SELECT list_transform(range(100), x -> true) FROM range(1000)": "at most 10,000 cells",
    "SELECT range(10001)": "at most 10,000 cells",
    "SELECT [[range(5000)], [range(5001)]]": "at most 10,000 cells",
    "SELECT MAP {1: range(9999)}, {'a': 1, 'b': 2}": "at most 10,000 cells",
    f"SELECT {{'{NAME}': 1}} FROM range(1000)": "at most 2,000,000 bytes",  # small in Arrow, as are the next
    f"SELECT list_transform(range(100), x -> {{'{NAME}': x}})": "at most 2,000,000 bytes",
    "SELECT repeat(chr(1), 400000)": "at most 2,000,000 bytes",
    f"SELECT {'[' * 100}1{']' * 100}": "nested too deeply",
}


@only_full("answers up to the limits, and that nobody reads")
def test_statements_with_huge_answers(started: Callable[..., httpx.Client]) -> None:
    client = started(limits=Limits(answer_cells=10_000, answer_bytes=2_000_000, sql=SQL))
    for sql, reason in HUGE.items():
        answer = client.post("/sql", json={"sql": sql})
        assert (answer.status_code, reason in answer.json()["reason"]) == (400, True), (sql[:30], answer.text)


def test_answers_up_to_the_limits(started: Callable[..., httpx.Client], view: StoredView) -> None:
    client = started(limits=Limits(answer_cells=10_000, answer_bytes=2_000_000, sql=SQL))
    assert client.post("/sql", json={"sql": "SELECT range(10000)"}).json()["rows"] == [[list(range(10_000))]]
    text = client.post("/sql", json={"sql": "SELECT repeat('x', 1999900)"}).json()["rows"][0][0]
    assert text == "x" * 1_999_900
    feed(view, *(partial_row(f"{number}{'x' * 10_000}", 0, "ann") for number in range(300)))
    assert len(client.get("/views/visitors?limit=190").json()["rows"]) == 190
    for path in ("/views/visitors?limit=210", "/views/visitors/changes?limit=210"):
        refused = client.get(path)
        assert (refused.status_code, "at most 2,000,000 bytes" in refused.json()["reason"]) == (400, True)


def test_no_route_encodes_rows_on_the_event_loop(
    started: Callable[..., httpx.Client], view: StoredView, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def noting(encode: Callable[..., Any]) -> Callable[..., Any]:
        def encode_and_note(*arguments: Any) -> Any:
            threads.add(threading.current_thread().name)
            return encode(*arguments)

        return encode_and_note

    for module, name in ((views, "encode_answer"), (views, "encode_version"), (serversentevents, "encode_row")):
        monkeypatch.setattr(module, name, noting(getattr(jsonencoding, name)))
    client = started()
    feed(view, *(partial_row(f"{number}", 0, "ann") for number in range(200)))
    assert len(client.get("/views/visitors?limit=200").json()["rows"]) == 200
    with client.stream("GET", "/views/visitors/changes?limit=200") as response:
        next(response.iter_bytes())
    assert threads
    assert not {name for name in threads if not name.startswith("headrace-queries")}


@on_both
def test_a_few_rows_may_be_large(service: Service, view: StoredView) -> None:
    """Then they are not read on the event loop, though they are few."""
    store = view.database
    layout = Layout.of("users_of", keys={"url": "string"}, aggregations={"n": hr.count(), "all": hr.collect("user")})
    large = StoredView(store, layout, view.clock)
    large.create()
    for url, users in (("a", ["ann"]), ("b", ["x" * 1000] * 100)):
        feed(large, Partial((url,), 0, HOUR, (len(users), layout.fns[1].dump(users))))
    small = large.small_answer(Query(key={"url": "a"}), 10_000)
    assert small is not None
    assert small.rows == large.answer(Query(key={"url": "a"})).rows
    assert large.small_answer(Query(key={"url": "b"}), 10_000) is None
    first = large.answer(Query(limit=1))
    assert large.small_answer(Query(limit=1, after=first.next), 10_000) is None
    feed(view, partial_row("a", 0, "ann"))
    assert view.small_answer(Query(key={"url": "c"}), 0) == view.answer(Query(key={"url": "c"}))


UNREAD = {
    "a view": request_of(f"/views/visitors?limit={LONG_KEYS}"),
    "pages of a view": request_of("/views/visitors?limit=5") * 20,
    "statements": request_of("/sql", "SELECT repeat('x', 8000000)") * 2,
    "events": request_of(f"/views/visitors/changes?limit={LONG_KEYS}"),
    "closing": request_of(f"/views/visitors?limit={LONG_KEYS}").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
}


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(request, id=name, marks=() if name in ("a view", "statements") else only_full("as of a view"))
        for name, request in UNREAD.items()
    ],
)
def test_answers_that_nobody_reads(
    started: Callable[..., httpx.Client], service: Service, view: StoredView, request_: bytes
) -> None:
    """They are dropped after a time, and until then their places are taken."""
    client = started(limits=Limits(queries=2, listeners=1, statements=1, send_seconds=1, poll=0.01, sql=SQL))
    fill(view)
    with sending(client.base_url.port, request_) as silent:
        wait_for(lambda: count_cut_off(client) == 1)
        with pytest.raises(ConnectionError):
            while silent.recv(1 << 20):
                pass
    # All places are free again.
    assert client.post("/sql", json={"sql": "SELECT 1"}).status_code == 200
    for _ in range(3):
        assert client.get(f"/views/visitors?limit={LONG_KEYS}").status_code == 200
    with client.stream("GET", "/views/visitors/changes?limit=1") as response:
        assert response.status_code == 200


def test_places_are_taken_until_answers_are_sent(started: Callable[..., httpx.Client], view: StoredView) -> None:
    client = started(limits=Limits(queries=1, send_seconds=30, unsent_bytes=12_000_000, sql=SQL))
    fill(view)
    large = f"/views/visitors?limit={LONG_KEYS}"
    with sending(client.base_url.port, request_of(large)) as silent:
        wait_for(lambda: client.get("/views").status_code == 429)
        assert "at most 1 queries at once" in client.get("/views").json()["reason"]
        assert client.get("/views/visitors?url=a").status_code == 200  # a few rows of a key need no place
        refused = client.post("/sql", json={"sql": "SELECT repeat('x', 8000000)"})
        assert (refused.status_code, "12,000,000 bytes of unsent answers" in refused.json()["reason"]) == (429, True)
        silent.close()
    wait_for(lambda: client.get("/views").status_code == 200)
    assert client.post("/sql", json={"sql": "SELECT repeat('x', 8000000)"}).status_code == 200


def test_large_answers_that_nobody_reads_leave_places_for_others(
    started: Callable[..., httpx.Client], view: StoredView
) -> None:
    client = started(limits=Limits(queries=1, send_seconds=30, sql=SQL))
    fill(view)
    large = "/views/visitors?limit=5000"
    with sending(client.base_url.port, request_of(large)):
        wait_for(lambda: client.get(large).status_code == 429)
        assert "at most 1 large queries at once" in client.get(large).json()["reason"]
        assert client.get("/views/visitors?limit=1").status_code == 200
        assert client.get("/views").status_code == 200


def test_a_server_that_ends_answers_those_who_wait(
    service: Service, view: StoredView, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, released = threading.Event(), threading.Event()

    answer_at_once = StoredView.answer

    def answer(view: StoredView, query: Query) -> Any:
        asked.set()
        released.wait(30)
        return answer_at_once(view, query)

    monkeypatch.setattr(StoredView, "answer", answer)
    with Server(service, port=0) as server, sending(server.port, request_of("/views/visitors?limit=500")) as client:
        assert asked.wait(30)
        server.stop()
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
        tracebacks = [record for record in caplog.records if record.exc_info]
        released.set()
    assert b"HTTP/1.1 503" in received and b"the server is ending" in received
    assert not tracebacks


def test_a_call_that_fails_after_its_client_gave_up_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    pool, released = WorkerPool("queries", 1, 1, 30), threading.Event()

    def fail() -> None:
        released.wait(30)
        raise OSError("the disk is full")

    async def give_up() -> None:
        waiting = asyncio.create_task(pool.run(fail))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert pool.gate.inside == 1
        released.set()
        while pool.gate.inside:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(give_up(), 30))
    pool.close()
    assert [record.getMessage() for record in caplog.records] == [
        "a call whose client had given up failed: OSError('the disk is full')"
    ]


def test_a_client_that_reads_too_slowly(started: Callable[..., httpx.Client], view: StoredView) -> None:
    client = started(limits=Limits(send_seconds=1, poll=0.01))
    fill(view)
    begun = time.monotonic()
    request = request_of(f"/views/visitors?limit={LONG_KEYS}")
    with sending(client.base_url.port, request) as slow, pytest.raises(ConnectionError):
        while slow.recv(1000):
            assert time.monotonic() < begun + 30
            time.sleep(0.01)
    assert count_cut_off(client) == 1


def test_a_client_that_takes_its_time(started: Callable[..., httpx.Client], view: StoredView) -> None:
    """It reads at a modest rate, and longer than the time limit: the limit is for 0.8 MB."""
    client = started(limits=Limits(send_seconds=1))
    fill(view)
    begun, size = time.monotonic(), 0
    request = request_of(f"/views/visitors?limit={LONG_KEYS}").replace(b"HTTP/1.1", b"HTTP/1.0")
    with sending(client.base_url.port, request, 256 << 10) as modest:
        while read := modest.recv(60_000):
            size += len(read)
            time.sleep(len(read) / 3_500_000)
    assert size > 8_000_000
    assert time.monotonic() > begun + 2
    assert count_cut_off(client) == 0


def test_a_stream_that_is_read_goes_on(started: Callable[..., httpx.Client], view: StoredView) -> None:
    client = started(limits=Limits(send_seconds=0.2, poll=0.01))
    fill(view)
    with client.stream("GET", f"/views/visitors/changes?limit={LONG_KEYS}") as response:
        seen, number, begun = b"", 0, time.monotonic()
        for piece in response.iter_bytes():
            seen = (seen + piece)[-2_000:]
            if b"event: progress" in seen:
                seen, number = b"", number + 1
                if time.monotonic() > begun + 1:
                    break
                feed(view, *(partial_row(f"{row:03}{'x' * 80_000}", 0, f"{number}") for row in range(50)))
    assert number > 2
    assert count_cut_off(client) == 0


def test_many_requests_at_once_in_one_connection(client: httpx.Client) -> None:
    def answers(count: int) -> bytes:
        with sending(client.base_url.port, request_of("/healthz") * count + b"GET /healthz HTTP/1.0\r\n\r\n") as many:
            return b"".join(iter(lambda: many.recv(1 << 16), b""))

    assert answers(20).count(b'{"status":"alive"}') == 20
    try:
        refused = answers(5_000)
    except ConnectionResetError:  # it was closed before all of them were read
        return
    assert b"HTTP/1.1 400" in refused


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/views/visitors/rollback", {"version": "x" * 900_000}),
        ("/sql", {"sql": "SELECT 1", "engine": "x" * 900_000}),
        ("/sql", {"sql": f"SELECT {'x' * 90_000}"}),
        ("/sql", {"sql": "SELECT 1", "asof": {"x" * 90_000: {}}}),
    ],
)
def test_reasons_do_not_repeat_long_requests(client: httpx.Client, path: str, body: Any) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert len(answer.content) < 5_000


def serve(folder: Path, told: Connection) -> None:
    service = Service.of(App.of({"visitors": visitors}), Store(f"sqlite:///{folder}/views.db"), Log(folder / "log"))
    limits = Limits(unsent_bytes=32 << 20, send_seconds=60)
    server = Server(service, port=0, limits=limits)
    told.send(server.port)
    server.run()


def test_the_memory_of_answers_that_nobody_reads(tmp_path: Path) -> None:
    """40 clients ask for 8 MB each: the server keeps 32 MB of them, and no copies."""
    store = Store(f"sqlite:///{tmp_path}/views.db")
    fill(Service.of(App.of({"visitors": visitors}), store, Log(tmp_path / "log")).views["visitors"])
    store.close()
    hears, tells = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(tmp_path, tells))
    process.start()
    try:
        port = hears.recv()
        large = f"/views/visitors?limit={LONG_KEYS}"
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client, ExitStack() as clients:
            assert client.get(large).status_code == 200
            before = psutil.Process(process.pid).memory_info().rss
            for _ in range(40):
                clients.enter_context(sending(port, request_of(large)))
            wait_for(lambda: _count_requests(client, "/views/visitors", 429) >= 30)
            assert psutil.Process(process.pid).memory_info().rss - before < 150 << 20
    finally:
        process.terminate()
        process.join()


def _count_requests(client: httpx.Client, route: str, status: int) -> int:
    pattern = rf'^headrace_http_requests_total{{method="GET",route="{route}",status="{status}"}} (\d+)'
    found = re.search(pattern, client.get("/metrics").text, re.MULTILINE)
    return int(found[1]) if found else 0
