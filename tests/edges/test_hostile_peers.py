"""Brokers, databases and registries that answer with nonsense, slowly or never: an error says so, in a limited time."""

from __future__ import annotations

import base64
import gzip
import io
import json
import logging
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import sqlalchemy as sa

from headrace.edges import databases, kafkaclient, registryclient
from headrace.edges.avrofiles import AvroError, decode
from headrace.edges.boundedconnection import BoundedConnection
from headrace.edges.databases import open_database, set_patience
from headrace.edges.kafkatransactions import TransactionalProducer
from headrace.edges.registryvalues import RegistryDecoder, latest_columns
from headrace.edges.schemaguards import contains_itself
from headrace.engine.connectors import tablewriter
from headrace.model.errors import PipelineError
from headrace.model.kafkasecurity import KafkaSecurity
from headrace.model.schemaregistry import SchemaRegistry
from headrace.model.topics import Address, address
from tests.edges import hostile
from tests.edges.hostile import BEHAVIOURS, Behaviour, Proxy, as_postgresql, playing
from tests.edges.postgresql import PASSWORD
from tests.edges.registry import Registry, serving
from tests.edges.tabling import at, contents, writer

SECRET = "hunter2-secret"


def refusal(ask: Callable[[], object], seconds: float) -> str:
    """Returns the message of the error that comes within so many seconds, and without much memory."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PipelineError) as refused:
        ask()
    assert time.monotonic() - began < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes
    message = str(refused.value)
    assert SECRET not in message and len(message) < 1_000
    return message


# Kafka


def test_brokers_that_are_none(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(kafkaclient, "_PATIENCE", 1.0)
    monkeypatch.setattr("headrace.edges.kafkatransactions._STEP", 1.0)
    security = KafkaSecurity(username="ann", password=SECRET, tls=False)

    def ask(behaviour: Behaviour) -> None:
        for secured in (None, security):
            with playing(behaviour) as port:
                where = Address("visits", None, f"127.0.0.1:{port}", secured)
                for question in (
                    partial(kafkaclient.partitions, "visits", where, patience=1),
                    partial(kafkaclient.create, "visits", where, 2),
                    partial(TransactionalProducer, "visits", where, "me", patience=1),
                ):
                    kafkaclient._silent.clear()
                    with pytest.raises(PipelineError, match=f"127.0.0.1:{port}.*check") as refused:
                        question()
                    assert SECRET not in str(refused.value)

    began = time.monotonic()
    with ThreadPoolExecutor() as threads:
        list(threads.map(ask, BEHAVIOURS.values()))
    assert time.monotonic() - began < 60
    assert SECRET not in caplog.text


def test_a_broker_that_repeats_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    where = Address("visits", None, "kafka:9092", KafkaSecurity(username="ann", password=SECRET))
    kafka = kafkaclient.client("visits")
    for code in (kafka.KafkaError._AUTHENTICATION, kafka.KafkaError.UNKNOWN):
        told = str(kafkaclient.refused("visits", where, kafka.KafkaError(code, f"no {SECRET}\n" + "!" * 100_000)))
        assert "no *** !!!" in told and SECRET not in told and len(told) < 1_000


def test_a_client_of_kafka_that_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        def ask(self, *_: object) -> Any:
            raise TimeoutError

    monkeypatch.setattr(kafkaclient, "_admin", lambda *_: Hanging())
    where = address("kafka://127.0.0.1:2/visits")
    for ask in (lambda: kafkaclient.partitions("visits", where), lambda: kafkaclient.create("visits", where, 1)):
        assert "no Kafka broker answers at 127.0.0.1:2; check that it runs" in refusal(ask, 5)


# PostgreSQL

SERVERS = {
    **BEHAVIOURS,
    **{f"admitting, then {name}": as_postgresql(behaviour) for name, behaviour in BEHAVIOURS.items()},
    "a gigabyte": as_postgresql(hostile.huge_row),
    "notices": as_postgresql(hostile.dripping_notices),
    "asks for the password": hostile.echoing_password,
}


@pytest.mark.parametrize("kind", SERVERS)
def test_databases_that_are_none(kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(BoundedConnection, "patience", 0.5)
    monkeypatch.setitem(databases._POSTGRESQL, "connect_timeout", 2)
    with playing(SERVERS[kind]) as port:
        url = sa.make_url(f"postgresql+psycopg://amy:{SECRET}@127.0.0.1:{port}/db")
        told = refusal(lambda: open_database(url), 20)
    assert f"cannot open the database postgresql+psycopg://amy:***@127.0.0.1:{port}/db: " in told
    assert "is the server running there" in told
    assert SECRET not in caplog.text


@contextmanager
def stalling(url: str) -> Iterator[tuple[str, Proxy]]:
    """A proxy before a PostgreSQL, and the URL of the database behind it."""
    parsed = sa.make_url(url)
    assert parsed.host is not None and parsed.port is not None
    proxy = Proxy(parsed.host, parsed.port)
    with playing(proxy.play) as port:
        yield parsed.set(port=port).render_as_string(hide_password=False), proxy


def test_a_table_whose_database_stalls_and_comes_back(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablewriter, "_PATIENCE", 0.5)
    monkeypatch.setitem(databases._POSTGRESQL, "connect_timeout", 2)
    monkeypatch.setattr(BoundedConnection, "patience", 0.5)
    batches = [[at({"n": number})] for number in range(3)]
    with stalling(postgresql) as (url, proxy):
        to = writer(url)
        to.write(batches[0], 0)
        proxy.stalled = True
        began = time.monotonic()
        with pytest.raises(Exception, match=r"127\.0\.0\.1.*(timeout expired|for 0\.5 seconds)") as refused:
            to.write(batches[1], 1)
        assert time.monotonic() - began < 20 and PASSWORD not in str(refused.value)
        proxy.stalled = False
        for number in (1, 1, 2):  # as a stream does that is run again: what may be there is sent once more
            to.write(batches[number], number)
        to.close()
    assert contents(postgresql) == {(0,): 1, (1,): 1, (2,): 1}


def test_statements_may_take_longer_where_that_is_allowed(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "patience", 0.5)
    engine = open_database(sa.make_url(postgresql).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        set_patience(connection, 60)
        connection.exec_driver_sql("SELECT pg_sleep(1)")
    with engine.connect() as connection, pytest.raises(sa.exc.OperationalError, match=r"0\.5 seconds; pg_stat_act"):
        connection.exec_driver_sql("SELECT pg_sleep(30)")  # the same connection: what was allowed has ended
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()


# Schema registries


def http(status: str, *headers: str, body: bytes = b"", length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answering(answer: bytes) -> Behaviour:
    def play(connection: socket.socket, ended: threading.Event) -> None:
        while connection.recv(1 << 16):
            connection.sendall(answer)

    return play


def endless(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.sendall(http("200 OK", length=1 << 40))
    while not ended.is_set():
        connection.sendall(b"[" * (1 << 16))


def slow_head(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    hostile.drip(connection, ended, b"X: y\r\n")


def slow_body(connection: socket.socket, ended: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.sendall(http("200 OK", length=1_000_000))
    hostile.drip(connection, ended, b" ")


def echo(connection: socket.socket, ended: threading.Event) -> None:
    """Tells the client what it sent, also as the registry can read it."""
    head = connection.recv(1 << 16).decode()
    sent = head.partition("Basic ")[2].partition("\r\n")[0]
    message = f"{base64.b64decode(sent).decode()} {head}" * 1_000
    connection.sendall(http("418 No", body=json.dumps({"error_code": 1, "message": message}).encode()))


AWAY = "no schema registry answers|has not answered for 2 seconds"
BOMB = gzip.compress(b'{"schema": "') + gzip.compress(b" " * (1 << 20)) * 256 + gzip.compress(b'"}')
REGISTRIES: dict[str, tuple[Behaviour, str]] = {
    "silent": (hostile.silent, AWAY),
    "noisy": (hostile.noisy, AWAY),
    "closing": (hostile.closing, AWAY),
    "cut": (answering(http("200 OK", body=b"{", length=100)), AWAY),
    "slow head": (slow_head, "has not answered for 2 seconds; check that it runs"),
    "slow body": (slow_body, "has not answered for 2 seconds; check that it runs"),
    "endless": (endless, "is no schema registry: its answer has more than 4,194,304 bytes"),
    "bomb": (answering(http("200 OK", "Content-Encoding: gzip", body=BOMB)), "its answer is compressed, which nobody"),
    "no JSON": (answering(http("200 OK", body=b"<html>")), "is no schema registry: .*; check host and port"),
    "deep JSON": (answering(http("200 OK", body=b"[" * 100_000)), "is no schema registry: .*; check host and port"),
    "an array": (answering(http("200 OK", body=b"[1]")), "is no schema registry"),
    "nothing": (answering(http("200 OK")), "is no schema registry"),
    "no text": (answering(http("200 OK", body=b'{"id": 1, "schema": {"a": 1}}')), "is no schema registry"),
    "an odd id": (
        answering(http("200 OK", body=b'{"id": "1", "schema": "\\"int\\""}')),
        "the id of a schema is no numb",
    ),
    "echo": (echo, r"says: ann:\*\*\* GET .* \(418\); check the address"),
    "pages": (answering(http("404 Not Found", body=b"<html>" * 9_999)), "has no schema of 'visits-value'"),
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_registries_that_are_none(kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(registryclient, "_PATIENCE", 2.0)
    behaviour, expected = REGISTRIES[kind]
    with playing(behaviour) as port:
        where = SchemaRegistry(f"http://127.0.0.1:{port}", username="ann", password=SECRET)
        told = refusal(lambda: latest_columns("visits", where, "visits-value", "avro"), 20)
    assert f"http://127.0.0.1:{port}" in told and base64.b64encode(f"ann:{SECRET}".encode()).decode() not in told
    assert re.search(expected, told), told
    assert SECRET not in caplog.text


def test_a_registry_that_sends_clients_elsewhere() -> None:
    with serving(Registry()) as other:
        redirect = answering(http("302 Found", f"Location: {other.url}/subjects/visits-value/versions/latest"))
        with playing(redirect) as port:
            where = SchemaRegistry(f"http://127.0.0.1:{port}", username="ann", password=SECRET)
            told = refusal(lambda: latest_columns("visits", where, "visits-value", "avro"), 10)
        assert "(302); check the address" in told
        assert other.requests == []  # neither the question nor the password


def test_a_registry_that_was_hostile_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registryclient, "_PATIENCE", 0.5)
    with serving(Registry()) as registry:
        registry.register("visits-value", {"schema": '{"type": "record", "name": "V", "fields": []}'})
        proxy = Proxy("127.0.0.1", int(registry.url.rpartition(":")[2]))
        with playing(proxy.play) as port:
            where = SchemaRegistry(f"http://127.0.0.1:{port}")
            proxy.stalled = True
            refusal(lambda: latest_columns("visits", where, "visits-value", "avro"), 10)
            proxy.stalled = False
            assert latest_columns("visits", where, "visits-value", "avro")[0].id == 1


# Schemas


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


LIST = record("L", value="long", next=["null", "L"])


def laughing() -> dict[str, Any]:
    """A schema of a few kilobytes with 2^40 fields, if its records are written out."""
    inner: Any = "long"
    for level in range(40):
        inner = record(f"R{level}", a=inner, b=f"R{level - 1}" if level else "long")
    return record("Visit", all=inner)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (json.dumps(laughing()), "more than 10,000 fields with its records written out"),
        (json.dumps(LIST), "'next' is a record that contains itself"),
        (json.dumps(record("V", x={"type": "array", "items": "null"})), "an array of values that take no bytes"),
        ('{"type": "array", "items": ' * 5_000 + '"long"' + "}" * 5_000, "has no columns"),
        ('{"type": "record"}', "has no columns"),
        ("", "has no columns"),
        (json.dumps(record("V", x="Unknown" * 10_000)), "has no columns"),
    ],
)
def test_schemas_that_are_no_columns(schema: str, reason: str) -> None:
    with serving(Registry()) as registry:
        registry.schemas.append({"schema": schema})
        registry.subjects["visits-value"] = [1]
        where = SchemaRegistry(registry.url)
        assert reason in refusal(lambda: latest_columns("visits", where, "visits-value", "avro"), 10)


def test_schemas_that_refer_to_each_other_or_to_many() -> None:
    with serving(Registry()) as registry:
        for name, other in (("a", "b"), ("b", "a")):
            reference = {"name": other, "subject": other, "version": 1}
            registry.schemas.append({"schema": json.dumps(record(name, x="long")), "references": [reference]})
            registry.subjects[name] = [len(registry.schemas)]
        assert latest_columns("visits", SchemaRegistry(registry.url), "a", "avro")[1].names == ["x"]
        for number in range(300):
            reference = {"name": f"c{number + 1}", "subject": f"c{number + 1}", "version": 1}
            registry.schemas.append({"schema": json.dumps(record(f"c{number}")), "references": [reference]})
            registry.subjects[f"c{number}"] = [len(registry.schemas)]
        told = refusal(lambda: latest_columns("visits", SchemaRegistry(registry.url), "c0", "avro"), 30)
        assert "a schema refers to more than 200 others" in told


def test_records_that_nest_without_end_are_bad_records() -> None:
    """fastavro's compiled reader would end the process."""
    with serving(Registry()) as registry:
        registry.register("visits-value", {"schema": json.dumps(LIST)})
        decoder = RegistryDecoder("visits", SchemaRegistry(registry.url), "avro", pa.schema([("value", pa.int64())]))
        head = b"\0\0\0\0\1"
        (column,), flaws = decoder.decode([head + b"\x0e\0", head + b"\x0e\x02" * 500_000 + b"\x0e\0"])
    assert column.to_pylist() == [7, None]
    assert flaws[0] is None and flaws[1] is not None and "recursion" in flaws[1][1]
    file = io.BytesIO()
    fastavro.writer(file, LIST, [{"value": 7, "next": None}])
    columns = pa.schema([("value", pa.int64())])
    assert [batch.to_pylist() for batch in decode(file.getvalue(), columns)] == [[{"value": 7}]]
    block = b"\x0e\x02" * 500_000 + b"\x0e\0"
    marker = file.getvalue()[-16:]
    size = io.BytesIO()
    fastavro.schemaless_writer(size, "long", len(block))
    deep = file.getvalue()[: -16 - 4] + b"\x02" + size.getvalue() + block + marker
    with pytest.raises(AvroError, match="cannot be read as Avro"):
        list(decode(deep, columns))


def test_which_schemas_contain_themselves() -> None:
    for schema, expected in (
        (LIST, True),
        (record("A", x=record("B", y=["null", {"type": "array", "items": "A"}])), True),
        (record("A", x={"type": "map", "values": record("B", y="A")}), True),
        (record("A", x=record("B", y="long"), z="B", w=["null", "B"]), False),
        ("long", False),
        (record("A", x={"type": "array", "items": ["null", "long"]}), False),
    ):
        names: dict[str, Any] = {}
        parsed = fastavro.parse_schema(schema, names)
        assert contains_itself(parsed, names) is expected, schema
    for items in ("null", {"type": "fixed", "name": "F", "size": 0}, record("E", a="null", b=record("G"))):
        names = {}
        parsed = fastavro.parse_schema({"type": "array", "items": items}, names)
        with pytest.raises(TypeError, match="an array of values that take no bytes"):
            contains_itself(parsed, names)
