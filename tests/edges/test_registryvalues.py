"""Tests records with schemas of a registry, against confluent-kafka's own serializers, over HTTP on loopback."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.edges.registryencoder import RegistryEncoder
from headrace.edges.registryvalues import RegistryDecoder, fits, latest_columns
from headrace.model.badrecords import MALFORMED, WRONG_TYPE
from headrace.model.schemaregistry import SchemaRegistry
from tests.edges.kafka import make_certificates
from tests.edges.registry import Registry, serving
from tests.scale import examples, only_full

pytest.importorskip("fastavro", reason="headrace[registry] is not installed")

NOBODY = UUID(int=0)
VISIT: dict[str, Any] = {
    "type": "record",
    "name": "Visit",
    "namespace": "shop",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "n", "type": ["null", "long"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "seen", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}, "default": str(NOBODY)},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
        },
    ],
}
ROW = {
    "user": "ann",
    "n": 3,
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC),
    "price": Decimal("12.50"),
    "tags": ["a", "b"],
    "kind": "OLD",
    "seen": {"x": 1},
    "id": "7d444840-9dc0-11d1-b245-5ffdce74fad2",
    "place": {"city": "Rome"},
}
COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.string()),
        ("seen", pa.map_(pa.string(), pa.int32())),
        ("id", pa.string()),
        ("place", pa.struct([("city", pa.string())])),
    ]
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as served:
        yield served


def confluent(registry: Registry, schema: Any, topic: str, row: Any, part: str = "VALUE") -> bytes:
    """Encodes a row, or a key, as Confluent's own serializer does, which registers the schema."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
    data = serialize(row, SerializationContext(topic, getattr(MessageField, part)))
    assert isinstance(data, bytes)
    return data


def from_confluent(registry: Registry, topic: str, data: bytes) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    return deserialize(data, SerializationContext(topic, MessageField.VALUE))


def decoder(registry: Registry, columns: pa.Schema, **options: Any) -> RegistryDecoder:
    return RegistryDecoder("visits", SchemaRegistry(registry.url), "avro", columns, **options)


def decoded(reader: RegistryDecoder, *records: bytes | None) -> tuple[list[dict[str, Any]], list[Any]]:
    columns, flaws = reader.decode(list(records))
    rows = pa.RecordBatch.from_arrays(columns, schema=reader.columns).to_pylist(maps_as_pydicts="strict")
    return rows, flaws


def array(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind)


def test_what_confluents_serializer_writes_is_read(registry: Registry) -> None:
    record = confluent(registry, VISIT, "visits", ROW)
    schema, columns = latest_columns("visits", SchemaRegistry(registry.url), "visits-value", "avro")
    assert columns.field("at").type == pa.timestamp("ms", tz="UTC")
    assert decoded(decoder(registry, columns, reader=schema), record) == ([ROW], [None])
    assert decoded(decoder(registry, COLUMNS), record) == ([ROW], [None])
    fewer = pa.schema([("place", pa.struct([("city", pa.string())])), ("n", pa.float64()), ("new", pa.int32())])
    assert decoded(decoder(registry, fewer), record) == ([{"place": {"city": "Rome"}, "n": 3.0, "new": None}], [None])


def test_what_is_written_confluents_deserializer_reads(registry: Registry) -> None:
    """With the topic's latest schema, and with one that is made of the columns."""
    batch = pa.RecordBatch.from_pylist([ROW, {**ROW, "n": None}], schema=COLUMNS)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    where = SchemaRegistry(registry.url)
    (own, _) = RegistryEncoder.latest("visits", where, "avro", "own").encode(columns, 2).to_pylist()
    assert from_confluent(registry, "own", own) == ROW
    assert registry.subjects == {"own-value": [1]}
    registry.register("visits-value", {"schema": json.dumps(VISIT)})
    encoder = RegistryEncoder.latest("visits", where, "avro", "visits")
    assert encoder.schema is not None and encoder.schema.id == 2
    records = encoder.encode(columns, 2).to_pylist()
    assert records[0] == confluent(registry, VISIT, "visits", ROW)
    assert from_confluent(registry, "visits", records[1]) == {**ROW, "n": None, "id": UUID(str(ROW["id"]))}
    fewer = {name: column for name, column in columns.items() if name not in ("tags", "n", "seen", "id")}
    (record, _) = encoder.encode(fewer, 2).to_pylist()
    defaults = {"n": None, "tags": [], "seen": {}, "id": NOBODY}
    assert from_confluent(registry, "visits", record) == {**ROW, **defaults}


