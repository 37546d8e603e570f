"""Connections that keep others out, or try to: which are closed, and that an honest client is always served."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server import Limits, Server, Service, Tokens
from headrace.server.http.connections import Connections
from headrace.server.routes.metrics import Metrics
from headrace.server.security.guard import Guard
from tests.scale import examples

LIMIT = 20
ATTACKS = {
    "silent": b"",
    "half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "kept alive": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a body": b"POST /topics/visits HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 99\r\n\r\n{",
}


@pytest.fixture
def address(started: Callable[..., httpx.Client]) -> tuple[str, int]:
    at = started(limits=Limits(connections=LIMIT)).base_url
    return at.host, at.port or 0


def connect(address: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(address, timeout=30, source_address=(source, 0))


def status(connection: socket.socket) -> bytes:
    """The status of a request for health over an open connection."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = connection.recv(4096)
    while answer and not answer.endswith(b"}"):  # its head may arrive alone
        more = connection.recv(4096)
        if not more:
            break
        answer += more
    return answer[9:12]


@pytest.mark.parametrize("sent", ATTACKS.values(), ids=ATTACKS.keys())
def test_idle_connections_keep_nobody_out(address: tuple[str, int], sent: bytes) -> None:
    """From the same address as the honest client, as on a server of this machine alone."""
    with ExitStack() as stack:
        for _ in range(3 * LIMIT):
            idle = stack.enter_context(connect(address))
            idle.sendall(sent)
        for _ in range(5):
            with connect(address) as honest:
                assert status(honest) == status(honest) == b"200"


