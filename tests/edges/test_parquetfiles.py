"""Parquet files as columns: row groups by shares, and what is refused. That the rest is as Spark reads it is tested in
tests/engine/stream/test_directfiles.py."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.parquetfiles import UnsureRead, is_plain, read_columns

N = pa.schema([("n", pa.int64())])


def write(path: Path, table: pa.Table, **options: object) -> str:
    pq.write_table(table, path, **options)
    return str(path)


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 12))
def test_every_row_group_is_in_one_share(
    tmp_path_factory: pytest.TempPathFactory, groups: list[int], shares: int
) -> None:
    path, rows = tmp_path_factory.mktemp("in") / "a.parquet", iter(range(100))
    with pq.ParquetWriter(path, N) as writer:
        for count in groups:
            writer.write_table(pa.table({"n": [next(rows) for _ in range(count)]}), count)
    read = [batch for share in range(shares) for batch in read_columns(str(path), N, share, shares)]
    assert [n for batch in read for n in batch["n"].to_pylist()] == list(range(sum(groups)))


def test_rows_are_counted_where_no_column_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a", pa.table({"n": [1, 2, 3]}))
    assert [batch.num_rows for batch in read_columns(path, pa.schema([]))] == [3]


@pytest.mark.parametrize(
    ("table", "wanted", "why"),
    [
        (pa.table({"n": [1], "N": [2]}), pa.int64(), "several columns 'n'"),
        (pa.table({"n": ["1"]}), pa.int64(), "'n' of the file is string, not int64"),
        (pa.table({"n": [1]}), pa.int32(), "int64, not int32"),
        (pa.table({"n": pa.array([1], pa.timestamp("ns", "UTC"))}), pa.timestamp("us", "UTC"), "ns"),
        (pa.table({"n": pa.array([1], pa.timestamp("us"))}), pa.timestamp("us", "UTC"), "not timestamp"),
        (pa.table({"n": pa.array([2**62], pa.timestamp("ms", "UTC"))}), pa.timestamp("us", "UTC"), "out of bounds"),
        (pa.table({"n": [[1]]}), pa.int64(), "list"),
    ],
)
def test_what_spark_might_read_otherwise_is_refused(
    tmp_path: Path, table: pa.Table, wanted: pa.DataType, why: str
) -> None:
    path = write(tmp_path / "a", table)
    with pytest.raises(UnsureRead, match=why):
        list(read_columns(path, pa.schema([("n", wanted)])))


def test_times_of_an_old_calendar_are_refused(tmp_path: Path) -> None:
    times = pa.table({"n": pa.array([1], pa.timestamp("us", "UTC")), "x": [5]})
    for name, notes in [
        ("legacy", {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}),
        ("old", {"org.apache.spark.version": "2.4.8"}),
    ]:
        path = write(tmp_path / name, times.replace_schema_metadata(notes))
        with pytest.raises(UnsureRead, match="old calendar"):
            list(read_columns(path, pa.schema([times.field("n")])))
        assert [batch.num_rows for batch in read_columns(path, pa.schema([times.field("x")]))] == [1]
    new = write(tmp_path / "new", times.replace_schema_metadata({"org.apache.spark.version": "4.0.0"}))
    assert [batch.num_rows for batch in read_columns(new, pa.schema([times.field("n")]))] == [1]


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PAR1 nonsense PAR1")
    for name in ("a", "missing"):
        with pytest.raises(UnsureRead, match=f"/{name}: "):
            list(read_columns(str(tmp_path / name), N))


def test_nested_and_unsigned_types_are_not_plain() -> None:
    assert not any(map(is_plain, [pa.uint8(), pa.struct([("a", pa.int64())]), pa.timestamp("us", "Asia/Tokyo")]))
