"""What only Spark can refuse is told in a line: without its log, and without columns that users do not know."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.catalyst import parsing
from headrace.engine.catalyst.analysis import analysis_message, quiet_analysis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def sales(tmp_path: Path) -> Any:
    """A source whose columns only Spark knows."""
    (tmp_path / "sales.csv").write_text("city,price\nRome,3.5\n")
    return hr.ReadCsv(f"{tmp_path}/sales.csv")


WRONG = [
    (hr.Where("price <"), "'here' (", "Syntax error at or near end of input"),
    (hr.Where("price <"), "", "'price <'"),
    (hr.Where("ctiy = 'Rome'"), "", "there is no column 'ctiy', did you mean 'city'? There are city, price"),
    (hr.Select("upper(ctiy)"), "", "there is no column 'ctiy', did you mean 'city'? There are city, price"),
    (hr.Select(x="nope(city)"), "", "nope"),
    (hr.GroupBy("ctiy").aggregate(n=hr.count()), "", "there is no column 'ctiy', did you mean 'city'?"),
    (hr.GroupBy().aggregate(n=hr.sum("prize")), "", "there is no column 'prize', did you mean 'price'?"),
    (hr.GroupBy().aggregate(n=hr.sum("city")), "", "sum needs numbers, and 'city' is a string"),
    (hr.GroupBy().aggregate(n=hr.approx_distinct("price")), "", "approx_distinct counts whole numbers, text and bytes"),
]


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_have_the_place_and_the_reason(
    spark: SparkSession, sales: Any, stream: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    for transform, start, reason in WRONG:
        p = hr.Pipeline(spark=spark)
        _ = p | sales | hr.WindowInto(hr.FixedWindows(5)) | "here" >> transform | hr.Collect()
        with pytest.raises(hr.PipelineError) as refusal:
            p.run(stream=stream).wait()
        message = str(refusal.value)
        assert message.startswith(f"{start or chr(39)}") and "test_analysis.py:" in message and reason in message
        assert len(message.splitlines()) == 1 and "__" not in message and "SQLSTATE" not in message, message
    assert capfd.readouterr().err == ""


def test_schemas_that_spark_refuses_carry_its_reason(spark: SparkSession) -> None:
    with pytest.raises(Exception) as refusal, quiet_analysis():
        parsing.struct_of("user decimal(99, 1)")
    assert analysis_message(refusal.value) == "Decimal precision 99 exceeds max precision 38."


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for stream in (False, True):
        ran: list[int] = []
        p = hr.Pipeline(spark=spark)
        numbers = p | hr.Create([1])
        _ = numbers | hr.WriteText(f"{tmp_path}/file/out")
        _ = numbers | hr.ForEachBatch(lambda elements, number, ran=ran: ran.append(number))
        with pytest.raises(hr.PipelineError, match=r"'WriteText' \(.*/file/out' cannot be written to: "):
            p.run(stream=stream).wait()
        assert ran == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_star_is_all_columns_that_users_know(spark: SparkSession, sales: Any, stream: bool) -> None:
    p = hr.Pipeline(spark=spark)
    rows = p | sales | hr.WindowInto(hr.FixedWindows(5))
    more = rows | hr.Select("*", twice="price * 2") | hr.Collect()
    made = rows | hr.Map(lambda row: (row.city, 7)).with_output_types(tuple[str, int])
    behind = made | "behind" >> hr.Select("*", twice="_2 * 2") | "more" >> hr.Collect()
    p.run(stream=stream).wait()
    assert [row._asdict() for row in more] == [{"city": "Rome", "price": 3.5, "twice": 7.0}]
    assert [row._asdict() for row in behind] == [{"_1": "Rome", "_2": 7, "twice": 14}]
