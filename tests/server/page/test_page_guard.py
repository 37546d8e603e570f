"""The page behind the guard: who may see it, what it lets pass, and that the API beside it is as before."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import nicegui
import pytest
from nicegui import Client, app
from starlette.types import Message, Receive, Scope, Send

from headrace.server import Limits, Server, Service, Tokens, application
from headrace.server.page import mounting
from headrace.server.security.cookies import SESSION
from headrace.server.security.sessions import SECONDS, Sessions
from headrace.views.stores.store import StoredView
from tests.server.conftest import LIMITS, feed, partial_row

READ, WRITE, ADMIN = "r" * 20, "w" * 20, "a" * 20
TOKENS = Tokens.parse(f"read:{READ} write:{WRITE} admin:{ADMIN}")
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"


@contextmanager
def served(service: Service, tokens: Tokens = TOKENS, limits: Limits = LIMITS) -> Iterator[httpx.Client]:
    with (
        Server(service, port=0, tokens=tokens, limits=limits, page=True) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        yield client


def test_with_tokens_nothing_of_the_page_is_open(service: Service) -> None:
    with served(service) as client:
        asked = client.get("/")
        assert (asked.status_code, asked.headers["location"]) == (303, "/login")
        script = re.search(r"/_nicegui/[^\"]+\.js", client.get("/", headers=bearer(READ)).text)
        assert script is not None
        for path in (script[0], SOCKET, "/views"):
            assert client.get(path).status_code == 401
        assert client.get("/", headers=bearer(WRITE)).status_code == 403
        assert client.get(script[0], headers=bearer(READ)).status_code == 200
        assert "immutable" in client.get(script[0], headers=bearer(READ)).headers["cache-control"]


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_signing_in_and_out(service: Service) -> None:
    with served(service) as client:
        form = client.get("/login")
        assert form.status_code == 200 and "<script" not in form.text
        assert "frame-ancestors 'none'" in form.headers["content-security-policy"]
        for wrong in ("", "guess", WRITE, READ + "x"):
            refused = client.post("/login", data={"token": wrong})
            assert (refused.status_code, "set-cookie" in refused.headers) == (401, False)
            assert not wrong or wrong not in refused.text
        taken = client.post("/login", data={"token": READ})
        assert (taken.status_code, taken.headers["location"]) == (303, "/")
        cookie = taken.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and READ not in cookie
        assert client.get("/").status_code == client.get("/views").status_code == 200  # the client has the cookie
        assert client.post("/views/visitors/rollback", json={}).status_code == 403  # a token for reading
        secret = client.cookies[SESSION]
        client.post("/logout")
        assert client.get("/views", headers={"Cookie": f"{SESSION}={secret}"}).status_code == 401


def test_sessions_end() -> None:
    now = [0.0]
    sessions = Sessions(TOKENS, clock=lambda: now[0])
    secret = sessions.open(ADMIN) or ""
    now[0] = SECONDS - 1
    assert "admin" in sessions.scopes(secret)
    now[0] = SECONDS
    assert sessions.scopes(secret) == frozenset() == sessions.scopes("")
    opened = [sessions.open(READ) or "" for _ in range(1_001)]
    assert sessions.scopes(opened[0]) == frozenset()  # the oldest makes room
    assert sessions.scopes(opened[-1]) == {"read"}


def test_a_token_takes_no_session_of_another() -> None:
    sessions = Sessions(TOKENS)
    admin = sessions.open(ADMIN) or ""
    read = [sessions.open(READ) or "" for _ in range(1_001)]
    assert "admin" in sessions.scopes(admin)
    assert sum("read" in sessions.scopes(secret) for secret in read) == 1_000  # as many as a token may have
    sessions.close(admin)
    assert sessions.scopes(admin) == frozenset()
    assert sessions.scopes(read[-1]) == {"read"}


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_other_sites_neither_sign_in_nor_listen(service: Service, headers: dict[str, str]) -> None:
    with served(service) as client:
        assert client.post("/login", data={"token": READ}, headers=headers).status_code == 403
        client.post("/login", data={"token": ADMIN})
        assert client.get(SOCKET, headers=headers).status_code == 403
        assert client.post(SOCKET, headers=headers).status_code == 403
        assert client.post("/logout", headers=headers).status_code == 403
        assert client.get("/views").status_code == 200


def test_names_of_this_machine(service: Service) -> None:
    with served(service, tokens=Tokens()) as client:
        for path in ("/", SOCKET, "/login"):
            assert client.get(path, headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/login").headers["location"] == "/"  # there is nothing to sign in for
        page = client.get("/")
        assert page.headers["x-frame-options"] == "DENY"
        assert "connect-src" not in page.headers["content-security-policy"]  # so it is what default-src says:
        assert page.headers["content-security-policy"].startswith("default-src 'self';")
        assert not re.search(r"https?://(?!127\.0\.0\.1|www\.w3\.org)", page.text)


def test_the_api_is_as_without_a_page(service: Service, view: StoredView) -> None:
    feed(view, partial_row("a", 0, "x"))
    with served(service, tokens=Tokens()) as client:
        assert client.get("/views/visitors?url=a").json()["rows"][0]["values"]["hits"] == 1
        for path in ("/none", "/_nicegui", "/favicon.ico", "/views/none"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["reason"][:9]) == (404, "Not Found")
        assert client.delete("/views/visitors").status_code == 405
        assert "/login" not in client.get("/openapi.json").json()["paths"]


def test_metrics_have_three_routes_for_the_page(service: Service) -> None:
    with served(service, tokens=Tokens()) as client:
        for number in range(20):
            client.get(f"/_nicegui/{number}/x")
            client.get(f"/_nicegui_ws/{number}")
        client.get("/")
        deadline = time.monotonic() + 60  # a request is counted when it is over, which is after its answer has come
        while "/" not in (routes := _routes(client.get("/metrics").text)) and time.monotonic() < deadline:
            pass
        assert routes == {"/", "/_nicegui/", "/_nicegui_ws/"}


def _routes(metrics: str) -> set[str]:
    return set(re.findall(r'route="(/_[^"]*|/)"', metrics))


def test_pages_are_limited_and_end_with_their_server(service: Service) -> None:
    with served(service, tokens=Tokens(), limits=Limits(listeners=2)) as client:
        assert [client.get("/").status_code for _ in range(4)] == [200] * 4
        assert len(Client.instances) == 2  # those that have not connected made room
    assert not Client.instances and app.is_stopped
    with served(service, tokens=Tokens()) as client:
        assert client.get("/").status_code == 200  # one after the other is fine


def test_one_page_a_process(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with served(service, tokens=Tokens()) as client:
        assert client.get("/healthz").status_code == 200
        second = Server(service, port=0, page=True)
        with pytest.raises(SystemExit):
            second.run()
        second._socket.close()
        assert "there is a server with a page in this process already" in caplog.text
        assert client.get("/").status_code == 200


@pytest.mark.parametrize("message_type", ["http.disconnect", "http.request"])
def test_who_leaves_before_the_answer_is_no_failure(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    message_type: str,
) -> None:
    """Regression: a tab that was closed while it loaded left a traceback in the log for each of its scripts."""

    async def shell(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise RuntimeError("No response returned.")  # as Starlette's middleware says

    monkeypatch.setattr(mounting, "_shell", lambda: shell)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": message_type}

    async def send(message: Message) -> None:
        sent.append(message)

    path = f"/_nicegui/{nicegui.__version__}/static/vue.js"
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "http_version": "1.1"}
    rest = {"scheme": "http", "root_path": "", "headers": [(b"host", b"localhost")], "server": ("localhost", 80)}
    left = message_type == "http.disconnect"
    asyncio.run(application(service, page=True)({**scope, **rest}, receive, send))
    assert [message["status"] for message in sent[:1]] == ([] if left else [500])
    assert ("failed" in caplog.text) == (not left)
