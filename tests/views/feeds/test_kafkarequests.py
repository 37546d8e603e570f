"""Requests to a topic of a real broker: with a key, all or none and once."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import headrace as hr
from headrace.edges.kafkatransactions import TransactionalProducer
from headrace.log.errors import LogError
from headrace.model.errors import PipelineError
from headrace.server.ingestion import BadLines, Ingestion
from headrace.views.errors import ViewError
from headrace.views.feeds import Feed, Receipt, RequestConflict, RequestKey, TopicUnavailable, feed_of, kafkarequests
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from tests.edges.kafka import Broker

SCHEMA = "user string, n int, at timestamp, raw binary"


def made(broker: Broker, name: str, partitions: int = 2) -> Feed:
    feed = feed_of(f"kafka://{broker.address}", hr.Topic(name, schema=SCHEMA, key="user", partitions=partitions))
    feed.create()
    return feed


def events(*users: str) -> list[dict[str, Any]]:
    return [{"user": user, "n": number, "at": 60} for number, user in enumerate(users)]


def users(broker: Broker, name: str) -> list[str]:
    return sorted(json.loads(each.value())["user"] for each in broker.contents(name))


def test_requests_without_a_key_are_records_by_the_key_of_their_events(broker: Broker) -> None:
    feed = made(broker, "plain")
    feed.create()  # which leaves it as it is
    assert (feed.starts(), feed.ends()) == ({0: 0, 1: 0}, {0: 0, 1: 0})
    body = b'{"user": "ann", "n": 3, "at": "2026-01-31T12:00:00Z", "raw": "abc"}\n{"user": "ann"}\n{"user": "bob"}'
    receipt = Ingestion(feed).append(body)
    assert (receipt.records, receipt.repeated) == (3, False)
    sent = broker.contents("plain")
    assert {(each.key(), json.loads(each.value())["user"].encode()) for each in sent} == {(b"ann",) * 2, (b"bob",) * 2}
    assert len({each.partition() for each in sent if each.key() == b"ann"}) == 1
    assert receipt.offsets == {each.partition(): 0 for each in sent}
    assert json.loads(next(each.value() for each in sent)) in (
        {"user": "ann", "n": 3, "at": "2026-01-31T12:00:00.000000Z", "raw": "YWJj"},
        {"user": "bob", "n": None, "at": None, "raw": None},
    )
    assert sum(feed.ends().values()) == 3
    with pytest.raises(BadLines):
        Ingestion(feed).append(body + b'\n{"user": 7}')
    with pytest.raises(LogError, match=r"an event has 950,0\d\d bytes; the limit for Kafka is 950,000"):
        feed.append([{"user": "ann"}, {"user": "x" * 950_000}], None, None)
    assert len(broker.contents("plain")) == 3


def test_a_request_with_a_key_is_there_once(broker: Broker) -> None:
    feed = made(broker, "once")
    first = feed.append(events("ann", "bob", "cleo"), None, RequestKey("k"))
    assert (first.records, first.repeated) == (3, False)
    again = made(broker, "once").append(events("ann", "bob", "cleo"), None, RequestKey("k"))  # as after a restart
    assert again == Receipt(3, first.offsets, repeated=True)
    with pytest.raises(RequestConflict, match="'k' with the sequence 0 was used with other records before"):
        feed.append(events("dan"), None, RequestKey("k"))
    assert not feed.append(events("dan"), None, RequestKey("k", 1)).repeated
    assert feed.append(events("ann"), None, RequestKey("k", 0)) == Receipt(1, {}, repeated=True)
    for owner in ("x", "y"):  # whose keys are others
        assert [feed.append(events(owner), None, RequestKey("k", owner=owner)).repeated for _ in "12"] == [False, True]
    assert users(broker, "once") == ["ann", "bob", "cleo", "dan", "x", "y"]


def test_one_key_from_many_threads_is_one_request(broker: Broker) -> None:
    feed, receipts = made(broker, "threads"), list[Receipt]()
    threads = [
        threading.Thread(target=lambda: receipts.append(feed.append(events("ann", "bob"), None, RequestKey("k"))))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(each.repeated for each in receipts) == [False, True, True, True]
    assert users(broker, "threads") == ["ann", "bob"]


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
def test_a_server_that_dies_at_the_commit_leaves_all_or_none_and_the_request_is_completed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    name = f"dies_{committed}"
    feed = made(broker, name)

    class Died(BaseException):
        """The process ends here."""

    @contextmanager
    def dying() -> Iterator[None]:
        whole = TransactionalProducer._transaction

        def transaction(self: TransactionalProducer, pieces: Any, number: int, note: Any = str) -> None:
            def noted() -> str:
                if not committed:
                    raise Died
                return str(note())

            whole(self, pieces, number, noted)
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(TransactionalProducer, "_transaction", transaction)
            patched.setattr(TransactionalProducer, "close", lambda self: None)
            yield

    with dying(), pytest.raises(Died):
        feed.append(events("ann", "bob", "cleo"), None, RequestKey("k"))
    receipt = made(broker, name).append(events("ann", "bob", "cleo"), None, RequestKey("k"))
    assert (receipt.records, receipt.repeated) == (3, committed)
    assert users(broker, name) == ["ann", "bob", "cleo"]


requests = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(0, 1), st.lists(st.sampled_from(["ann", "bob"]), min_size=1, max_size=3)
    ),
    max_size=5,
)
numbers = itertools.count()


@examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=requests)
def test_any_requests_are_there_as_if_each_had_come_once(
    broker: Broker, requests: list[tuple[str, int, list[str]]]
) -> None:
    """By the plain rule: of each key, numbers grow; the last one again is the same request, or refused."""
    name = f"any_{next(numbers)}"
    feed, last, taken = made(broker, name), dict[str, tuple[int, list[str]]](), list[str]()
    for key, sequence, sent in requests:
        number, before = last.get(key, (-1, []))
        if sequence == number and sent != before:
            with pytest.raises(RequestConflict):
                feed.append(events(*sent), None, RequestKey(key, sequence))
            continue
        assert feed.append(events(*sent), None, RequestKey(key, sequence)).repeated == (sequence <= number)
        if sequence > number:
            last[key] = (sequence, sent)
            taken += sent
    assert users(broker, name) == sorted(taken)


@only_full("test_hostile_peers.py has brokers that are none")
def test_without_a_broker_requests_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafkarequests, "_PATIENCE", 0.5)
    monkeypatch.setattr("headrace.edges.kafkaclient._PATIENCE", 0.5)
    feed = feed_of("kafka://127.0.0.1:1", hr.Topic("nowhere", schema=SCHEMA))
    with pytest.raises(TopicUnavailable, match="of the 2 records, 0 are known to be in the topic"):
        feed.append(events("ann", "bob"), None, None)
    with pytest.raises(PipelineError, match=r"topic 'nowhere': no Kafka broker answers at 127\.0\.0\.1:1"):
        feed.ends()
    with pytest.raises(PipelineError, match="no Kafka broker answers"):
        feed.create()


@pytest.mark.parametrize("where", ["https://example.com", "kafka://ann:secret@host:9092", "redis://ann:secret@host"])
def test_what_is_no_log_is_refused_without_its_password(where: str) -> None:
    with pytest.raises(ViewError, match=r"a log is a directory or 'kafka://HOST:PORT'; .*") as refused:
        feed_of(where, hr.Topic("visits", schema=SCHEMA))
    assert "secret" not in str(refused.value)
