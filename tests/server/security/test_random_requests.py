"""Requests of any kind: whatever a client sends, it is answered, and never with a failure inside the server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import headrace as hr
from headrace.log import Log
from headrace.server import Limits, Service, Tokens, application
from headrace.server.routes.sql import Sandbox
from headrace.server.security.guard import Guard
from headrace.views.declare.app import App
from headrace.views.errors import ViewError
from headrace.views.stores import Store
from tests.scale import examples

SECRET = "a" * 20
COLUMNS = "s string, b boolean, i int, n bigint, f float, d double, x binary, day date, ts timestamp"

everything = hr.Topic("everything", schema=COLUMNS, event_time="ts", key="s")


@hr.view(everything, window=hr.FixedWindows("1 hour"))
def kinds(events: hr.PCollection) -> hr.PCollection:
    """A view with keys of every kind."""
    return events | hr.GroupBy("s", "n", "b", "day", "ts", "x").aggregate(events=hr.count(), mean=hr.mean("d"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("random")
    store = Store(f"sqlite:///{folder}/views.db")
    yield Service.of(App.of({"kinds": kinds}), store, Log(folder / "log"))
    store.close()


@pytest.fixture(scope="module")
def applications(service: Service) -> tuple[Guard, Guard]:
    """Of one service, without tokens and with."""
    return application(service), application(service, tokens=Tokens.parse(f"admin:{SECRET}"))


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements would take half a second each; they have tests of their own."""

    def refuse(self: Sandbox, sql: str, tables: Any, limits: Any) -> Any:
        sql.encode()
        raise ViewError("no statement runs here")

    monkeypatch.setattr(Sandbox, "query_json", refuse)


METHODS = st.sampled_from(["GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "OPTIONS", "TRACE", "x"])
ROUTES = ["/views", "/views/kinds", "/views/kinds/versions", "/views/kinds/changes", "/views/kinds/rollback", "/sql"]
OTHERS = ["/topics/everything", "/metrics", "/openapi.json", "/healthz", "/readyz", "/login", "/", "//[", "/none"]
PATHS = st.sampled_from([*ROUTES, *OTHERS]) | st.text(max_size=20).map(lambda text: f"/{text}")
VALUES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"", b"-1", b"0", b"9" * 19, b"9" * 20, b"9" * 5_000, b"1e9", b"NaN", b"\xed\xa0\x80", b"a:b"]),
    st.sampled_from([b"true", b"9999-12-31", b"0000-00-00", b"2026-01-31T12:00:00Z", b"merged", b"events:3", b"s,n"]),
)
NAMES = ["s", "n", "b", "day", "ts", "x", "from", "to", "by", "windows", "top", "limit", "after", "layer", "none"]
OPTIONS = st.tuples(st.sampled_from(NAMES), st.sampled_from(["", "", ".is", ".prefix", ".from", ".to", ".null"]))
PAIRS = st.tuples(OPTIONS, VALUES).map(lambda pair: f"{''.join(pair[0])}={quote_from_bytes(pair[1])}".encode())
QUERIES = st.lists(PAIRS, max_size=4, unique_by=lambda pair: pair.partition(b"=")[0]).map(b"&".join) | st.binary(
    max_size=40
)
HEADERS = st.tuples(
    st.sampled_from(
        b"""host origin sec-fetch-site authorization cookie content-type content-encoding idempotency-key
        idempotency-sequence accept x-forwarded-proto range""".split()
    ),
    st.binary(max_size=40)
    | st.sampled_from([b"localhost", b"http://[", b"null", b"same-origin", b"Bearer " + SECRET.encode(), b"9" * 5_000])
    | st.sampled_from([b"headrace_session=" + b"x" * 43, b"application/json; charset=utf-16", b"[", b"\\" * 1_000]),
)
USUAL = [
    (b"host", b"localhost"),
    (b"authorization", b"Bearer " + SECRET.encode()),
    (b"content-type", b"application/json"),
]
HEADS = st.lists(HEADERS, max_size=4).map(
    lambda sent: sent + [usual for usual in USUAL if usual[0] not in dict(sent)]
) | st.lists(HEADERS, max_size=5)
NUMBERS = st.integers() | st.sampled_from([2**31, 2**63, 10**30, -(2**63) - 1]) | st.floats()
TEXTS = st.text(max_size=10) | st.sampled_from(["\ud800", "2026-01-31", "9" * 5_000, "spark", "kinds"])
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["sql", "from", "to", "asof", "engine", "version", "s", "b", "i", "n", "f", "d", "x", "day", "ts"]
)
BODIES = st.one_of(
    st.just(b"{}"),
    st.binary(max_size=60),
    st.dictionaries(FIELDS, VALUE, max_size=4).map(lambda fields: json.dumps(fields).encode()),
    st.tuples(st.dictionaries(FIELDS, VALUE, max_size=3), st.sampled_from(["utf-16", "utf-16-le", "utf-32"])).map(
        lambda pair: json.dumps(pair[0]).encode(pair[1])
    ),
)


