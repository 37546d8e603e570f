"""Streams that are Catalyst's alone: which those are, and that they give what the general way gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.engine.plan.lowering import lower
from headrace.engine.stream import columnstream
from tests.engine.stream.ways import WAYS, way
from tests.scale import FULL, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build = Callable[[hr.PCollection, Path], None]


def line_of(build: Callable[[hr.Pipeline], Any]) -> Any:
    p = hr.Pipeline()
    build(p)
    return lower(p.graph(), shards=1, partitions=1)


@pytest.mark.parametrize(
    ("columnar", "build"),
    [
        (True, lambda p: p | hr.ReadParquet("in") | hr.Select("a") | hr.WriteParquet("out")),
        (True, lambda p: p | hr.ReadText("in") | hr.WriteText("out")),
        (False, lambda p: p | hr.ReadParquet("in") | hr.WindowInto(hr.FixedWindows(5)) | hr.WriteCsv("out")),
        (False, lambda p: p | hr.ReadParquet("in") | hr.Map(str) | hr.WriteText("out")),
        (False, lambda p: p | hr.ReadParquet("in") | hr.Collect()),
        (False, lambda p: p | hr.ReadText("in")),
        (False, lambda p: p | hr.Create([1, 2]) | hr.WriteText("out")),
        (False, lambda p: p | hr.ReadParquet("in") | hr.GroupBy("a").aggregate(n=hr.count()) | hr.WriteParquet("out")),
    ],
)
def test_which_streams_are_columns_alone(columnar: bool, build: Callable[[hr.Pipeline], Any]) -> None:
    assert columnstream.is_columnar(line_of(build)) is columnar


def test_who_reads_elements_or_dead_letters_in_python_decides_for_all() -> None:
    def build(p: hr.Pipeline, *, letters: bool, collect: bool, second: bool) -> None:
        rows = p | "rows" >> hr.ReadParquet("in", event_time="at").with_exception_handling()
        rows.main | hr.WriteParquet("out")
        if letters:
            rows.dead_letters | "text" >> hr.Map(str) | hr.WriteText("dead")
        if collect:
            rows.main | hr.Collect()
        if second:
            p | "more" >> hr.ReadParquet("more") | "write more" >> hr.WriteParquet("out2")

    def columnar(**which: bool) -> bool:
        asked = {name: which.get(name, False) for name in ("letters", "collect", "second")}
        return columnstream.is_columnar(line_of(lambda p: build(p, **asked)))

    assert columnar()
    assert not columnar(letters=True) and not columnar(collect=True) and not columnar(second=True)


FAR = datetime(2999, 1, 1, tzinfo=UTC)
ABSURD = pa.scalar(300_000_000_000_000_000, pa.int64())  # beyond the year 9999


def write_rows(folder: Path) -> None:
    """Three files of numbers with times: some have none, some are absurd, some are far ahead of the clock."""
    folder.mkdir()
    for number in range(3):
        times = pa.array([1_700_000_000_000_000 + n * 1_000_000 for n in range(20)], pa.int64()).to_pylist()
        times[3], times[11], times[12] = None, ABSURD.as_py(), int(FAR.timestamp()) * 1_000_000
        columns = {
            "n": pa.array([n if n % 7 else None for n in range(number * 20, number * 20 + 20)], pa.int64()),
            "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "text": pa.array([f'"a,{n}"' if n % 3 else None for n in range(20)]),
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def plain(rows: hr.PCollection, out: Path) -> None:
    rows | hr.WriteParquet(str(out / "all"))


def thinned(rows: hr.PCollection, out: Path) -> None:
    (
        rows
        | hr.Where("n % 2 = 0")
        | "halves" >> hr.Select("text", half="n / 2", at="at")
        | "some" >> hr.Where("1000 / half > 40")
        | hr.WriteJson(str(out / "some"))
    )


def branches(rows: hr.PCollection, out: Path) -> None:
    rows | hr.WriteParquet(str(out / "all"))
    small = rows | "small" >> hr.Where("n < 25") | "one" >> hr.Select(m="n + 1")
    small | hr.WriteCsv(str(out / "small"))
    small | hr.WriteJson(str(out / "small again"))


def by_programs(rows: hr.PCollection, out: Path) -> None:
    """Branches whose columns programs compute and write."""
    even = rows | "even" >> hr.Where("n % 2 = 0 AND text IS NOT NULL")
    (
        even
        | "described" >> hr.Select("text", "at", m="n + 1", hour=f"hour({hr.EVENT_TIME})")
        | hr.WriteParquet(str(out / "even"))
    )
    (
        rows
        | "lengths" >> hr.Select(length="length(text)", half="n / 2", many="n > 3 OR n IN (1, 2)")
        | hr.WriteParquet(str(out / "lengths"))
    )


class Outcome(NamedTuple):
    """What a stream wrote, by sink and batch, and what it told."""

    batches: dict[str, dict[str, Counter[str]]]
    manifests: dict[str, int]
    metrics: Any
    bad: Any


def outcome(handle: Any, out: Path) -> Outcome:
    batches: dict[str, dict[str, Counter[str]]] = {}
    for sink in sorted(out.iterdir()):
        batches[sink.name] = {
            batch.name: Counter(line for part in batch.glob("part-*") for line in lines_of(part))
            for batch in sink.iterdir()
        }
    manifests = {sink.name: hr.read_manifest(str(sink)).rows for sink in out.iterdir()}
    bad = {label: (each.counts, each.records) for label, each in handle.status().bad.items()}
    return Outcome(batches, manifests, handle.metrics(), bad)


def lines_of(part: Path) -> list[str]:
    if part.suffix == ".parquet":
        return [repr(row) for row in pq.read_table(part).to_pylist()]
    return part.read_text().splitlines()


@pytest.mark.slow("each pipeline runs three times")
@pytest.mark.parametrize(
    "build",
    [
        *(pytest.param(build, marks=only_full("by programs is all of it")) for build in (plain, thinned, branches)),
        by_programs,
    ],
)
def test_all_ways_write_count_and_tell_the_same(
    build: Build, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in")
    (tmp_path / "json").mkdir()
    lines = [json.dumps({"n": n, "at": n, "text": "b"}) for n in range(1, 10)] + ["", "  ", "{", '{"n": "x", "at": 3}']
    (tmp_path / "json" / "a.json").write_text("\n".join(lines))
    sources = {
        "parquet": hr.ReadParquet(str(tmp_path / "in"), event_time="at"),
        "json": hr.ReadJson(str(tmp_path / "json"), schema="n long, at double, text string", event_time="at"),
    }

    def run(kind: str, way: str) -> Outcome:
        p, out = hr.Pipeline(spark=spark), tmp_path / f"{kind} {way}"
        build(p | "rows" >> sources[kind], out)
        handle = p.run(stream=True, max_files_per_batch=1)
        assert handle.wait().state == "done"
        return outcome(handle, out)

    for kind in sources if FULL or build is branches else ["parquet"]:
        outcomes = []
        for name in WAYS:
            with way(name, monkeypatch):
                outcomes.append(run(kind, name))
        assert outcomes[0] == outcomes[1] == outcomes[2]
        assert outcomes[0].bad["rows"][1] == (60 if kind == "parquet" else 11)


def test_a_checkpoint_goes_on_the_other_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one way has read the other does not read again, whichever came first; a sink that is new changes nothing."""
    (tmp_path / "in").mkdir()

    def run(columnar: bool) -> None:
        number = len(list((tmp_path / "in").iterdir()))
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"n": number}))
        p = hr.Pipeline(spark=spark)
        rows = p | "rows" >> hr.ReadJson(str(tmp_path / "in"), schema="n long")
        rows | "out" >> hr.WriteJson(str(tmp_path / "out"))
        with monkeypatch.context() as patch:
            if not columnar:
                patch.setattr(columnstream, "is_columnar", lambda line: False)
            handle = p.run(stream=True, checkpoint=str(tmp_path / "checkpoint"), trigger="100 ms")
            while sum(1 for _ in (tmp_path / "out").glob("batch-*")) <= number:
                handle.wait(0.1)
            handle.stop()

    for columnar in (False, True, False, True):
        run(columnar)
    lines = [line for part in (tmp_path / "out").glob("batch-*/part-*") for line in part.read_text().splitlines()]
    assert sorted(lines) == [json.dumps({"n": n}, separators=(",", ":")) for n in range(4)]
