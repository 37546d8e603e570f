"""Avro files: what was encoded is decoded, by fastavro alone, too; schemas of others; refusals that name the field."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges import avrofiles
from headrace.edges.avrofiles import AvroError, decode, encode, schema_of_file, schema_of_rows
from tests.scale import examples

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "flag": pa.bool_(),
        "small": pa.int32(),
        "n": pa.int64(),
        "x": pa.float64(),
        "name": pa.string(),
        "raw": pa.binary(),
        "price": pa.decimal128(12, 3),
        "at": UTC,
        "naive": pa.timestamp("us"),
        "day": pa.date32(),
        "tags": pa.list_(pa.string()),
        "place": pa.struct([("city", pa.string()), ("points", pa.list_(pa.int64()))]),
        "counts": pa.map_(pa.string(), pa.int64()),
    }
)
TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": st.integers(-(2**31), 2**31 - 1),
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False),
    "name": st.text(),
    "raw": st.binary(),
    "price": st.decimals(-(10**8), 10**8, places=3),
    "at": TIMES.map(lambda time: time.replace(tzinfo=dt.UTC)),
    "naive": TIMES,
    "day": st.dates(),
    "tags": st.lists(st.none() | st.text(), max_size=3),
    "place": st.fixed_dictionaries({"city": st.none() | st.text(), "points": st.lists(st.integers(0, 9), max_size=2)}),
    "counts": st.dictionaries(st.text(), st.integers(0, 9), max_size=2).map(lambda each: list(each.items())),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=5)


@examples(150)
@given(ROWS)
def test_what_is_encoded_is_decoded(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    [(file, count)] = encode(iter([batch]), SCHEMA)
    assert count == len(rows)
    assert schema_of_file(file) == SCHEMA
    assert [row for decoded in decode(file, SCHEMA) for row in decoded.to_pylist()] == batch.to_pylist()
    others = list(fastavro.reader(io.BytesIO(file)))
    assert [row["name"] for row in others] == [row["name"] for row in rows]


def test_a_large_output_is_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avrofiles, "_FILE_BYTES", 1000)
    batches = [
        pa.record_batch({"n": list(range(at, at + 100)), "id": [uuid.uuid4().hex] * 100}) for at in range(0, 10000, 100)
    ]
    files = list(encode(iter(batches), batches[0].schema))
    assert len(files) > 3
    assert [rows for _, rows in files] == [
        sum(part.num_rows for part in decode(file, batches[0].schema)) for file, _ in files
    ]
    found = [n for file, _ in files for part in decode(file, batches[0].schema) for n in part.column("n").to_pylist()]
    assert found == list(range(10000))


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "visit", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def file_of(schema: dict[str, Any], *rows: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows)
    return file.getvalue()


def test_files_that_others_wrote() -> None:
    """Logical types, enums, fixed, named types used again; a column that a file does not have is null."""
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    schema = record(
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("mood", {"type": "enum", "name": "mood", "symbols": ["good", "bad"]}),
        ("hash", {"type": "fixed", "name": "hash", "size": 2}),
        ("price", {"type": "fixed", "name": "price", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}),
        ("from", ["null", point]),
        ("to", "point"),
    )
    number, noon = uuid.UUID(int=1), dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    row = {
        "id": number,
        "at": noon,
        "mood": "bad",
        "hash": b"ab",
        "price": Decimal("1.50"),
        "from": None,
        "to": {"x": 1},
    }
    file = file_of(schema, row)
    columns = schema_of_file(file)
    assert columns.field("price").type == pa.decimal128(6, 2)
    wider = columns.append(pa.field("other", pa.string()))
    [batch] = decode(file, wider)
    assert batch.to_pylist() == [{**row, "id": str(number), "other": None}]


@pytest.mark.parametrize(
    ("schema", "value", "match"),
    [
        (
            record(("n", ["null", "long", "string"])),
            {"n": 1},
            "'n' is a union of 2 types, which is no column; give a schema",
        ),
        ({"type": "long"}, 1, "it has no records, whose fields would be columns"),
    ],
)
def test_what_no_column_can_be(schema: Any, value: Any, match: str) -> None:
    with pytest.raises(AvroError, match=match):
        schema_of_file(file_of(schema, value))


def test_what_avro_has_no_name_or_type_for() -> None:
    with pytest.raises(AvroError, match=r"the column 'odd\.name' has no name that Avro allows.*rename it with Select"):
        schema_of_rows(pa.schema({"odd.name": pa.int64()}))
    with pytest.raises(AvroError, match=r"the column 'length' is duration.*cast it with Select"):
        schema_of_rows(pa.schema({"length": pa.duration("us")}))


def test_what_is_not_avro() -> None:
    whole = file_of(record(("n", "long")), *({"n": n} for n in range(1000)))
    for broken in (b"", b"no Avro at all", whole[: len(whole) // 2]):
        with pytest.raises(AvroError, match="it cannot be read as Avro"):
            list(decode(broken, pa.schema({"n": pa.int64()})))
    with pytest.raises(AvroError, match="the column 'n' is not string"):
        list(decode(whole, pa.schema({"n": pa.string()})))
