"""Bad records are visible: said on standard error, and a run whose source has no others fails."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.catalyst.badrecords import BadRecordReader
from headrace.engine.connectors.refusedrecords import RefusedRecords
from headrace.engine.handle import StreamStatus
from headrace.engine.worker.hidden import BAD, BAD_TYPE, LOW
from headrace.model.badrecords import BadRecords
from headrace.model.times import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = hr.DeadLetter("{", "visits", "malformed", "it is not a JSON object", "/in/a")


def refused(source: Any, *bad: BadRecords) -> RefusedRecords:
    p = hr.Pipeline()
    p | "visits" >> source | hr.Collect() if not source.handles_exceptions else p | "visits" >> source
    states = iter(bad)
    return RefusedRecords(p.graph(), lambda: {"visits": next(states)})


def test_it_is_said_once_and_at_the_end_if_there_are_more(capsys: pytest.CaptureFixture[str]) -> None:
    first, more = BadRecords({"malformed": 1}, LAST, 9), BadRecords({"malformed": 1, "wrong type": 1200}, None, 3000)
    records = refused(hr.ReadJson("in"), first, more, more, more)
    records.say()
    records.say()
    assert capsys.readouterr().err == (
        "1 of 9 records of 'visits' was refused (malformed: 1), the last because it is not a JSON object: '{', at "
        "/in/a; with_exception_handling() gives them as 'dead_letters'\n"
    )
    records.say(again=True)
    records.say(again=True)
    assert capsys.readouterr().err == (
        "1,201 of 3,000 records of 'visits' were refused (malformed: 1, wrong type: 1,200); with_exception_handling() "
        "gives them as 'dead_letters'\n"
    )


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (hr.ReadJson("in", bad="skip"), "bad='skip' leaves them out"),
        (hr.ReadJson("in").with_exception_handling(), "they are its output 'dead_letters'"),
    ],
)
def test_a_source_may_say_that_all_may_be_bad(source: Any, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    every = BadRecords({"malformed": 9}, None, 9)
    records = refused(source, every, every)
    records.check()
    records.say()
    assert capsys.readouterr().err == f"9 of 9 records of 'visits' were refused (malformed: 9); {hint}\n"


def test_the_progress_line_of_a_stream_says_it() -> None:
    status = StreamStatus("running", bad={"visits": BadRecords({"malformed": 500}, LAST, 500)}, batches=1)
    assert status.line == "1 batch · 500 of 500 records of 'visits' were refused (malformed: 500)"


def test_a_batch_says_what_it_refused(
    spark: SparkSession, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n{"n": "x"}\noops\n')
    with hr.Pipeline(spark=spark) as p:
        good = p | "numbers" >> hr.ReadJson(str(tmp_path), schema="n long") | hr.Collect()
        side = p | "side" >> hr.ReadJson(str(tmp_path), schema="n long", bad="skip")
        p | hr.Create([1]) | hr.Map(lambda one, all: len(all), hr.AsList(side)) | hr.Collect()
    assert [row.n for row in good] == [1]
    said = sorted(capsys.readouterr().err.splitlines())
    assert said[0].startswith(
        "2 of 3 records of 'numbers' were refused (malformed: 1, wrong type: 1), the last because"
    )
    assert said[1] == "2 of 3 records of 'side' were refused (malformed: 1, wrong type: 1); bad='skip' leaves them out"
    assert p.result is not None
    assert (p.result.status().state, p.result.status().bad["numbers"].records) == ("done", 3)


def test_a_batch_fails_whose_source_has_bad_records_only_and_leaves_what_was_there(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "in.csv").write_text("id,name\n" + "1,amy,x\n" * 500)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    p = hr.Pipeline(spark=spark)
    with pytest.raises(hr.PipelineError) as failure, p:
        customers = p | "customers" >> hr.ReadCsv(str(tmp_path / "in.csv"), schema="id long, name string")
        customers | hr.Where("id > 0") | hr.WriteJson(str(tmp_path / "out"), existing="replace")
    assert (
        "500 of 500 records of 'customers' were refused (malformed: 500), the last because it is not a record of 2 "
        in (str(failure.value))
    )
    assert str(failure.value).endswith(
        "check its schema and options, or say by with_exception_handling() or bad='skip' that this may be"
    )
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["precious"]
    assert p.result is not None
    assert p.result.status().state == "failed"


def test_a_stream_that_ends_fails_like_a_batch_and_an_endless_one_goes_on(
    spark: SparkSession, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text("oops\n" * 3)

    def stream(**options: Any) -> hr.Handle:
        p = hr.Pipeline(spark=spark)
        p | "visits" >> hr.ReadJson(str(tmp_path), schema="n long") | hr.Collect()
        return p.run(stream=True, **options)

    with pytest.raises(hr.PipelineError, match=r"3 of 3 records of 'visits' were refused \(malformed: 3\)"):
        stream().wait()
    endless = stream(trigger="100 milliseconds")
    while "3 of 3 records of 'visits' were refused" not in endless.status().line:
        assert endless.wait(timeout=0.1).state == "running"
    endless.stop()
    assert endless.wait().state == "stopped"
    assert (
        capsys.readouterr().err.count("3 of 3 records of 'visits' were refused (malformed: 3), the last because") == 2
    )


def test_rows_of_a_script_that_only_have_a_watermark_are_no_records() -> None:
    bad = {"reason": "malformed", "message": "m", "position": "p", "record": "r"}
    lows = pa.array([None, MIN_TIME, MIN_TIME, MAX_TIME, None], pa.int64())  # an element, a bad record, one that Where
    batch = pa.record_batch({BAD: pa.array([None, bad, None, None, None], BAD_TYPE), LOW: lows})  # dropped, the end
    reader = BadRecordReader("visits", "skip")
    reader.read(batch)
    assert (reader.records, reader.counts.total()) == (4, 1)
