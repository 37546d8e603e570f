"""Tests tables of data lakes without Spark: commits, conflicts, and what they refuse, in both formats."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.edges.lakes import LakeConflict, LakeError, LakeTable, check_columns
from tests.edges.laking import FORMATS, Lake

COLUMNS = pa.schema({"name": pa.string(), "n": pa.int64()})


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path / "lake")


def file_of(table: LakeTable, *rows: tuple[str, int]) -> list[bytes]:
    """Writes rows to a file, as a worker does, which got the writer by pickle."""
    files = pickle.loads(pickle.dumps(table.files()))
    batch = pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS)
    return list(files.write(iter([batch, batch.slice(0, 0)])))


def read(table: LakeTable) -> Counter[Any]:
    files = pickle.loads(pickle.dumps(table.files()))
    batches = [batch for file in table.data_files() for batch in files.read(file, ["n", "name"])]
    return Counter((row["name"], row["n"]) for batch in batches for row in batch.to_pylist())


def test_files_are_part_of_the_table_once_they_are_committed(lake: Lake) -> None:
    table = lake.create(COLUMNS)
    first = file_of(table, ("a", 1), ("a", 1))
    file_of(table, ("orphan", 0))
    assert read(table) == Counter() and table.written("s/out") == -1
    table.commit("s/out", 4, first, [])
    assert read(table) == lake.rows() == lake.rows_in_duckdb() == Counter({("a", 1): 2})
    assert table.written("s/out") == lake.find().written("s/out") == 4
    assert table.written("s/other") == -1
    assert list(table.files().write(iter(()))) == []


def test_files_are_replaced_in_one_commit(lake: Lake) -> None:
    table = lake.create(COLUMNS)
    table.commit("s/out", 0, file_of(table, ("a", 1), ("b", 2)), [])
    table.commit("s/out", 1, file_of(table, ("c", 3)), [])
    (of_a,) = [file for file in table.data_files() if b"a" in b"".join(names(table, file))]
    table.commit("s/out", 2, file_of(table, ("a", 9)), [of_a])
    assert lake.rows() == lake.rows_in_duckdb() == Counter([("a", 9), ("c", 3)])
    assert [each.get("headrace.batch") or each["headrace"] for each in lake.commits()] == (
        ["0", "1", "2"] if lake.format == "iceberg" else [f"batch {n} of s/out" for n in range(3)]
    )


def names(table: LakeTable, file: bytes) -> list[bytes]:
    return [name.encode() for batch in table.files().read(file, ["name"]) for name in batch.column(0).to_pylist()]


def test_of_two_processes_that_commit_one_batch_the_second_is_told(lake: Lake) -> None:
    table = lake.create(COLUMNS)
    zombie, other = lake.find(), lake.find()
    table.commit("s/out", 0, file_of(table, ("a", 1)), [])
    with pytest.raises(LakeConflict):
        zombie.commit("s/out", 0, file_of(zombie, ("a", 1)), [])
    zombie.refresh()
    assert zombie.written("s/out") == 0 and lake.rows() == Counter([("a", 1)])
    try:
        other.commit("t/out", 0, file_of(other, ("b", 2)), [])
    except LakeConflict:  # Iceberg's, of any two commits
        other.refresh()
        other.commit("t/out", 0, file_of(other, ("b", 2)), [])
    assert lake.rows() == Counter([("a", 1), ("b", 2)])
    assert (lake.find().written("s/out"), lake.find().written("t/out")) == (0, 0)


def test_a_file_that_another_replaced_is_not_replaced_again(lake: Lake) -> None:
    table = lake.create(COLUMNS)
    table.commit("s/out", 0, file_of(table, ("a", 1)), [])
    late = lake.find()
    table.commit("s/out", 1, file_of(table, ("a", 2)), table.data_files())
    with pytest.raises(LakeConflict):
        late.commit("t/out", 0, file_of(late, ("a", 3)), late.data_files())
    assert lake.rows() == Counter([("a", 2)])


def test_progress_outlives_the_snapshots_it_was_made_with(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path / "lake")
    table = lake.create(COLUMNS)
    table.commit("s/out", 0, file_of(table, ("a", 1)), [])
    (snapshot,) = lake.library().snapshots()
    table.commit("t/out", 7, file_of(table, ("b", 1)), [])
    lake.library().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    assert lake.find().written("s/out") == 0 and len(lake.library().snapshots()) == 1


@pytest.mark.parametrize(
    ("table", "elements", "message"),
    [
        ({"a": pa.int64()}, {"a": pa.int64(), "b": pa.string()}, "the table has no column 'b', which elements have"),
        ({"a": pa.int64()}, {"a": pa.string()}, "the column 'a' of the table is int64, but elements have string"),
        ({"a": pa.decimal128(5, 2)}, {"a": pa.decimal128(5, 3)}, "is decimal128(5, 2), but elements have decimal128(5"),
        ({"a": pa.list_(pa.int32())}, {"a": pa.list_(pa.int64())}, "but elements have list<item: int64>"),
        ({"a": pa.timestamp("us", "UTC")}, {"a": pa.timestamp("us")}, "but elements have timestamp[us]"),
    ],
)
def test_columns_that_would_lose_something_are_refused(table: Any, elements: Any, message: str) -> None:
    with pytest.raises(LakeError) as raised:
        check_columns(pa.schema(table), pa.schema(elements), merges=False)
    assert message in str(raised.value)


def test_columns_that_elements_have_not_are_null_unless_rows_are_replaced() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.string())])
    check_columns(table, pa.schema({"a": pa.int16()}), merges=False)
    with pytest.raises(LakeError, match="the table has a column 'b', which elements have not"):
        check_columns(table, pa.schema({"a": pa.int64()}), merges=True)
    needed = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string(), nullable=False)])
    with pytest.raises(LakeError, match="'b' of the table needs a value"):
        check_columns(needed, pa.schema({"a": pa.int64()}), merges=False)


def test_tables_of_delta_that_need_more_than_rows_are_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable, Schema

    folder = tmp_path / "lake"
    DeltaTable.create(str(folder / "parts"), Schema.from_arrow(COLUMNS), partition_by=["name"])
    DeltaTable.create(str(folder / "rules"), Schema.from_arrow(COLUMNS)).alter.add_constraint({"few": "n < 5"})
    DeltaTable.create(
        str(folder / "feed"), Schema.from_arrow(COLUMNS), configuration={"delta.enableChangeDataFeed": "true"}
    )
    lake = Lake("delta", folder)
    with pytest.raises(LakeError, match="the table is partitioned by name"):
        lake.find("parts").check_writable(merges=False)
    with pytest.raises(LakeError, match=r"asks more of a writer than files of rows: .*delta\.constraints\.few"):
        lake.find("rules").check_writable(merges=False)
    lake.find("feed").check_writable(merges=False)
    with pytest.raises(LakeError, match="enableChangeDataFeed"):
        lake.find("feed").check_writable(merges=True)


def test_partitioned_tables_are_read_and_those_of_iceberg_are_written(tmp_path: Path) -> None:
    from deltalake import write_deltalake
    from pyiceberg.transforms import IdentityTransform

    rows = pa.table({"name": ["a b/c", None, "d"], "n": [1, 2, 3]}, schema=COLUMNS)
    delta, iceberg = Lake("delta", tmp_path / "delta"), Lake("iceberg", tmp_path / "iceberg")
    write_deltalake(str(delta.folder / "things"), rows, partition_by=["name"])
    assert read(delta.find()) == Counter([("a b/c", 1), (None, 2), ("d", 3)])
    iceberg.create(COLUMNS)
    with iceberg.library().update_spec() as spec:
        spec.add_field("name", IdentityTransform())
    table = iceberg.find()
    table.commit("s/out", 0, file_of(table, ("a b/c", 1), ("d", 3)), [])
    assert read(table) == iceberg.rows() == Counter([("a b/c", 1), ("d", 3)])
    assert len(table.data_files()) == 2


def test_a_file_whose_column_has_only_nulls_is_read(lake: Lake) -> None:
    """Statistics of Delta Lake make an expression of it, as values of partitions do."""
    table = lake.create(COLUMNS)
    rows = pa.record_batch({"name": pa.nulls(2, pa.string()), "n": pa.array([1, 1])})
    table.commit("s/out", 0, list(table.files().write(iter([rows]))), [])
    assert read(table) == Counter({(None, 1): 2})
