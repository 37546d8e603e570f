"""Columns that are wrong are refused before Spark starts, with the nearest name; those that may be right are not."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.plan.columnchecks import check_columns
from headrace.model.ddl import ddl_columns
from headrace.model.errors import PipelineError


class Sale(NamedTuple):
    city: str
    price: float
    at: dt.datetime


SALES = [Sale("Rome", 3.5, dt.datetime(2026, 1, 31, tzinfo=dt.UTC))]
SOURCES: dict[str, Any] = {
    "created": lambda folder: hr.Create(SALES).with_output_types(Sale),
    "csv": lambda folder: hr.ReadCsv(f"{folder}/*.csv", schema="city string, price double, at timestamp"),
    "json": lambda folder: hr.ReadJson(f"{folder}", schema="city string, price double, at timestamp"),
    "topic": lambda folder: hr.ReadTopic("sales", log=f"{folder}/log"),
    "json topic": lambda folder: hr.ReadTopic(
        "kafka://127.0.0.1:9/sales", schema="city string, price double, at timestamp"
    ),
}
WRONG: dict[str, tuple[Any, str]] = {
    "key": (hr.GroupBy("ctiy").aggregate(n=hr.count()), "there is no column 'ctiy', did you mean 'city'? There are"),
    "aggregated": (hr.GroupBy().aggregate(n=hr.sum("prize")), "there is no column 'prize', did you mean 'price'?"),
    "selected": (hr.Select("ctiy"), "there is no column 'ctiy', did you mean 'city'? There are city, price, at"),
    "renamed": (hr.Select(town="`ctiy`"), "there is no column 'ctiy', did you mean 'city'?"),
    "condition": (hr.Where("soldd"), "there is no column 'soldd'; there are city, price, at"),
    "comparison": (hr.Where("ctiy = 'Rome' AND price > 1"), "there is no column 'ctiy', did you mean 'city'?"),
    "expression": (hr.Select("city", twice="prise * 2"), "there is no column 'prise', did you mean 'price'? There are"),
    "sum": (hr.GroupBy("city").aggregate(n=hr.sum("city")), "sum needs numbers, and 'city' is a string; convert it"),
    "mean": (hr.GroupBy("city").aggregate(n=hr.mean("at")), "mean needs numbers, and 'at' is a timestamp"),
    "distinct": (hr.GroupBy().aggregate(n=hr.approx_distinct("price")), "approx_distinct counts whole numbers, text"),
    "rank": (hr.GroupBy().aggregate(n=hr.rank("city", of=3)), "rank needs numbers, and 'city' is a string; convert it"),
    "histogram": (hr.GroupBy().aggregate(n=hr.histogram("at")), "histogram needs numbers, and 'at' is a timestamp"),
    "theta": (
        hr.GroupBy().aggregate(n=hr.theta("price")),
        "theta takes whole numbers, text and bytes, and 'price' is a",
    ),
    "bloom": (
        hr.GroupBy().aggregate(n=hr.bloom("at")),
        "bloom takes whole numbers, text and bytes, and 'at' is a time",
    ),
    "frequency": (
        hr.GroupBy().aggregate(n=hr.frequency("city", of=["Rome", 3])),
        "frequency: 'city' is a string, and never 3; give values of its type",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hr.Log(tmp_path / "log").create("sales", values="city string, price double, at timestamp")
    return tmp_path


def refusal(p: hr.Pipeline) -> str:
    """What `run` refuses, and `explain` as well, without Spark: tests that start it unasked fail."""
    with pytest.raises(PipelineError) as explained:
        p.explain()
    with pytest.raises(PipelineError) as run:
        p.run()
    assert str(run.value) == str(explained.value)
    assert "__" not in str(run.value)
    return str(run.value)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("wrong", WRONG)
def test_typos_and_wrong_types_are_refused_before_spark_starts(folder: Path, source: str, wrong: str) -> None:
    p = hr.Pipeline()
    transform, expected = WRONG[wrong]
    windowed = p | SOURCES[source](folder) | hr.Where("price > 1") | hr.WindowInto(hr.FixedWindows(5))
    _ = windowed | "here" >> transform | hr.Collect()
    assert refusal(p).startswith("'here' (tests/engine/plan/test_columnchecks.py:") and expected in refusal(p)


def test_columns_are_followed_through_select_and_aggregation() -> None:
    p = hr.Pipeline()
    sales = p | hr.Create(SALES).with_output_types(Sale) | hr.Select("*", town="city", day="date(at)")
    named = sales | "named" >> hr.Select("town", "day AS date", "price")
    counted = named | hr.GroupBy("town", "date").aggregate(total=hr.sum("price"))
    _ = counted | hr.Select("town", "totla") | hr.Collect()
    assert "there is no column 'totla', did you mean 'total'? There are town, date, total" in refusal(p)


def test_what_may_be_right_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "data/day=2026-01-31").mkdir(parents=True)
    p = hr.Pipeline()
    partitioned = p | hr.ReadJson(f"{tmp_path}/data", schema="city string")
    _ = partitioned | hr.GroupBy("day").aggregate(n=hr.count()) | "days" >> hr.Collect()
    inferred = p | "inferred" >> hr.ReadCsv(f"{tmp_path}/*.csv")
    _ = inferred | "by city" >> hr.GroupBy("city").aggregate(n=hr.sum("price")) | "cities" >> hr.Collect()
    made = p | "made" >> hr.Create(SALES).with_output_types(Sale)
    right = ["CITY", "current_date", "null", "true", "1", "'text'", "user", hr.EVENT_TIME, "__time", "upper(nation)"]
    right += ["transform(array(1), cit -> cit + 1)", "struct(price AS cty).cty", "extract(year FROM at)", "price <"]
    _ = made | hr.Select(**{f"c{number}": text for number, text in enumerate(right)}) | "all" >> hr.Collect()
    named = made | "named" >> hr.Select("city as town", "price * 2")
    _ = named | "by town" >> hr.GroupBy("tow").aggregate(n=hr.count()) | "towns" >> hr.Collect()
    twice = made | "twice" >> hr.Select(price="price * 2")
    _ = twice | "of twice" >> hr.GroupBy().aggregate(n=hr.approx_distinct("price")) | "doubled" >> hr.Collect()
    assert check_columns(p.graph()) == p.graph()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("customer_id itn", "the column 'customer_id' has the type 'itn', which does not exist; did you mean 'int'?"),
        ("a string, b strnig", "the column 'b' has the type 'strnig', which does not exist; did you mean 'string'?"),
        ("a uuid", "the column 'a' has the type 'uuid', which does not exist; there are string, bigint"),
        ("a", "a column is a name and a type, such as 'user string', got 'a'"),
        ("a string,", "a column is a name and a type, such as 'user string', got ''"),
    ],
)
def test_schemas_that_cannot_be_read_are_told(schema: str, expected: str) -> None:
    p = hr.Pipeline()
    _ = p | hr.ReadJson("data", schema=schema) | hr.Collect()
    assert refusal(p).startswith("'ReadJson' (tests/engine/plan/test_columnchecks.py:") and expected in refusal(p)


def test_schemas_as_spark_writes_them_are_read() -> None:
    text = (
        "`a,b` INT NOT NULL COMMENT 'x, y', s: struct<p: int, q: array<map<string, decimal(10,2)>>>, d decimal(10, 2)"
    )
    assert [*ddl_columns(text)] == ["a,b", "s", "d"]
    assert str(ddl_columns(text)["a,b"]) == "int32"
