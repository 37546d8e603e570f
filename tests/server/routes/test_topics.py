"""Events over HTTP: all lines of a request or none, and once however often it is sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace.log import Log, Topic
from headrace.server import Limits, Service
from headrace.server.ingestion import Ingestion
from headrace.views.feeds import RequestConflict, RequestKey, TopicUnavailable, feed_of
from headrace.views.feeds.embedded import EmbeddedFeed
from tests.scale import examples
from tests.server.conftest import LINES, visits


def line(user: str, url: str = "a", ts: Any = "2026-01-31T12:00:00Z", **more: Any) -> str:
    return json.dumps({"user": user, "url": url, "ts": ts, **more})


def stored(service: Service) -> Topic:
    """The topic that a service appends to."""
    feed = service.topics["visits"].feed
    assert isinstance(feed, EmbeddedFeed)
    return feed.requests.topic


def users(service: Service) -> list[str]:
    topic = stored(service)
    return sorted(record.value["user"] for number in range(3) for record in topic.read(number))


def post(client: httpx.Client, *lines: str, status: int = 200, **headers: str) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.post("/topics/visits", content="\n".join(lines), headers=LINES | names)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_lines_become_records(client: httpx.Client, service: Service) -> None:
    answer = post(client, line("ann", "a"), "", line("bob", "b", 60), line("cleo", None))  # type: ignore[arg-type]
    assert answer == {"topic": "visits", "records": 3, "offsets": answer["offsets"], "repeated": False}
    topic = stored(service)
    records = sorted(
        ((record.value["user"], record.key, record.timestamp) for number in range(3) for record in topic.read(number)),
        key=repr,
    )
    noon = 1_769_860_800_000_000
    assert records == [("ann", b"a", noon), ("bob", b"b", 60_000_000), ("cleo", None, noon)]


def test_bad_lines_are_told_and_nothing_is_appended(client: httpx.Client, service: Service) -> None:
    lines = [
        line("ann"),
        "{",
        "[1]",
        "null",
        line("bob", ts=None),
        line("bob", ts="noon"),
        line("bob", age=3),
        line(3),  # type: ignore[arg-type]
        '{"user": NaN}',
        line("\ud800"),
        "[" * 100_000,
        "{" + '"a":{' * 5_000,
        line("bob", ts=10**30),
    ]
    answer = post(client, *lines, status=422)
    assert answer["bad"] == len(lines) - 1
    assert [line["line"] for line in answer["lines"]] == list(range(2, len(lines) + 1))
    assert all(line["reason"] for line in answer["lines"])
    assert answer["lines"][1]["reason"] == "it is not a JSON object of columns"
    assert answer["lines"][3]["reason"] == "it has no 'ts', which is the time of the event"
    assert "there is no column 'age'" in answer["lines"][5]["reason"]
    assert answer["lines"][6]["reason"].endswith("column 'user' is a string, got 3")
    assert answer["lines"][9]["reason"] == "it is nested too deeply"
    assert users(service) == []


def test_of_many_bad_lines_a_hundred_are_told(client: httpx.Client) -> None:
    answer = post(client, *["x"] * 1_000, status=422)
    assert (answer["bad"], len(answer["lines"])) == (100, 100)
    assert answer["reason"] == "at least 100 lines are no events of the topic; none of the request was appended"
    assert post(client, *["x"] * 99, status=422)["reason"].startswith("99 lines are no events")


def test_a_request_that_comes_again_is_there_once(client: httpx.Client, service: Service) -> None:
    lines = [line(f"user {number}", f"page {number}") for number in range(20)]
    first = post(client, *lines, Idempotency_Key="k1")
    again = post(client, *lines, Idempotency_Key="k1")
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert first["offsets"] == again["offsets"]
    assert len(users(service)) == 20
    post(client, *lines, Idempotency_Key="k2")
    assert len(users(service)) == 40


def test_a_key_is_for_one_request(client: httpx.Client, service: Service) -> None:
    post(client, line("ann", "a"), Idempotency_Key="k")
    for other in (
        [line("bob", "a")],
        [line("ann", page) for page in "bcdefgh"],
        [line("ann", "a"), line("ann", "a")],
        [line("ann", "a"), line("bob", "b")],
    ):
        answer = post(client, *other, status=422, Idempotency_Key="k")
        assert "was used with other records before" in answer["reason"]
    assert users(service) == ["ann"]


def test_a_client_that_counts(client: httpx.Client, service: Service) -> None:
    for number in (0, 1, 1, 2, 0):
        post(client, line(f"user {number}"), Idempotency_Key="feeder", Idempotency_Sequence=str(number))
    assert users(service) == ["user 0", "user 1", "user 2"]
    post(client, line("late"), Idempotency_Key="other", Idempotency_Sequence="5")
    answer = post(client, line("late"), status=409, Idempotency_Key="other", Idempotency_Sequence="4")
    assert "sequence numbers of a producer must grow" in answer["reason"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Idempotency_Key": "a b"},
        {"Idempotency_Key": ""},
        {"Idempotency_Key": "x" * 201},
        {"Idempotency_Sequence": "1"},
        {"Idempotency_Key": "k", "Idempotency_Sequence": "-1"},
    ],
)
def test_keys_that_are_none(client: httpx.Client, service: Service, headers: dict[str, str]) -> None:
    assert post(client, line("ann"), status=400, **headers)["reason"]
    assert users(service) == []


def test_what_was_cut_short_is_completed(service: Service) -> None:
    """A server that died between two partitions: the same request puts the rest there."""
    body = "\n".join(line(f"user {number}", f"page {number}") for number in range(20)).encode()
    ingestion = service.topics["visits"]
    dying = stored(service).partitions[2]
    whole, dying.append = dying.append, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        ingestion.append(body, RequestKey("k"))
    assert 0 < len(users(service)) < 20
    dying.append = whole  # type: ignore[method-assign]
    receipt = ingestion.append(body, RequestKey("k"))
    assert (receipt.records, receipt.repeated, sorted(receipt.offsets)) == (20, False, [0, 1, 2])
    assert len(users(service)) == 20
    assert ingestion.append(body, RequestKey("k")).repeated


def test_too_large_or_of_another_kind(started: Callable[..., httpx.Client], service: Service) -> None:
    client = started(limits=Limits(body_bytes=1_000))
    assert client.post("/topics/visits", content=b"x" * 1_001, headers=LINES).status_code == 413
    chunks = client.post("/topics/visits", content=iter([b"x" * 600] * 2), headers=LINES)
    assert (chunks.status_code, "at most 1,000 bytes" in chunks.json()["reason"]) == (413, True)
    assert post(started(limits=Limits(body_lines=2)), line("ann"), line("bob"), "")["records"] == 2
    many = started(limits=Limits(body_lines=2)).post("/topics/visits", content="\n\n\n", headers=LINES)
    assert (many.status_code, many.json()["reason"]) == (413, "a body has at most 2 lines; send it in parts")
    for wrong in ({"Content-Type": "text/plain"}, {}, {**LINES, "Content-Encoding": "gzip"}):
        assert client.post("/topics/visits", content=line("ann"), headers=wrong).status_code == 415
    assert users(service) == ["ann", "bob"]


def test_when_too_much_is_under_way(started: Callable[..., httpx.Client], service: Service) -> None:
    client = started(limits=Limits(posts=1))
    here, go = threading.Event(), threading.Event()

    def slow() -> Any:
        yield line("ann").encode()
        here.set()
        go.wait()

    answers: list[httpx.Response] = []
    other = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{client.base_url}/topics/visits", content=slow(), headers=LINES))
    )
    other.start()
    here.wait()
    refused = client.post("/topics/visits", content=line("bob"), headers=LINES)
    while refused.status_code == 200:  # the first had not arrived yet
        refused = client.post("/topics/visits", content=line("bob"), headers=LINES)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    go.set()
    other.join()
    assert answers[0].status_code == 200
    post(client, line("cleo"))
    assert users(service).count("ann") == 1 and users(service)[-1] == "cleo"


requests = st.lists(
    st.tuples(
        st.sampled_from("kl"),
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=4),
    ),
    max_size=8,
)


@examples(50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=requests, restarts=st.sets(st.integers(0, 7)))
def test_any_requests_are_there_as_if_each_key_had_come_once(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[str, list[tuple[str, str]]]], restarts: set[int]
) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    log.create("visits", partitions=3, values=visits.schema)
    ingestion = Ingestion(feed_of(log, visits))
    taken: dict[str, list[tuple[str, str]]] = {}
    for number, (key, events) in enumerate(requests):
        if number in restarts:
            ingestion = Ingestion(feed_of(log.path, visits))
        body = "\n".join(line(user, url) for user, url in events).encode()
        if taken.setdefault(key, events) == events:
            ingestion.append(body, RequestKey(key))
        else:
            with pytest.raises(RequestConflict):
                ingestion.append(body, RequestKey(key))
    topic = log.topic("visits")
    there = [(record.value["user"], record.value["url"]) for number in range(3) for record in topic.read(number)]
    assert sorted(there) == sorted(event for events in taken.values() for event in events)


def test_a_topic_that_is_there_must_be_the_one_declared(tmp_path: Path) -> None:
    from headrace.views.declare.app import App
    from headrace.views.errors import ViewError
    from headrace.views.stores import Store
    from tests.server.conftest import visitors

    log = Log(tmp_path / "log")
    log.create("visits", values="user string")
    with pytest.raises(ViewError, match="topic 'visits' has the columns 'user string', but is declared with"):
        Service.of(App.of({"visitors": visitors}), Store(f"sqlite:///{tmp_path}/views.db"), log)


def test_a_topic_that_is_away(client: httpx.Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*arguments: object) -> Any:
        raise TopicUnavailable("no broker answers; 1 of 2 records is known to be there")

    monkeypatch.setattr(service.topics["visits"].feed, "append", away)
    answer = post(client, line("ann"), line("bob"), status=503)
    assert answer == {"reason": "no broker answers; 1 of 2 records is known to be there"}
