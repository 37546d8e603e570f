"""Tests Protobuf records with schemas of a registry, against confluent-kafka's own serializer, over HTTP."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.edges.registryencoder import RegistryEncoder
from headrace.edges.registryvalues import RegistryDecoder, latest_columns
from headrace.model.badrecords import MALFORMED, WRONG_TYPE
from headrace.model.schemaregistry import SchemaRegistry
from tests.edges.registry import Registry, serving
from tests.scale import examples

pytest.importorskip("fastavro", reason="headrace[registry] is not installed")

Kind = descriptor_pb2.FieldDescriptorProto
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)
COLUMNS = pa.schema(
    [
        ("user", pa.string()),
        ("n", pa.int64()),
        ("big", pa.decimal128(20)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("seen", pa.map_(pa.string(), pa.int32())),
        ("kind", pa.string()),
        ("place", pa.struct([("city", pa.string())])),
        ("score", pa.float64()),
        ("phone", pa.string()),
        ("mail", pa.string()),
    ]
)
FULL = {
    "user": "ann",
    "n": 3,
    "big": Decimal(2**64 - 1),
    "at": AT,
    "tags": ["a", "b"],
    "seen": {"x": 1},
    "kind": "OLD",
    "place": {"city": "Rome"},
    "score": 0.0,
    "phone": "1",
    "mail": None,
}
EMPTY = {name: None for name in COLUMNS.names} | {"user": "", "big": Decimal(0), "tags": [], "seen": {}, "kind": "NEW"}


def visit_file(name: str = "visit.proto") -> descriptor_pb2.FileDescriptorProto:
    """A file whose second message is a visit; the first, a place, has a message of its own."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name])
    place = file.message_type.add(name="Place")
    place.field.add(name="city", number=1, type=Kind.TYPE_STRING, label=1)
    place.nested_type.add(name="Street").field.add(name="name", number=1, type=Kind.TYPE_STRING, label=1)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=1)
    visit = file.message_type.add(name="Visit")
    entry = visit.nested_type.add(name="SeenEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Kind.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Kind.TYPE_INT32, label=1)
    add = visit.field.add
    add(name="user", number=1, type=Kind.TYPE_STRING, label=1)
    add(name="n", number=2, type=Kind.TYPE_INT64, label=1, proto3_optional=True, oneof_index=1)
    add(name="big", number=3, type=Kind.TYPE_UINT64, label=1)
    add(name="at", number=4, type=Kind.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=1)
    add(name="tags", number=5, type=Kind.TYPE_STRING, label=3)
    add(name="seen", number=6, type=Kind.TYPE_MESSAGE, type_name=".shop.Visit.SeenEntry", label=3)
    add(name="kind", number=7, type=Kind.TYPE_ENUM, type_name=".shop.Kind", label=1)
    add(name="place", number=8, type=Kind.TYPE_MESSAGE, type_name=".shop.Place", label=1)
    add(name="score", number=9, type=Kind.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue", label=1)
    add(name="phone", number=10, type=Kind.TYPE_STRING, label=1, oneof_index=0)
    add(name="mail", number=11, type=Kind.TYPE_STRING, label=1, oneof_index=0)
    visit.oneof_decl.add(name="contact")
    visit.oneof_decl.add(name="_n")
    return file


def classes(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """The classes of a file's messages, as protoc would make them."""
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    messages = pool.FindFileByName(file.name).message_types_by_name
    street = {"Street": messages["Place"].nested_types_by_name["Street"]} if "Place" in messages else {}
    return {name: message_factory.GetMessageClass(each) for name, each in {**messages, **street}.items()}


def full_visit(kinds: dict[str, Any]) -> Any:
    visit = kinds["Visit"](user="ann", n=3, big=2**64 - 1, tags=["a", "b"], seen={"x": 1}, kind="OLD", phone="1")
    visit.at.FromDatetime(AT)
    visit.place.city = "Rome"
    visit.score.value = 0.0
    return visit


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as served:
        yield served


def confluent(registry: Registry, topic: str, message: Any) -> bytes:
    """Encodes a message as Confluent's own serializer does, which registers the schema."""
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry.url})
    serialize = protobuf.ProtobufSerializer(type(message), client, {"use.deprecated.format": False})
    data = serialize(message, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def from_confluent(kind: Any, topic: str, data: bytes) -> Any:
    """Decodes a record as Confluent's own deserializer does, by a class that protoc would make."""
    protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    from confluent_kafka.serialization import MessageField, SerializationContext

    deserialize = protobuf.ProtobufDeserializer(kind, {"use.deprecated.format": False})
    return deserialize(data, SerializationContext(topic, MessageField.VALUE))


def decoder(registry: Registry, columns: pa.Schema) -> RegistryDecoder:
    return RegistryDecoder("visits", SchemaRegistry(registry.url), "protobuf", columns)


def decoded(reader: RegistryDecoder, *records: bytes | None) -> tuple[list[dict[str, Any]], list[Any]]:
    columns, flaws = reader.decode(list(records))
    rows = pa.RecordBatch.from_arrays(columns, schema=reader.columns).to_pylist(maps_as_pydicts="strict")
    return rows, flaws


def columns_of(rows: list[dict[str, Any]], schema: pa.Schema) -> dict[str, pa.Array]:
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    return dict(zip(schema.names, batch.columns, strict=True))


def test_what_confluents_serializer_writes_is_read(registry: Registry) -> None:
    """Any message of a file, also a nested one; what is not set is null only where it can be told from a default."""
    kinds = classes(visit_file())
    records = [confluent(registry, "visits", message) for message in (full_visit(kinds), kinds["Visit"]())]
    assert decoded(decoder(registry, COLUMNS), *records) == ([FULL, EMPTY], [None, None])
    place, street = kinds["Place"](city="Oslo"), kinds["Street"](name="Karl Johan")
    names = pa.schema([("city", pa.string()), ("name", pa.string())])
    others = [confluent(registry, "visits", message) for message in (place, street)]
    assert decoded(decoder(registry, names), *others)[0] == [
        {"city": "Oslo", "name": None},
        {"city": None, "name": "Karl Johan"},
    ]
    _, columns = latest_columns("visits", SchemaRegistry(registry.url), "visits-value", "protobuf")
    assert columns == pa.schema([pa.field("city", pa.string(), nullable=False)])  # of the first message


def test_what_is_written_confluents_deserializer_reads(registry: Registry) -> None:
    where = SchemaRegistry(registry.url)
    file = visit_file()
    file.message_type.insert(0, file.message_type.pop(1))  # rows are written as the first message
    kinds = classes(file)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register("visits-value", {"schema": text, "schemaType": "PROTOBUF"})
    encoder = RegistryEncoder.latest("visits", where, "protobuf", "visits")
    rows = [FULL, {**EMPTY, "kind": "OLD"}]
    full, empty = encoder.encode(columns_of(rows, COLUMNS), 2).to_pylist()
    assert from_confluent(kinds["Visit"], "visits", full) == full_visit(kinds)
    assert from_confluent(kinds["Visit"], "visits", empty) == kinds["Visit"](kind="OLD")
    assert decoded(decoder(registry, COLUMNS), full, empty) == (rows, [None, None])
    for column, match in (
        ({"kind": pa.array(["ODD"])}, "'kind' cannot be 'ODD'; there are NEW, OLD"),
        ({"user": pa.array([None], pa.string())}, "'user' cannot be null in schema 1 of 'visits-value'"),
        ({"tags": pa.array([[None]], pa.list_(pa.string()))}, "an item of 'tags' cannot be null"),
        ({"city": pa.array(["x"])}, "schema 1 of 'visits-value' has no field 'city'; it has user, n"),
    ):
        with pytest.raises(hr.PipelineError, match=match):
            encoder.encode(column, 1)


def test_a_schema_of_its_own_is_one_that_confluents_deserializer_reads(registry: Registry) -> None:
    own = pa.schema(
        [*[field for field in COLUMNS if field.name != "big"], ("more", pa.list_(COLUMNS.field("place").type))]
    )
    row = {name: FULL.get(name) for name in own.names} | {"more": [{"city": "Oslo"}]}
    encoder = RegistryEncoder("visits", SchemaRegistry(registry.url), "protobuf", "own.visits")
    (record,) = encoder.encode(columns_of([row], own), 1).to_pylist()
    assert decoded(decoder(registry, own), record) == ([row], [None])
    text = registry.schemas[registry.subjects["own.visits-value"][0] - 1]["schema"]
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    message = from_confluent(classes(file)["own_visits"], "own.visits", record)
    assert (message.user, message.HasField("mail"), message.at.ToDatetime(dt.UTC)) == ("ann", False, AT)
    for column, match in (
        ({"a-b": pa.array([1])}, "no name that Protobuf allows"),
        ({"day": pa.array([1], pa.date32())}, "'day' is date32.*which Protobuf has no type for; cast it"),
        ({"tags": pa.array([None], pa.list_(pa.string()))}, "'tags' cannot be null"),
    ):
        with pytest.raises(hr.PipelineError, match=match):
            encoder.encode(column, 1)


def test_records_that_cannot_be_read_have_a_reason(registry: Registry) -> None:
    kinds = classes(visit_file())
    good = confluent(registry, "visits", full_visit(kinds))
    header, (count, index) = good[:5], good[5:7]
    assert (count, index) == (2, 2)  # one index, 1, in zigzag
    lost = visit_file("lost.proto")
    lost.dependency.append("shop/other.proto")
    unknown = registry.register(
        "lost", {"schema": base64.b64encode(lost.SerializeToString()).decode(), "schemaType": "PROTOBUF"}
    )
    text = registry.register("text", {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
    avro = registry.register("avro", {"schema": '"string"'})
    cases = [
        (header, "its schema 1 does not fit: it does not say which message it is"),
        (header + b"\x08\x02", "its schema 1 does not fit: it names 4 indexes of a message"),
        (header + b"\x02\x08", "its schema 1 cannot be read: it has no message [4]"),
        (header + b"\x02\x02\xff", "its schema 1 does not fit: .*"),
        (
            bytes([0, 0, 0, 0, unknown, 0]),
            f"its schema {unknown} cannot be read: it imports 'shop/other.proto', to which",
        ),
        (bytes([0, 0, 0, 0, text, 0]), f"its schema {text} cannot be read: the registry does not give it as a desc"),
        (bytes([0, 0, 0, 0, avro, 0]), f"its schema {avro} is of the format 'avro', not 'protobuf'"),
    ]
    rows, flaws = decoded(decoder(registry, COLUMNS), *[record for record, _ in cases], good)
    assert rows[-1] == FULL and flaws[-1] is None
    for (_, match), (reason, message) in zip(cases, flaws, strict=False):
        assert reason == MALFORMED and message.startswith(match.removesuffix(".*"))
    wrong = decoded(decoder(registry, pa.schema([("user", pa.int64())])), good)
    assert wrong[1] == [(WRONG_TYPE, "'user' is string in its schema 1, not int64")]


def test_messages_that_contain_themselves_are_no_columns(registry: Registry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", syntax="proto3")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="name", number=1, type=Kind.TYPE_STRING, label=1)
    tree.field.add(name="branches", number=2, type=Kind.TYPE_MESSAGE, type_name=".Tree", label=3)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register("tree-value", {"schema": text, "schemaType": "PROTOBUF"})
    with pytest.raises(hr.PipelineError, match=r"'branches' is a message that contains itself.*; name those"):
        latest_columns("tree", SchemaRegistry(registry.url), "tree-value", "protobuf")
    record = confluent(registry, "tree", classes(file)["Tree"](name="root", branches=[{"name": "a"}]))
    assert decoded(decoder(registry, pa.schema([("name", pa.string())])), record) == ([{"name": "root"}], [None])


_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.none() | st.text(max_size=5),
    pa.int32(): st.none() | st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.none() | st.floats(allow_nan=False),
    pa.bool_(): st.none() | st.booleans(),
    pa.binary(): st.none() | st.binary(max_size=5),
    pa.timestamp("us", tz="UTC"): st.none() | st.datetimes(timezones=st.just(dt.UTC)),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
    pa.map_(pa.string(), pa.string()): st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
    pa.map_(pa.int64(), pa.struct([("z", pa.string())])): st.dictionaries(
        st.integers(0, 9), st.fixed_dictionaries({"z": st.none() | st.text(max_size=3)}), max_size=3
    ),
    pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]): st.none()
    | st.fixed_dictionaries(
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
    row = st.fixed_dictionaries({f"c{number}": _VALUES[kind] for number, kind in enumerate(kinds)})
    rows = data.draw(st.lists(row, min_size=1, max_size=4))
    encoder = RegistryEncoder("t", SchemaRegistry(shared_registry.url), "protobuf", "t")
    records = encoder.encode(columns_of(rows, columns), len(rows)).to_pylist()
    again, flaws = decoded(decoder(shared_registry, columns), *records)
    expected = pa.RecordBatch.from_pylist(rows, schema=columns).to_pylist(maps_as_pydicts="strict")
    assert (again, flaws) == (expected, [None] * len(rows))
