"""Sources: files of lines and rows, their event times, and errors that name the path or the column."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest

import headrace as hr
from headrace.model.times import MIN_TIME, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(NamedTuple):
    user: str
    n: int


@dataclass
class Sale:
    user: str
    n: int


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "a.txt").write_text("to be\n\nor not\n")
    (tmp_path / "b.txt").write_text("é without end")
    rows = [{"user": "amy", "n": 1}, {"user": "bob", "n": 2}]
    (tmp_path / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rows.csv").write_text('user,n\namy,1\n"bob",2\n')
    (tmp_path / "bare.csv").write_text("amy,1\nbob,2\n")
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    return tmp_path


def test_lines(p: hr.Pipeline, folder: pathlib.Path) -> None:
    one = p | hr.ReadText(f"{folder}/a.txt") | hr.Collect()
    globbed = p | hr.ReadText(f"{folder}/*.txt") | hr.Collect()
    listed = p | hr.ReadText([f"{folder}/a.txt", f"{folder}/b.txt"]) | hr.Map(str.upper) | hr.Collect()
    p.run().wait()
    assert list(one) == ["to be", "", "or not"]
    assert sorted(globbed) == ["", "or not", "to be", "é without end"]
    assert sorted(listed) == ["", "OR NOT", "TO BE", "É WITHOUT END"]
    assert {e.timestamp for e in one.windowed} == {MIN_TIME}


@pytest.mark.parametrize("stream", [False, True])
def test_lines_and_whole_files_with_their_names(p: hr.Pipeline, tmp_path: pathlib.Path, stream: bool) -> None:
    """Names are those that one opens files by, whatever they contain; a stream reads what a batch reads."""
    odd = tmp_path / "in" / "day=1" / "a b+c%20é.txt"
    odd.parent.mkdir(parents=True)
    odd.write_text("to be\n\nor not")
    (tmp_path / "no text").write_bytes(b"\xff\x00")
    paths = [str(odd), f"{tmp_path}/no text"]
    lines = p | hr.ReadText(f"{tmp_path}/in", with_filename=True)
    all_lines = lines | hr.Collect()
    selected = lines | hr.Where("line LIKE '%not'") | hr.Select("filename") | hr.Collect()
    by_file = lines | hr.GroupByKey() | hr.MapTuple(lambda file, lines: (file, sorted(lines))) | hr.Collect()
    files = p | hr.ReadFiles(paths) | hr.Collect()
    texts = p | "texts" >> hr.ReadFiles(paths, text=True).with_exception_handling()
    good, dead = texts.main | hr.Collect(), texts.dead_letters | "dead" >> hr.Collect()
    p.run(stream=stream).wait()
    assert sorted(all_lines) == [(str(odd), ""), (str(odd), "or not"), (str(odd), "to be")]
    assert {(row.filename, row.line) for row in all_lines} == set(all_lines)
    assert [row.filename for row in selected] == [str(odd)]
    assert list(by_file) == [(str(odd), ["", "or not", "to be"])]
    assert sorted(files) == [(paths[0], odd.read_bytes()), (paths[1], b"\xff\x00")]
    assert [(file.filename, file.content) for file in good] == [(paths[0], odd.read_text())]
    assert [(letter.error, letter.position) for letter in dead] == [("malformed", paths[1])]
    assert dead[0].message == "it is not UTF-8 text"


def test_rows(p: hr.Pipeline, folder: pathlib.Path) -> None:
    found = {
        "inferred json": p | hr.ReadJson(f"{folder}/rows.json"),
        "inferred csv": p | hr.ReadCsv(f"{folder}/rows.csv"),
        "parquet": p | hr.ReadParquet(f"{folder}/rows.parquet"),
        "ddl": p | hr.ReadCsv(f"{folder}/bare.csv", schema="user string, n long", header=False),
        "named": p | hr.ReadJson(f"{folder}/rows.json", schema=Visit),
        "dataclass": p | hr.ReadCsv(f"{folder}/rows.csv", schema=Sale),
    }
    collected = {name: pc | hr.Collect() for name, pc in found.items()}
    p.run().wait()
    for name, rows in collected.items():
        assert sorted((row.user, row.n) for row in rows) == [("amy", 1), ("bob", 2)], name
    assert {type(row) for row in collected["named"]} == {Visit}
    assert {type(row) for row in collected["dataclass"]} == {Sale}


def test_rows_go_on_into_python_and_columns(p: hr.Pipeline, folder: pathlib.Path) -> None:
    rows = p | hr.ReadJson(f"{folder}/rows.json")
    pairs = rows | hr.Map(lambda row: (row.user, row.n)) | hr.CombinePerKey(sum) | hr.Collect()
    kept = rows | hr.Filter(lambda row: row.n > 1) | hr.Select("user") | hr.Collect()
    p.run().wait()
    assert sorted(pairs) == [("amy", 1), ("bob", 2)]
    assert [row.user for row in kept] == ["bob"]


@pytest.mark.parametrize("reader", [hr.ReadText, hr.ReadJson, hr.ReadCsv, hr.ReadParquet])
def test_a_missing_path_is_named(p: hr.Pipeline, tmp_path: pathlib.Path, reader: Any) -> None:
    p | "load" >> reader(f"{tmp_path}/nowhere/*.x") | hr.Collect()
    with pytest.raises(hr.PipelineError, match=rf"'load'.*no file at '{tmp_path}/nowhere/\*.x'"):
        p.run().wait()


def test_only_the_missing_one_of_several_paths_is_named(p: hr.Pipeline, folder: pathlib.Path) -> None:
    p | hr.ReadText([f"{folder}/a.txt", f"{folder}/gone.txt"]) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=rf"no file at '{folder}/gone.txt'"):
        p.run().wait()


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
AT_NOON = int(NOON.timestamp()) * SECOND


@pytest.mark.parametrize(
    ("kind", "value", "time"),
    [
        (pa.timestamp("us", tz="UTC"), NOON, AT_NOON),
        (pa.timestamp("us"), NOON.replace(tzinfo=None), AT_NOON),
        (pa.string(), "2026-01-01T12:00:00Z", AT_NOON),
        (pa.string(), "2026-01-01T14:00:00+02:00", AT_NOON),
        (pa.string(), "2026-01-01T12:00:00", AT_NOON),
        (pa.string(), "2026-01-01", AT_NOON - 12 * 3600 * SECOND),
        (pa.int64(), 12, 12 * SECOND),
        (pa.float64(), 1.5, 1_500_000),
        (pa.float64(), -0.25, -250_000),
    ],
    ids=str,
)
def test_event_times(p: hr.Pipeline, tmp_path: pathlib.Path, kind: pa.DataType, value: Any, time: int) -> None:
    pyarrow.parquet.write_table(pa.table({"at": pa.array([value], kind)}), tmp_path / "x.parquet")
    found = p | hr.ReadParquet(str(tmp_path), event_time="at") | hr.Collect()
    p.run().wait()
    assert [e.timestamp for e in found.windowed] == [time]


def test_event_times_place_rows_in_windows(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.json").write_text('{"at": 5, "n": 1}\n{"at": 15, "n": 2}\n{"at": 16, "n": 3}\n')
    rows = p | hr.ReadJson(str(tmp_path), event_time="at") | hr.WindowInto(hr.FixedWindows(10))
    sums = rows | hr.GroupBy().aggregate(total=hr.sum("n")) | hr.Collect()
    p.run().wait()
    assert sorted((e.window.start // SECOND, e.value.total) for e in sums.windowed) == [(0, 1), (10, 5)]


def test_an_event_time_that_is_no_column(p: hr.Pipeline, folder: pathlib.Path) -> None:
    p | "load" >> hr.ReadJson(f"{folder}/rows.json", event_time="at") | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'load'.*event_time='at' is no column; there are n, user"):
        p.run().wait()


def test_an_event_time_that_is_no_time(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.json").write_text('{"at": true}\n')
    p | hr.ReadJson(str(tmp_path), event_time="at") | hr.Collect()
    with pytest.raises(
        hr.PipelineError, match=r"event_time='at' is a boolean; it must be a timestamp, text or seconds"
    ):
        p.run().wait()


def test_create_keeps_what_it_was_given(p: hr.Pipeline) -> None:
    many = p | hr.Create(range(2500)) | hr.Collect()
    objects = p | hr.Create([None, 1, "x", [2], {"a": 1}]) | hr.Collect()
    items = p | hr.Create({"a": 1, "b": 2}) | hr.Collect()
    surrogate = p | hr.Create(["\ud800"]) | hr.Collect()
    moments = p | hr.Create([dt.datetime(2026, 1, 1), NOON]) | hr.Collect()
    p.run().wait()
    assert sorted(many) == list(range(2500))
    assert list(objects) == [None, 1, "x", [2], {"a": 1}]
    assert sorted(items) == [("a", 1), ("b", 2)]
    assert list(surrogate) == ["\ud800"]
    assert list(moments) == [dt.datetime(2026, 1, 1), NOON]


def test_a_relative_path_is_relative_to_where_the_process_is(
    spark: SparkSession, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Spark itself stays where it began
    pathlib.Path("in.txt").write_text("a\n")
    with hr.Pipeline(spark=spark) as p:
        p | hr.ReadText("in.txt") | hr.WriteText("out")
    assert [part.read_text() for part in (tmp_path / "out").glob("part-*")] == ["a\n"]
