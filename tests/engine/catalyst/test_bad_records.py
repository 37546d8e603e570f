"""Bad records: every kind of them, from files, in batch and stream, against rules that one can read."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import headrace as hr
from headrace.engine.catalyst import parsing
from headrace.engine.catalyst.badrecords import BadRecordReader
from headrace.engine.catalyst.eventtime import event_time_of
from headrace.engine.plan.lowering import lower
from headrace.engine.worker.blame import WorkerFailure, transform_error
from headrace.engine.worker.hidden import BAD, BAD_TYPE
from headrace.log import Log
from headrace.model.badrecords import ABSURD_TIME, MALFORMED, NO_TIME, REASONS, WRONG_TYPE
from headrace.model.pipeline import Node, Place
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODE = Node("records", hr.ReadJson("nowhere"), (), (), Place("a.py", 1))
SCHEMA = "user string, count long, ratio double, ok boolean, at string"
KINDS = {"user": object, "count": int, "ratio": (int, float), "ok": bool}

TIMES = {  # what is to be said of texts that are event times
    "2026-01-31T12:00:00Z": None,
    "2026-01-31 12:00:00+02:00": None,
    "2026-01-31": None,
    "0001-01-01T00:00:00Z": None,
    "9999-12-31T23:59:59.999999Z": None,
    "0000-12-31T23:59:59Z": ABSURD_TIME,
    "10000-01-01T00:00:00Z": ABSURD_TIME,
    "yesterday": NO_TIME,
    "12:00": NO_TIME,
    "2026-13-01": NO_TIME,
    "": NO_TIME,
}


def reason(line: str, *, event_time: str | None) -> str | None:
    """Why a line of JSON is bad: the definition."""
    try:
        record = json.loads(line)
    except ValueError:
        return MALFORMED
    if not isinstance(record, dict):
        return MALFORMED
    for name, kind in KINDS.items():
        value = record.get(name)
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object))  # type: ignore[arg-type]
        if value is not None and (wrong or (kind is int and not -(2**63) <= value < 2**63)):
            return WRONG_TYPE
    if event_time is None:
        return None
    time = record.get(event_time)
    return NO_TIME if time is None else TIMES[time]


plain = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
plain |= st.text('ab é"\\/{}[]:,', max_size=5)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("pq"), inner))
fitting = st.fixed_dictionaries(
    {},
    optional={
        "user": st.text('ab é"\\{}', max_size=5) | st.none(),
        "count": st.integers(-(2**63), 2**63 - 1),
        "ratio": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
        "ok": st.booleans(),
        "at": st.sampled_from(sorted(TIMES)) | st.none(),
        "more": values,
    },
)
objects = fitting | st.fixed_dictionaries({"count": values, "ok": values}, optional={"ratio": values})


@st.composite
def broken(draw: st.DrawFn) -> str:
    """JSON with a piece cut out, something put in, or something behind it."""
    line = json.dumps(draw(objects), ensure_ascii=False)
    at = draw(st.integers(0, len(line)))
    until = draw(st.integers(at, min(at + 3, len(line))))
    return line[:at] + draw(st.sampled_from(["", "}", "{", '"', ",", "]", " x", "{}", "1", ":", "null"])) + line[until:]


lines = st.one_of(
    objects.map(lambda each: json.dumps(each, ensure_ascii=False)), broken(), values.map(json.dumps)
).filter(lambda line: line.strip() and _known(line))


def _known(line: str) -> bool:
    """Whether the event time, should the line have one, is one of those, and nothing is said twice."""
    try:
        record = json.loads(line, object_pairs_hook=lambda pairs: pairs)
    except ValueError:
        return True
    if not isinstance(record, list) or not all(isinstance(each, tuple) for each in record):
        return True
    names = [name for name, _ in record]
    return len(names) == len(set(names)) and all(
        value is None or (isinstance(value, str) and value in TIMES) for name, value in record if name == "at"
    )


@given(st.lists(lines, min_size=150, max_size=300), st.sampled_from([None, "at"]))
@examples(4, phases=[Phase.generate])  # each is a job over many lines, and tells which of them differ
def test_json_is_good_or_bad_as_the_definition_says(
    spark: SparkSession, drawn: list[str], event_time: str | None
) -> None:
    table = pa.table({parsing.TEXT: drawn, "number": range(len(drawn))})
    records = parsing.json_records(
        spark.createDataFrame(table), StructType.fromDDL(SCHEMA), F.col("number").cast("string")
    )
    columns = records.data.select(*StructType.fromDDL(SCHEMA).names)
    checked = parsing.checked(records, event_time, event_time_of(NODE, columns, event_time))
    rows = sorted(checked.collect(), key=lambda row: row.number)
    said = [(line, row[BAD] and row[BAD].reason) for line, row in zip(drawn, rows, strict=True)]
    assert [each for each in said if each[1] != reason(each[0], event_time=event_time)] == []
    for row, line in zip(rows, drawn, strict=True):
        if row[BAD] is None:
            record = json.loads(line)
            assert (row["count"], row.ok, row["at"]) == (record.get("count"), record.get("ok"), record.get("at"))
            assert row.ratio == record.get("ratio") or math.isclose(row.ratio, record["ratio"])
            assert (row["__time"] is None) == (event_time is None)
        else:
            assert row["__time"] is None
            assert (row[BAD].record, row[BAD].position) == (line, str(row.number))
            assert row[BAD].message


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, NO_TIME),
        (0.0, None),
        (-62135596800.0, None),
        (-62135596801.0, ABSURD_TIME),
        (253402300799.5, None),
        (253402300800.0, ABSURD_TIME),
        (1.7e15, ABSURD_TIME),
        (1e300, ABSURD_TIME),
        (math.inf, ABSURD_TIME),
        (math.nan, ABSURD_TIME),
    ],
)
def test_seconds_are_times_of_years_that_people_write(
    spark: SparkSession, seconds: float | None, said: str | None
) -> None:
    data = spark.createDataFrame(pa.table({"at": pa.array([seconds], pa.float64())}))
    records = parsing.typed_records(data, data.schema, ["at"], F.lit("here"))
    (row,) = parsing.checked(records, "at", event_time_of(NODE, data, "at")).collect()
    assert (row[BAD] and row[BAD].reason) == said
    assert row["__time"] == (None if said else round((seconds or 0) * 1_000_000))


class Visit(NamedTuple):
    user: str
    n: int
    at: str


LINES = {  # and what is wrong with them
    '{"user": "amy", "n": 1, "at": "2026-01-01T00:00:01Z"}': None,
    '{"user": "bob", "n": 2, "at": "2026-01-01T00:00:02Z"}': None,
    '{"user": "c", "n": "x", "at": "2026-01-09T00:00:00Z"}': (WRONG_TYPE, "'n' is no bigint: x"),
    '{"user": "d", "n": "y", "n": "z"}': (WRONG_TYPE, "'n' is no bigint: y"),
    "no json": (MALFORMED, "it is not a JSON object"),
    '{"user": "e", "n": 1}{"user": "f", "n": 2}': (MALFORMED, "it is not a JSON object"),
    '[{"user": "g"}]': (MALFORMED, "it is not a JSON object"),
    '{"user": "h", "n": 3}': (NO_TIME, "the event time 'at' is missing"),
    '{"user": "i", "n": 3, "at": "noon"}': (NO_TIME, "the event time 'at' is noon, which is no time"),
    '{"user": "j", "n": 3, "at": "12345-01-01"}': (
        ABSURD_TIME,
        "the event time 'at' is 12345-01-01, which is not in the years 1 to 9999",
    ),
}
BAD_LINES = {line: said for line, said in LINES.items() if said is not None}
COUNTS = dict(Counter(kind for kind, _ in BAD_LINES.values()))


@pytest.fixture
def p(spark: SparkSession) -> hr.Pipeline:
    return hr.Pipeline(spark=spark)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> str:
    (tmp_path / "a b.json").write_text("\n".join([*LINES, "", "  "]))
    return str(tmp_path)


def letters_for(label: str, position: str) -> list[hr.DeadLetter]:
    return sorted((hr.DeadLetter(line, label, *said, position) for line, said in BAD_LINES.items()), key=str)


def bad_of(metrics: dict[str, int]) -> dict[str, int]:
    """What the metrics of a source say of bad records."""
    return {what: count for what, count in metrics.items() if what in REASONS}


def test_json_in_a_batch(p: hr.Pipeline, folder: str) -> None:
    rows = p | "visits" >> hr.ReadJson(folder, schema=Visit, event_time="at").with_exception_handling()
    good, dead = rows.main | hr.Collect(), rows.dead_letters | hr.Collect()
    handle = p.run()
    status = handle.wait()
    assert sorted(good) == [Visit(**json.loads(line)) for line, said in LINES.items() if said is None]
    assert sorted(dead, key=str) == letters_for("visits", f"{folder}/a b.json".replace(" ", "%20"))
    assert handle.metrics()["visits"] == COUNTS
    assert status.bad["visits"].counts == COUNTS
    assert status.bad["visits"].last in list(dead)


@pytest.mark.parametrize("bad", ["dead_letters", "skip"])
def test_bad_records_are_counted_where_nobody_reads_them(p: hr.Pipeline, folder: str, bad: Any) -> None:
    rows = p | "visits" >> hr.ReadJson(folder, schema=Visit, event_time="at", bad=bad)
    seen = rows | hr.Where("n > 1") | hr.GroupBy("user").aggregate(n=hr.count()) | hr.Collect()
    again = rows | hr.Map(lambda visit: visit.user) | hr.Collect()
    handle = p.run()
    status = handle.wait()
    assert [row.user for row in seen] == ["bob"]
    assert sorted(again) == ["amy", "bob"]
    assert handle.metrics()["visits"] == COUNTS
    assert (status.bad["visits"].last is None) == (bad == "skip")


def test_bad_records_alone_are_counted(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text("x\n" * 7)
    rows = p | "visits" >> hr.ReadJson(str(tmp_path), schema="user string", bad="skip")
    seen = rows | hr.GroupBy("user").aggregate(n=hr.count()) | hr.Collect()
    handle = p.run()
    assert handle.wait().bad["visits"].count == 7
    assert list(seen) == []


def test_the_first_bad_record_ends_the_run(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n{"n": "é}"}\n')
    p | "visits" >> hr.ReadJson(str(tmp_path), schema="n long", bad="fail") | hr.Where("n > 5") | hr.Collect()
    with pytest.raises(hr.TransformError) as failure:
        p.run().wait()
    assert str(failure.value) == (
        """'visits' failed on the element {"n": "é}"}: wrong type: 'n' is no bigint: é}, """
        f"at {tmp_path}/a.json; bad='dead_letters' would go on without it"
    )


def test_a_stream_fails_in_the_same_way(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n{"n": "x"}\n')
    p | "visits" >> hr.ReadJson(str(tmp_path), schema="n long", bad="fail") | hr.Collect()
    with pytest.raises(hr.TransformError, match=rf"'visits' failed.*wrong type: 'n' is no bigint: x, at {tmp_path}/a"):
        p.run(stream=True).wait()


def test_columns_of_json_that_are_inferred_or_of_directories(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.json").write_text('{"value": "x", "odd.name": 5}\noops\n')
    inferred = p | "inferred" >> hr.ReadJson(str(tmp_path)) | hr.Collect()
    given = p | "given" >> hr.ReadJson(str(tmp_path), schema="value string, `odd.name` long, day long") | hr.Collect()
    handle = p.run()
    handle.wait()
    assert sorted(map(tuple, inferred)) == [(5, "x", 1), (5, "x", 2)]
    assert sorted(map(tuple, given)) == [("x", 5, 1), ("x", 5, 2)]
    assert {label: handle.metrics()[label] for label in ("inferred", "given")} == {
        "inferred": {MALFORMED: 2},
        "given": {MALFORMED: 2},
    }


def test_csv_in_a_batch(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    bad = {
        "bob,x,5": (WRONG_TYPE, "'n' is no bigint: x"),
        "carl,3": (MALFORMED, "it is not a record of 3 fields"),
        "dora,3,4,5": (MALFORMED, "it is not a record of 3 fields"),
        "eve,3,": (NO_TIME, "the event time 'at' is missing"),
    }
    (tmp_path / "a.csv").write_text("\n".join(["user,n,at", "amy,1,1.5", '"a,b",2,2', *bad]))
    source = hr.ReadCsv(str(tmp_path), schema="user string, n long, at double", event_time="at")
    rows = p | "sales" >> source.with_exception_handling()
    good, dead = rows.main | hr.Select("user") | hr.Collect(), rows.dead_letters | hr.Collect()
    handle = p.run()
    handle.wait()
    assert sorted(row.user for row in good) == ["a,b", "amy"]
    found = {letter.element: (letter.error, letter.message) for letter in dead}
    assert found == bad
    assert {letter.position for letter in dead} == {f"{tmp_path}/a.csv"}
    assert handle.metrics()["sales"] == {MALFORMED: 2, NO_TIME: 1, WRONG_TYPE: 1}


def test_parquet_in_a_batch(p: hr.Pipeline, tmp_path: pathlib.Path) -> None:
    table = pa.table({"n": [1, 2, 3], "at": pa.array([10, None, 10**15])})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    whole = p | "whole" >> hr.ReadParquet(str(tmp_path), event_time="at").with_exception_handling()
    good, dead = whole.main | hr.Collect(), whole.dead_letters | hr.Collect()
    some = p | "some" >> hr.ReadParquet(str(tmp_path), event_time="at") | hr.Where("n < 3") | hr.Collect()
    handle = p.run()
    handle.wait()
    assert [row.n for row in good] == [row.n for row in some] == [1]
    assert {letter.element: letter.error for letter in dead} == {
        '{"n":2,"at":null}': NO_TIME,
        '{"n":3,"at":1000000000000000}': ABSURD_TIME,
    }
    assert handle.metrics()["whole"] == {NO_TIME: 1, ABSURD_TIME: 1}
    assert handle.metrics()["some"] == {NO_TIME: 1}


def test_conditions_on_parquet_reach_the_files(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    from headrace.engine.batch.execution import Batch
    from headrace.engine.plan import plan
    from headrace.engine.spark.counters import Counters

    pyarrow.parquet.write_table(pa.table({"n": [1], "at": [1]}), tmp_path / "a.parquet")
    p = hr.Pipeline(spark=spark)
    p | hr.ReadParquet(str(tmp_path), event_time="at") | hr.Where("n < 3") | hr.Collect()
    made = plan(p.graph())
    (write,) = made.ends()
    data = Batch(spark, made, Counters(spark.sparkContext), lambda stage: None).data(write.inputs[0])
    assert "PushedFilters: [IsNotNull(n), LessThan(n,3)]" in data._jdf.queryExecution().toString()


@pytest.mark.slow("a stream for each way of reading")
def test_a_stream_counts_what_every_way_of_reading_meets(p: hr.Pipeline, folder: str, tmp_path: pathlib.Path) -> None:
    columns = "user string, n long, at timestamp, tags array<string>"
    late = tmp_path / "late.json"
    late.write_text('{"user": "amy", "n": 3, "at": "2026-01-01T00:00:03Z", "tags": ["a", "b"]}\n')
    os.utime(f"{folder}/a b.json", (1, 1))  # it comes first, and its bad records move no watermark

    def read(label: str, **options: Any) -> Any:
        return p | label >> hr.ReadJson(folder, schema=columns, event_time="at", **options)

    whole = p | "whole" >> hr.ReadJson(folder, schema=columns, event_time="at").with_exception_handling()
    good, dead = whole.main | hr.Collect(), whole.dead_letters | hr.Collect()
    tags = whole.main | hr.Select("user", tag="explode(tags)") | hr.Collect()
    exploded = read("exploded") | hr.Select(tag="explode(tags)") | hr.Collect()
    some = read("some", bad="skip") | hr.Where("n > 1") | hr.Select("n") | hr.Collect()
    sliding = read("sliding") | hr.WindowInto(hr.SlidingWindows(10, 5)) | hr.GroupBy("user").aggregate(n=hr.sum("n"))
    calendar = read("calendar") | hr.WindowInto(hr.CalendarWindows("day")) | hr.GroupBy("user").aggregate(n=hr.sum("n"))
    sums, days = sliding | hr.Collect(), calendar | hr.Collect()
    handle = p.run(stream=True, max_files_per_batch=1)
    status = handle.wait()
    counts = {MALFORMED: 3, WRONG_TYPE: 3, NO_TIME: 1, ABSURD_TIME: 1}  # as a timestamp, noon is of the wrong type
    metrics = handle.metrics()
    assert (bad_of(metrics["whole"]), metrics["whole"]["out"]) == (counts, len(good))
    assert {letter.element for letter in dead} == set(BAD_LINES)
    assert dict(Counter(letter.error for letter in dead)) == counts
    assert {letter.position for letter in dead} == {f"{folder}/a b.json".replace(" ", "%20")}
    for label in ("exploded", "some", "sliding", "calendar"):
        assert bad_of(metrics[label]) == counts, label
    assert sorted(row.n for row in good) == [1, 2, 3]
    assert sorted(row.tag for row in tags) == sorted(row.tag for row in exploded) == ["a", "b"]
    assert sorted(row.n for row in some) == [2, 3]
    assert sum(row.n for row in sums) == 2 * (1 + 2 + 3)
    assert sorted((row.user, row.n) for row in days) == [("amy", 4), ("bob", 2)]
    assert status.bad["whole"].counts == counts
    assert status.bad["some"].last is None
    assert f"whole had {len(BAD_LINES)} bad records" in str(status)


@pytest.mark.slow("batches and streams of topics")
@pytest.mark.parametrize("stream", [False, True])
def test_topics(p: hr.Pipeline, tmp_path: pathlib.Path, stream: bool) -> None:
    log = Log(tmp_path)
    values = log.create("lines", values="bytes")
    values.append(0, values.batch([line.encode() for line in LINES], timestamps=[0] * len(LINES)))
    seconds = [5, None, 6, 10**12]
    typed = log.create("typed", values="n int, at bigint")
    rows: list[Any] = [{"n": n, "at": at} for n, at in enumerate(seconds)]
    typed.append(0, typed.batch(rows, timestamps=[0] * len(rows)))

    def read(label: str, topic: str, **options: Any) -> Any:
        source = hr.ReadTopic(topic, log=str(tmp_path), event_time="at", end="latest", **options)
        return p | label >> source.with_exception_handling()

    found = {
        "lines": read("lines", "lines", schema=Visit),
        "some": read("some", "lines", schema="user string, n long, at string"),
        "direct": read("direct", "typed"),
        "columns": read("columns", "typed"),
    }
    good = {name: found[name].main for name in found}
    good |= {name: good[name] | f"where {name}" >> hr.Where("n < 2") for name in ("some", "columns")}
    good = {name: each | f"good {name}" >> hr.Collect() for name, each in good.items()}
    dead = {name: each.dead_letters | f"dead {name}" >> hr.Collect() for name, each in found.items()}
    handle = p.run(stream=stream)
    handle.wait()
    positions = {line: f"lines/0@{offset}" for offset, line in enumerate(LINES)}
    for name in ("lines", "some"):
        assert {(letter.element, letter.position) for letter in dead[name]} == {
            (line, positions[line]) for line in BAD_LINES
        }
        assert bad_of(handle.metrics()[name]) == COUNTS
    assert sorted(row.n for row in good["lines"]) == [1, 2]
    assert sorted(row.n for row in good["some"]) == [1]
    for name in ("direct", "columns"):
        assert {(letter.error, letter.message, letter.position) for letter in dead[name]} == {
            (NO_TIME, "the event time 'at' is missing", "typed/0@1"),
            (ABSURD_TIME, "the event time 'at' is 1000000000000, which is not in the years 1 to 9999", "typed/0@3"),
        }
        assert [json.loads(letter.element)["n"] for letter in sorted(dead[name], key=str)] == [1, 3]
        assert bad_of(handle.metrics()[name]) == {NO_TIME: 1, ABSURD_TIME: 1}
    assert sorted(row.n for row in good["direct"]) == [0, 2]
    assert sorted(row.n for row in good["columns"]) == [0]


def test_rows_that_explode_would_lose_come_to_another_tap() -> None:
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson("data", schema="tags array<string>")
    rows | hr.Select(tag="explode(tags)") | hr.Collect()
    lost, all_of_it = lower(p.graph(), shards=1, partitions=1).taps
    assert (lost.name, lost.sees_all) == ("rows", False)
    assert (all_of_it.name, all_of_it.sees_all) == ("rows (2)", True)


def test_the_first_bad_record_of_a_batch_fails_its_program() -> None:
    rows = [None, {"reason": WRONG_TYPE, "message": "m", "position": "visits/0@7", "record": "r"}]
    batch = pa.record_batch({BAD: pa.array(rows, BAD_TYPE)})
    assert BadRecordReader("visits", "skip").read(batch) == [
        hr.DeadLetter("r", "visits", WRONG_TYPE, "m", "visits/0@7")
    ]
    with pytest.raises(WorkerFailure) as failure:
        BadRecordReader("visits", "fail").read(batch)
    assert str(transform_error(failure.value)) == (
        "'visits' failed on the element r: wrong type: m, at visits/0@7; bad='dead_letters' would go on without it"
    )


def test_what_is_refused() -> None:
    with pytest.raises(hr.PipelineError, match="'dead_letters', 'fail' or 'skip', got 'drop'"):
        hr.ReadJson("x", bad="drop")  # type: ignore[arg-type]
    with pytest.raises(hr.PipelineError, match="with bad='skip' there are no dead letters"):
        hr.ReadJson("x", bad="skip").with_exception_handling()
    with pytest.raises(hr.PipelineError, match="none of its records can be bad"):
        hr.ReadParquet("x").with_exception_handling()


def test_a_field_without_an_end_is_malformed_whatever_follows(spark: SparkSession) -> None:
    drawn = ['{"more": {}, "user":{ "b{"}', '{"user": {"b": 1}}', '{"user": "b", "count": "c"}']
    table = pa.table({parsing.TEXT: drawn, "number": range(len(drawn))})
    records = parsing.json_records(
        spark.createDataFrame(table), StructType.fromDDL(SCHEMA), F.col("number").cast("string")
    )
    rows = sorted(parsing.checked(records, None, F.lit(0)).collect(), key=lambda row: row.number)
    assert [row[BAD] and row[BAD].reason for row in rows] == [reason(line, event_time=None) for line in drawn]
