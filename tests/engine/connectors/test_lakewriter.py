"""Tests pipelines that write tables of data lakes and read them, as batch and stream, in both formats."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from headrace.edges.deltatables import DeltaLakeTable
from headrace.edges.icebergtables import IcebergLakeTable
from headrace.engine.connectors import lakewriter
from headrace.model.errors import PipelineError
from tests.edges.laking import FORMATS, Lake
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC


class Hit(NamedTuple):
    url: str
    n: int


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=only_full("the writer knows no format: tests/edges"))])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path / "lake")


KINDS = pa.schema(
    {
        "text": pa.string(),
        "long": pa.int64(),
        "double": pa.float64(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "raw": pa.binary(),
        "price": pa.decimal128(12, 3),
        "tags": pa.list_(pa.string()),
        "place": pa.struct({"x": pa.int64(), "y": pa.string()}),
    }
)
VALUES = pa.table(
    {
        "text": ["ünï'", "", None],
        "long": [2**63 - 1, -(2**63), None],
        "double": [0.1, float("inf"), None],
        "flag": [True, False, None],
        "at": [dt.datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC), None],
        "day": [dt.date(2026, 1, 1), dt.date(9999, 12, 31), None],
        "raw": [b"\x00\xff", b"", None],
        "price": [pa.scalar("0.125").cast(pa.decimal128(12, 3)).as_py(), None, None],
        "tags": [["a", None], [], None],
        "place": [{"x": 1, "y": None}, {"x": None, "y": "z"}, None],
    },
    schema=KINDS,
)


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_writes_what_others_read_and_reads_what_it_wrote(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    lake = Lake(format, tmp_path / "lake")
    for _ in range(2):  # into a new table, and into one that is there
        with hr.Pipeline(spark=spark) as p:
            p | hr.Create(VALUES) | lake.sink()
    expected = Counter(map(repr, VALUES.to_pylist() * 2))
    assert Counter(map(repr, lake.table().select(KINDS.names).to_pylist())) == expected
    assert len(lake.in_duckdb()) == 6
    with hr.Pipeline(spark=spark) as p:
        rows = p | lake.source() | hr.Collect()
        few = p | "few" >> lake.source(schema="flag boolean, text string") | hr.Where("text = ''") | "c" >> hr.Collect()
    values = [tuple(row.values())[:8] for row in VALUES.to_pylist()]
    assert Counter(tuple(row)[:8] for row in rows) == Counter(values * 2)
    assert [tuple(row) for row in few] == [(False, "")] * 2


def test_a_table_is_read_as_it_was(spark: SparkSession, lake: Lake) -> None:
    for n in (1, 2):
        with hr.Pipeline(spark=spark) as p:
            p | hr.Create([Hit("a", n)]).with_output_types(Hit) | lake.sink()
    if lake.format == "delta":
        old = lake.source(version=lake.library().version() - 1)
    else:
        old = lake.source(snapshot=lake.library().snapshots()[0].snapshot_id)
    with hr.Pipeline(spark=spark) as p:
        rows = p | old | hr.Collect()
    assert [row.n for row in rows] == [1]
    with pytest.raises(PipelineError, match=r"ReadDelta|ReadIceberg"), hr.Pipeline(spark=spark) as p:
        p | lake.source(**({"version": 99} if lake.format == "delta" else {"snapshot": 99})) | hr.Collect()


def script() -> hr.TestStream:
    def wins(*results: tuple[str, int, int]) -> list[hr.TimestampedValue]:
        return [hr.TimestampedValue((team, points), time) for team, points, time in results]

    return (
        hr.TestStream()
        .add(wins(("red", 5, 1), ("blue", 2, 2)))
        .add(wins(("red", 3, 4), ("red", 1, 61)))
        .advance_watermark(60)
        .add(wins(("blue", 4, 9)))
        .finish()
    )


class Tables:
    """Runs a stream that retracts, into tables of all modes; it can be run again on the same checkpoint."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.lake = lake
        self.pipeline = p = hr.Pipeline(spark=spark)
        trigger = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
        sums = (
            p
            | script()
            | hr.WindowInto(hr.FixedWindows(60), trigger=trigger, accumulation="retracting", allowed_lateness=3600)
            | "sums" >> hr.CombinePerKey(sum).with_output_types(tuple[str, int])
        )
        names = ["team", "points"]
        sums | "log" >> lake.sink("log", columns=names)
        sums | "now" >> lake.sink("now", columns=names, key=["team", "window_start"], mode="upsert")
        hits = sums | "bag" >> hr.MapTuple(Hit).with_output_types(Hit)
        hits | "bag table" >> lake.sink("bag", mode="retract")

    def run(self) -> str:
        return self.pipeline.run(checkpoint=str(self.lake.folder / "checkpoint")).wait().state

    def check(self) -> None:
        assert {(team, start.minute): n for team, n, start, _ in self.lake.rows("now")} == {
            ("red", 0): 8,
            ("red", 1): 1,
            ("blue", 0): 6,
        }
        assert self.lake.rows("now").total() == 3
        assert (
            self.lake.rows("bag") == self.lake.rows_in_duckdb("bag") == Counter([("red", 8), ("red", 1), ("blue", 6)])
        )
        log = self.lake.rows("log")
        net: Counter[tuple[str, int]] = Counter()
        for (team, points, sign), times in log.items():
            net[team, points] += sign * times
        assert +net == self.lake.rows("bag")
        assert log["red", 5, -1] == log["red", 5, 1] == 1


