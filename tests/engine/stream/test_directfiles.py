"""Files that a stream's own program reads: columns, times and bad records as Spark's, and when Spark reads them.

`rows_by_spark` is the definition: the frame of the source, as a batch reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

import headrace as hr
from headrace.edges.parquetfiles import UnsureRead
from headrace.engine.batch import sources
from headrace.engine.connectors import fileranges
from headrace.engine.connectors.fromfiles import PATH, SHARE, SHARES, FileRecords
from headrace.engine.stream import directfiles
from headrace.engine.worker.hidden import BAD, BAD_TYPE, TIME
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.times import SECOND
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.one_of(
    st.integers(YEAR_1, YEAR_10000 - 1),
    st.sampled_from([YEAR_1, YEAR_1 - 1, YEAR_10000, -(2**63), 2**63 - 1]),
    st.integers(0, 10**15),
)
INSTANTS, LOCAL, MILLIS = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin")
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.one_of(st.integers(0, 10**10), LONGS),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.dictionary(pa.int8(), pa.string()): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.integers(-700_000, 2_900_000),
    pa.decimal128(12, 2): st.decimals("-9999999999.99", "9999999999.99", places=2),
    INSTANTS: TIMES,
    LOCAL: TIMES,
    MILLIS: st.one_of(st.integers(-(10**14), 10**14), LONGS),
    pa.timestamp("ns", "UTC"): LONGS,
    pa.list_(pa.int64()): st.lists(LONGS, max_size=2),
}
ASKED = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.decimal128(12, 2),
    INSTANTS,
    LOCAL,
]


@st.composite
def columns(draw: st.DrawFn, wanted: pa.Schema) -> pa.Table:
    """A file: each column of the type that is asked for, or nearly, or missing, or under a name in another case."""
    rows, found = draw(st.integers(0, 4)), {}
    for field in wanted:
        kind = draw(st.one_of(st.just(field.type), st.just(field.type), st.sampled_from(list(VALUES))))
        name = draw(st.sampled_from([field.name, field.name, field.name.upper(), None]))
        if name is not None:
            value = st.one_of(st.none(), VALUES[kind])
            values = draw(st.lists(value, min_size=rows, max_size=rows))
            found[name] = pa.array(values, kind)
    found["other"] = pa.array(range(rows))
    return pa.table(found)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[pa.Schema, str | None, list[tuple[pa.Table, bool]]]:
    """The columns that are asked for, which of them has the event time, and files, some with times of 96 bits."""
    kinds = draw(st.lists(st.sampled_from(ASKED), max_size=3))
    time = draw(st.sampled_from([None, pa.int64(), INSTANTS, LOCAL]))
    fields = [pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)]
    wanted = pa.schema([*fields, *([] if time is None else [pa.field("odd name.", time)])])
    if not len(wanted):
        wanted = pa.schema([("c0", pa.int64())])
    files = st.tuples(columns(wanted), st.booleans())
    return wanted, None if time is None else "odd name.", draw(st.lists(files, min_size=1, max_size=2))


def rows_by_spark(spark: SparkSession, source: hr.ReadParquet) -> list[str]:
    p = hr.Pipeline(spark=spark)
    _ = p | "read" >> source
    (node,) = p.graph()
    data = sources.elements(node, sources.as_files(spark, node, source))
    if BAD in data.columns:
        data = data.withColumn(BAD, F.col(BAD).cast(from_arrow_type(BAD_TYPE)))
    return shown(data.toArrow())


def shown(table: pa.Table) -> list[str]:
    """The rows in some order, with times as numbers and floats by their digits."""
    plain = [
        column.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    lists = [column.to_pylist() for column in plain]
    return sorted(repr(dict(zip(table.column_names, row, strict=True))) for row in zip(*lists, strict=True))


def is_ordinary(table: pa.Table, wanted: pa.Schema) -> bool:
    """Whether a program must be able to read a file: it has columns just as they are asked for, of usual times."""
    return all(
        field.name not in table.column_names
        or (table.schema.field(field.name).type == field.type and field.type not in (INSTANTS, LOCAL))
        for field in wanted
    ) and not any(field.name.upper() in table.column_names for field in wanted if field.name != field.name.upper())


@pytest.mark.slow("jobs of Spark, one for each example")
@given(inputs(), st.integers(1, 3))
@examples(150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_what_a_program_reads_spark_reads(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[pa.Schema, str | None, list[tuple[pa.Table, bool]]],
    shares: int,
) -> None:
    wanted, event_time, files = case
    folder = tmp_path_factory.mktemp("in") / "a b+%é"
    folder.mkdir()
    for number, (table, int96) in enumerate(files):
        groups = max(table.num_rows // 2, 1)
        path, nanos = folder / f"{number} x", any(pa.types.is_timestamp(field.type) for field in table.schema)
        try:
            pq.write_table(table, path, row_group_size=groups, use_deprecated_int96_timestamps=int96 and nanos)
        except pa.ArrowInvalid:  # times that are too far for 96 bits
            pq.write_table(table, path, row_group_size=groups)
    ranges = [
        {PATH: f"file:{path}", SHARE: n, SHARES: shares} for path in sorted(folder.iterdir()) for n in range(shares)
    ]
    records = FileRecords(wanted, None if event_time is None else wanted.field(event_time))
    try:
        read = [batch for _, batch in records.read_ranges(pa.RecordBatch.from_pylist(ranges))]
    except UnsureRead:
        assert not all(is_ordinary(table, wanted) for table, _ in files)
        return
    none = pa.schema([*wanted, (TIME, pa.int64()), *([] if event_time is None else [(BAD, BAD_TYPE)])]).empty_table()
    source = hr.ReadParquet(str(folder), schema=from_arrow_schema(wanted), event_time=event_time)
    assert shown(pa.Table.from_batches(read) if read else none) == rows_by_spark(spark, source)


def visits(path: Path, *rows: tuple[Any, int | None], user: pa.DataType = pa.string()) -> None:
    users, times = zip(*rows, strict=True)
    instants = pa.array([None if time is None else time * SECOND for time in times], INSTANTS)
    pq.write_table(pa.table({"user": pa.array(users, user), "ts": instants}), path, row_group_size=1)


EVERY_BATCH: Any = {"trigger": hr.AfterWatermark(early=hr.AfterCount(1)), "accumulation": "accumulating"}


class Counting:
    """Counts visits by user and minute, from a directory, in a stream with a checkpoint that is run several times."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.counts: dict[str, int] = {}  # the last of each user
        (folder / "in").mkdir()

    def start(self, **options: Any) -> Any:
        p = hr.Pipeline(spark=self.spark)
        rows = p | "visits" >> hr.ReadParquet(f"{self.folder}/in", schema="user string, ts timestamp", event_time="ts")
        counts = rows | hr.WindowInto(hr.FixedWindows(60), **EVERY_BATCH) | hr.GroupBy("user").aggregate(n=hr.count())
        counts | hr.ForEachBatch(lambda panes, batch: self.counts.update(pane.value for pane in panes))
        return p.run(stream=True, checkpoint=str(self.folder / "checkpoint"), **options)

    def run(self) -> Any:
        """Reads what is there, and stops."""
        handle = self.start(trigger=0)
        handle.query.processAllAvailable()
        handle.stop()
        return handle