def test_older_and_newer_records_are_read_by_the_schema_that_they_were_written_with(registry: Registry) -> None:
    first = {
        "type": "record",
        "name": "V",
        "fields": [{"name": "user", "type": "string"}, {"name": "n", "type": "int"}],
    }
    city = {"name": "city", "type": "string", "default": "nowhere"}
    renamed = {"name": "name", "type": "string", "aliases": ["user"]}
    second = {**first, "fields": [renamed, {"name": "n", "type": "long"}, city]}
    third = {**second, "fields": [*second["fields"], {"name": "more", "type": "int", "default": 0}]}
    old = confluent(registry, first, "v", {"user": "ann", "n": 1})
    new = confluent(registry, second, "v", {"name": "bob", "n": 2**40, "city": "Rome"})
    schema, columns = latest_columns("v", SchemaRegistry(registry.url), "v-value", "avro")
    newest = confluent(registry, third, "v", {"name": "eve", "n": 3, "city": "Oslo", "more": 4})
    reader = decoder(registry, columns, reader=schema)  # Avro's rules: defaults, aliases, wider numbers
    assert decoded(reader, old, new, newest) == (
        [
            {"name": "ann", "n": 1, "city": "nowhere"},
            {"name": "bob", "n": 2**40, "city": "Rome"},
            {"name": "eve", "n": 3, "city": "Oslo"},
        ],
        [None] * 3,
    )
    asked = len(registry.requests)
    assert decoded(reader, old, new, newest)[1] == [None] * 3
    assert len(registry.requests) == asked  # each schema is asked for once
    named = decoder(registry, pa.schema([("user", pa.string()), ("city", pa.string())]))
    assert decoded(named, old, new)[0] == [{"user": "ann", "city": None}, {"user": None, "city": "Rome"}]


def test_records_that_cannot_be_read_have_a_reason(registry: Registry) -> None:
    number = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}
    union = {"type": "record", "name": "U", "fields": [{"name": "n", "type": ["int", "string"]}]}
    good = confluent(registry, number, "bad", {"n": 2**40, "s": "x"})
    odd = confluent(registry, union, "odd", {"n": 7})
    protobuf = registry.register("other", {"schema": "", "schemaType": "PROTOBUF"})
    columns = pa.schema([("n", pa.int64())])
    header = good[:5]
    cases = [
        (None, MALFORMED, "it has no value"),
        (b"", MALFORMED, "it does not begin with the id of a schema: a zero byte, and four of the id"),
        (b'{"n": 1}', MALFORMED, "it does not begin with the id of a schema: a zero byte, and four of the id"),
        (b"\0\0\0\0\x63" + good[5:], MALFORMED, "the schema registry has no schema 99"),
        (b"\0\0\0\0\x04", MALFORMED, "the schema registry has no schema 4"),  # not yet
        (bytes([0, 0, 0, 0, protobuf]), MALFORMED, f"its schema {protobuf} is of the format 'protobuf', not 'avro'"),
        (header, MALFORMED, "its schema 1 does not fit: EOFError"),
        (good + b"?", MALFORMED, "its schema 1 does not fit: it has 1 bytes after its end"),
        (odd, WRONG_TYPE, "in its schema 2, 'n' is a union of 2 types, which is no column"),
    ]
    rows, flaws = decoded(decoder(registry, columns), *[record for record, _, _ in cases], good)
    assert flaws == [*[(reason, message) for _, reason, message in cases], None]
    assert rows == [{"n": None}] * len(cases) + [{"n": 2**40}]
    appeared = registry.register("late", {"schema": '{"type": "record", "name": "L", "fields": []}'})
    late = bytes([0, 0, 0, 0, appeared])
    assert (appeared, decoded(decoder(registry, columns), late)) == (4, ([{"n": None}], [None]))
    narrow = decoded(decoder(registry, pa.schema([("n", pa.int32()), ("s", pa.string())])), good)
    assert narrow == ([{"n": None, "s": "x"}], [(WRONG_TYPE, "'n' is no int32: 1099511627776")])
    other = decoded(decoder(registry, pa.schema([("s", pa.int64())])), good)
    assert other == ([{"s": None}], [(WRONG_TYPE, "'s' is string in its schema 1, not int64")])


