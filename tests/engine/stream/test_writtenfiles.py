"""Parquet files that a stream's own programs write: what is in them is what Spark's writer puts there.

`written_by_spark` is the definition: a frame of the same columns, saved by Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

import headrace as hr
from headrace.engine.plan.line import Outlet
from headrace.engine.shard.wire import pack
from headrace.engine.spark.files import Folder
from headrace.engine.stream import writtenfiles
from headrace.engine.worker.blame import WorkerFailure, transform_error
from headrace.engine.worker.bundles import Bundle, ToColumns
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.toparquet import ToParquet, parts_of
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.errors import TransformError
from headrace.model.schema import rows_schema, schema_of
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.integers(-700_000, 2_900_000),
    pa.decimal128(5, 2): st.decimals("-999.99", "999.99", places=2),
    pa.decimal128(18, 2): st.decimals("-9999999999.99", "9999999999.99", places=2),
    pa.decimal128(30, 2): st.decimals("-9999999999.99", "9999999999.99", places=2),
    pa.timestamp("us", "UTC"): st.integers(YEAR_1, YEAR_10000 - 1),
    pa.timestamp("us"): st.integers(YEAR_1, YEAR_10000 - 1),
}
NAMES = ["n", "N_", "a b", "x.y", "é", "value", "__x"]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Some columns, with nulls, and lists of the same types."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    rows, columns = draw(st.integers(1, 4)), {}
    for name in names:
        kind = draw(st.sampled_from(list(VALUES)))
        value, listed = st.one_of(st.none(), VALUES[kind]), draw(st.booleans())
        values = st.one_of(st.none(), st.lists(value, max_size=2)) if listed else value
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, pa.list_(kind) if listed else kind)
    return pa.table(columns)


def written_by_spark(spark: SparkSession, table: pa.Table, folder: Path) -> Path:
    rows = pa.ipc.new_stream(sink := pa.BufferOutputStream(), table.schema)
    rows.write_table(table)
    rows.close()
    body = sink.getvalue().to_pybytes()

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from pa.ipc.open_stream(body)

    spark.range(0, 1, 1, 1).mapInArrow(unpacked, from_arrow_schema(table.schema)).write.parquet(str(folder))
    (part,) = folder.glob("part-*")
    return part


def written_by_a_program(spark: SparkSession, table: pa.Table, folder: Path, *, int96: bool) -> Path:
    columns = ToColumns("save", rows_schema(table.schema), windowed=False)
    output = writtenfiles.output_of(columns, folder, spark.version, int96=int96)
    for batch in table.to_batches(max_chunksize=2):
        timed = batch.append_column(TIME, pa.nulls(batch.num_rows, pa.int64()))
        assert list(output.add_columns(ColumnBundle(timed, None))) == []
    ((part, rows),) = [part for batch in output.finish() for part in parts_of(batch)]
    assert rows == table.num_rows and part.bytes == (folder / part.name).stat().st_size
    return folder / part.name


def leaves(file: pq.ParquetFile) -> list[str]:
    """The columns of a file, down to their types on disk."""
    described = [file.schema.column(number) for number in range(len(file.schema.names))]
    return [
        f"{each.path} {each.physical_type} {each.logical_type} {each.length} {each.precision} {each.scale} "
        f"{each.max_definition_level} {each.max_repetition_level}"
        for each in described
    ]


def notes(file: pq.ParquetFile) -> dict[bytes, Any]:
    """The key-value metadata of a file, of which some is JSON, with members in any order."""
    return {
        key: json.loads(value) if value.startswith(b"{") else value for key, value in file.metadata.metadata.items()
    }


@only_full("streams give the same files either way")
@pytest.mark.slow("jobs of Spark, three for each example")
@given(tables(), st.booleans())
@examples(100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_programs_write_what_spark_writes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, table: pa.Table, int96: bool
) -> None:
    """The same columns, types and notes on disk, and the same values for whoever reads them, Spark or Arrow."""
    int96 = int96 and not any(map(writtenfiles.has_local_times, table.schema.types))
    folder, before = tmp_path_factory.mktemp("out"), spark.conf.get(writtenfiles._TIMES)
    spark.conf.set(writtenfiles._TIMES, "INT96" if int96 else "TIMESTAMP_MICROS")
    try:
        theirs = written_by_spark(spark, table, folder / "spark")
    finally:
        spark.conf.set(writtenfiles._TIMES, before)
    ours = written_by_a_program(spark, table, folder / "program", int96=int96)
    files = [pq.ParquetFile(path) for path in (ours, theirs)]
    assert leaves(files[0]) == leaves(files[1])
    assert notes(files[0]) == notes(files[1])
    assert repr(files[0].read().to_pydict()) == repr(files[1].read().to_pydict())
    frames = [spark.read.parquet(str(path)) for path in (ours, theirs)]
    assert frames[0].schema == frames[1].schema
    assert repr(frames[0].toArrow().to_pydict()) == repr(frames[1].toArrow().to_pydict())


class Doubled(NamedTuple):
    user: str
    n: int


def doubled(row: Any) -> Doubled:
    return Doubled(row.user, 2 * row.n)


def _stream(spark: SparkSession, folder: Path, name: str) -> Any:
    """Writes what a function makes as Parquet, and some of it also as Parquet and text; a file is a batch."""
    p = hr.Pipeline(spark=spark)
    rows = p | hr.ReadParquet(f"{folder}/in", schema="user string, n long") | hr.Map(doubled)
    rows | "all" >> hr.WriteParquet(f"{folder}/{name}/all")
    if name != "alone":
        few = rows | hr.Filter(lambda row: row.n % 4 == 0)
        few | "few" >> hr.WriteParquet(f"{folder}/{name}/few")
        few | "text" >> hr.WriteText(f"{folder}/{name}/text")
    return p.run(stream=True, checkpoint=f"{folder}/checkpoint {name}", max_files_per_batch=1)


def _batches(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each batch, whose files are those of its manifest; nothing else is in the directory."""
    assert hr.read_manifest(str(folder)).verify() == []
    assert {path.name[:6] for path in folder.iterdir()} == {"batch-"}
    found = {}
    for batch in folder.iterdir():
        parts = sorted(batch.glob("part-*.snappy.parquet"))
        assert (batch / "_SUCCESS").exists()
        found[batch.name] = [row for part in parts for row in pq.read_table(part).to_pylist()]
    return found


