"""Expressions over Arrow: which ones of Catalyst's there are, and that their answers are Spark's, bit for bit."""

from __future__ import annotations

import math
import pickle
import re
import struct
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.catalyst import arrowexpressions
from headrace.engine.catalyst.analysis import quiet_analysis
from headrace.engine.catalyst.arrowexpressions import Untranslated
from headrace.engine.columns.expressions import Expression, Rows, UnsureColumns
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAN, INF = float("nan"), float("inf")
TIMES = [0, -1, 1, 1_700_000_000_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999, -(2**52), 3_599_999_999]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [0, 1, -1, 127, -128, 5]),
    "small": (pa.int16(), [0, 1, -1, 32767, -32768, 300]),
    "i": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), 7, 123]),
    "j": (pa.int32(), [0, 2, -3, 2**31 - 1, 10]),
    "n": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 123, 246]),
    "m": (pa.int64(), [0, 3, -4, 10**12, 2**31]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, -1.5, NAN, INF, -INF, 1e-45, 3.4e38]),
    "x": (pa.float64(), [0.0, -0.0, 1.5, -2.5, NAN, INF, -INF, 1e308, 2.0**63, -(2.0**31) - 0.5, 1e-320]),
    "y": (pa.float64(), [0.0, 2.0, NAN, 0.1, 1e9]),
    "s": (pa.string(), ["", "a", "abc", "ABC", "c%_c", "é", "😀c", "b\x00", "zz", "￿"]),
    "u": (pa.string(), ["", "a", "b", "😀c"]),
    "d": (pa.date32(), [0, -1, 18_262, 2_932_896, -719_162, -141_428]),
    "t": (pa.timestamp("us", "UTC"), TIMES),
    "o": (pa.timestamp("us", "UTC"), TIMES[:4]),
    "local": (pa.timestamp("us"), TIMES),
    "dec": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99"), Decimal("0.01")]),
    "cents": (pa.decimal128(12, 4), [Decimal("0.0100"), Decimal("-1.5000"), Decimal("12345678.9012")]),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
