"""Streams that read usual rows first: which rows those are, and that all others are found, counted and written."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import headrace as hr
from headrace.engine.batch import sources
from headrace.engine.plan.lowering import lower
from headrace.engine.stream import usualrows
from headrace.engine.worker.hidden import BAD, TIME
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.times import DAY, SECOND
from tests.engine.stream.ways import WAYS, way
from tests.scale import FULL, only_full, scaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = int(datetime(2024, 3, 1, 12, tzinfo=UTC).timestamp()) * SECOND
EDGES = [None, 0, -1, YEAR_1 - 1, YEAR_1, NOON - 1, NOON, NOON + 1, YEAR_10000 - 1, YEAR_10000, 2**62, -(2**62)]


def test_which_streams_read_usual_rows_first() -> None:
    def usual(source: Any, *sinks: Any) -> bool:
        p = hr.Pipeline()
        rows = p | source
        for sink in sinks:
            rows | sink
        return usualrows.has_usual_rows(lower(p.graph(), shards=1, partitions=1))

    out, more = hr.WriteParquet("out"), "more" >> hr.WriteCsv("more")
    assert usual(hr.ReadParquet("in"), out) and usual(hr.ReadParquet("in", event_time="at"), out)
    assert not usual(hr.ReadParquet("in"), out, more)
    assert not usual(hr.ReadJson("in", schema="n long"), out)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "decimal(38,6)", "string"])
def test_rows_are_usual_just_if_the_rules_find_nothing(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    times = [*EDGES, *(chance.randint(YEAR_1 - DAY, YEAR_10000 + DAY) for _ in range(scaled(5000)))]
    rows = spark.createDataFrame([(time,) for time in times], "micros long")
    seconds, time = F.col("micros").cast("decimal(38,6)") / SECOND, F.timestamp_micros("micros")
    rows.select("micros", (seconds if kind.startswith("decimal") else time).cast(kind).alias("at")).write.parquet(
        str(tmp_path / "in")
    )
    p = hr.Pipeline(spark=spark)
    p | hr.ReadParquet(str(tmp_path / "in"), event_time="at")
    (node,) = p.graph()
    files = sources.as_files(spark, node, node.transform)  # type: ignore[arg-type]
    usual = usualrows.is_usual(node, "from times", F.lit(NOON))
    quick = sources.timed_rows(node, files).select("micros", usual).collect()
    full = sources.elements(node, files).select("micros", F.col(BAD).isNull(), F.col(TIME) > NOON).collect()
    for (micros, is_usual), (same, is_good, is_ahead) in zip(quick, full, strict=True):
        assert same == micros and bool(is_usual) == (is_good and not is_ahead), micros
    assert {(is_good, is_ahead) for _, is_good, is_ahead in full} == {(True, False), (True, True), (False, None)}


class Arrivals:
    """Files of random rows, some of which are not usual; in some files all are, in some none is."""

    def __init__(self, folder: Path, seed: int) -> None:
        chance = random.Random(seed)
        folder.mkdir()
        now = int(datetime.now(UTC).timestamp()) * SECOND
        for number, share in enumerate([0.0, 0.2, 1.0, 0.0, 0.5] if FULL else [0.0, 0.2, 1.0]):
            odd = [None, YEAR_10000, YEAR_1 - 1, now + 30 * DAY, now + 3 * DAY]
            times = [chance.choice(odd) if chance.random() < share else now - chance.randrange(DAY) for _ in range(50)]
            columns = {
                "n": pa.array([chance.choice([None, chance.randrange(100)]) for _ in times], pa.int64()),
                "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                "marked": pa.array([chance.choice([None, time]) for time in times], pa.int64()).cast(
                    pa.timestamp("us", tz="UTC")
                ),
                "text": pa.array([chance.choice([None, "a", "b"]) for _ in times]),
            }
            pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def everything(rows: hr.PCollection) -> hr.PCollection:
    return rows


def some(rows: hr.PCollection) -> hr.PCollection:
    return rows | hr.Where("n % 3 > 0") | hr.Select("text", half="n / 2", at="at") | "more" >> hr.Where("half < 40")


def joined(rows: hr.PCollection) -> hr.PCollection:
    words = rows.pipeline | "words" >> hr.Create([{"text": "a", "word": "one"}], schema="text string, word string")
    return rows | hr.Join(words, on="text") | hr.Select("n", "word")


@pytest.mark.slow("each pipeline runs three times")
@pytest.mark.parametrize(
    ("build", "options"),
    [
        (everything, {"event_time": "at"}),
        pytest.param(
            some,
            {"event_time": "at", "watermark": hr.BoundedDisorder("1 hour", max_skew="10 days")},
            marks=only_full("the same without a watermark"),
        ),
        pytest.param(
            some,
            {"event_time": "at", "watermark": hr.Punctuated("marked")},
            marks=only_full("the same with another watermark"),
        ),
        pytest.param(joined, {"event_time": "at", "bad": "skip"}, marks=only_full("the same without a join")),
        pytest.param(some, {}, marks=only_full("the same with event times")),
    ],
)
def test_usual_rows_first_is_what_all_rows_at_once_are(
    build: Callable[[hr.PCollection], hr.PCollection],
    options: dict[str, Any],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Arrivals(tmp_path / "in", seed=len(options))

    def run(name: str) -> Any:
        p, out = hr.Pipeline(spark=spark), tmp_path / name
        build(p | "rows" >> hr.ReadParquet(str(tmp_path / "in"), **options)) | hr.WriteParquet(str(out))
        handle = p.run(stream=True, max_files_per_batch=1)
        assert handle.wait().state == "done"
        written = {
            batch.name: sorted(repr(row) for part in batch.glob("part-*") for row in pq.read_table(part).to_pylist())
            for batch in out.iterdir()
        }
        bad = {label: (each.counts, each.records) for label, each in handle.status().bad.items()}
        return written, hr.read_manifest(str(out)).rows, handle.metrics(), bad, hr.read_manifest(str(out)).verify()

    outcomes = []
    for name in WAYS:
        with way(name, monkeypatch):
            outcomes.append(run(name))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("name", ["programs", "catalyst"])
def test_a_bad_record_that_must_not_be_ends_the_stream_before_its_batch_appears(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Arrivals(tmp_path / "in", seed=1)
    p = hr.Pipeline(spark=spark)
    rows = p | "rows" >> hr.ReadParquet(str(tmp_path / "in"), event_time="at", bad="fail")
    rows | hr.Where("n < 0") | hr.WriteParquet(str(tmp_path / "out"))
    with (
        way(name, monkeypatch),
        pytest.raises(hr.TransformError, match=r"event time: .*bad='dead_letters' would go on"),
    ):
        p.run(stream=True, max_files_per_batch=1).wait()
    assert not [*(tmp_path / "out").glob("batch-*")]
