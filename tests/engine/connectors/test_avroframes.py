"""Avro files as sources and sinks on Spark: batches, streams, and files that cannot be read or written."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro
import pytest

import headrace as hr
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


class Visit(NamedTuple):
    user: str
    n: int | None
    at: dt.datetime


VISITS = [Visit(f"user {n % 7}", n if n % 5 else None, NOON + dt.timedelta(seconds=n)) for n in range(200)]


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


def rows(folder: Path) -> list[dict[str, Any]]:
    found = []
    for part in sorted(folder.rglob("part-*.avro")):
        with part.open("rb") as file:
            found += list(fastavro.reader(file))
    return found


@pytest.mark.slow("a batch, and then a batch or a stream")
@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_avro_to_avro(spark: SparkSession, p: hr.Pipeline, tmp_path: Path, stream: bool) -> None:
    """What was written is read again; windows and panes are columns; manifests say what there is."""
    visits = p | hr.Create(VISITS)
    visits | hr.WriteAvro(str(tmp_path / "in"))
    p | "nothing" >> hr.Create([]) | hr.Map(Visit._make).with_output_types(Visit) | hr.WriteAvro(str(tmp_path / "none"))
    p.run().wait()
    assert Counter(tuple(row.values()) for row in rows(tmp_path / "in")) == Counter(map(tuple, VISITS))
    again = hr.Pipeline(spark=spark)
    read = again | "read" >> hr.ReadAvro([str(tmp_path / "in"), str(tmp_path / "none")], event_time="at")
    collected = read | hr.Collect()
    minutes = read | hr.WindowInto(hr.FixedWindows("1 minute")) | hr.GroupBy("user").aggregate(n=hr.count())
    minutes | hr.WriteAvro(str(tmp_path / "out"))
    again.run(stream=stream).wait()
    expected = Counter((*visit, int(visit.at.timestamp())) for visit in VISITS)
    assert Counter((*each.value, each.timestamp // SECOND) for each in collected.windowed) == expected
    counts = Counter((visit.user, visit.at.replace(second=0)) for visit in VISITS)
    assert Counter(tuple(row.values()) for row in rows(tmp_path / "out")) == Counter(
        (user, n, start, start + dt.timedelta(minutes=1), 0, "on_time") for (user, start), n in counts.items()
    )
    manifest = hr.read_manifest(str(tmp_path / "out"))
    assert (manifest.rows, manifest.verify()) == (len(counts), [])


def write(path: Path, schema: list[Any], *values: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    fields = [{"name": name, "type": kind} for name, kind in schema]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "visit", "fields": fields}, values)


def test_files_of_several_schemas(p: hr.Pipeline, tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.avro", [("user", "string"), ("n", "int")], {"user": "amy", "n": 1})
    write(tmp_path / "in" / "b.avro", [("n", "int"), ("ts", ["null", "long"])], {"n": 2, "ts": 5}, {"n": 3, "ts": None})
    (tmp_path / "in" / "_ignored").write_text("no Avro")
    schema = "user string, n int, ts long"
    both = p | "both" >> hr.ReadAvro(str(tmp_path / "in"), schema=schema) | hr.Collect()
    timed = p | hr.ReadAvro(str(tmp_path / "in"), schema=schema, event_time="ts").with_exception_handling()
    good, dead = timed.main | "good" >> hr.Collect(), timed.dead_letters | "dead" >> hr.Collect()
    p.run().wait()
    assert Counter(map(tuple, both)) == Counter([("amy", 1, None), (None, 2, 5), (None, 3, None)])
    assert list(map(tuple, good)) == [(None, 2, 5)]
    files = [(letter.error, letter.position.rpartition("/")[2]) for letter in dead]
    assert Counter(files) == Counter([("no event time", "a.avro"), ("no event time", "b.avro")])
    assert all(Path(letter.position).exists() for letter in dead)


def test_what_cannot_be_read_or_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.avro").write_text("no Avro at all")
    p = hr.Pipeline(spark=spark)
    p | "load" >> hr.ReadAvro(str(tmp_path / "text")) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=rf"'load' .* {tmp_path}/text/a\.avro: it cannot be read as Avro"):
        p.run().wait()
    p = hr.Pipeline(spark=spark)
    p | "load" >> hr.ReadAvro(str(tmp_path / "text"), schema="n long") | hr.Collect()
    with pytest.raises(Exception, match=rf"{tmp_path}/text/a\.avro: it cannot be read as Avro"):
        p.run().wait()
    p = hr.Pipeline(spark=spark)
    p | hr.Create([("a", 1)]) | hr.Select("_1 AS `odd.name`") | "save" >> hr.WriteAvro(str(tmp_path / "out"))
    with pytest.raises(hr.PipelineError, match=r"'save' .*'odd\.name' has no name that Avro allows"):
        p.run().wait()
    assert [each.name for each in tmp_path.iterdir()] == ["text"]
    p = hr.Pipeline()
    _ = p | hr.Create([1, "a"]) | "save" >> hr.WriteAvro(str(tmp_path / "out"))
    with pytest.raises(hr.PipelineError, match=r"'save' .*: it needs columns"):
        p.explain()