def test_the_address_with_the_most_makes_room(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        few = [stack.enter_context(connect(address, "127.0.0.2")) for _ in range(3)]
        assert [status(each) for each in few] == [b"200"] * 3
        for _ in range(3 * LIMIT):
            stack.enter_context(connect(address, "127.0.0.3"))
        assert [status(each) for each in few] == [b"200"] * 3  # they have waited longest, but are few


def test_only_those_that_work_keep_others_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    view = service.views["visitors"]
    monkeypatch.setattr(view, "provenance", lambda: go.wait(30))
    with Server(service, port=0, limits=Limits(connections=3)) as server, ExitStack() as stack:
        at = ("127.0.0.1", server.port)
        for _ in range(3):
            busy = stack.enter_context(connect(at))
            busy.sendall(b"GET /views HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while len(server._server.server_state.tasks) < 3:
            pass
        with connect(at) as late:
            assert status(late) == b"503"
        go.set()
        assert busy.recv(4096)
        with connect(at) as later:
            assert status(later) == b"200"


def test_clients_that_do_not_read_make_room(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    large = b"x" * (64 << 20)
    with Server(service, port=0, limits=Limits(connections=3)) as server, ExitStack() as stack:

        async def app(scope: Any, receive: Any, send: Any) -> None:
            body = large if scope["path"] == "/large" else b"{}"
            length = [(b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": length})
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b""})  # waits until the client has read

        monkeypatch.setattr(server.application, "app", app)
        at = ("127.0.0.1", server.port)
        for _ in range(3):
            deaf = stack.enter_context(connect(at))
            deaf.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert deaf.recv(1) == b"H"  # the answer has begun
        for _ in range(5):
            with connect(at) as honest:
                assert status(honest) == b"200"


def test_too_many_headers(address: tuple[str, int]) -> None:
    with connect(address) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 8_000)
        answer = b"".join(iter(lambda: raw.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400") and answer.endswith(b"A request has at most 100 headers.")
    with connect(address) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 99 + b"\r\n")
        assert raw.recv(12) == b"HTTP/1.1 200"


def test_a_path_that_is_too_long(address: tuple[str, int]) -> None:
    """To unquote it took longer than to answer."""
    for path, status in (
        (b"/" + b"%41" * 10_000, b"400"),
        (b"/%41?" + b"a" * 10_000, b"404"),
        (b"/" + b"a" * 2_047, b"404"),
    ):
        with connect(address) as raw:
            raw.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda raw=raw: raw.recv(4096), b""))
        assert answer[9:12] == status
        assert (status == b"400") == answer.endswith(b"The path of a request has at most 2048 bytes.")


def test_trailers_are_no_headers(started: Callable[..., httpx.Client]) -> None:
    """A proxy may pass them on, and what it says in headers would be said twice."""
    at = started(tokens=Tokens.parse("admin:" + "a" * 20)).base_url
    with connect((at.host, at.port or 0)) as raw:
        raw.sendall(
            b"POST /sql HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            b"1\r\n{\r\n0\r\nAuthorization: Bearer aaaaaaaaaaaaaaaaaaaa\r\n\r\n"
        )
        assert raw.recv(12) == b"HTTP/1.1 401"


def test_connections_of_pages_are_limited() -> None:
    """They last, so that no other can have their place."""
    refused: list[Any] = []
    entered = 0

    async def inside(*_: Any) -> None:
        nonlocal entered
        entered += 1
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        refused.append(message["type"])

    async def many(guard: Guard) -> None:
        scope = {"type": "websocket", "path": "/live", "headers": [(b"host", b"localhost")]}
        tasks = [asyncio.create_task(guard(dict(scope), inside, send)) for _ in range(5)]
        await asyncio.wait(tasks, timeout=0.05)
        for task in tasks:
            task.cancel()

    metrics = Metrics(Service({}, {}))
    asyncio.run(many(Guard(inside, tokens=Tokens(), on_response=metrics.count_response, live_limit=3)))
    assert (entered, refused) == (3, ["websocket.close"] * 2)


def test_many_addresses_make_it_no_harder() -> None:
    connections = Connections[int]()
    for name in range(2_000):
        connections.add(name, f"127.0.{name // 250}.{name % 250}")
    started = time.thread_time()  # which goes on while this thread computes, however busy the machine is
    for name in range(10_000):
        assert connections.next_to_close() == name
        connections.remove(name)
        connections.add(2_000 + name, f"127.1.{name // 250}.{name % 250}")
    assert time.thread_time() - started < 2  # it took eight, when all addresses were looked at


class Recount:
    """All connections as a list: the slow and obvious form of `Connections`."""

    def __init__(self) -> None:
        self.all: list[tuple[int, str, int | None]] = []  # the connection, its address, and since when it waits
        self.counts: dict[str, tuple[int, int]] = {}  # by address of which some wait: how many, and since when so many

    def count(self, time: int) -> None:
        """Counts the connections of each address after a step."""
        waiting = {address for _, address, since in self.all if since is not None}
        counts = {address: sum(address == each for _, each, _ in self.all) for address in waiting}
        before = self.counts
        self.counts = {
            address: before[address] if address in before and before[address][0] == count else (count, time)
            for address, count in counts.items()
        }

    def next_to_close(self) -> int | None:
        if not self.counts:
            return None
        chosen = max(self.counts, key=lambda address: (self.counts[address][0], -self.counts[address][1]))
        waiting = [(since, name) for name, address, since in self.all if address == chosen and since is not None]
        return min(waiting)[1]


STEPS = st.lists(st.tuples(st.sampled_from(["add", "work", "wait", "remove"]), st.integers(0, 9)), max_size=60)


@examples(200)
@given(STEPS, st.lists(st.sampled_from("abc"), min_size=10, max_size=10))
def test_any_connections_make_room_in_the_same_order(steps: list[tuple[str, int]], addresses: list[str]) -> None:
    connections, recount = Connections[int](), Recount()
    for moment, (step, name) in enumerate(steps):
        before = {each: since for each, _, since in recount.all}
        if step == "add" and name not in before:
            connections.add(name, addresses[name])
            recount.all.append((name, addresses[name], moment))
        elif step in ("work", "wait") and name in before:
            connections.set_waiting(name, step == "wait")
            since = None if step == "work" else before[name] if before[name] is not None else moment
            recount.all = [each if each[0] != name else (name, each[1], since) for each in recount.all]
        elif step == "remove":
            connections.remove(name)
            recount.all = [each for each in recount.all if each[0] != name]
        recount.count(moment)
        assert connections.next_to_close() == recount.next_to_close()
        assert len(connections) == len(recount.all)
