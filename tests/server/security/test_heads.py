"""Heads of requests that strangers write: none takes long, none fails inside, and what can be read in two ways is
refused."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headrace.server import Service, Tokens
from headrace.server.routes.metrics import Metrics
from headrace.server.security.cookies import SECURE_SESSION, SESSION, own_cookies, session_cookie
from headrace.server.security.guard import GRANT, Guard
from headrace.server.security.sessions import Sessions
from tests.server.conftest import LINES

READ, WRITE, ADMIN = "r" * 20, "w" * 20, "a" * 20
TOKENS = Tokens.parse(f"read:{READ} write:{WRITE} admin:{ADMIN}")
HOST = (b"host", b"views.example")
KILOBYTES = 30_000

SLOW = {
    "backslashes in a quoted cookie": (b"cookie", b'a="' + b"\\" * KILOBYTES + b'"'),
    "octal escapes in a quoted cookie": (b"cookie", b'a="' + b"\\1" * (KILOBYTES // 2) + b'"'),
    "beginnings of a cookie": (b"cookie", b"; headrace_session=" * (KILOBYTES // 19)),
    "semicolons and spaces": (b"cookie", b";" * (KILOBYTES // 2) + b" " * (KILOBYTES // 2)),
    "many cookies of ours": (b"cookie", b"headrace_a=b; " * (KILOBYTES // 14)),
    "a cookie that does not end": (b"cookie", b"headrace_session=" + b"x" * KILOBYTES),
    "an origin of brackets": (b"origin", b"http://" + b"[" * KILOBYTES),
    "an origin of letters to normalise": (b"origin", b"http://" + "\u2100".encode() * (KILOBYTES // 3)),
    "a host of dots": (b"host", b"127" + b".1" * (KILOBYTES // 2)),
    "a token": (b"authorization", b"Bearer " + b"x" * KILOBYTES),
    "spaces for a token": (b"authorization", b"Bearer" + b" " * KILOBYTES),
    "a scheme of no token": (b"authorization", b"x" * KILOBYTES),
}


def guarded(*headers: tuple[bytes, bytes], scheme: str = "http", **scope: Any) -> tuple[int, str, dict[str, Any]]:
    """The status of a request to a guarded application with a page, the reason, and its scope behind the guard."""
    seen: dict[str, Any] = {}
    sent: list[Any] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    metrics = Metrics(Service({}, {}))
    guard = Guard(inside, tokens=TOKENS, sessions=SESSIONS, on_response=metrics.count_response)
    request = {"type": "http", "method": "GET", "path": "/views", "http_version": "1.1", "scheme": scheme}
    asyncio.run(guard({**request, **scope, "headers": list(headers)}, inside, send))
    return sent[0]["status"], sent[1]["body"].decode(), seen


SESSIONS = Sessions(TOKENS)


@pytest.mark.parametrize("header", SLOW.values(), ids=SLOW.keys())
def test_no_head_takes_long_before_its_token_is_checked(header: tuple[bytes, bytes]) -> None:
    headers = (header,) if header[0] == b"host" else (HOST, header)
    started = time.thread_time()  # which goes on while this thread computes, however busy the machine is
    for _ in range(10):
        assert guarded(*headers, method="POST")[0] in (400, 401, 403)
    assert time.thread_time() - started < 1  # each of them takes less than a millisecond; some once took four seconds


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (b"http://views.example", 200),
        (b"HTTP://Views.Example", 200),
        (b"https://views.example", 403),
        (b"http://[", 403),
        (b"http://views.example:80@evil.example", 403),
        (b"http://views.example/", 403),
        (b"views.example", 403),
        (b"null", 403),
        (b"", 403),
        (b"\xff", 403),
    ],
)
def test_the_origin_of_a_page_is_compared_whole(origin: bytes, status: int) -> None:
    bearer = (b"authorization", f"Bearer {ADMIN}".encode())
    assert guarded(HOST, bearer, (b"origin", origin), method="POST")[0] == status


def test_behind_tls_an_origin_without_is_another_site() -> None:
    bearer = (b"authorization", f"Bearer {ADMIN}".encode())
    for origin, status in ((b"https://views.example", 200), (b"http://views.example", 403)):
        assert guarded(HOST, bearer, (b"origin", origin), method="POST", scheme="https")[0] == status
    refused = guarded(HOST, bearer, (b"origin", b"https://views.example"), method="POST")
    assert "if a proxy with TLS is in front of the server, give the server its address" in refused[1]


@pytest.mark.parametrize(
    "name", [b"host", b"authorization", b"origin", b"sec-fetch-site", b"content-type", b"idempotency-key"]
)
def test_headers_that_can_be_read_in_two_ways(name: bytes) -> None:
    twice = [(name, b"views.example"), (name, b"localhost")]
    status, reason, _ = guarded(*([] if name == b"host" else [HOST]), *twice)
    assert (status, reason) == (400, f'{{"reason":"the header {name.decode().title()} is given twice; give it once"}}')


@pytest.mark.parametrize("host", [b"[", b"a b", b"a/b", b"a@b", b"http://a", b"a:b", b"\xff", b"a\\b", b"[::1]x"])
def test_a_host_that_is_none(host: bytes) -> None:
    assert guarded((b"host", host), (b"authorization", f"Bearer {READ}".encode()))[0] == 400


@pytest.mark.parametrize("host", [b"views.example", b"a_b-c.example:8787", b"10.0.0.1:80", b"[::1]:8787", b""])
def test_hosts_as_clients_send_them(host: bytes) -> None:
    assert guarded((b"host", host), (b"authorization", f"Bearer {READ}".encode()))[0] == 200


def test_http_1_1_needs_a_host() -> None:
    bearer = (b"authorization", f"Bearer {READ}".encode())
    assert guarded(bearer)[0] == 400
    assert guarded(bearer, http_version="1.0")[0] == 200  # probes of health ask so


def test_cookies_of_others_stay_outside() -> None:
    secret = SESSIONS.open(READ) or ""
    own = f"{SESSION}={secret}".encode()
    for cookie in (own, b'x="\\1;  ' + own + b" ;", b"headrace_theme=dark; " + own):
        status, _, seen = guarded(HOST, (b"cookie", cookie))
        assert (status, seen[GRANT].scopes) == (200, {"read"})
        assert all(b"\\" not in value for name, value in seen["headers"] if name == b"cookie")
    for cookie in (b"x" + own, own + b"x", own[:-1], own + b"; " + own, b'"' + own + b'"', b"a=b" + own, b"a=b " + own):
        assert guarded(HOST, (b"cookie", cookie))[0] == 401
    assert own_cookies([b"a=b; headrace_theme=dark", b'headrace_theme="dark"'], https=False) == b"headrace_theme=dark"


def test_over_tls_only_the_cookie_counts_that_no_other_host_can_set() -> None:
    secret = SESSIONS.open(READ) or ""
    plain, secure = (f"{name}={secret}".encode() for name in (SESSION, SECURE_SESSION))
    for scheme, cookie, status in (
        ("http", plain, 200),
        ("http", secure, 401),
        ("https", plain, 401),
        ("https", secure, 200),
        ("https", plain + b"; " + secure, 200),
    ):
        assert guarded(HOST, (b"cookie", cookie), scheme=scheme)[0] == status
    assert session_cookie(secure.decode()) == secret
    for cookie in (
        b"a=b " + secure,
        b"a" + secure,
        b'a="' + secure,
        b"a=b __Host-" + secure,
        b"__Host-__Host-" + plain,
    ):
        assert guarded(HOST, (b"cookie", cookie), scheme="https")[0] == 401


def test_a_target_that_is_not_utf8(client: httpx.Client) -> None:
    for target in (b"/none?\xff", b"/none?%ff", b"/%ff", b"/views/visitors?url=\xff", b"//[", b"/none?" + b"9" * 5_000):
        with socket.create_connection((client.base_url.host, client.base_url.port), timeout=30) as raw:
            raw.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda raw=raw: raw.recv(4096), b""))
        assert answer[:10] in (b"HTTP/1.1 4", b"HTTP/1.1 2"), answer


@pytest.mark.parametrize("option", ["limit", "top", "from", "to", "after", "url.from", "layer"])
def test_numbers_with_thousands_of_digits(client: httpx.Client, option: str) -> None:
    value = "9" * 5_000
    asked = client.get("/views/visitors", params={option: f"hits:{value}" if option == "top" else value})
    assert asked.status_code == (200 if option == "url.from" else 400)


@pytest.mark.parametrize(
    ("body", "kind", "status", "reason"),
    [
        ('{"sql": "SELECT 1"}'.encode("utf-16"), "application/json", 400, "the body is not UTF-8"),
        ('{"sql": "SELECT 1"}'.encode("utf-16-le"), "application/json", 400, "the body is not JSON"),
        ('{"sql": "SELECT 1"}'.encode("utf-32-be"), "application/json", 400, "the body is not JSON"),
        (b'{"sql": "SELECT 1"}', "application/json; charset=utf-16", 415, "a body is sent in UTF-8"),
        (rb'{"sql": "SELECT \ud800"}', "application/json", 400, "half of a surrogate pair"),
        (rb'{"sql": "SELECT 1", "asof": {"\uDFFF": {}}}', "application/json", 400, "half of a surrogate pair"),
        (b'{"sql": "SELECT \xed\xa0\x80"}', "application/json", 400, "the body is not UTF-8"),
        (b'{"sql": "' + b"x" * (1 << 20) + b'"}', "application/json", 413, "at most 1,048,576 bytes"),
        (b'{"sql": "SELECT ' + b"9" * 5_000 + b'"', "application/json", 400, "the body is not JSON"),
    ],
)
def test_bodies_in_other_encodings(client: httpx.Client, body: bytes, kind: str, status: int, reason: str) -> None:
    answer = client.post("/sql", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert reason in answer.json()["reason"]


def test_bodies_as_clients_send_them(client: httpx.Client) -> None:
    for body, kind in (
        (b'\xef\xbb\xbf{"sql": "SELECT 1 AS n"}', "application/json"),
        (rb'{"sql": "SELECT 1 AS n -- \ud83d\ude00"}', 'application/json; charset="UTF-8"'),
    ):
        answer = client.post("/sql", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["rows"]) == (200, [[1]])


def test_events_in_other_encodings(client: httpx.Client) -> None:
    event = '{"user": "ann", "url": "a", "ts": "2026-01-31"}'
    for body in (event.encode("utf-16-le"), event.encode("utf-32-be"), event.replace("ann", r"\ud800").encode()):
        assert client.post("/topics/visits", content=body, headers=LINES).status_code == 422
    with_charset = {"Content-Type": "application/x-ndjson; charset=utf-16"}
    assert client.post("/topics/visits", content=event, headers=with_charset).status_code == 415


def test_a_form_that_is_no_sign_in(started: Callable[..., httpx.Client]) -> None:
    client = started(tokens=TOKENS, page=True)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    long, many = client.post("/login", content=b"a=1&" * (1 << 20), headers=form), b"a=1&" * 5 + b"token=x"
    assert (long.status_code, long.json()["reason"]) == (413, "a body has at most 2,048 bytes here; send less at once")
    answer = client.post("/login", content=many, headers=form)
    assert (answer.status_code, "at most 4 fields" in answer.json()["reason"]) == (400, True)
    assert client.post("/login", content="token=" + "%72" * len(READ), headers=form).status_code == 303
    assert len("token=" + "%7E" * 512) < 2_048  # the longest token there is
