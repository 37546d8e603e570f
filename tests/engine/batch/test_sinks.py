"""Sinks: directories that appear whole or not at all, replaced or refused as asked, with nothing left behind."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet
import pytest

import headrace as hr
from headrace.engine.catalyst.panecolumns import with_added
from headrace.engine.worker.addedcolumns import AddedColumns
from headrace.engine.worker.hidden import END, START
from headrace.model.panes import NO_PANE, WINDOW_BOUNDS
from headrace.model.pipeline import Node
from headrace.model.times import MAX_TIME, MIN_TIME, format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(NamedTuple):
    user: str
    n: int | None


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def lines(folder: pathlib.Path) -> list[str]:
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().splitlines())


def everything(folder: pathlib.Path) -> list[str]:
    """All there is in a folder, hidden files too."""
    return sorted(file.name for file in folder.iterdir())


def test_what_the_writers_write(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    visits = p | hr.Create([hr.TimestampedValue(Visit("amy", 1), 5), hr.TimestampedValue(Visit("bob", None), 6)])
    visits | hr.WriteParquet(str(tmp_path / "parquet"))
    visits | hr.WriteJson(str(tmp_path / "json"))
    visits | hr.WriteText(str(tmp_path / "text"))
    p | hr.Create(["é", ""]) | hr.WriteText(str(tmp_path / "lines"))
    p | hr.Create([{"a": [1, None]}, [1], "x", None, 2.5]) | hr.WriteJson(str(tmp_path / "values"))
    windowed = visits | hr.WindowInto(hr.FixedWindows(10))
    windowed | hr.GroupBy("user").aggregate(n=hr.count()) | hr.WriteParquet(str(tmp_path / "grouped"))
    p.run().wait()
    rows = pyarrow.parquet.read_table(tmp_path / "parquet").to_pylist()
    assert sorted(rows, key=str) == [{"user": "amy", "n": 1}, {"user": "bob", "n": None}]
    assert sorted(map(str, map(json.loads, lines(tmp_path / "json")))) == ["{'user': 'amy', 'n': 1}", "{'user': 'bob'}"]
    assert lines(tmp_path / "text") == ["Visit(user='amy', n=1)", "Visit(user='bob', n=None)"]
    assert lines(tmp_path / "lines") == ["", "é"]
    assert lines(tmp_path / "values") == ['"x"', "2.5", "[1]", "null", '{"a": [1, null]}']
    names = ["user", "n", "window_start", "window_end", "pane", "timing"]
    assert pyarrow.parquet.read_table(tmp_path / "grouped").column_names == names
    assert everything(tmp_path) == ["grouped", "json", "lines", "parquet", "text", "values"]


WINDOW = {"window_start": "1970-01-01T00:00:00Z", "window_end": "1970-01-01T00:00:10Z"}
PANE = {"pane": 0, "timing": "on_time"}


def test_elements_are_written_with_their_windows(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    """Whoever makes the columns, Catalyst, Python or json.dumps, they are the same; own columns stay as they are."""
    visits = p | hr.Create([hr.TimestampedValue(Visit("amy", 1), 5), hr.TimestampedValue(Visit("amy", 2), 6)])
    windowed = visits | hr.WindowInto(hr.FixedWindows(10))
    counts = windowed | hr.GroupBy("user").aggregate(n=hr.count())
    sums = windowed | "pairs" >> hr.Map(tuple) | "sums" >> hr.Sum.per_key() | hr.MapTuple(Visit)
    in_count_windows = visits | hr.Map(tuple) | hr.WindowInto(hr.CountWindows(2)) | "two" >> hr.GroupByKey()
    objects = windowed | "objects" >> hr.Map(lambda visit: {"user": visit.user, "n": visit.n})
    in_global = visits | "all" >> hr.GroupBy("user").aggregate(n=hr.count())

    def write(pc: hr.PCollection, kind: Any, name: str, **options: Any) -> None:
        pc | f"write {name}" >> kind(str(tmp_path / name), **options)

    write(counts, hr.WriteJson, "columns")
    write(counts, hr.WriteParquet, "parquet")
    write(counts, hr.WriteText, "text")
    write(counts, hr.WriteJson, "bare", window=False)
    write(counts | hr.Select("n", "user AS TIMING", window_end="7"), hr.WriteJson, "own")
    write(sums, hr.WriteJson, "python columns")
    write(sums, hr.WriteParquet, "python parquet")
    write(sums | "lines" >> hr.Map(lambda visit: str(visit.n)), hr.WriteText, "lines")
    write(objects, hr.WriteJson, "objects")
    write(objects | "ns" >> hr.Map(lambda row: row["n"]), hr.WriteJson, "values")
    write(objects | "own window" >> hr.Map(lambda row: {"window_end": row["n"]}), hr.WriteJson, "own objects")
    write(in_count_windows, hr.WriteJson, "count windows")
    write(in_global, hr.WriteJson, "global")
    write(in_global, hr.WriteJson, "global panes", window=True)
    write((sums, windowed) | hr.Flatten(), hr.WriteJson, "both")
    p.run().wait()

    def rows(name: str) -> list[Any]:
        return [json.loads(line) for line in lines(tmp_path / name)]

    assert rows("columns") == [{"user": "amy", "n": 2, **WINDOW, **PANE}]
    assert rows("bare") == [{"user": "amy", "n": 2}]
    assert rows("own") == [
        {"n": 2, "TIMING": "amy", "window_end": 7, "window_start": WINDOW["window_start"], "pane": 0}
    ]
    assert rows("python columns") == [{"user": "amy", "n": 3, **WINDOW, **PANE}]
    start, end = (dt.datetime(1970, 1, 1, 0, 0, at) for at in (0, 10))  # Spark writes UTC, and does not say so
    for name, own in [("parquet", {"user": "amy", "n": 2}), ("python parquet", {"user": "amy", "n": 3})]:
        table = pyarrow.parquet.read_table(tmp_path / name)
        assert table.to_pylist() == [{**own, "window_start": start, "window_end": end, **PANE}]
    prefix = "\t".join(map(str, [*WINDOW.values(), *PANE.values()]))
    assert lines(tmp_path / "text") == [f"{prefix}\tRow(user='amy', n=2)"]
    assert lines(tmp_path / "lines") == [f"{prefix}\t3"]
    assert rows("objects") == [{"user": "amy", "n": n, **WINDOW} for n in (1, 2)]  # in no pane yet
    assert rows("values") == [{"value": n, **WINDOW} for n in (1, 2)]
    assert rows("own objects") == [{"window_end": n, "window_start": WINDOW["window_start"]} for n in (1, 2)]
    assert rows("count windows") == [{"value": ["amy", [1, 2]], "window_start": 0, "window_end": 2, **PANE}]
    assert rows("global") == [{"user": "amy", "n": 2}]
    assert rows("global panes") == [{"user": "amy", "n": 2, **PANE}]
    no_pane = {"pane": 0, "timing": "unknown"}
    assert rows("both") == [
        {"user": "amy", "n": 1, **WINDOW, **no_pane},
        {"user": "amy", "n": 2, **WINDOW, **no_pane},
        {"user": "amy", "n": 3, **WINDOW, **PANE},
    ]


def test_bounds_are_written_as_instants_are_everywhere(spark: SparkSession) -> None:
    """Catalyst writes what `format_instant` writes, in any time zone of the session."""
    times = [0, -1, 1_500_000, 1_767_268_800_123_456, MIN_TIME, MIN_TIME + 1, MAX_TIME, 253_402_300_800_000_007]
    data = spark.createDataFrame([(time, time) for time in times], f"{START} long, {END} long")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        added = AddedColumns(WINDOW_BOUNDS, "text")
        shown = with_added(Node("save", hr.WriteJson("out"), (), (), None), data, added, NO_PANE).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [(row.window_start, row.window_end) for row in shown] == [(format_instant(time),) * 2 for time in times]


def test_windows_are_written_or_not() -> None:
    with pytest.raises(hr.PipelineError, match="WriteJson: window must be True or False, got 'yes'"):
        hr.WriteJson("out", window="yes")  # type: ignore[arg-type]


def test_an_empty_collection_is_an_empty_directory(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    p | hr.Create([]) | hr.WriteText(str(tmp_path / "out"))
    p.run().wait()
    assert (tmp_path / "out").is_dir()
    assert lines(tmp_path / "out") == []


def test_an_existing_directory_is_refused_before_anything_runs(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").mkdir()
    p | hr.Create([1]) | hr.ForEach(lambda x: (tmp_path / "ran").touch())
    p | hr.Create(["a"]) | "save" >> hr.WriteText(str(tmp_path / "out"))
    with pytest.raises(hr.PipelineError, match=r"'save'.*out' exists already.*existing='replace'"):
        p.run().wait()
    assert everything(tmp_path) == ["out"]


def test_an_existing_file_is_refused_too(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "out").write_text("precious")
    p | hr.Create(["a"]) | hr.WriteText(str(tmp_path / "out"))
    with pytest.raises(hr.PipelineError, match="exists already"):
        p.run().wait()
    assert (tmp_path / "out").read_text() == "precious"


def test_replace_puts_the_new_output_in_place_of_the_old(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    for text in ("old", "new"):
        with hr.Pipeline(spark=spark) as p:
            p | hr.Create([text]) | hr.WriteText(str(tmp_path / "out"), existing="replace")
    assert lines(tmp_path / "out") == ["new"]
    assert everything(tmp_path) == ["out"]


def test_a_pipeline_may_replace_what_it_reads(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    with hr.Pipeline(spark=spark) as p:
        p | hr.Create(["a"]) | hr.WriteText(str(tmp_path / "out"))
    with hr.Pipeline(spark=spark) as p:
        again = p | hr.ReadText(str(tmp_path / "out")) | hr.Map(lambda line: line + "!")
        again | hr.WriteText(str(tmp_path / "out"), existing="replace")
    assert lines(tmp_path / "out") == ["a!"]


@pytest.mark.parametrize("existing", ["refuse", "replace"])
def test_a_failing_run_leaves_nothing_behind_and_keeps_the_old_output(
    spark: SparkSession, tmp_path: pathlib.Path, existing: Any
) -> None:
    if existing == "replace":
        with hr.Pipeline(spark=spark) as p:
            p | hr.Create(["old"]) | hr.WriteText(str(tmp_path / "out"))
    p = hr.Pipeline(spark=spark)
    p | hr.Create(range(10)) | hr.Map(lambda x: 1 / (x - 9)) | hr.WriteText(str(tmp_path / "out"), existing=existing)
    with pytest.raises(hr.TransformError, match="ZeroDivisionError"):
        p.run().wait()
    if existing == "replace":
        assert lines(tmp_path / "out") == ["old"]
    assert everything(tmp_path) == (["out"] if existing == "replace" else [])


def test_a_value_that_is_no_json(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    p | hr.Create([{"a": 1}, {"a": {1, 2}}]) | "save" >> hr.WriteJson(str(tmp_path / "out"))
    with pytest.raises(
        hr.TransformError, match=r"'save' failed on the element \{'a': \{1, 2\}\}: TypeError.*set is not JSON"
    ):
        p.run().wait()
    assert everything(tmp_path) == []


def test_a_line_stays_a_line(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    p | hr.Create([("a\nb", 1)]) | hr.Map(lambda pair: pair) | hr.WriteJson(str(tmp_path / "out"))
    p.run().wait()
    assert lines(tmp_path / "out") == ['["a\\nb", 1]']


def test_collecting_before_the_run_is_an_error(p: hr.Pipeline) -> None:
    found = p | hr.Create([1]) | "look" >> hr.Collect()
    with pytest.raises(RuntimeError, match="'look' has no elements yet"):
        list(found)
    assert repr(found) == "<look: not run yet>"


def test_collect_is_a_sequence(p: hr.Pipeline) -> None:
    gather = hr.Collect()
    first, second = p | hr.Create([1, 2, 3]) | gather, p | "other" >> hr.Create([]) | gather
    p.run().wait()
    assert sorted(first) == [1, 2, 3]
    assert len(first) == 3
    assert first[0] in first
    assert first[1:] == list(first)[1:]
    assert len(second) == 0


def test_foreach_is_called_for_each_element(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    p | hr.Create(["a", "b"]) | hr.ForEach(lambda name: (tmp_path / name).touch())
    p.run().wait()
    assert everything(tmp_path) == ["a", "b"]