@pytest.mark.slow("three streams")
def test_streams_give_the_same_files_either_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number, values in enumerate([[0, 1, 2], [3], [4, 5]]):
        pq.write_table(pa.table({"user": ["amy"] * len(values), "n": values}), tmp_path / "in" / f"{number}.parquet")
    for name in ("alone", "by programs"):
        handle = _stream(spark, tmp_path, name)
        handle.wait()
        outputs = {outlet.node.label: type(outlet.output) for outlet in handle._stream.line.outlets}
        assert outputs["all"] is ToParquet
    monkeypatch.setitem(writtenfiles._SETTINGS, "spark.sql.files.maxRecordsPerFile", "not as it is")
    handle = _stream(spark, tmp_path, "by spark")
    handle.wait()
    assert not any(isinstance(outlet.output, ToParquet) for outlet in handle._stream.line.outlets)
    expected = _batches(tmp_path / "by spark" / "all")
    assert sorted(row["n"] for batch in expected.values() for row in batch) == [0, 2, 4, 6, 8, 10]
    assert _batches(tmp_path / "alone" / "all") == _batches(tmp_path / "by programs" / "all") == expected
    few = _batches(tmp_path / "by programs" / "few")
    assert few == _batches(tmp_path / "by spark" / "few") and len(few) == 2  # the second file has none of these


def test_a_batch_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """After a crash between two commits a batch is written again; nothing of that is left."""
    output = _output(tmp_path)
    writtenfiles.place(output, [_body(output, 1), _body(output, 2)], "stream", 7)
    (batch,) = tmp_path.iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in batch.iterdir()}
    assert hr.read_manifest(str(tmp_path)).rows == 2
    writtenfiles.place(output, [_body(output, 1)], "stream", 7)
    assert list(tmp_path.iterdir()) == [batch]
    assert {path.name: path.stat().st_mtime_ns for path in batch.iterdir()} == before


def test_files_that_nobody_named_are_no_output(tmp_path: Path) -> None:
    """Those of tasks that failed or came second, in this run and in one that was killed."""
    output = _output(tmp_path)
    body, _ = _body(output, 1), _body(output, 2)
    (tmp_path / ".parts-killed").mkdir()
    (tmp_path / ".parts-killed" / "half").touch()
    (tmp_path / ".batch-000007.new").mkdir()
    (tmp_path / ".batch-000007.new" / "part-half").touch()
    writtenfiles.place(output, [body], "stream", 7)
    writtenfiles.remove_stale(output)
    assert [path.name for path in tmp_path.iterdir()] == ["batch-000007"]
    (part,) = hr.read_manifest(str(tmp_path)).files
    assert pq.read_table(part).to_pydict() == {"value": [1]}


def _output(folder: Path) -> ToParquet:
    columns = ToColumns("save", schema_of(int), windowed=False)
    return writtenfiles.output_of(columns, folder / ".parts-run", "4", int96=False)


def _body(planned: ToParquet, value: int) -> bytes:
    output = replace(planned)
    list(output.add(Bundle([value])))
    (batch,) = output.finish()
    return pack({}, batch)


def test_which_sinks_are_left_to_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def output(sink: Any, **columns: pa.DataType) -> Any:
        schema = rows_schema(pa.schema(list(columns.items())))
        outlet = Outlet(0, SimpleNamespace(transform=sink), ToColumns("save", schema, windowed=False))
        return writtenfiles._to_parquet(spark, outlet, "run")

    out = str(tmp_path / "out")
    assert output(hr.WriteParquet(out), n=pa.int64()).staging == f"{out}/.parts-run"
    assert output(hr.WriteParquet(out), n=pa.struct([("x", pa.int64())])) is None
    assert output(hr.WriteParquet(out), n=pa.int64(), N=pa.int64()) is None
    assert output(hr.WriteJson(out), n=pa.int64()) is None
    local = pa.timestamp("us")
    for kind, by_program in [("INT96", False), ("TIMESTAMP_MICROS", True), ("TIMESTAMP_MILLIS", False)]:
        spark.conf.set(writtenfiles._TIMES, kind)
        assert (output(hr.WriteParquet(out), times=pa.list_(local)) is not None) == by_program
    spark.conf.unset(writtenfiles._TIMES)
    monkeypatch.setattr(Folder, "local", None)
    assert output(hr.WriteParquet(out), n=pa.int64()) is None


def test_a_disk_that_fails_is_the_sinks_fault(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    output = writtenfiles.output_of(
        ToColumns("save", schema_of(int), windowed=False), tmp_path / "out" / "staging", "4", int96=False
    )
    output.add(Bundle([1]))
    with pytest.raises(WorkerFailure) as failure:
        list(output.finish())
    told = transform_error(failure.value)
    assert isinstance(told, TransformError) and "'save' failed: NotADirectoryError" in str(told)