def test_columns_that_are_not_the_schemas_are_refused(registry: Registry) -> None:
    registry.register("visits-value", {"schema": json.dumps(VISIT)})
    where = SchemaRegistry(registry.url)
    encoder = RegistryEncoder.latest("visits", where, "avro", "visits")
    user = {"user": array(["ann"])}
    for columns, match in (
        ({**user, "oops": array([1])}, "schema 1 of 'visits-value' has no field 'oops'; it has user, n, "),
        (user, "has the field 'at', which has no default, but there is no such column; there are user"),
        ({"user": array([1])}, "'user' is string in schema 1 of 'visits-value', but the column is int64"),
        ({"user": array([None], pa.string())}, "'user' cannot be null in schema 1"),
        ({"at": array([1], pa.timestamp("us", tz="UTC"))}, "'at' is timestamp.* would lose data"),
    ):
        with pytest.raises(hr.PipelineError, match=match):
            encoder.encode(columns, 1)
    own = RegistryEncoder.latest("visits", where, "avro", "own")
    with pytest.raises(hr.PipelineError, match=r"the column 'a-b' has no name that Avro allows.*rename it with Select"):
        own.encode({"a-b": array([1])}, 1)
    with pytest.raises(hr.PipelineError, match=r"'d' is duration.*which Avro has no type for; cast it"):
        own.encode({"d": array([1], pa.duration("s"))}, 1)
    with pytest.raises(hr.PipelineError, match=r"'own-value' has no schema at .*, and the types .* are not known"):
        own.types(["a"])
    registry.frozen.add("own-value")
    with pytest.raises(hr.PipelineError, match=r"refuses the schema of these elements: .*incompatible; change the"):
        own.encode(user, 1)


def test_keys_are_values_or_fields_of_records(registry: Registry) -> None:
    """As Confluent's serializer writes them, and as we do: a single value, or the field of the column's name."""
    where = SchemaRegistry(registry.url)
    own = RegistryEncoder.latest("v", where, "avro", "v", "key")
    keys = own.encode_keys("n", array([7, None, 8])).to_pylist()
    assert keys == [confluent(registry, "long", "v", 7, "KEY"), None, confluent(registry, "long", "v", 8, "KEY")]
    assert registry.subjects == {"v-key": [1]}
    record = {"type": "record", "name": "K", "fields": [{"name": "n", "type": "int"}]}
    other = confluent(registry, record, "v", {"n": 9}, "KEY")
    reader = RegistryDecoder("v", where, "avro", pa.schema([("n", pa.int64())]), part="key")
    assert decoded(reader, *keys, other) == ([{"n": 7}, {"n": None}, {"n": 8}, {"n": 9}], [None] * 4)
    latest = RegistryEncoder.latest("v", where, "avro", "v", "key")
    assert latest.encode_keys("n", array([9])).to_pylist() == [other]
    _, columns = latest_columns("v", where, "v-key", "avro", "n")
    assert columns == pa.schema([pa.field("n", pa.int32(), nullable=False)])
    assert latest.types(["n"]) == {"n": pa.int32()}
    messages = RegistryEncoder.latest("v", where, "protobuf", "p", "key").encode_keys("n", array([7, None]))
    by_message = RegistryDecoder("v", where, "protobuf", pa.schema([("n", pa.int64())]), part="key")
    assert decoded(by_message, *messages.to_pylist()) == ([{"n": 7}, {"n": None}], [None, None])
    with pytest.raises(hr.PipelineError, match=r"the key 'n' is list.*, but a key is text or a number"):
        RegistryEncoder.latest("v", where, "avro", "lists", "key").encode_keys("n", array([[1]]))


