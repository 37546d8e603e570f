"""Attacks on the page by those who may read: other people's pages, and routes and messages of NiceGUI."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from nicegui import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headrace.server import Limits, Server, Tokens
from headrace.server.security.cookies import SESSION
from headrace.server.security.sessions import SECONDS as SECONDS_OF_A_SESSION
from headrace.server.security.sessions import Sessions
from headrace.server.security.tokens import Grant
from tests.scale import only_full
from tests.server.scripted import Shop, shop

READ, ADMIN = "r" * 20, "a" * 20
TOKENS = Tokens.parse(f"read:{READ} admin:{ADMIN}")
TAB, DOCUMENT = "0b9b0bb2-7d0b-4a7e-9a0f-1f4f5a3b6c7d", "3f0e7a0c-54c1-4f0e-8f5b-8a9c0d1e2f30"
SECONDS = 20  # within which something comes, if it comes at all


@dataclass
class Visitor:
    """A browser with a session, or a program with a token."""

    http: httpx.Client
    headers: dict[str, str]

    def load(self, path: str = "/?tab=batch") -> str:
        """Loads a page and returns the id of its client."""
        answer = self.http.get(path, headers=self.headers)
        assert answer.status_code == 200, answer.text
        found = re.search(r"'client_id': '([^']+)'", answer.text)
        assert found is not None
        return found[1]

    @contextmanager
    def connected(self, client_id: str, **query: str) -> Iterator[Socket]:
        """Connects to the page of a client as a browser does."""
        page = {"client_id": client_id, "tab_id": TAB, "document_id": DOCUMENT, "old_tab_id": "null"}
        rest = {"next_message_id": "0", "implicit_handshake": "true", "EIO": "4", "transport": "websocket"}
        at = f"ws://{self.http.base_url.netloc.decode()}/_nicegui_ws/socket.io/?{urlencode({**page, **rest, **query})}"
        with connect(at, additional_headers=self.headers, open_timeout=SECONDS) as connection:
            yield Socket(connection)


@dataclass
class Socket:
    """A page's connection, in the protocol of Socket.IO."""

    connection: ClientConnection

    def greet(self) -> str:
        """Asks to be connected, and returns the answer."""
        assert self.receive().startswith("0{")
        self.connection.send("40")
        return self.receive()

    def receive(self) -> str:
        text = self.connection.recv(timeout=SECONDS)
        assert isinstance(text, str)
        return text

    def emit(self, name: str, payload: Any) -> None:
        self.connection.send(f"42{json.dumps([name, payload])}")

    def elements(self, text: str) -> dict[str, Any]:
        """The elements of a page with this text, once the server has sent one."""
        while True:
            received = self.receive()
            if received.startswith('42["update",'):
                update = json.loads(received[2:])[1]
                found = {key: each for key, each in update.items() if text in json.dumps(each)}
                if found:
                    return found

    def wait_for(self, text: str) -> str:
        """Waits for a message with this text."""
        while text not in (received := self.receive()):
            pass
        return received

    def is_closed(self) -> bool:
        """Whether the server closes it, whatever it sends before."""
        try:
            while True:
                self.connection.recv(timeout=SECONDS)
        except ConnectionClosed:
            return True
        except TimeoutError:
            return False

    def rest(self) -> str:
        """All that comes until the server closes it."""
        texts = []
        try:
            while True:
                texts.append(self.receive())
        except ConnectionClosed:
            return "\n".join(texts)


def press(client_id: str, elements: dict[str, Any]) -> dict[str, Any]:
    """The message of a button that is pressed: the first that can be."""
    for key, each in elements.items():
        for event in each.get("events", []):
            if event["type"] == "click":
                return {"id": int(key), "client_id": client_id, "listener_id": event["listener_id"], "args": ["{}"]}
    raise AssertionError(elements)


@dataclass
class Clock:
    """The clock of sessions."""

    now: float = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def system(tmp_path: Path) -> Shop:
    return shop(tmp_path)


Serve = Callable[..., httpx.Client]


@pytest.fixture
def serve(system: Shop, clock: Clock) -> Iterator[Serve]:
    with ExitStack() as ends:

        def start(tokens: Tokens = TOKENS, limits: Limits = Limits()) -> httpx.Client:
            server = ends.enter_context(Server(system.service, port=0, tokens=tokens, limits=limits, page=True))
            assert server.application.sessions is not None
            server.application.sessions.clock = lambda: clock.now
            return ends.enter_context(httpx.Client(base_url=server.url, timeout=60))

        yield start


