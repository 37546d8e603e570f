"""Streams from files to files, and what a stream refuses."""

from __future__ import annotations

import json
import pathlib
import threading
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest

import headrace as hr
from headrace.engine.plan.lowering import lower
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VISITS = [{"user": "amy", "n": 1, "ts": 3}, {"user": "bob", "n": 2, "ts": 65}, {"user": "amy", "n": 4, "ts": 70}]


class Visit(NamedTuple):
    user: str
    n: int


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> dict[str, str]:
    for name in ("text", "json", "csv", "parquet"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "a.txt").write_text("to be\nor not to be\n")
    (tmp_path / "json" / "a.json").write_text("\n".join(map(json.dumps, VISITS)))
    lines = ["user,n,ts", *(f"{v['user']},{v['n']},{v['ts']}" for v in VISITS)]
    (tmp_path / "csv" / "a.csv").write_text("\n".join(lines))
    pyarrow.parquet.write_table(pa.Table.from_pylist(VISITS), tmp_path / "parquet" / "a.parquet")
    return {path.name: str(path) for path in tmp_path.iterdir()}


@pytest.mark.slow("several streams")
def test_files_are_streamed_to_their_end(p: hr.Pipeline, folders: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The same answers as in a batch, from every format, and into every format."""
    minute = hr.WindowInto(hr.FixedWindows("1 minute"))
    answers = {}
    for name, source in [
        ("json", hr.ReadJson(folders["json"], event_time="ts")),
        ("csv", hr.ReadCsv(folders["csv"], event_time="ts")),
        ("parquet", hr.ReadParquet(folders["parquet"], event_time="ts")),
    ]:
        rows = p | name >> source | f"w {name}" >> minute
        sums = rows | f"sum {name}" >> hr.GroupBy("user").aggregate(total=hr.sum("n"))
        answers[name] = sums | f"collect {name}" >> hr.Collect()
        if name == "json":
            sums | hr.WriteParquet(str(tmp_path / "out parquet"))
            sums | hr.WriteJson(str(tmp_path / "out json"))
            rows | "rows" >> hr.Filter(lambda row: row.user == "bob") | hr.WriteJson(str(tmp_path / "bob"))
    words = p | hr.ReadText(folders["text"]) | hr.FlatMap(str.split) | hr.Count.per_element()
    words | hr.WriteText(str(tmp_path / "words"))
    how_many = words | "how many" >> hr.Count.globally() | hr.Collect()
    handle = p.run(stream=True)
    assert handle.wait().state == "done"
    for name, sums in answers.items():
        shown = sorted((each.window.start // SECOND, tuple(each.value)) for each in sums.windowed)
        assert shown == [(0, ("amy", 1)), (60, ("amy", 4)), (60, ("bob", 2))], name
    back = pyarrow.parquet.read_table(sorted((tmp_path / "out parquet").glob("batch-*/part-*"))).to_pylist()
    assert sorted((row["user"], row["total"]) for row in back) == [("amy", 1), ("amy", 4), ("bob", 2)]
    text = [json.loads(line) for part in (tmp_path / "out json").glob("*/part-*") for line in part.open()]
    assert sorted((row["user"], row["total"]) for row in text) == [("amy", 1), ("amy", 4), ("bob", 2)]
    bob = [json.loads(line) for part in (tmp_path / "bob").glob("*/part-*") for line in part.open()]
    assert [(row["user"], row["n"]) for row in bob] == [("bob", 2)]
    counts = [line.strip() for part in (tmp_path / "words").glob("*/part-*") for line in part.open()]
    assert sorted(counts) == ["('be', 2)", "('not', 1)", "('or', 1)", "('to', 2)"]
    assert list(how_many) == [4]


@pytest.mark.slow("a stream into eight directories")
def test_panes_and_retractions_in_files(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    """Files of every kind have the multiset that Collect has: values, windows, panes, and what is taken back."""
    at = hr.TimestampedValue
    script = (
        hr.TestStream()
        .add([at(("amy", 1), 1), at(("bob", 2), 12)])
        .add([at(("amy", 4), 3)])
        .advance_watermark(30)
        .add([at(("amy", 8), 4)])
        .finish()
    )
    windowing = {
        "trigger": hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
        "allowed_lateness": "1 hour",
        "accumulation": "retracting",
    }
    events = p | script
    rows = events | hr.MapTuple(Visit)
    sums = {
        "columns": rows | hr.WindowInto(hr.FixedWindows(10), **windowing) | hr.GroupBy("user").aggregate(n=hr.sum("n")),
        "pairs": events | "sessions" >> hr.WindowInto(hr.Sessions(10), **windowing) | hr.CombinePerKey(sum),
        "all": events | "one" >> hr.WindowInto(hr.GlobalWindows(), **windowing) | "sum" >> hr.CombinePerKey(sum),
    }
    collected = {}
    for name, pc in sums.items():
        collected[name] = pc | f"collect {name}" >> hr.Collect()
        pc | f"json {name}" >> hr.WriteJson(str(tmp_path / "json" / name))
        pc | f"text {name}" >> hr.WriteText(str(tmp_path / "text" / name))
        if name != "pairs":  # which are of no declared type
            typed = pc | hr.Select("user", "n") if name == "columns" else pc | hr.MapTuple(Visit)
            typed | f"parquet {name}" >> hr.WriteParquet(str(tmp_path / "parquet" / name))
    p.run().wait()

    def files(kind: str, name: str) -> list[pathlib.Path]:
        return list((tmp_path / kind / name).glob("batch-*/part-*"))

    for name, found in collected.items():
        expected: Counter[tuple[Any, ...]] = Counter()
        for each in found.windowed:
            place = (str(hr.Instant(each.window.start)), str(hr.Instant(each.window.end)))
            pane = (each.pane.index, each.pane.timing) if name != "all" else ()
            op = "retract" if each.retraction else "insert"
            expected[*tuple(each.value), *(place if name != "all" else ()), *pane, op] += 1
        assert {row[-1] for row in expected} == {"insert", "retract"} and len(expected) > 4
        texts = [line for part in files("text", name) for line in part.read_text().splitlines()]
        assert len(texts) == expected.total() and {len(line.split("\t")) for line in texts} == {
            2 if name == "all" else 6
        }
        objects = [json.loads(line) for part in files("json", name) for line in part.open()]
        pairs = [[*row.pop("value", ()), *row.values()] for row in objects]
        assert Counter(map(tuple, pairs)) == expected, name
        if name != "pairs":
            table = pyarrow.parquet.read_table(files("parquet", name)).to_pylist()
            shown = [[_shown(value) for value in row.values()] for row in table]
            assert Counter(map(tuple, shown)) == expected, name


def _shown(value: Any) -> Any:
    return f"{value.isoformat()}Z" if isinstance(value, datetime) else value


def test_files_that_arrive(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    """With a trigger the stream goes on; the watermark is the latest event time, and a far future does not move it."""
    folder = tmp_path / "in"
    folder.mkdir()

    def arrive(name: str, *rows: tuple[str, float]) -> None:
        new = tmp_path / name
        new.write_text("".join(json.dumps({"user": user, "ts": ts}) + "\n" for user, ts in rows))
        new.rename(folder / name)

    fired: list[Any] = []
    some = threading.Event()

    def take(elements: list[Any], batch: int) -> None:
        fired.extend((each.value, each.window.start // SECOND) for each in elements)
        some.set()

    rows = p | hr.ReadJson(str(folder), schema="user string, ts double", event_time="ts")
    users = rows | hr.Map(lambda row: row.user) | hr.WindowInto(hr.FixedWindows("1 minute"))
    users | "count" >> hr.Count.per_element() | hr.ForEachBatch(take)
    arrive("1.json", ("amy", 3), ("amy", 4), ("bob", 1e15 / SECOND * 10))
    handle = p.run(stream=True, trigger="100 ms", checkpoint=str(tmp_path / "checkpoint"))
    try:
        arrive("2.json", ("bob", 61))
        assert some.wait(60)
    finally:
        handle.stop()
    assert fired == [(("amy", 2), 0)]
    assert handle.metrics()[rows.label]["skewed"] == 1


def test_the_clock_ticks_while_a_stream_runs(p: hr.Pipeline) -> None:
    """Processing time passes in an unbounded pipeline; what a trigger by the clock gives are panes by arrival."""
    some = threading.Event()
    counts: list[int] = []

    def take(elements: list[Any], batch: int) -> None:
        counts.extend(each.value for each in elements)
        some.set()

    every_second = hr.Repeatedly(hr.AfterProcessingTime("1 second"))
    numbers = p | hr.Rate(50) | hr.WindowInto(hr.GlobalWindows(), trigger=every_second)
    numbers | hr.Count.globally() | hr.ForEachBatch(take)
    handle = p.run()
    try:
        assert some.wait(60)
        status = handle.status()
    finally:
        handle.stop()
    assert counts[0] > 0
    assert status.state == "running"


# Refusals, before anything runs


def refused(pipeline: hr.Pipeline, match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match):
        lower(pipeline.graph(), shards=2, partitions=2)


def test_a_side_input_may_be_what_a_source_gives() -> None:
    p = hr.Pipeline()
    side = p | "side" >> hr.TestStream()
    p | hr.Create([1]) | "with side" >> hr.Map(lambda x, side: x, hr.AsList(side))
    assert [exchange.label for exchange in lower(p.graph(), shards=2, partitions=2).exchanges] == ["with side"]


class Op(NamedTuple):
    op: str
    n: int


def test_a_column_op_marks_retractions_only() -> None:
    def pipeline(sink: hr.WriteText | hr.WriteJson) -> hr.Pipeline:
        p = hr.Pipeline()
        windowed = p | hr.TestStream() | hr.WindowInto(hr.FixedWindows(10), accumulation="retracting")
        windowed | hr.CombinePerKey(sum) | hr.MapTuple(Op) | "write" >> sink
        return p

    lower(pipeline(hr.WriteText("out")).graph(), shards=2, partitions=2)  # which has no columns
    p = pipeline(hr.WriteJson("out"))
    refused(p, r"'write' .*: elements have a column 'op', which marks retractions in files; rename it with Select")


def test_what_keeps_nothing_can_take_nothing_back() -> None:
    p = hr.Pipeline()
    windowed = p | hr.TestStream() | hr.WindowInto(hr.FixedWindows(10), accumulation="retracting")
    sums = windowed | hr.CombinePerKey(sum) | "again" >> hr.WindowInto(hr.FixedWindows(60))
    _ = sums | "net" >> hr.CombinePerKey(sum)
    lower(p.graph(), shards=2, partitions=2)
    p = hr.Pipeline()
    windowed = p | hr.TestStream() | hr.WindowInto(hr.FixedWindows(10), accumulation="retracting")
    sums = windowed | hr.CombinePerKey(sum) | "again" >> hr.WindowInto(hr.FixedWindows(60))
    _ = sums | "groups" >> hr.GroupByKey()
    refused(p, r"'groups' .*: its input takes panes back, but with accumulation='discarding'")


def test_a_batch_has_no_checkpoint(p: hr.Pipeline) -> None:
    _ = p | hr.Create([1]) | hr.Collect()
    with pytest.raises(hr.PipelineError, match="a batch has no checkpoint; say run"):
        p.run(checkpoint="somewhere")