def test_what_is_not_installed_is_said(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    record = confluent(registry, {**VISIT, "name": "Unseen"}, "visits", ROW)  # by this process
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(hr.PipelineError, match=r"format='avro' needs fastavro; install .*'headrace\[registry\]'"):
        decoder(registry, COLUMNS).decode([record])
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(hr.PipelineError, match=r"needs a client; install it with pip install 'headrace\[registry\]'"):
        latest_columns("visits", SchemaRegistry(registry.url), "visits-value", "avro")


@only_full("test_hostile_peers.py has peers that are away")
def test_a_registry_that_is_away_or_refuses_is_named_without_the_password(registry: Registry) -> None:
    registry.user = "ann:hunter2"
    registry.register("visits-value", {"schema": json.dumps(VISIT)})

    def ask(where: SchemaRegistry) -> Any:
        return latest_columns("visits", where, "visits-value", "avro")

    assert ask(SchemaRegistry(registry.url, username="ann", password="hunter2"))[0].id == 1
    wrong = SchemaRegistry(registry.url, username="ann", password="hunter3")
    with pytest.raises(hr.PipelineError, match=r"refuses access \(401\); check username and password") as refused:
        ask(wrong)
    assert "hunter" not in f"{refused.value} {wrong} {wrong!r}"
    with pytest.raises(
        hr.PipelineError, match=r"no schema registry answers at http://127.0.0.1:1 .*check that it runs"
    ):
        ask(SchemaRegistry("http://127.0.0.1:1"))
    registry.user = None
    with pytest.raises(hr.PipelineError, match="has no schema of 'none-value'; register one, or name the columns"):
        latest_columns("visits", SchemaRegistry(registry.url), "none-value", "avro")


@only_full("another way to the same registry")
def test_a_registry_may_speak_tls(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    with serving(Registry(user="ann:hunter2"), tmp_path / "broker.pem") as registry:
        registry.register("visits-value", {"schema": json.dumps(VISIT)})
        trusted = SchemaRegistry(registry.url, username="ann", password="hunter2", ca=str(tmp_path / "ca.pem"))
        assert latest_columns("visits", trusted, "visits-value", "avro")[0].id == 1
        with pytest.raises(hr.PipelineError, match=r"no schema registry answers at https.*CERTIFICATE_VERIFY_FAILED"):
            latest_columns("visits", replace(trusted, ca=None), "visits-value", "avro")
        with pytest.raises(hr.PipelineError, match=r"registry at https.* cannot be asked: .*No such file"):
            latest_columns("visits", replace(trusted, ca=str(tmp_path / "none")), "visits-value", "avro")


def test_schemas_may_refer_to_others(registry: Registry) -> None:
    place = {"type": "record", "name": "shop.Place", "fields": [{"name": "city", "type": "string"}]}
    visit = {"type": "record", "name": "shop.V", "fields": [{"name": "place", "type": "shop.Place"}]}
    registry.register("place", {"schema": json.dumps(place)})
    references = [{"name": "shop.Place", "subject": "place", "version": 1}]
    registry.register("v-value", {"schema": json.dumps(visit), "references": references})
    where = SchemaRegistry(registry.url)
    schema, columns = latest_columns("v", where, "v-value", "avro")
    assert columns.field("place").type == pa.struct([pa.field("city", pa.string(), nullable=False)])
    batch = {"place": array([{"city": "Rome"}])}
    (record,) = RegistryEncoder.latest("v", where, "avro", "v").encode(batch, 1).to_pylist()
    assert decoded(decoder(registry, columns, reader=schema), record) == ([{"place": {"city": "Rome"}}], [None])


_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=5),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(0, 9), max_size=3),
    pa.map_(pa.string(), pa.string()): st.dictionaries(
        st.text(max_size=3), st.none() | st.text(max_size=3), max_size=3
    ),
    pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]): st.fixed_dictionaries(
        {"x": st.none() | st.integers(0, 9), "y": st.none() | st.fixed_dictionaries({"z": st.text(max_size=3)})}
    ),
}


@pytest.fixture(scope="module")
def shared_registry() -> Iterator[Registry]:
    with serving(Registry()) as served:
        yield served


@examples(200)
@given(st.data())
def test_rows_come_back_as_they_were_written(shared_registry: Registry, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=4))
    columns = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    row = st.fixed_dictionaries({f"c{number}": st.none() | _VALUES[kind] for number, kind in enumerate(kinds)})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    batch = pa.RecordBatch.from_pylist(rows, schema=columns)
    where = SchemaRegistry(shared_registry.url)
    encoder = RegistryEncoder("t", where, "avro", "t")
    records = encoder.encode(dict(zip(columns.names, batch.columns, strict=True)), len(rows)).to_pylist()
    again, flaws = decoded(decoder(shared_registry, columns), *records)
    assert (again, flaws) == (batch.to_pylist(maps_as_pydicts="strict"), [None] * len(rows))
    assert decoded(decoder(shared_registry, columns), *[record[:-1] for record in records])[1].count(None) == 0


def test_types_that_fit() -> None:
    nested = [pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()), pa.struct([("a", pa.int32())])]
    wider = [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.int64()), ("b", pa.string())])]
    assert all(map(fits, nested, wider))
    assert not any(map(fits, nested, [pa.list_(pa.string()), pa.map_(pa.string(), pa.bool_()), pa.string()]))
    assert not fits(pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
    assert not fits(pa.float64(), pa.float32())
