"""Joins of columns on Spark, batch and stream, against the naive definition."""

from __future__ import annotations

import json
import math
import pathlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from tests.reference_joins import AsOfJoin, Placed, TimedJoin, join
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT = "id long, code string, x double, at long"
RIGHT = "key int, code string, z double, label string, when long"
KEYS = st.none() | st.integers(0, 2)
CODES = st.sampled_from([None, "", "a", "b"])
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.0, float("nan")])
TIMES = st.integers(0, 2).map(lambda minute: 60 * minute)
left_rows = st.lists(st.fixed_dictionaries({"id": KEYS, "code": CODES, "x": FLOATS, "at": TIMES}), max_size=6)
right_rows = st.lists(
    st.fixed_dictionaries({"key": KEYS, "code": CODES, "z": FLOATS, "label": CODES, "when": TIMES}), max_size=6
)
PAIRS = [(("id", "key"), ("code", "code")), (("code", "code"),), (("x", "z"), ("code", "code"))]
NAMES = {
    PAIRS[0]: ["id", "code", "x", "at", "z", "label", "when"],
    PAIRS[1]: ["id", "code", "x", "at", "key", "z", "label", "when"],
    PAIRS[2]: ["id", "code", "x", "at", "key", "label", "when"],
}
MINUTE = hr.FixedWindows(60)


def placed(rows: list[dict[str, Any]], time: str | None) -> list[Placed]:
    return [(row, None if time is None else row[time]) for row in rows]


def shown(rows: list[Placed]) -> Counter[str]:
    return Counter(repr(({name: _number(value) for name, value in row.items()}, window)) for row, window in rows)