@only_full("test_columnstream.py has a checkpoint that goes on the other way")
@pytest.mark.slow("a stream that is run five times")
def test_a_stream_may_change_its_way(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark, then directly, in shares, then by Spark again: for a file that only it reads, and one nobody does."""
    counting = Counting(spark, tmp_path)
    visits(tmp_path / "in" / "a", ("amy", 1), ("bob", 2), ("amy", 3))
    with monkeypatch.context() as settings:
        settings.setitem(directfiles._SETTINGS, "spark.sql.caseSensitive", "not as it is")
        assert not counting.run()._stream.direct_files
    expected = {"amy": 2, "bob": 1}
    assert counting.counts == expected

    visits(tmp_path / "in" / "b", ("amy", 4), ("cid", None), ("dan", 62))
    handle = counting.run()
    assert handle._stream.direct_files == {"visits"}
    expected |= {"amy": 3, "dan": 1}
    assert counting.counts == expected
    (last,) = handle.status().bad.values()
    where = f"{tmp_path}/in/b: the event time 'ts' is missing: '{{\"ts\":null}}'"
    assert str(last) == f"1 bad record (1 no event time), the last at {where}"
    assert handle.metrics()["visits"] == {"out": 2, "no event time": 1}

    monkeypatch.setattr(fileranges, "_SHARE", 300)
    visits(tmp_path / "in" / "c", *[(f"u{number}", 63 + number) for number in range(5)])
    assert counting.run()._stream.direct_files
    expected |= {f"u{number}": 1 for number in range(5)}
    assert counting.counts == expected

    visits(tmp_path / "in" / "d", (b"dan", 70), user=pa.binary())
    handle = counting.start()
    assert handle.wait().state == "done" and not handle._stream.direct_files
    assert counting.counts == expected | {"dan": 2}

    (tmp_path / "in" / "e").write_bytes(b"PAR1 no such thing PAR1")
    with pytest.raises(PySparkException, match=r"in/e"):
        counting.start().wait()


def test_a_status_has_the_records_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Also of files whose records Spark never sees; here from two paths, and without an event time."""
    pq.write_table(pa.table({"n": range(7)}), tmp_path / "a.parquet")
    p = hr.Pipeline(spark=spark)
    seen = p | hr.ReadParquet([str(tmp_path), f"{tmp_path}/*.parquet"]) | hr.Map(lambda row: row.n) | hr.Collect()
    handle: Any = p.run(stream=True, trigger=0)
    try:
        handle.query.processAllAvailable()
        assert handle._stream.direct_files == {"ReadParquet"}
        assert sorted(seen) == sorted([*range(7), *range(7)])
        assert handle.status().sources["ReadParquet"].rows == 14
    finally:
        handle.stop()


def test_which_failures_are_left_to_spark() -> None:
    assert directfiles.is_left_to_spark(RuntimeError("assertion failed: Invalid batch: a#1 != a#2,k#3"))
    assert not directfiles.is_left_to_spark(RuntimeError("boom"))
