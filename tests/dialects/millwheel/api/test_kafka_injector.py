"""Injectors into topics of Kafka: batches sent again, two with one name, and times that Kafka does not have."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import headrace as hr
from headrace import millwheel as mw
from headrace.log.values import WATERMARK_KEY
from headrace.log.watermarkrecords import WriterWatermark
from headrace.model.times import MAX_TIME
from tests.edges.kafka import Broker


def values(broker: Broker, uri: str) -> Counter[str]:
    found = broker.contents(uri.rpartition("/")[2])
    return Counter(json.loads(each.value()) for each in found if each.value() is not None)


def said(broker: Broker, uri: str) -> dict[int, list[int]]:
    """The watermarks in each partition, in the order of their offsets."""
    found: dict[int, list[int]] = {}
    for each in broker.contents(uri.rpartition("/")[2]):
        if each.value() is None:
            assert each.key().startswith(WATERMARK_KEY)
            found.setdefault(each.partition(), []).append(WriterWatermark.read(each.key()).watermark)
    return found


def test_records_and_watermarks(broker: Broker) -> None:
    uri = broker.create("injected", partitions=2)
    with mw.Injector(uri, name="frontend") as injector:
        injector.send("a", timestamp=mw.Instant(3_000_700), key="k")
        injector.advance(mw.Instant(3_000_600))  # of which Kafka keeps milliseconds, as of the times of records
        injector.flush()
        injector.send("b", timestamp=mw.Instant(3_000_600))
        injector.finish()
        with pytest.raises(mw.ComputationError, match=r"Kafka, which has no times before 1970-01-01T00:00:00\.001Z"):
            injector.send("c", timestamp=0)
    assert values(broker, uri) == {"a": 1, "b": 1}
    assert said(broker, uri) == {0: [3_000_000, MAX_TIME], 1: [3_000_000, MAX_TIME]}


def test_a_batch_that_is_sent_again_is_in_the_stream_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = broker.create("injected-again", partitions=2)

    def send(batch: int) -> mw.Injector:
        again = mw.Injector(uri, name="frontend")
        assert again.next == batch
        for number in range(6):
            again.send(f"{batch}/{number}", timestamp=batch + 1, key=f"k{number}")
        again.advance(batch + 1)
        again.flush()
        return again

    send(0)
    with monkeypatch.context() as patched:

        def fail(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr("headrace.edges.kafkatransactions.TransactionalProducer._within", fail)  # before it commits
        with pytest.raises(KeyboardInterrupt):
            send(1)
    send(1)
    last = send(2)
    assert last.next == 3
    assert values(broker, uri) == {f"{batch}/{number}": 1 for batch in range(3) for number in range(6)}


def test_of_two_injectors_the_older_is_refused(broker: Broker) -> None:
    uri = broker.create("injected-twice")
    older = mw.Injector(uri, name="frontend")
    older.send("a", timestamp=1)
    newer = mw.Injector(uri, name="frontend")
    newer.send("b", timestamp=1)
    newer.flush()
    for _ in range(2):
        with pytest.raises(hr.PipelineError, match=r"the injector 'frontend': another run of the same stream writes"):
            older.flush()
    newer.send("c", timestamp=2)
    newer.flush()
    another = mw.Injector(uri, name="another")
    another.send("d", timestamp=1)
    another.flush()
    assert values(broker, uri) == {"b": 1, "c": 1, "d": 1}


def test_a_stream_of_no_log() -> None:
    with pytest.raises(mw.ComputationError, match="the stream 'queries' is a topic of a log; say of which, with log="):
        mw.Injector("queries", name="frontend")