def _number(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value  # -0.0 and 0.0 are one value


def found(collected: Any, *, windowed: bool) -> Counter[str]:
    return shown(
        [(each.value._asdict(), each.window.start // 10**6 if windowed else None) for each in collected.windowed]
    )


@only_full("streams join with a table in every run")
@pytest.mark.slow("some dozens of joins on Spark")
@examples(40)
@given(left_rows, right_rows, st.sampled_from(PAIRS), st.sampled_from(["inner", "left", "right", "outer"]))
def test_batches_join_as_tables_of_sql(
    spark: SparkSession, left: list[dict[str, Any]], right: list[dict[str, Any]], pairs: Any, how: Any
) -> None:
    names = NAMES[pairs]
    p = hr.Pipeline(spark=spark)
    ours = p | "left" >> hr.Create(left, schema=LEFT, event_time="at")
    theirs = p | "right" >> hr.Create(right, schema=RIGHT, event_time="when")
    tables = ours | "tables" >> hr.Join(theirs, on=pairs, how=how) | "of tables" >> hr.Collect()
    minutes = [each | f"minutes of {each.label}" >> hr.WindowInto(MINUTE) for each in (ours, theirs)]
    windows = minutes[0] | "windows" >> hr.Join(minutes[1], on=pairs, how=how) | "of windows" >> hr.Collect()
    kept = how if how in ("inner", "left") else "inner"
    side = minutes[0] | "side" >> hr.Join(theirs, on=pairs, how=kept) | "of side" >> hr.Collect()
    valid = ours | "valid" >> hr.AsOfJoin(theirs, on=pairs, how=kept) | "of valid" >> hr.Collect()
    timed = ours | "timed" >> hr.Join(theirs, on=pairs, how=how, within=(-60, 0)) | "of timed" >> hr.Collect()
    p.run().wait()
    naive = TimedJoin(pairs, how, names, 0, (-60, 0)).step(placed(left, "at"), placed(right, "when"), math.inf)
    assert shown([(each.value._asdict(), each.timestamp // 10**6) for each in timed.windowed]) == shown(naive)
    naive = AsOfJoin(pairs, kept, names, 0).step(placed(left, "at"), placed(right, "when"), math.inf)
    assert shown([(each.value._asdict(), each.timestamp // 10**6) for each in valid.windowed]) == shown(naive)
    assert found(tables, windowed=False) == shown(join(placed(left, None), placed(right, None), pairs, how, names))
    assert found(windows, windowed=True) == shown(join(placed(left, "at"), placed(right, "when"), pairs, how, names))
    assert found(side, windowed=True) == shown(join(placed(left, "at"), placed(right, None), pairs, kept, names))


class Visit(NamedTuple):
    id: int | None
    code: str | None
    x: float | None
    at: int


@pytest.mark.slow("a stream for each example")
@examples(10)
@given(st.lists(left_rows, min_size=1, max_size=3), right_rows, st.sampled_from(PAIRS))
def test_streams_join_with_a_table(
    spark: SparkSession, batches: list[list[dict[str, Any]]], right: list[dict[str, Any]], pairs: Any
) -> None:
    names = NAMES[pairs]
    p = hr.Pipeline(spark=spark)
    table = p | "right" >> hr.Create(right, schema=RIGHT) | "same" >> hr.Where("true")
    script = hr.TestStream().with_output_types(Visit)
    for rows in batches:
        script = script.add([hr.TimestampedValue(Visit(**row), row["at"]) for row in rows])
    visits = p | "visits" >> script.advance_watermark(3600).finish()
    passed = visits | "passed" >> hr.Map(lambda visit: visit).with_output_types(Visit)  # columns behind Python
    minutes = visits | hr.WindowInto(MINUTE)
    results = {}
    for name, stream in {"columns": visits, "python": passed, "windows": minutes}.items():
        for how in ("inner", "left"):
            joined = stream | f"{name} {how}" >> hr.Join(table, on=pairs, how=how)
            results[name, how] = joined | f"of {name} {how}" >> hr.Collect()
    left_in_windows = minutes | "counted join" >> hr.Join(table, on=pairs, how="left")
    counts = left_in_windows | hr.GroupBy("code").aggregate(n=hr.count()) | "counts" >> hr.Collect()
    p.run().wait()
    rows = [row for batch in batches for row in batch]
    for (name, how), collected in results.items():
        windowed = name == "windows"
        expected = join(placed(rows, "at" if windowed else None), placed(right, None), pairs, how, names)
        assert found(collected, windowed=windowed) == shown(expected), (name, how)
    by_window = Counter(
        (row["code"], window) for row, window in join(placed(rows, "at"), placed(right, None), pairs, "left", names)
    )
    assert {(each.value.code, each.window.start // 10**6): each.value.n for each in counts.windowed} == by_window


def test_rows_that_match_nothing_still_move_the_watermark(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    for number, rows in enumerate([[("a", 0), ("x", 1000)], [("a", 1), ("a", 1001)]]):
        lines = [json.dumps({"code": code, "at": at}) for code, at in rows]
        file = tmp_path / f"{number}.json"
        file.write_text("\n".join(lines))
    p = hr.Pipeline(spark=spark)
    table = p | "table" >> hr.Create([{"code": "a", "label": "A"}], schema="code string, label string")
    read = p | "read" >> hr.ReadJson(str(tmp_path), schema="code string, at long", event_time="at")
    joined = read | hr.Join(table, on="code") | hr.WindowInto(MINUTE)
    counts = joined | "counts" >> hr.GroupBy("label").aggregate(n=hr.count()) | hr.Collect()
    handle = p.run(stream=True, max_files_per_batch=1)
    handle.wait()
    assert sorted((each.window.start // 10**6, each.value.n) for each in counts.windowed) == [(0, 1), (960, 1)]
    assert handle.metrics()["counts"]["late"] == 1


def test_a_table_of_a_stream_is_what_a_batch_gives(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    (tmp_path / "people.json").write_text('{"id": 1, "name": "amy"}\noops\n{"id": 1, "name": "eve"}\n')
    p = hr.Pipeline(spark=spark)
    people = p | "people" >> hr.ReadJson(str(tmp_path), schema="id long, name string")
    counts = people | hr.GroupBy("id").aggregate(n=hr.count())
    more = counts | "more" >> hr.Map(lambda row: (row.id, row.n + 40)).with_output_types(tuple[int, int])
    numbers = p | "numbers" >> hr.TestStream().with_output_types(int).add([1, 2]).add([1]).finish()
    both = numbers | hr.Join(more, on={"value": "_1"}, how="left")
    joined = both | hr.Select(n="value", plus="_2 + 0") | hr.Collect()
    handle = p.run()
    handle.wait()
    assert sorted(joined, key=str) == [(1, 42), (1, 42), (2, None)]
    assert handle.metrics()["people"] == {"malformed": 1} and handle.metrics()["more"] == {"in": 1, "out": 1}
    assert handle.status().bad["people"].count == 1


def test_self_joins_odd_names_and_readers_of_one_source(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    dicts = [{"odd.id": 1, "parent `x`": 2}, {"odd.id": 2, "parent `x`": None}]
    rows = p | hr.Create(dicts, schema="`odd.id` int, `parent ``x``` int")
    parents = rows | "parents" >> hr.Select(key="`odd.id`", grand="`parent ``x```")
    family = rows | "family" >> hr.Join(parents, on={"parent `x`": "key"}, how="left") | "of family" >> hr.Collect()
    all_rows = rows | "all" >> hr.Collect()
    twice = rows | "twice" >> hr.Join(rows, on=["odd.id", "parent `x`"]) | "of twice" >> hr.Collect()
    p.run().wait()
    assert sorted(family, key=str) == [(1, 2, None), (2, None, None)] and len(all_rows) == 2
    assert list(twice) == [(1, 2)]


def test_what_only_spark_knows_is_refused_before_a_job_runs(spark: SparkSession) -> None:
    for right, on, stream, message in [
        (
            "key string",
            {"id": "key"},
            False,
            r"'id' on the left is a bigint, and 'key' on the right a string",
        ),
        (
            "key string",
            {"id": "key"},
            True,
            r"never the same; convert one first, e.g. Select\(id='cast\(id as",
        ),
        ("key long", {"id": "kye"}, False, "on the right, there is no column 'kye', did you mean 'key'"),
        ("key long, Id long", {"id": "key"}, True, "both collections have a column 'Id'"),
    ]:
        p = hr.Pipeline(spark=spark)
        table = p | "table" >> hr.Create([], schema=right)
        _ = p | hr.Create([{"id": 1}], schema="id long") | "join" >> hr.Join(table, on=on) | hr.Collect()
        with pytest.raises(hr.PipelineError, match=f"'join' .*{message}"):
            p.run(stream=stream).wait()
