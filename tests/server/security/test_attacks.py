"""Attacks over HTTP, each tried and refused."""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headrace.server import Limits, Server, Service, Tokens
from headrace.server.routes.metrics import Metrics
from headrace.server.security import tokens
from headrace.server.security.guard import Guard, required_scope
from headrace.views.stores.store import StoredView
from tests.server.conftest import LINES, feed, partial_row, publish

READ, WRITE, ADMIN = "r" * 20, "w" * 20, "a" * 20
TOKENS = Tokens.parse(f"read:{READ} write:{WRITE}\nadmin:{ADMIN}")
EVENT = '{"user": "ann", "url": "a", "ts": "2026-01-31"}'

INJECTIONS = [
    "' OR '1'='1",
    "a'; DROP TABLE view_visitors; --",
    'a" UNION SELECT * FROM headrace_views --',
    "%",
    "a\0b",
    "\\",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "$(id)",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_injection_through_values(client: httpx.Client, view: StoredView, text: str) -> None:
    feed(view, partial_row(text, 0, "x"), partial_row("other", 0, "y"))
    for asked in ({"url": text}, {"url.prefix": text}, {"url.from": text, "url.to": text}):
        answer = client.get("/views/visitors", params=asked)
        assert [row["key"]["url"] for row in answer.json()["rows"]] == [text]
    for option in ("after", "layer", "from", "to", "limit", "windows"):
        assert client.get("/views/visitors", params={option: text}).status_code == 400
    assert view.provenance().reached == {0: 2}


@pytest.mark.parametrize("text", INJECTIONS)
def test_injection_through_names_and_order_fields(client: httpx.Client, text: str) -> None:
    assert client.get("/views/visitors", params={text: "a"}).status_code == 400
    assert client.get("/views/visitors", params={"top": f"{text}:3"}).status_code == 400
    assert client.get("/views/visitors", params={"by": text}).status_code == 400


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../visitors",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2fvisits",
        "visits%00",
        "visits/0",
        "VISITS",
        "visits%2f",
        "x",
    ],
)
def test_names_that_are_not_declared_lead_nowhere(client: httpx.Client, name: str) -> None:
    """As they are sent: httpx would tidy the path."""
    host = client.base_url.netloc.decode()
    for method, path in (("GET", f"/views/{name}"), ("POST", f"/topics/{name}"), ("POST", f"/views/{name}/rollback")):
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
            head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            raw.sendall(head.encode())
            answer = b"".join(iter(lambda: raw.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 404"), answer
        assert b'{"reason":' in answer


def test_script_in_keys_and_names_stays_text(client: httpx.Client, view: StoredView) -> None:
    script = "<script>alert(1)</script>"
    feed(view, partial_row(script, 0, "x"))
    for path in ("/views/visitors", f"/views/{script}", f"/views/visitors?{script}=1"):
        answer = client.get(path)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_posts_of_other_sites(client: httpx.Client, headers: dict[str, str], service: Service) -> None:
    for path, body in (("/topics/visits", EVENT), ("/views/visitors/rollback", "{}"), ("/sql", '{"sql": "SELECT 1"}')):
        answer = client.post(path, content=body, headers={**LINES, **headers})
        assert answer.status_code == 403, answer.text
        assert "access-control-allow-origin" not in answer.headers
    assert service.topics["visits"].offsets() == {0: 0, 1: 0, 2: 0}
    assert client.options("/topics/visits", headers=headers).status_code in (403, 405)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_posts_that_a_form_could_send(client: httpx.Client, kind: str) -> None:
    for path, body in (("/topics/visits", EVENT), ("/views/visitors/rollback", "{}"), ("/sql", '{"sql": "SELECT 1"}')):
        assert client.post(path, content=body, headers={"Content-Type": kind}).status_code == 415


def test_a_page_of_this_server_may_post(client: httpx.Client) -> None:
    headers = {**LINES, "Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.post("/topics/visits", content=EVENT, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", ""]
)
def test_names_that_a_hostile_resolver_gave_to_this_machine(client: httpx.Client, host: str) -> None:
    assert client.get("/views", headers={"Host": host}).status_code == 421


REQUESTS = [
    ("GET", "/views", None, "read"),
    ("GET", "/views/visitors", None, "read"),
    ("GET", "/views/visitors/versions", None, "read"),
    ("GET", "/metrics", None, "read"),
    ("GET", "/openapi.json", None, "read"),
    ("POST", "/sql", '{"sql": "SELECT 1"}', "read"),
    ("POST", "/topics/visits", EVENT, "write"),
    ("POST", "/views/visitors/rollback", "{}", "admin"),
    ("DELETE", "/views/visitors", None, "admin"),
]


def test_missing_wrong_and_under_scoped_tokens(
    started: Callable[..., httpx.Client], service: Service, view: StoredView
) -> None:
    client = started(tokens=TOKENS)
    publish(view, partial_row("a", 0, "x"))
    publish(view, partial_row("a", 0, "x"))
    kinds = {"Content-Type": "application/json"}
    for method, path, body, scope in REQUESTS:
        assert required_scope(method, path) == scope

        def sent(method: str = method, path: str = path, body: str | None = body, **headers: str) -> httpx.Response:
            return client.request(method, path, content=body, headers={**kinds, **headers})

        for wrong in ("", READ, "Bearer", f"Basic {ADMIN}", "Bearer guess", f"Bearer {READ[:-1]}", f"Bearer {READ}x"):
            answer = sent(Authorization=wrong)
            assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer")
        assert sent().status_code == 401
        for secret, allowed in ((READ, ("read",)), (WRITE, ("write",)), (ADMIN, ("read", "write", "admin"))):
            status = sent(Authorization=f"Bearer {secret}").status_code
            assert status in ((200, 405) if scope in allowed else (403,)), (method, path, secret)
    for path in ("/healthz", "/readyz"):
        assert client.get(path).status_code == 200
    assert client.get("/views", headers={"Authorization": f"bearer {READ}", "Host": "views.example"}).status_code == 200


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(tokens, "hmac", type("", (), {"compare_digest": staticmethod(compare)}))
    assert TOKENS.scopes(READ) == {"read"}
    assert TOKENS.scopes("guess") == frozenset()
    assert [len(a) == len(b) == 32 for a, b in compared] == [True] * 6  # all tokens each time, found or not


def test_no_token_off_loopback(service: Service) -> None:
    for host in ("0.0.0.0", "::", "", socket.gethostname() + ".invalid"):
        with pytest.raises(ValueError, match=r"give tokens, or listen on 127\.0\.0\.1|give an address of this machine"):
            Server(service, host=host, port=0)
    with Server(service, host="0.0.0.0", port=0, tokens=TOKENS) as server:
        at = f"http://127.0.0.1:{server.port}/views"
        assert httpx.get(at).status_code == 401
        assert httpx.get(at, headers={"Authorization": f"Bearer {READ}"}).status_code == 200


@pytest.mark.parametrize("text", ["secret", "read:short", f"rad:{READ}", f":{READ}", "read:" + "ä" * 20])
def test_tokens_that_are_none_are_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="the one in place 1 is not") as error:
        Tokens.parse(text)
    assert text.partition(":")[2] not in str(error.value) or ":" not in text
    assert READ not in str(error.value)