@pytest.mark.slow("a stream with three tables is started again after each of its aborts")
def test_a_stream_that_is_aborted_between_any_two_writes_leaves_what_an_undisturbed_one_does(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []
    planned: set[str] = set()

    def reach(place: str, writer: str, batch: int) -> None:
        point = f"{place} {writer.partition('/')[2]} in batch {batch}"
        passed.append(point)
        if point in planned:
            planned.discard(point)
            raise RuntimeError(f"aborted at <{point}>")

    def aborting(kind: type[Any]) -> None:
        commit = kind.commit

        def committing(self: Any, writer: str, batch: int, added: Any, removed: Any) -> None:
            reach("files of", writer, batch)  # are written, and nothing is committed
            commit(self, writer, batch, added, removed)
            reach("commit of", writer, batch)

        monkeypatch.setattr(kind, "commit", committing)

    write = lakewriter.LakeWriter.write

    def writing(self: Any, rows: Any, batch: int, *others: Any) -> None:
        reach("begin of", self._writer, batch)
        write(self, rows, batch, *others)

    aborting(DeltaLakeTable)
    aborting(IcebergLakeTable)
    monkeypatch.setattr(lakewriter.LakeWriter, "write", writing)
    undisturbed = Tables(spark, Lake(lake.format, tmp_path / "undisturbed"))
    assert undisturbed.run() == "done"
    undisturbed.check()
    points = sorted({*passed})
    assert len(points) >= 24
    planned.update(points[:: 2 if FULL else 8])
    count, aborted = len(planned), 0
    tables = Tables(spark, lake)
    while planned:
        with pytest.raises(Exception, match="aborted at"):
            tables.run()
        aborted += 1
    assert tables.run() == "done"
    tables.check()
    assert aborted == count
    for name in ("log", "now", "bag"):
        assert lake.rows(name) == undisturbed.lake.rows(name)
        numbers = [batch_of(commit) for commit in lake.commits(name)]
        assert len(numbers) == len({*numbers}) == len(undisturbed.lake.commits(name))


def batch_of(commit: dict[str, Any]) -> int:
    (number,) = re.findall(r"batch (\d+)", commit["headrace"]) if "headrace" in commit else [commit["headrace.batch"]]
    return int(number)


def test_orphans_of_an_abort_are_files_that_no_reader_sees(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake("delta", tmp_path / "lake")
    monkeypatch.setattr(DeltaLakeTable, "commit", lambda *_: 1 / 0)
    with pytest.raises(Exception, match="division by zero"), hr.Pipeline(spark=spark) as p:
        p | hr.Create([Hit("a", 1)]).with_output_types(Hit) | lake.sink()
    assert len(list((lake.folder / "things").glob("part-*"))) == 1
    assert lake.rows() == Counter()
    lake.library().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert not list((lake.folder / "things").glob("part-*"))


def test_an_append_that_comes_second_is_committed_after_the_other(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(pa.schema({"url": pa.string(), "n": pa.int64()}))
    kind: Any = DeltaLakeTable if lake.format == "delta" else IcebergLakeTable
    commit, others = kind.commit, iter(["another", "the same"])

    def second(self: Any, writer: str, batch: int, added: Any, removed: Any) -> None:
        if (other := next(others, None)) is not None:
            table = lake.find()
            rows = pa.record_batch({"url": [other], "n": [0]})
            commit(table, "x/y" if other == "another" else writer, batch, list(table.files().write(iter([rows]))), [])
        commit(self, writer, batch, added, removed)

    monkeypatch.setattr(kind, "commit", second)
    for _ in range(2):
        p = hr.Pipeline(spark=spark)
        p | hr.Create([Hit("mine", 1)]).with_output_types(Hit) | lake.sink()
        p.run(stream=True).wait()
    # Delta Lake commits after another by itself; with Iceberg, the first run meets both, and does not write.
    assert Counter(url for url, _ in lake.rows().elements()) == Counter(["another", "the same", "mine"])


def test_an_upsert_that_comes_second_is_computed_anew(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.sink(key="url", mode="upsert")
    with hr.Pipeline(spark=spark) as p:
        p | hr.Create([Hit("a", 1), Hit("b", 1)]).with_output_types(Hit) | sink
    kind: Any = DeltaLakeTable if lake.format == "delta" else IcebergLakeTable
    commit, once = kind.commit, [True]

    def second(self: Any, writer: str, batch: int, added: Any, removed: Any) -> None:
        if once and once.pop():
            table = lake.find()
            rows = pa.record_batch({"url": ["a", "b"], "n": [7, 7]})
            commit(table, "x/y", 0, list(table.files().write(iter([rows]))), table.data_files())
        commit(self, writer, batch, added, removed)

    monkeypatch.setattr(kind, "commit", second)
    with hr.Pipeline(spark=spark) as p:
        p | hr.Create([Hit("a", 2)]).with_output_types(Hit) | sink
    assert lake.rows() == Counter([("a", 2), ("b", 7)])


@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_tables_that_do_not_fit_are_refused_before_anything_runs(spark: SparkSession, lake: Lake, stream: bool) -> None:
    lake.create(pa.schema({"url": pa.string(), "visits": pa.int64()}))
    p = hr.Pipeline(spark=spark)
    hits = p | hr.Create([Hit("a", 1)]).with_output_types(Hit)
    hits | "table" >> lake.sink()
    with pytest.raises(PipelineError, match=r"'table' .*: Write\w+\(.*\): the table has no column 'n'"):
        p.run(stream=stream).wait()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: hr.WriteDelta(""), "WriteDelta takes the path of a table's directory"),
        (lambda: hr.WriteDelta("s3a://b/t"), "is how Hadoop writes the address; write 's3://b/t'"),
        (lambda: hr.WriteDelta("t", mode="upsert"), "WriteDelta: mode='upsert' needs a key"),
        (lambda: hr.WriteDelta("t", storage_options={"a": 1}), "options of a store or catalog are texts by name"),
        (lambda: hr.WriteIceberg("sales", catalog="c"), "takes the name of a table with its namespace"),
        (lambda: hr.WriteIceberg("shop.sales", catalog={}), "catalog is the name of one in PyIceberg's configuration"),
        (lambda: hr.WriteIceberg("a.b", catalog="c", key="k"), "mode='append' adds every element, so it has no key"),
        (lambda: hr.ReadDelta("t", version=-1), "ReadDelta: version is a number, got -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(build: Any, message: str) -> None:
    with pytest.raises(PipelineError) as raised:
        build()
    assert message in str(raised.value)


def test_elements_without_columns_and_tables_that_are_not_there_are_refused(spark: SparkSession, lake: Lake) -> None:
    p = hr.Pipeline(spark=spark)
    p | hr.Create([object()]) | hr.Map(lambda x: x) | "table" >> lake.sink()
    with pytest.raises(PipelineError, match=r"'table' .*: it needs columns"):
        p.run()
    with pytest.raises(PipelineError, match="there is no such table"), hr.Pipeline(spark=spark) as p:
        p | lake.source("nowhere") | hr.Collect()


def test_a_stream_reads_a_table_when_it_first_starts(spark: SparkSession, lake: Lake) -> None:
    with hr.Pipeline(spark=spark) as p:
        p | hr.Create([Hit("a", 1), Hit("b", 60), Hit("c", 61)]).with_output_types(Hit) | lake.sink()
    p = hr.Pipeline(spark=spark)
    counts = p | lake.source(event_time="n") | hr.WindowInto(hr.FixedWindows(60)) | hr.GroupBy().aggregate(n=hr.count())
    counts | lake.sink("counts", key=["window_start"], mode="upsert")
    p.run(stream=True).wait()
    assert {start.minute: n for n, start, _ in lake.rows("counts")} == {0: 1, 1: 2}