def asked(app: Guard, method: str, path: str, query: bytes, headers: list[Any], body: bytes) -> tuple[int, bytes]:
    """The status and the body of the response to a request, whose client leaves when it has sent it."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
    rest = {"scheme": "http", "http_version": "1.1", "root_path": "", "server": ("localhost", 80), "client": None}
    asyncio.run(app({**scope, **rest}, receive, send))
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


@examples(400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(METHODS, PATHS, QUERIES, HEADS, BODIES, st.booleans())
def test_no_request_fails_inside(
    applications: tuple[Guard, Guard],
    method: str,
    path: str,
    query: bytes,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    tokens: bool,
) -> None:
    status, answer = asked(applications[tokens], method, path, query, headers, body)
    assert 200 <= status < 500
    if status >= 400 and method != "HEAD":
        assert json.loads(answer)["reason"]


@examples(400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(QUERIES)
def test_no_query_fails_inside(applications: tuple[Guard, Guard], query: bytes) -> None:
    status, answer = asked(applications[0], "GET", "/views/kinds", query, USUAL, b"")
    assert status in (200, 400), answer


@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["/sql", "/topics/everything", "/views/kinds/rollback"]), BODIES)
def test_no_body_fails_inside(applications: tuple[Guard, Guard], path: str, body: bytes) -> None:
    status, answer = asked(applications[0], "POST", path, b"", USUAL, body)
    assert status in (200, 400, 409, 413, 422), answer


WHOLE = (
    b"POST /topics/everything?limit=3 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 2\r\nCookie: a=b; headrace_session=x\r\nOrigin: http://localhost\r\nConnection: close\r\n\r\n{}"
)
EDITS = st.lists(
    st.tuples(
        st.integers(0, len(WHOLE)), st.integers(0, 12), st.binary(max_size=6) | st.sampled_from([b"\r\n", b"[", b"\0"])
    ),
    max_size=4,
)


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(EDITS)
def test_no_bytes_fail_inside(at: tuple[str, int], edits: list[tuple[int, int, bytes]]) -> None:
    """Edits of a whole request, on the wire."""
    sent = WHOLE
    for place, length, text in edits:
        sent = sent[:place] + text + sent[place + length :]
    with socket.create_connection(at, timeout=30) as raw:
        raw.sendall(sent)
        try:
            answer = b"".join(iter(lambda: raw.recv(4096), b""))
        except ConnectionError:
            answer = b""
    for line in answer.split(b"\r\n"):
        assert not line.startswith(b"HTTP/1.1 5"), sent


@pytest.fixture
def at(started: Callable[..., httpx.Client]) -> tuple[str, int]:
    url = started(limits=Limits(header_seconds=0.1, body_seconds=0.1)).base_url
    return url.host, url.port or 0
