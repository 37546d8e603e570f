"""Sinks: directories that appear whole or not at all, replaced or refused as asked, with nothing left behind."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet
import pytest

import headrace as hr

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
    assert pyarrow.parquet.read_table(tmp_path / "grouped").column_names == ["user", "n"]
    assert everything(tmp_path) == ["grouped", "json", "lines", "parquet", "text", "values"]


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
