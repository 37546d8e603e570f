"""Which queries are of one shape, and what is left of them."""

from __future__ import annotations

import pytest

from headrace.dialects.sql.shapes import Shape, shape_of
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream, parse_statements
from headrace.model.matching import GREATEST, LEAST, Parameter, sort_key

STREAM = "CREATE STREAM trades (symbol text, price double, size bigint, day date, at timestamp, WATERMARK FOR at AS at)"


def shape(
    where: str, select: str = "SELECT symbol, count(*) AS n FROM trades", tail: str = "GROUP BY symbol"
) -> Shape | None:
    stream, view = parse_statements(f"{STREAM}; CREATE VIEW v AS {select} WHERE {where} {tail}")
    assert isinstance(stream, CreateStream) and isinstance(view, CreateQuery)
    return shape_of(view, {"trades": stream})


def test_queries_that_differ_in_constants_have_one_shape() -> None:
    first = shape("symbol = 'IBM' AND price > 100")
    assert first is not None
    assert first.parameters == (Parameter("price", "range"), Parameter("symbol", "in"))
    assert first.constants == ([sort_key(100.0) + 1, GREATEST], ["IBM"])
    others = [
        "symbol IN ('IBM', 'SAP') AND price BETWEEN 1 AND 2.5",
        "-1e3 >= Price AND ('x' = symbol /* so */)",
        "trades.price < 7 AND price >= 3 AND symbol = 'a'",
    ]
    found = [shape(each) for each in others]
    assert [each and each.name for each in found] == [first.name] * 3
    constants = [each.constants for each in found if each is not None]
    assert constants[0] == ([sort_key(1.0), sort_key(2.5)], ["IBM", "SAP"])
    assert constants[1] == ([LEAST, sort_key(-1000.0)], ["x"])
    assert constants[2] == ([sort_key(3.0), sort_key(7.0) - 1], ["a"])


def test_all_else_is_part_of_the_shape() -> None:
    first = shape("symbol = 'IBM' AND size % 2 = 1")
    assert first is not None and first.query.args["where"].this.sql() == "size % 2 = 1"
    for where, tail in {
        "symbol = 'IBM' AND size % 2 = 0": "GROUP BY symbol",
        "symbol = 'IBM'": "GROUP BY symbol",
        "size = 1": "GROUP BY symbol",
        "size > 1": "GROUP BY symbol",
        "symbol = 'IBM' AND size % 2 = 1": "GROUP BY symbol EMIT AFTER COUNT 2",
    }.items():
        other = shape(where, tail=tail)
        assert other is not None and other.name != first.name, where


@pytest.mark.parametrize(
    "where",
    [
        "symbol = 'IBM' OR symbol = 'SAP'",
        "symbol > 'IBM'",
        "symbol NOT IN ('IBM')",
        "symbol IN ('IBM', NULL)",
        "symbol = 5",
        "size > 1.5",
        "size > 9223372036854775808",
        "size = '5'",
        "price > 1e999",
        "day > '2026-01-01'",
        "upper(symbol) = 'IBM'",
        "price > size",
        "at > TIMESTAMP '2026-01-01'",
    ],
)
def test_what_spark_may_compare_in_another_way_is_no_parameter(where: str) -> None:
    assert shape(where) is None


def test_only_plain_queries_have_a_shape() -> None:
    assert shape("size > 1", "SELECT DISTINCT symbol FROM trades", "") is None
    assert shape("size > 1", "SELECT symbol AS _query FROM trades", "") is None
    assert shape("size > 1", "SELECT symbol FROM (SELECT * FROM trades)", "") is None
    assert shape("a.size > 1", "SELECT a.symbol FROM trades AS a JOIN trades AS b ON a.symbol = b.symbol", "") is None
    windowed = "SELECT count(*) AS n FROM TUMBLE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE) AS w"
    assert shape("w.size > 1", windowed, "GROUP BY window_start") is not None