COMPARED = [f"({{k}} {sign} {{k}})" for sign in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
COMPARED += ["({k} BETWEEN {k} AND {k})", "({k} IN ({k}, {k}))", "({k} IS NULL)", "({k} IS NOT NULL)"]
GRAMMAR: dict[str, list[str]] = {
    "any": ["{flag}", "{flag}", "{number}", "{number}", "{whole}", "{text}", "{text}", "{time}", "{date}", "local"],
    "flag": [
        *["flag", "isnan({number})", "CAST({number} AS BOOLEAN)", "(local < timestamp_ntz'2020-01-01 00:00:00')"],
        *["({flag} AND {flag})", "({flag} OR {flag})", "(NOT {flag})", "({flag} = {flag})", "({flag} <=> {flag})"],
        *[
            text.replace("{k}", f"{{{kind}}}")
            for kind in ("number", "whole", "text", "time", "date")
            for text in COMPARED
        ],
        *["({whole} IN (1, 123, NULL))", "({number} IN (0.0D, 1.5D))", "({text} IN ('a', '😀c'))"],
        *[f"({{text}} LIKE {pattern})" for pattern in ("'a%'", "'%c'", "'%b%'", "'abc'", "'a_c'", "'%'", "''")],
        *["startswith({text}, 'a')", "endswith({text}, 'c')", "contains({text}, 'b')"],
    ],
    "whole": [
        *["tiny", "small", "i", "j", "n", "m", "i", "n", "0", "1", "-1", "123", "3L", "9223372036854775807"],
        *[f"({{whole}} {sign} {{whole}})" for sign in ("+", "-", "*", "%", "div")],
        *[f"CAST({{number}} AS {kind})" for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")],
        *[
            "pmod({whole}, {whole})",
            "greatest({whole}, {whole})",
            "least({whole}, {whole}, i)",
            "CAST({time} AS BIGINT)",
        ],
        *["CAST({flag} AS INT)", "CAST({flag} AS BIGINT)", "(- {whole})", "abs({whole})", "length({text})"],
        *[f"{part}({{time}})" for part in ("hour", "minute", "second", "year", "month", "day")],
        *["year({date})", "month({date})", "day({date})", "if(j <> 0, i % j, {whole})", "(j <> 0 AND i % j > 1)"],
    ],
    "number": [
        *["{whole}", "f", "x", "y", "dec", "cents", "0.5D", "1e9", "2.50", "'7'", "float('inf')"],
        *[f"({{number}} {sign} {{number}})" for sign in ("+", "-", "*", "/")],
        *[f"CAST({{number}} AS {kind})" for kind in ("FLOAT", "DOUBLE", "DECIMAL(20,0)", "DECIMAL(30,6)")],
        *["CAST({flag} AS DOUBLE)", "(- {number})", "abs({number})", "coalesce({number}, {number})"],
        *["nvl({whole}, {whole})", "CASE WHEN {flag} THEN {number} ELSE {number} END"],
        "if({flag}, {number}, {number})",
    ],
    "text": [
        *["s", "u", "s", "''", "'a'", "'c'", "'😀c'", "({text} || {text})", "coalesce({text}, {text})"],
        *["replace({text}, 'c', '')", "replace({text}, 'a', 'xyz')", "CAST({whole} AS STRING)"],
        *["CAST({flag} AS STRING)", "CASE WHEN {flag} THEN {text} END", "if({flag}, {text}, {text})"],
        "CASE WHEN {flag} THEN {text} WHEN {flag} THEN {text} ELSE {text} END",
        *["date_format({time}, 'yyyy-MM-dd')", "CAST({date} AS STRING)"],
        *["substring({text}, 1, 2)", "substring({text}, 2, 0)", "substring({text}, 2, 2147483647)"],
    ],
    "time": [
        *["t", "o", "timestamp'2023-11-14 22:13:20.123456'", "'2020-02-29'", "timestamp_micros(m)"],
        *["coalesce({time}, {time})", "if({flag}, t, o)", "greatest({time}, {time})", "least({time}, {time})"],
        *[f"date_trunc('{unit}', {{time}})" for unit in ("second", "MINUTE", "hour", "DAY", "month", "week")],
    ],
    "date": ["d", "date({time})", "date'2020-01-01'", "coalesce({date}, d)"],
}
"""Forms of expressions by the kind of their values: all that is translated, for more types than are, and others."""


def grown(random: Random, text: str = "{any}", depth: int = 4) -> str:
    """Replaces each kind in a form by an expression of it."""

    def one(match: re.Match[str]) -> str:
        forms = GRAMMAR[match[1]]
        return grown(random, random.choice(forms if depth else [form for form in forms if "{" not in form]), depth - 1)

    return re.sub(r"\{(\w+)\}", one, text)


def table_of(random: Random) -> pa.Table:
    rows = random.randint(1, 60)
    return pa.table([random.choices([None, *values], k=rows) for _, values in VALUES.values()], schema=SCHEMA)


def bits(value: Any) -> Any:
    """A value that is equal to another just if these are the same bit for bit; there is one NaN."""
    return struct.pack("d", value) if isinstance(value, float) and not math.isnan(value) else repr(value)


def column(array: pa.Array) -> list[Any]:
    if pa.types.is_temporal(array.type):  # which Python has not all of
        return [array.type, *array.cast(pa.int32() if pa.types.is_date(array.type) else pa.int64()).to_pylist()]
    return [array.type, *map(bits, array.to_pylist())]


def translated(frame: DataFrame, expression: str | Column) -> Expression | None:
    chosen = F.expr(expression) if isinstance(expression, str) else expression
    with quiet_analysis():
        try:
            return arrowexpressions.selected(frame, frame.select(chosen.alias("out")))["out"]
        except Untranslated:
            return None


def computed(frame: DataFrame, batch: pa.RecordBatch, text: str) -> list[Any] | None:
    """What Arrow makes of an expression; None if it is Spark's, or none."""
    try:
        expression = translated(frame, text)
        if expression is None:
            return None
        return column(pickle.loads(pickle.dumps(expression)).array(Rows(batch)))  # as workers get it
    except (AnalysisException, UnsureColumns):
        return None


@pytest.mark.slow("a job of Spark for each example, and its analysis of each expression")
@examples(100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_answers_are_those_of_spark(spark: SparkSession, tmp_path_factory: Any, seed: int) -> None:
    random = Random(seed)
    table, path = table_of(random), str(tmp_path_factory.mktemp("rows") / "rows.parquet")
    pq.write_table(table, path)
    frame, (batch,) = spark.read.parquet(path), table.to_batches()
    answers = {text: computed(frame, batch, text) for text in {grown(random) for _ in range(25)}}
    ours = {text: answer for text, answer in answers.items() if answer is not None}
    if ours:
        spark_s = frame.select(*[F.expr(text).alias(f"c{number}") for number, text in enumerate(ours)]).toArrow()
        theirs = [column(each.combine_chunks()) for each in spark_s.columns]
        assert dict(zip(ours, theirs, strict=True)) == ours


TRANSLATED = {
    "Add": "i + 1",
    "Subtract": "dec - cents",
    "Multiply": "0.908D * n",
    "Divide": "x / y",
    "IntegralDivide": "n div m",
    "Remainder": "n % 123",
    "Pmod": "pmod(n, 10)",
    "UnaryMinus": "- i",
    "Abs": "abs(x)",
    "EqualTo": "flag = (i = 1)",
    "EqualNullSafe": "s <=> u",
    "LessThan": "t < '2020-01-01'",
    "LessThanOrEqual": "d <= date'2020-01-01'",
    "GreaterThan": "s > 'a'",
    "GreaterThanOrEqual": "dec >= 1",
    "In": "s IN ('a', NULL)",
    "And": "flag AND i BETWEEN 1 AND 5",
    "Or": "flag OR i = 1",
    "Not": "NOT flag",
    "IsNull": "s IS NULL",
    "IsNotNull": "s IS NOT NULL",
    "IsNaN": "isnan(x)",
    "CaseWhen": "CASE WHEN hour(t) BETWEEN 8 AND 18 THEN 'day' ELSE 'night' END",
    "If": "if(flag, i, j)",
    "Coalesce": "coalesce(i, n)",
    "Greatest": "greatest(i, n)",
    "Least": "least(i, n)",
    "Cast": "CAST(n < 10000 AS BIGINT)",
    "Hour": "hour(t)",
    "Minute": "minute(t)",
    "Second": "second(t)",
    "Year": "year(t)",
    "Month": "month(d)",
    "DayOfMonth": "day(d)",
    "MicrosToTimestamp": "timestamp_micros(n)",
    "TruncTimestamp": "date_trunc('HOUR', t)",
    "DateFormatClass": "date_format(t, 'yyyy-MM-dd')",
    "Length": "length(s)",
    "Substring": "substring(s, 1, 2)",
    "StringReplace": "replace(s, 'c', '')",
    "Like": "s LIKE 'a%'",
    "StartsWith": "startswith(s, 'a')",
    "EndsWith": "endswith(s, 'a')",
    "Contains": "contains(s, 'a')",
    "Concat": "s || u",
}
CATALYST_S = ["upper(s)", "rand()", "current_timestamp()", "try_add(i, 1)", "try_cast(x AS INT)", "x % y", "dec / 2"]
CATALYST_S += [
    "s LIKE 'a_'",
    "s COLLATE UNICODE_CI = 'a'",
    "CAST(x AS STRING)",
    "explode(array(i))",
    "s IN (u)",
    "NULL",
]
CATALYST_S += [
    "row_number() OVER (ORDER BY i)",
    "CAST(dec AS DOUBLE)",
    "CAST(s AS INT)",
    "replace(s, u, '')",
    "array(i)",
]


@pytest.fixture(scope="module")
def no_rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], from_arrow_schema(SCHEMA))


def test_which_expressions_are_translated(no_rows: DataFrame) -> None:
    assert list(TRANSLATED) == list(arrowexpressions._RULES), "each kind on the list has an example here"
    assert [text for text in TRANSLATED.values() if translated(no_rows, text) is None] == []
    assert [text for text in CATALYST_S if translated(no_rows, text) is not None] == []
    twice = (F.col("n") + 1) * F.when(F.col("flag"), 2).otherwise(3)  # Columns are as good as text
    assert translated(no_rows, twice) is not None
    assert arrowexpressions.condition(no_rows, no_rows.where("N > 1")).columns == {"n"}
    with pytest.raises(Untranslated, match="Rand"):
        arrowexpressions.condition(no_rows, no_rows.where("rand() > 0.5"))
    with pytest.raises(Untranslated, match="one name"):
        arrowexpressions.selected(no_rows, no_rows.select("s", "s"))
    with pytest.raises(Untranslated, match="Project over LogicalRDD"):
        arrowexpressions.selected(no_rows.where("n > 1"), no_rows.select("s"))


@pytest.mark.parametrize(
    ("setting", "value", "texts"),
    [
        ("spark.sql.ansi.enabled", "false", ["i + 1", "n % 123", "- i", "CAST(x AS INT)"]),
        ("spark.sql.session.timeZone", "Europe/Zurich", ["hour(t)", "date(t)", "year(t)"]),
    ],
)
def test_other_settings_leave_expressions_to_spark(
    spark: SparkSession, setting: str, value: str, texts: list[str]
) -> None:
    session = spark.newSession()
    session.conf.set(setting, value)
    frame = session.createDataFrame([], from_arrow_schema(SCHEMA))
    assert [text for text in texts if translated(frame, text) is not None] == []


def test_what_a_condition_guards_is_not_computed_elsewhere(no_rows: DataFrame) -> None:
    batch = pa.record_batch([pa.array([6, 7, None], pa.int32()), pa.array([3, 0, 1], pa.int32())], names=["i", "j"])
    guarded = ["if(j <> 0, i % j, -1)", "j <> 0 AND i % j = 0", "j = 0 OR i % j = 0", "coalesce(i, i % j)"]
    answers = [[0, -1, None], [True, False, None], [True, True, None], [6, 7, None]]
    for text, answer in zip(guarded, answers, strict=True):
        expression = translated(no_rows, text)
        assert expression is not None and expression.array(Rows(batch)).to_pylist() == answer
    unguarded = translated(no_rows, "i % j")
    assert unguarded is not None and unguarded.may_fail
    with pytest.raises(UnsureColumns, match="divide by zero"):
        unguarded.array(Rows(batch))


def test_texts_that_are_not_utf_8_are_left_to_spark(no_rows: DataFrame) -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"a\xff"], pa.binary()).buffers())
    lengths = translated(no_rows, "length(s)")
    assert lengths is not None
    with pytest.raises(UnsureColumns, match="UTF8"):
        lengths.array(Rows(pa.record_batch({"s": broken})))
