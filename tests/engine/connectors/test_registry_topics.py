"""Tests topics of a real Kafka broker whose records have schemas of a registry, on Spark."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.badrecords import MALFORMED
from tests.edges.registry import Registry, serving
from tests.edges.test_registryvalues import confluent, from_confluent
from tests.scale import only_full
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.edges.kafka import Broker

AT = {"type": "long", "logicalType": "timestamp-millis"}
OLD = {"type": "record", "name": "V", "fields": [{"name": "user", "type": "string"}, {"name": "at", "type": AT}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "city", "type": "string", "default": "nowhere"}]}  # type: ignore[misc]


class Visit(NamedTuple):
    user: str
    city: str | None


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry(user="ann:hunter2")) as served:
        yield served


def where(registry: Registry) -> hr.SchemaRegistry:
    return hr.SchemaRegistry(registry.url, username="ann", password="hunter2")


def time(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC)


@pytest.mark.slow("batches and streams of Kafka")
def test_batch_and_stream_read_the_same(
    spark: SparkSession, broker: Broker, registry: Registry, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Records of two schemas, and bad ones, by the latest schema and by named columns; the password is nowhere."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="py4j")
    uri = broker.create("registered")
    registry.user = None
    old = confluent(registry, OLD, "registered", {"user": "ann", "at": time(10)})
    new = confluent(registry, NEW, "registered", {"user": "bob", "at": time(20), "city": "Rome"})
    registry.user = "ann:hunter2"
    flawed = [b"\0\0\0\0\x09...", b"{}", new[:-1]]
    broker.send("registered", *[(None, value, 1000) for value in (old, new, *flawed)])
    texts = []

    def read(**options: Any) -> list[Any]:
        p = hr.Pipeline(spark=spark)
        source = hr.Read(f"{uri}?format=avro&end=latest&event_time=at", registry=where(registry))
        read = p | "latest" >> source.with_exception_handling()  # type: ignore[attr-defined]
        rows, dead = read.main | "rows" >> hr.Collect(), read.dead_letters | "dead" >> hr.Collect()
        minutes = read.main | hr.WindowInto(hr.FixedWindows(60)) | hr.GroupBy("city").aggregate(n=hr.count())
        counts = minutes | "counts" >> hr.Collect()
        named = hr.ReadTopic(uri, schema=Visit, end="latest", format="avro", registry=where(registry))
        visits = p | "named" >> named | hr.Filter(lambda visit: visit.user != "eve") | "visits" >> hr.Collect()
        texts.extend([p.explain(), repr(vars(source)), repr(p)])
        handle = p.run(**options)
        handle.wait()
        bad = handle.status().bad
        texts.append(str(bad))
        letters = sorted((each.position, each.error, each.message, each.element) for each in dead)
        timed = sorted((each.timestamp, each.value) for each in rows.windowed)
        assert {name: found.counts for name, found in bad.items()} == {
            "latest": {MALFORMED: 3},
            "named": {MALFORMED: 3},
        }
        return [timed, letters, sorted(counts), sorted(visits)]

    batch = read()
    assert read(stream=True, checkpoint=str(tmp_path / "checkpoint")) == batch
    timed, letters, counts, visits = batch
    assert [(at // 1_000_000, row.user, row.at, row.city) for at, row in timed] == [
        (10, "ann", time(10), "nowhere"),
        (20, "bob", time(20), "Rome"),
    ]
    assert letters == [
        ("registered/0@2", "malformed", "the schema registry has no schema 9", flawed[0].hex().upper()),
        (
            "registered/0@3",
            "malformed",
            "it does not begin with the id of a schema: a zero byte, and four of the id",
            flawed[1].hex().upper(),
        ),
        ("registered/0@4", "malformed", "its schema 2 does not fit: Expected 4 bytes, read 3", flawed[2].hex().upper()),
    ]
    assert [(row.city, row.n) for row in counts] == [("Rome", 1), ("nowhere", 1)]
    assert visits == [Visit("ann", None), Visit("bob", "Rome")]
    texts += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert [text for text in [*texts, caplog.text] if "hunter2" in text] == []


@only_full("records are read by the registry's schemas in both")
@pytest.mark.slow("a batch and a stream of Kafka")
def test_rows_are_written_once_in_batch_and_stream(
    spark: SparkSession, broker: Broker, registry: Registry, tmp_path: Path
) -> None:
    """By a schema that is made of the columns, and by one that is there; to explain registers nothing."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"user": "ann", "n": 1}\n{"user": "bob", "n": 2}\n')
    topics = []
    for stream in (False, True):
        own, latest = f"own-{stream}", f"latest-{stream}"
        registry.user = None
        confluent(registry, NEW, latest, {"user": "x", "at": time(0)})
        registry.user = "ann:hunter2"
        p = hr.Pipeline(spark=spark)
        rows = p | hr.ReadJson(str(tmp_path / "in"), schema="user string, n int")
        options = {"format": "avro", "registry": where(registry)}
        rows | "own" >> hr.WriteTopic(broker.create(own), key="user", **options)
        timed = rows | hr.Select("user", at="timestamp_seconds(n)")
        timed | "latest" >> hr.Write(broker.create(latest), **options)
        p.explain()
        assert f"{own}-value" not in registry.subjects
        p.run(stream=stream).wait()
        topics += [own, latest]
    registry.user = None
    for own, latest in (topics[:2], topics[2:]):
        messages = broker.contents(own)
        assert sorted((each.key(), from_confluent(registry, own, each.value())["n"]) for each in messages) == [
            (b"ann", 1),
            (b"bob", 2),
        ]
        values = [from_confluent(registry, latest, each.value()) for each in broker.contents(latest)]
        expected = [{"user": name, "at": time(n), "city": "nowhere"} for name, n in (("ann", 1), ("bob", 2))]
        assert sorted(values, key=str) == expected
        assert (len(registry.subjects[f"{own}-value"]), len(registry.subjects[f"{latest}-value"])) == (1, 1)


