"""Tests that Kafka has each batch once, after crashes and repetitions, and with a broker that is stopped."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.kafkaclient import offsets, partitions
from headrace.edges.kafkatransactions import Message, TransactionalProducer
from headrace.model.errors import PipelineError
from headrace.model.topics import Address, address
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from tests.edges.kafka import Broker

NODE: Any = "'write'"


def message(value: str, milliseconds: int = 1000) -> Message:
    return Message(b"k", value.encode(), milliseconds, [])


def values(broker: Broker, where: Address, **isolation: str) -> list[str]:
    return [each.value().decode() for each in broker.contents(where.name, **isolation)]


def test_a_batch_that_comes_again_is_there_once(broker: Broker) -> None:
    where = address(broker.create("again"))
    writer = TransactionalProducer(NODE, where, "again")
    for number in (0, 1, 3):  # a batch without records is not written
        writer.write([message(f"{number}a"), message(f"{number}b")], number)
    writer.write([message("3a"), message("3b")], 3)
    # Spark did not learn of it: the stream begins again, and so does the batch.
    restarted = TransactionalProducer(NODE, where, "again")
    assert restarted.written == 3
    restarted.write([message("3a"), message("3b")], 3)
    restarted.write([message("4a")], 4)
    assert values(broker, where) == ["0a", "0b", "1a", "1b", "3a", "3b", "4a"]
    assert TransactionalProducer(NODE, where, "another stream").written == -1


def test_what_a_crash_left_is_seen_by_none_who_reads_what_was_committed(broker: Broker) -> None:
    where = address(broker.create("half"))
    crashed = TransactionalProducer(NODE, where, "half")
    crashed._producer.begin_transaction()
    crashed._send([message("half")])
    crashed._producer.flush(30)
    restarted = TransactionalProducer(NODE, where, "half")
    assert restarted.written == -1
    restarted.write([message("whole")], 0)
    assert values(broker, where) == ["whole"]
    assert values(broker, where, isolation="read_uncommitted") == ["half", "whole"]


_names = itertools.count()


@pytest.mark.slow("many runs against a broker")
@examples(8)
@given(st.lists(st.sampled_from(["no crash", "in the transaction", "after the transaction"]), min_size=1, max_size=5))
def test_wherever_a_run_crashes_every_batch_is_there_once(broker: Broker, crashes: list[str]) -> None:
    """A run begins with the batch of the crash, as Spark does, which does not know whether it was written."""
    where = address(broker.create(f"crashes-{next(_names)}"))
    batches = [[message(f"{number}a"), message(f"{number}b")] for number in range(len(crashes))]
    writer = TransactionalProducer(NODE, where, where.name)
    for number, crash in enumerate(crashes):
        if crash == "in the transaction":
            writer._producer.begin_transaction()
            writer._send(batches[number])
            writer._producer.flush(30)
        elif crash == "after the transaction":
            writer.write(batches[number], number)
        if crash != "no crash":
            writer = TransactionalProducer(NODE, where, where.name)
        writer.write(batches[number], number)
    assert values(broker, where) == [each.value.decode() for batch in batches for each in batch if each.value]


def test_of_two_runs_of_a_stream_the_later_one_writes(broker: Broker) -> None:
    where = address(broker.create("fenced"))
    earlier = TransactionalProducer(NODE, where, "fenced")
    later = TransactionalProducer(NODE, where, "fenced")
    with pytest.raises(PipelineError, match="another run of the same stream"):
        earlier.write([message("earlier")], 0)
    with pytest.raises(PipelineError, match="another run of the same stream"):  # also if it tries again
        earlier.write([message("earlier")], 0)
    later.write([message("later")], 0)
    assert values(broker, where) == ["later"]


@only_full("tests/system/test_brokers.py has a broker that goes and comes back")
@pytest.mark.slow("a broker stops and starts")
def test_a_batch_waits_for_a_broker_that_is_away(broker: Broker) -> None:
    where = address(broker.create("away"))
    writer = TransactionalProducer(NODE, where, "away")
    writer.write([message("before")], 0)
    broker.stop()
    back = threading.Thread(target=broker.start)
    back.start()
    try:
        writer.write([message("meanwhile")], 1)
    finally:
        back.join()
    writer.write([message("after")], 2)
    assert values(broker, where) == ["before", "meanwhile", "after"]


def test_records_that_a_broker_does_not_take(broker: Broker) -> None:
    where = address(broker.create("refusing"))
    writer = TransactionalProducer(NODE, where, "refusing")
    with pytest.raises(PipelineError, match=r"message.timestamp.after.max.ms"):
        writer.write([message("tomorrow", int(time.time() * 1000) + 86_400_000)], 0)
    with pytest.raises(PipelineError, match="Message size too large"):
        writer.write([message("x" * 3_000_000)], 0)
    writer.write([message("good")], 0)
    assert values(broker, where) == ["good"]


def test_a_batch_may_have_more_records_than_the_client_holds(broker: Broker) -> None:
    where = address(broker.create("many", partitions=2))
    writer = TransactionalProducer(NODE, where, "many")
    writer.write_all([[Message(b"%d" % each, b"", 1000, []) for each in range(150_000)]])
    assert sorted(int(each.key()) for each in broker.contents("many")) == list(range(150_000))


def test_offsets_of_times(broker: Broker) -> None:
    where = address(broker.create("times", partitions=3))
    broker.send("times", (None, b"a", 5), (None, b"b", 7), partition=1)
    broker.send("times", (None, b"c", 6), partition=2)
    assert partitions(NODE, where) == [0, 1, 2]
    expected = {
        "earliest": {0: 0, 1: 0, 2: 0},
        "latest": {0: 0, 1: 2, 2: 1},
        5_000: {0: 0, 1: 0, 2: 0},
        5_001: {0: 0, 1: 1, 2: 0},
        7_000: {0: 0, 1: 1, 2: 1},
    }
    assert {at: offsets(NODE, where, at) for at in expected} == expected  # type: ignore[arg-type]


def test_a_missing_topic_is_named(broker: Broker) -> None:
    with pytest.raises(PipelineError, match=r"there is no topic 'nothing' at 127.0.0.1:\d+; create it"):
        partitions(NODE, address(f"kafka://{broker.address}/nothing"))


@pytest.mark.parametrize("brokers", ["127.0.0.1:1", "no-such-host.invalid:9092"])
def test_a_broker_that_does_not_answer_is_named_within_a_bounded_time(
    brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.edges.kafkaclient._PATIENCE", 1.0)
    with pytest.raises(PipelineError, match=f"no Kafka broker answers at {brokers}; check that it runs"):
        partitions(NODE, address(f"kafka://{brokers}/visits"))


def test_brokers_that_did_not_answer_are_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    silent: dict[str, float] = {}
    monkeypatch.setattr("headrace.edges.kafkaclient._silent", silent)

    def ask(topic: str) -> None:
        with pytest.raises(PipelineError, match=r"no Kafka broker answers at 127.0.0.1:1; check that it runs"):
            offsets(NODE, address(f"kafka://127.0.0.1:1/{topic}"), "latest", patience=0.2)

    def asked(brokers: str, security: None) -> None:
        raise AssertionError("they were asked")

    ask("visits")
    monkeypatch.setattr("headrace.edges.kafkaclient._admin", asked)
    silent["127.0.0.1:1"] += 60  # a slow machine is no reason to fail
    ask("orders")
    silent["127.0.0.1:1"] = time.monotonic()
    with pytest.raises(AssertionError, match="they were asked"):
        ask("visits")