def test_no_secret_in_logs_or_errors(
    started: Callable[..., httpx.Client],
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = started(tokens=TOKENS)
    headers = {"Authorization": f"Bearer {ADMIN}"}

    def failing(*_: Any) -> Any:
        raise OSError("disk of postgresql://user:hunter2@host is gone")

    monkeypatch.setattr(service.views["visitors"], "small_answer", failing)
    with caplog.at_level(logging.DEBUG):
        broken = client.get("/views/visitors?url=PRIVATE", headers=headers)
        wrong = client.get("/views", headers={"Authorization": "Bearer almost-the-secret"})
    assert (broken.status_code, broken.json()) == (500, {"reason": "this failed inside the server; its log says how"})
    assert wrong.status_code == 401
    messages = [record.getMessage() for record in caplog.records if record.name == "headrace.server"]
    assert messages == ["GET '/views/visitors' failed"]
    ours = [line for line in caplog.text.splitlines() if "httpx" not in line and "httpcore" not in line]  # the client's
    for secret in (ADMIN, READ, "almost-the-secret", "PRIVATE"):
        assert not any(secret in line for line in ours)


def test_a_body_that_never_ends(started: Callable[..., httpx.Client]) -> None:
    client = started(limits=Limits(body_seconds=0.05))
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
        raw.sendall(
            b"POST /topics/visits HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            b"Content-Type: application/x-ndjson\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: raw.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body took longer than 0.05 seconds" in answer


@pytest.mark.parametrize("sent", [b"", b"GET /views HT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /vi"])
def test_a_head_that_never_ends(started: Callable[..., httpx.Client], sent: bytes) -> None:
    client = started(limits=Limits(header_seconds=0.05))
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
        raw.sendall(sent)
        while raw.recv(4096):
            pass  # until the server closes the connection


def test_a_head_without_end(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
        raw.sendall(b"GET /views HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(ConnectionError):  # long before there is no memory left
            for _ in range(1_000):
                raw.sendall(b"x" * 100_000)


@pytest.mark.parametrize("more", [b"X-Trailer: " + b"x" * 900 + b"\r\n", b"x" * 1_000])
def test_a_body_with_trailers_or_extensions_without_end(client: httpx.Client, more: bytes) -> None:
    """What stands around the chunks of a body is no body, and no limit of bodies holds for it."""
    with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
        last = b"0\r\n" if more.endswith(b"\r\n") else b"0;"
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + last)
        with pytest.raises(ConnectionError):
            for _ in range(100_000):
                raw.sendall(more)


def test_numbers_that_lie_about_the_body(client: httpx.Client) -> None:
    host, port = client.base_url.host, client.base_url.port
    for length in (b"-1", b"9" * 30, b"1e3", b"0x10"):
        with socket.create_connection((host, port), timeout=30) as raw:
            raw.sendall(
                b"POST /topics/visits HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
                b"Connection: close\r\nContent-Length: " + length + b"\r\n\r\n"
            )
            assert raw.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 413")


def test_sockets_of_pages_are_guarded_as_posts_are() -> None:
    closed: list[Any] = []

    async def inside(*_: Any) -> None:
        raise AssertionError("it was let in")

    async def send(message: Any) -> None:
        closed.append((message["type"], message["code"]))

    def scope(**headers: str) -> dict[str, Any]:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        return {"type": "websocket", "path": "/live", "headers": pairs}

    metrics = Metrics(Service({}, {}))
    elsewhere = scope(host="localhost", origin="https://evil.example")
    asyncio.run(Guard(inside, tokens=Tokens(), on_response=metrics.count_response)(elsewhere, inside, send))
    asyncio.run(Guard(inside, tokens=TOKENS, on_response=metrics.count_response)(scope(host="localhost"), inside, send))
    assert closed == [("websocket.close", 1008)] * 2