def signed_in(http: httpx.Client, token: str) -> Visitor:
    secret = http.post("/login", data={"token": token}).cookies[SESSION]
    http.cookies.clear()
    return Visitor(http, {"Cookie": f"{SESSION}={secret}"})


def test_the_page_of_another_session_cannot_be_used(serve: Serve, system: Shop) -> None:
    http = serve()
    admin = signed_in(http, ADMIN)
    page = admin.load()
    with admin.connected(page) as own:
        assert own.greet().startswith('40{"sid"')
        compute = press(page, own.elements("Compute"))
        others = [signed_in(http, READ), signed_in(http, ADMIN), Visitor(http, {"Authorization": f"Bearer {ADMIN}"})]
        for other in others:
            with other.connected(page) as foreign:
                assert foreign.greet() == '44{"message":"Implicit handshake failed"}'
                assert foreign.is_closed()
            mine = other.load()
            with other.connected(mine) as foreign:
                assert foreign.greet().startswith('40{"sid"')
                foreign.emit("event", compute)
                assert foreign.is_closed()
        assert system.jobs == []
        own.emit("event", compute)
        own.wait_for("A batch of visitors has started")
        assert len(system.jobs) == 1


def test_scopes_are_those_of_the_moment(serve: Serve, system: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that could press a button when it was drawn, and may only read when it is pressed."""
    http = serve()
    admin = signed_in(http, ADMIN)
    page = admin.load()
    with admin.connected(page) as own:
        own.greet()
        compute = press(page, own.elements("Compute"))
        monkeypatch.setattr(Sessions, "grant", lambda self, secret: Grant(frozenset({"read"})))
        own.emit("event", compute)
        own.wait_for("This needs a token for admin")
    assert system.jobs == []


@pytest.mark.parametrize("ended", ["logout", "expiry", "eviction"])
def test_a_page_ends_with_its_session(
    serve: Serve, system: Shop, clock: Clock, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = serve()
    admin = signed_in(http, ADMIN)
    page, beside = admin.load(), admin.load()
    with admin.connected(page) as pressed, admin.connected(beside) as idle:
        assert pressed.greet().startswith("40") and idle.greet().startswith("40")
        compute = press(page, pressed.elements("Compute"))
        if ended == "logout":
            assert http.post("/logout", headers=admin.headers).status_code == 303
        elif ended == "expiry":
            monkeypatch.setattr(clock, "now", SECONDS_OF_A_SESSION)
        else:
            monkeypatch.setattr(Sessions, "grant", lambda self, secret: Grant())
        with suppress(ConnectionClosed):  # it may know already
            pressed.emit("event", compute)
        for socket in (pressed, idle):
            assert '"open",{"path":"/login"' in socket.rest()
        assert system.jobs == []
        with pytest.raises(InvalidStatus), admin.connected(page):
            pass
    assert page not in Client.instances and beside not in Client.instances
    assert http.get("/", headers=admin.headers).status_code == 303


def test_a_reload_after_the_page_is_forgotten(serve: Serve) -> None:
    """A browser that was away for long is told to load the page anew, with or without tokens."""
    http = serve(tokens=Tokens())
    visitor = Visitor(http, {})
    with visitor.connected("8" * 8 + "-8888-8888-8888-" + "8" * 12) as socket:
        assert socket.greet() == '44{"message":"Implicit handshake failed"}'
        assert socket.is_closed()
    page = visitor.load()
    for _ in range(2):  # and one that comes back soon goes on with the same
        with visitor.connected(page) as socket:
            assert socket.greet().startswith('40{"sid"')
            assert socket.elements("visitors")


BAD = [
    "",
    "2probe",
    "5",
    "4",
    "40",
    "40/admin,",
    "43[]",
    '430["x"]',
    '44{"message":"x"}',
    '451-["event",{"_placeholder":true,"num":0}]',
    '450-["event",{}]',
    "42",
    "42{}",
    "42[]",
    '42["event"]',
    '42["event",{}]',
    '42["event",[]]',
    '42["event",{"client_id":"PAGE"}]',
    '42["event",{"client_id":"PAGE","id":[],"listener_id":"x","args":[]}]',
    '42["event",{"client_id":"PAGE","id":1,"listener_id":"x","args":["{"]}]',
    '42["event",{"client_id":"PAGE","id":1,"listener_id":"x","args":[1]}]',
    '42["event",{"client_id":"PAGE","client_id":"x","id":1,"listener_id":"x","args":[]}]',
    '42/admin,["event",{"client_id":"PAGE"}]',
    '421["handshake",{"client_id":"PAGE","tab_id":"x","document_id":"x"}]',
    '42["handshake",{"client_id":"PAGE","tab_id":"x","document_id":"x"}]',
    '42["javascript_response",{"client_id":"PAGE","request_id":"x","result":1}]',
    '42["too_long_message",{"client_id":"PAGE"}]',
    '42["disconnect",{"client_id":"PAGE"}]',
    '42["connect",{"client_id":"PAGE"}]',
    '42["ack",{"client_id":"PAGE","next_message_id":"7"}]',
    "42" + "[" * 20_000,
    "42[" + "1," * 40_000 + "1]",
    b"\x04binary",
]


def test_messages_that_no_page_sends_end_the_connection(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    http = serve()
    reader = signed_in(http, READ)
    page = reader.load()
    with caplog.at_level(logging.INFO):
        for text in BAD:
            with reader.connected(page) as socket:
                socket.greet()
                socket.connection.send(text.replace("PAGE", page) if isinstance(text, str) else text)
                assert socket.is_closed(), text
        with reader.connected(page) as socket:  # NiceGUI's own script sends this; it reaches no log
            socket.greet()
            socket.emit("log", {"client_id": page, "level": "error", "message": "WRITTEN\nBY A VISITOR"})
            socket.emit("ack", {"client_id": page, "next_message_id": 0})
            assert socket.elements("visitors")
    assert "WRITTEN" not in caplog.text and "Traceback" not in caplog.text


def test_a_flood_of_messages_ends_the_connection(serve: Serve) -> None:
    http = serve()
    reader = signed_in(http, READ)
    page = reader.load()
    with reader.connected(page) as socket:
        socket.greet()
        with suppress(ConnectionClosed):
            for _ in range(2_000):
                socket.emit("ack", {"client_id": page, "next_message_id": 0})
        assert socket.is_closed()


def test_a_page_has_one_connection(serve: Serve) -> None:
    http = serve()
    reader = signed_in(http, READ)
    page = reader.load()
    with reader.connected(page) as first:
        first.greet()
        with reader.connected(page) as second:
            assert second.greet().startswith('40{"sid"')
            assert first.is_closed()
            assert second.elements("visitors")
            assert nicegui_sockets() == 1


def test_connections_to_no_page_make_room(serve: Serve) -> None:
    """They are told to load the page anew; those that do not listen take no more than twenty places."""
    http = serve(limits=Limits(listeners=30))
    reader, admin = signed_in(http, READ), signed_in(http, ADMIN)
    nobody = "8" * 8 + "-8888-8888-8888-" + "8" * 12
    with ExitStack() as connections:
        idle = [connections.enter_context(reader.connected(nobody)) for _ in range(70)]
        assert all(socket.is_closed() for socket in idle[:50])
        with admin.connected(admin.load()) as socket:
            assert socket.greet().startswith('40{"sid"')


def nicegui_sockets() -> int:
    return sum(len(client._socket_to_document_id) for client in Client.instances.values())


@pytest.mark.parametrize(
    "query",
    [
        {"transport": "polling"},
        {"sid": "EO2P8wVinfwvtZHYAAAD", "transport": "polling"},
        {"EIO": "3"},
        {"tab_id": "../../x"},
        {"document_id": "x" * 5_000},
        {"next_message_id": "x"},
        {"next_message_id": "9" * 5_000},
    ],
)
def test_connections_that_no_page_asks_for(serve: Serve, query: dict[str, str]) -> None:
    http = serve()
    reader = signed_in(http, READ)
    page = reader.load()
    with pytest.raises(InvalidStatus), reader.connected(page, **query):
        pass
    for method in ("GET", "POST", "OPTIONS"):
        asked = {"EIO": "4", "transport": "polling", "client_id": page, **query}
        answer = http.request(method, "/_nicegui_ws/socket.io/", params=asked, headers=reader.headers)
        assert answer.status_code in (403, 404)


def test_what_is_not_there_makes_no_page(serve: Serve) -> None:
    http = serve(limits=Limits(listeners=5))
    reader = signed_in(http, READ)
    page = reader.http.get("/", headers=reader.headers).text
    before = len(Client.instances)
    files = re.findall(r"/_nicegui/[^\"')]+\.(?:js|css)", page)
    assert len(files) > 5
    for number in range(20):
        for path in (
            f"/_nicegui/{number}",
            f"{files[number % len(files)]}.none",
            f"{files[0].rpartition('/')[0]}/../../{number}",
            f"/_nicegui/client/{number}/upload/1",
            "/_nicegui/auto/static/x",
        ):
            assert http.get(path, headers=reader.headers).status_code == 404
            assert http.post(path, headers=reader.headers).status_code in (403, 405)
    version = files[0].split("/")[2]
    assert http.get(f"/_nicegui/{version}/dynamic_resources/x", headers=reader.headers).status_code == 404
    assert len(Client.instances) == before
    assert {http.get(file, headers=reader.headers).status_code for file in files} == {200}
    assert http.get("/", headers=reader.headers).status_code == 200


def test_pages_that_never_connect_make_room(serve: Serve) -> None:
    http = serve(limits=Limits(listeners=8, pages=4, page_seconds=60))
    admin, reader = signed_in(http, ADMIN), signed_in(http, READ)
    page = admin.load()
    with admin.connected(page) as own, ExitStack() as connections:
        own.greet()
        waiting = admin.load()
        for _ in range(20):
            reader.load()
        assert len(Client.instances) == 2 + 4 and {page, waiting} <= set(Client.instances)
        for _ in range(4):
            connections.enter_context(reader.connected(reader.load())).greet()
        refused = http.get("/", headers=reader.headers)
        assert (refused.status_code, refused.json()["reason"]) == (
            429,
            "4 pages are open, as many as there may be; close one",
        )
        another = signed_in(http, READ)  # of the same token, which has its half of all pages
        assert http.get("/", headers=another.headers).status_code == 429
        pages = [admin.load() for _ in range(20)]
        assert len(Client.instances) == 8 and {page, pages[-1]} <= set(Client.instances)
        assert own.elements("visitors")


@only_full("pages that never connect make room")
@pytest.mark.slow("a hundred pages are built")
def test_loads_of_the_page_without_end(serve: Serve) -> None:
    http = serve()
    reader, admin = signed_in(http, READ), signed_in(http, ADMIN)
    statuses = []
    while 429 not in statuses and len(statuses) < 1_000:
        statuses.append(http.get("/", headers=reader.headers).status_code)
    assert 100 < len(statuses) < 500 and set(statuses) == {200, 429}
    assert http.get("/views", headers=reader.headers).status_code == 200
    assert admin.load()


def test_pages_that_never_connect_are_forgotten(serve: Serve) -> None:
    http = serve(limits=Limits(page_seconds=1))
    reader = signed_in(http, READ)
    page = reader.load()
    with reader.connected(page) as own:
        own.greet()
        lost = [reader.load() for _ in range(5)]
        deadline = time.monotonic() + SECONDS
        while set(lost) & set(Client.instances) and time.monotonic() < deadline:
            assert http.get("/healthz").status_code == 200
        assert list(Client.instances) == [page]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Purpose": "prefetch;prerender"}, 503),
        ({"Purpose": "prefetch"}, 503),
        ({"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"X-Forwarded-Prefix": "//evil.example"}, 200),
    ],
)
def test_a_page_is_loaded_by_who_looks_at_it(serve: Serve, headers: dict[str, str], status: int) -> None:
    http = serve(tokens=Tokens())
    answer = http.get("/", headers=headers)
    assert (answer.status_code, len(Client.instances)) == (status, status == 200)
    assert "evil.example" not in answer.text
    assert http.head("/").status_code == 200 and http.request("PUT", "/").status_code == 405
    assert len(Client.instances) == (status == 200)


def test_no_log_has_the_id_of_a_client(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    loggers = ("", "uvicorn.error", "uvicorn.access", "nicegui", "engineio.server", "socketio.server")
    levels = {name: logging.getLogger(name).level for name in (*loggers, "headrace.server.sockets", "asyncio")}
    http = serve()
    reader = signed_in(http, READ)
    try:
        for name in levels:
            logging.getLogger(name).setLevel(1)
        page = reader.load()
        with reader.connected(page) as socket:
            socket.greet()
            assert socket.elements("visitors")
            socket.connection.send("nonsense")
            assert socket.is_closed()
        with reader.connected(page, tab_id=DOCUMENT) as socket:
            socket.greet()
        with pytest.raises(InvalidStatus), reader.connected(page, transport="polling"):
            pass
        Client.prune_instances(client_age_threshold=-1)
        http.get(f"/_nicegui/client/{page}/upload/1", headers=reader.headers)
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    # Those of the clients of this test are not the server's.
    logged = [
        record for record in caplog.records if record.name.split(".")[0] not in ("httpx", "httpcore", "websockets")
    ]
    assert logged
    assert [record.getMessage() for record in logged if page in record.getMessage()] == []