@only_full("records are read by the registry's schemas in both")
@pytest.mark.slow("a batch and a stream of Kafka")
def test_protobuf_is_written_and_read_in_batch_and_stream(
    spark: SparkSession, broker: Broker, registry: Registry
) -> None:
    options: dict[str, Any] = {"format": "protobuf", "registry": where(registry)}
    visits = [Visit("ann", "Rome"), Visit("bob", None)]
    for stream in (False, True):
        uri = broker.create(f"protobuf-{stream}")
        p = hr.Pipeline(spark=spark)
        p | hr.Create(visits) | hr.WriteTopic(uri, key="user", **options)
        p.run(stream=stream).wait()
        # A broker shows what a transaction wrote a moment after it was committed.
        wait_for(lambda topic=f"protobuf-{stream}": len(broker.contents(topic)) == 2)
        broker.send(f"protobuf-{stream}", (None, b"\0\0\0\0\x01", 0))
        p = hr.Pipeline(spark=spark)
        latest = p | "latest" >> hr.ReadTopic(uri, end="latest", **options)
        rows = latest | "rows" >> hr.Collect()
        elements = p | "named" >> hr.ReadTopic(uri, end="latest", schema=Visit, **options) | "elements" >> hr.Collect()
        handle = p.run(stream=stream)
        handle.wait()
        assert sorted(elements) == visits
        assert sorted(row.user for row in rows) == ["ann", "bob"]
        message = "its schema 1 does not fit: it does not say which message it is"
        assert {bad.last.message for bad in handle.status().bad.values() if bad.last} == {message}


@only_full("test_registryvalues.py has keys with schemas, and the other tests their way through Spark for values")
@pytest.mark.slow("a batch and a stream of Kafka")
def test_keys_are_read_and_written_in_batch_and_stream(spark: SparkSession, broker: Broker, registry: Registry) -> None:
    """Keys with schemas, keys of text beside values with schemas, and keys of text beside JSON."""
    both: dict[str, Any] = {"format": "avro", "key_format": "avro", "registry": where(registry)}
    visits = [Visit("ann", "Rome"), Visit("bob", "Oslo")]
    uris = {name: broker.create(f"keys-{name}") for name in ("avro", "text", "json")}
    p = hr.Pipeline(spark=spark)
    created = p | hr.Create(visits)
    created | "avro" >> hr.WriteTopic(uris["avro"], key="user", **both)
    created | "text" >> hr.WriteTopic(uris["text"], key="user", format="avro", registry=where(registry))
    created | "json" >> hr.WriteTopic(uris["json"], key="user")
    p.run().wait()
    broker.send("keys-avro", (b"text", broker.contents("keys-avro")[0].value(), 0))
    registry.user = None
    assert {each.key() for each in broker.contents("keys-avro")} == {
        *[confluent(registry, "string", "keys-avro", name, "KEY") for name in ("ann", "bob")],
        b"text",
    }
    registry.user = "ann:hunter2"
    for stream in (False, True):
        p = hr.Pipeline(spark=spark)
        city = "city string, {} string"
        sources = {
            "latest": hr.ReadTopic(uris["avro"], end="latest", key="user", **both),
            "named": hr.ReadTopic(uris["avro"], end="latest", key="who", schema=city.format("who"), **both),
            "text": hr.Read(f"{uris['text']}?key=who&end=latest&format=avro", registry=where(registry)),
            "json": hr.ReadTopic(uris["json"], end="latest", key="who", schema=city.format("who")),
        }
        found = {name: p | name >> source | f"c-{name}" >> hr.Collect() for name, source in sources.items()}
        handle = p.run(stream=stream)
        handle.wait()
        assert sorted((row.user, row.city) for row in found["latest"]) == visits
        for name in ("named", "text", "json"):
            assert sorted((row.who, row.city) for row in found[name]) == visits, name
        message = "of its key: it does not begin with the id of a schema: a zero byte, and four of the id"
        bad = handle.status().bad
        assert {name: each.last.message for name, each in bad.items() if each.last} == dict.fromkeys(
            ("latest", "named"), message
        )


def test_what_is_not_there_is_named_before_anything_runs(
    spark: SparkSession, broker: Broker, registry: Registry
) -> None:
    uri, options = broker.create("unregistered"), {"format": "avro", "registry": where(registry)}
    p = hr.Pipeline(spark=spark)
    p | hr.ReadTopic(uri, end="latest", **options) | hr.Collect()
    with pytest.raises(hr.PipelineError, match="has no schema of 'unregistered-value'; register one, or name"):
        p.run().wait()
    p = hr.Pipeline(spark=spark)
    p | hr.Create(["a"]) | hr.WriteTopic(uri, **options)
    with pytest.raises(hr.PipelineError, match="format='avro' needs elements with named columns"):
        p.run().wait()
    p = hr.Pipeline(spark=spark)
    p | hr.Create([{"user": "ann"}]) | hr.WriteTopic(uri, **options)
    with pytest.raises(hr.HeadraceError, match=r"'unregistered-value' has no schema at .*, and the types"):
        p.run().wait()
