"""The layers over a topic of a real Kafka broker, with gaps in offsets, bad records and restarts: answers are right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.edges.kafkatransactions import TransactionalProducer
from headrace.model.topics import address
from headrace.views.errors import ViewError
from headrace.views.feeds import RequestKey, feed_of
from tests.scale import only_full
from tests.views.layers.test_layers import VISITS, Visit, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker


class KafkaWorld(World):
    """The same, with its topic at a broker."""

    def __init__(self, spark: SparkSession, path: Path, broker: Broker) -> None:
        super().__init__(spark, path, feed_of(f"kafka://{broker.address}", VISITS))
        self.broker = broker

    def append(self, partition: int, made: list[Visit]) -> None:
        records = [json.dumps({**each._asdict(), "at": each.at.isoformat()}).encode() for each in made]
        self.broker.send("visits", *[(None, value, 7) for value in records], partition=partition)

    def request(self, key: str, count: int) -> None:
        """Appends events as a server does: in a transaction, which takes an offset of each partition for itself."""
        made = [self.visit() for _ in range(count)]
        self.events += made
        self.feed.append([{**each._asdict(), "at": each.at.isoformat()} for each in made], None, RequestKey(key))

    def give_up(self) -> None:
        """A transaction that is given up: it takes offsets, and has no records."""
        uri = address(f"kafka://{self.broker.address}/visits")
        writer = TransactionalProducer("test", uri, "given up")
        writer._producer.begin_transaction()
        writer._producer.produce("visits", b'{"page": "no", "at": 0}', partition=0)
        assert writer._producer.flush(30) == 0
        writer.close()

    def bad(self, *values: bytes | None) -> None:
        """Appends records that are no events."""
        self.broker.send("visits", *[(b"k", value, 7) for value in values], partition=1)  # type: ignore[misc]


@pytest.fixture
def world(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[KafkaWorld]:
    made = KafkaWorld(spark, tmp_path, broker)
    yield made
    if made.stream is not None:
        made.stop()
    made.store.close()


@only_full("test_layers.py has these layers over the embedded log, test_brokers.py a system's over Kafka")
@pytest.mark.slow("layers of a view over Kafka")
def test_over_kafka_too_whatever_happens_merged_answers_are_a_recount_of_all_events(world: KafkaWorld) -> None:
    world.bad(b"{oops", b'{"page": "a", "n": "three", "at": "2026-03-01T00:00:00Z"}', b'{"page": "a"}', None)
    world.happen(30)
    world.request("r1", 5)
    world.start()
    assert world.answers() == world.recount()
    assert world.stream is not None
    bad = world.stream.status().bad["topic visits"]
    assert bad.counts == {"malformed": 2, "wrong type": 1, "no event time": 1}
    assert bad.last is not None
    assert bad.last.position == "visits/1@3"

    first = world.batch().compute()
    assert world.answers() == world.answers("batch") == world.recount()
    ends = world.feed.ends()
    assert first.boundary == ends
    (step,) = world.master.steps()
    assert (step.until, step.records, step.bad) == (ends, 69, {"malformed": 2, "wrong type": 1})
    assert sum(ends.values()) > 69  # the transaction's own
    kept = world.spark.read.parquet(f"{world.path}/master/data/*/*/*.parquet").where("_bad IS NOT NULL")
    assert {(row._offset, row._bad.reason, row._bad.record) for row in kept.collect()} == {
        (0, "malformed", b"{oops"),
        (1, "wrong type", b'{"page": "a", "n": "three", "at": "2026-03-01T00:00:00Z"}'),
        (3, "malformed", None),
    }

    world.stop()
    world.forget_the_last_commit()
    world.give_up()
    empty = world.master.archive()
    assert empty is not None
    assert (empty.until, empty.records) == (world.feed.ends(), 0)
    world.happen(10)
    world.start()  # with a micro-batch that the store has already
    assert world.answers() == world.recount()
    world.stop()
    world.give_up()
    world.start(checkpoint="another")  # as if the first were lost; its first micro-batch has no records
    world.request("r2", 5)
    world.happen(5)
    assert world.answers() == world.recount()

    assert world.master.compact() is not None
    second = world.batch().compute()
    assert second.boundary == world.feed.ends()
    assert [step.records for step in world.master.steps()] == [69, 35]
    assert world.master.bad() == {"malformed": 2, "wrong type": 1}
    assert world.answers() == world.answers("batch") == world.recount()
    assert world.stored.rollback() == 1
    assert world.answers() == world.recount()

    next(world.path.glob("master/data/base-*/*/*.parquet")).unlink()
    with pytest.raises(ViewError, match=r"the master data in .* is damaged: "):
        world.master.verify({}, second.boundary)
