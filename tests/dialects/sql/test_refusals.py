"""What a continuous query cannot be is refused when it is written, with the place and what to do."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import headrace as hr
from headrace.dialects.sql.emit import emission_of
from headrace.dialects.sql.sqltransform import parse_query


class Trade(NamedTuple):
    symbol: str
    price: float
    at: str


def refusal_of(query: str) -> str:
    p = hr.Pipeline()
    trades = p | hr.Create([Trade("IBM", 1.0, "")]).with_output_types(Trade)
    with pytest.raises(hr.PipelineError) as caught:
        {"trades": trades} | hr.Sql(query)
    return str(caught.value)


REFUSED = {
    "SELECT smybol FROM trades": "column 8: there is no column 'smybol', did you mean 'symbol'? There are symbol,",
    "SELECT symbol FROM tradse": "column 20: there is no stream or view 'tradse', did you mean 'trades'?",
    "SELECT t.symbol FROM trades AS x": "there is no column 't'",
    "SELECT x.* FROM trades": "there is no table 'x' here; there are trades",
    "SELECT symbol, price FROM trades GROUP BY symbol": "'price' is neither in GROUP BY nor in an aggregate function",
    "SELECT symbol, count(*) AS n FROM trades GROUP BY 3": "GROUP BY 3: there are 2 columns",
    "SELECT symbol, count(*) FROM trades WHERE count(*) > 1 GROUP BY symbol": "write it in HAVING",
    "SELECT symbol FROM trades HAVING symbol = 'x'": "HAVING is for groups",
    "SELECT symbol FROM trades ORDER BY symbol": "order them in the SELECT that reads the view",
    "SELECT symbol FROM trades LIMIT 3": "a continuous query has no LIMIT",
    "SELECT 1 AS one": "add FROM",
    "SELECT symbol FROM trades UNION SELECT symbol FROM trades": "SELECT DISTINCT * FROM (... UNION ALL ...)",
    "SELECT symbol FROM trades UNION ALL SELECT symbol, price FROM trades": "have 1 and 2 columns",
    "SELECT symbol, price AS Symbol FROM trades": "two columns are called 'Symbol'",
    "SELECT sum(DISTINCT price) AS s FROM trades": "sum(DISTINCT ...) is not supported",
    "SELECT max_by(symbol) AS s FROM trades": "max_by takes 2 arguments, got 1",
    "SELECT symbol FROM trades GROUP BY ROLLUP (symbol)": "ROLLUP is not supported",
    "SELECT symbol FROM trades CROSS JOIN trades AS b": "CROSS JOIN is not supported",
    "SELECT trades.symbol FROM trades JOIN trades AS b ON trades.price > b.price": "add ON a.x = b.y",
    "SELECT trades.symbol FROM trades JOIN trades ON trades.price = trades.price": "two tables are called 'trades'",
    "SELECT symbol FROM trades AS a JOIN trades AS b ON a.symbol = b.symbol": "write a.symbol or b.symbol",
    "SELECT approx_top_k(symbol, 0) AS x FROM trades": "must be",
    "SELECT sample(symbol, price) AS x FROM trades": "a value is a constant, got price",
    "SELECT symbol, ROW_NUMBER() OVER (ORDER BY price) AS r FROM trades": "write WHERE r <= 10",
    "SELECT * FROM (SELECT symbol, ROW_NUMBER() OVER (ORDER BY price) AS r FROM trades) WHERE r > 3": "WHERE r <= 10",
    "SELECT symbol FROM trades QUALIFY ROW_NUMBER() OVER (ORDER BY price) > 1": "QUALIFY ROW_NUMBER() OVER (...) <= 10",
    "SELECT symbol FROM trades QUALIFY ROW_NUMBER() OVER (ORDER BY pirce) = 1": "did you mean 'price'",
    "SELECT * FROM trades QUALIFY ROW_NUMBER() OVER (PARTITION BY pirce ORDER BY at) = 1": "did you mean 'price'",
    "SELECT symbol FROM trades QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol) = 1": "needs an ORDER BY",
    "SELECT symbol FROM trades QUALIFY ROW_NUMBER() OVER (ORDER BY price) <= 0": "must be a positive int",
    "SELECT symbol, rank() OVER (ORDER BY price) AS r FROM trades": "rank(...) OVER (...) is not supported; ROW",
    "SELECT symbol, sum(price) OVER (PARTITION BY symbol) AS s FROM trades": "compute it with GROUP BY",
    "SELECT symbol, lag(price) OVER (ORDER BY at) AS s FROM trades": "a DoFn with state",
    "SELECT symbol, 1 + ROW_NUMBER() OVER (ORDER BY at) AS r FROM trades QUALIFY r < 3": "is a column by itself",
    "SELECT symbol, ROW_NUMBER() OVER (ORDER BY at) AS Symbol FROM trades QUALIFY symbol < 3": "name the rank with",
    "SELECT symbol FROM trades QUALIFY symbol = 'x'": "QUALIFY limits ROW_NUMBER()",
    "SELECT 1 FROM trades AS a RIGHT JOIN trades FOR SYSTEM_TIME AS OF a.at AS b USING (symbol)": "a RIGHT JOIN has no",
    "SELECT 1 FROM trades AS a JOIN trades FOR SYSTEM_TIME AS OF now() AS b USING (symbol)": "AS OF a.at AS b ON",
    "SELECT 1 FROM trades AS a JOIN trades FOR SYSTEM_TIME AS OF a.at AS b USING (symbol)": "'b' has no event time",
    "SELECT window, count(*) AS n FROM trades GROUP BY window(at, '1 minute')": "write window.start and window.end",
    "SELECT count(*) AS n FROM trades GROUP BY window(at)": "it is window(at, size)",
    "SELECT count(*) AS n FROM trades GROUP BY window(at, 5)": "with intervals such as '1 minute'",
    "SELECT count(*) AS n FROM trades GROUP BY window(at, '5 lunches')": "5 lunches",
    "SELECT 1 AS x FROM trades GROUP BY symbol, window(at, '1 hour'), window(at, '2 hours')": "a query has one window",
    "SELECT symbol FROM main.trades": "has a schema",
    "SELECT symbol FROM read_csv('x')": "there is no table function 'read_csv'",
    "SELECT symbol FROM TUMBLE(TABLE trades, DESCRIPTOR(when), INTERVAL '1' MINUTE)": "no column 'when' in 'trades'",
    "SELECT symbol FROM TUMBLE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MONTH)": "months and years have no fixed",
    "SELECT symbol FROM HOP(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE)": "HOP(TABLE t, DESCRIPTOR(at), slide",
    "SELECT symbol FROM TUMBLE(TABLE trades, DESCRIPTOR(at), 0 ROWS)": "must be a positive int, got 0",
    "SELECT symbol FROM TUMBLE(trades, INTERVAL '1' MINUTE)": "takes DESCRIPTOR(column)",
    "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol EMIT AFTER WATERMARK": "these groups have none",
    "SELECT symbol FROM trades EMIT AFTER LUNCH": "EMIT takes AFTER WATERMARK, AFTER DELAY, AFTER COUNT",
    "SELECT symbol FROM (SELECT symbol FROM trades EMIT AFTER COUNT 1)": "write it at the end",
    "SELECT symbol FROM trades; SELECT 1": "this takes one SELECT",
    "SELECT symbol FORM trades": "Unexpected token",
    "SELECT 'abc FROM trades": "Error tokenizing",
}


@pytest.mark.parametrize("query", REFUSED)
def test_refused_by_name(query: str) -> None:
    assert REFUSED[query] in refusal_of(query)


def test_streams_join_rows_that_stay() -> None:
    p = hr.Pipeline()
    trades = p | hr.TestStream().add([Trade("IBM", 1.0, "")]).finish().with_output_types(Trade)
    counts = "SELECT symbol, count(*) AS n FROM trades GROUP BY symbol"
    with pytest.raises(hr.PipelineError, match="results of groups change; join first and group then"):
        {"trades": trades} | hr.Sql(f"SELECT t.symbol, n FROM trades AS t JOIN ({counts}) AS c ON t.symbol = c.symbol")


def test_errors_show_the_line_and_a_caret() -> None:
    assert refusal_of("SELECT symbol,\n\tpirce\nFROM trades").splitlines() == [
        "line 2, column 2: there is no column 'pirce', did you mean 'price'? There are symbol, price, at",
        "\tpirce",
        "\t^",
    ]


EMISSIONS = {
    "AFTER WATERMARK": "AfterWatermark()",
    "AFTER DELAY INTERVAL '10' SECONDS": "Repeatedly(AfterProcessingTime('10 s'))",
    "AFTER DELAY INTERVAL '10' SECONDS AND AFTER WATERMARK": "AfterWatermark(early=AfterProcessingTime('10 s'))",
    "AFTER COUNT 5 AND AFTER DELAY INTERVAL '1 minute' AND AFTER WATERMARK THEN AFTER COUNT 2 WITH LATENESS INTERVAL "
    "'1' HOUR": "AfterWatermark(early=AfterAny(AfterCount(5), AfterProcessingTime('1 min')), late=AfterCount(2))",
    "AFTER WATERMARK WITH LATENESS INTERVAL '1' HOUR": "AfterWatermark(late=AfterCount(1))",
    "AFTER PERCENTILE 0.9 AND AFTER WATERMARK": "AfterWatermark(early=AfterPercentile(0.9))",
    "AFTER COUNT 1 THEN AFTER COUNT 100": "AfterEach(AfterCount(1), Repeatedly(AfterCount(100)))",
    "AFTER COUNT 1 THEN AFTER DELAY INTERVAL '2' SECONDS AND AFTER WATERMARK": "AfterWatermark(early=AfterEach("
    "AfterCount(1), Repeatedly(AfterProcessingTime('2 s'))))",
}


@pytest.mark.parametrize("clause", EMISSIONS)
def test_emit(clause: str) -> None:
    text = f"SELECT a FROM b EMIT {clause}"
    assert repr(emission_of(parse_query(text).args["emit"], text).trigger) == EMISSIONS[clause]


REFUSED_EMISSIONS = {
    "AFTER WATERMARK AND AFTER WATERMARK": "AFTER WATERMARK twice",
    "AFTER COUNT 0": "n must be a positive int, got 0",
    "AFTER PERCENTILE 99": "for 99.0 % write 0.99",
    "AFTER COUNT 1 WITH LATENESS INTERVAL '1' HOUR": "counts from the watermark on",
    "AFTER WATERMARK THEN AFTER COUNT 1": "add WITH LATENESS",
    "AFTER DELAY 5": "AFTER DELAY is followed by an INTERVAL",
}


@pytest.mark.parametrize("clause", REFUSED_EMISSIONS)
def test_emissions_that_make_no_sense(clause: str) -> None:
    text = f"SELECT a FROM b EMIT {clause}"
    with pytest.raises(hr.PipelineError) as caught:
        emission_of(parse_query(text).args["emit"], text)
    assert REFUSED_EMISSIONS[clause] in str(caught.value)


def test_equal_parts_of_queries_are_one_step() -> None:
    from headrace.dialects.sql.planner import Planner
    from headrace.dialects.sql.sqltransform import relation_of

    p = hr.Pipeline()
    trades = p | hr.Create([Trade("IBM", 1.0, "")]).with_output_types(Trade)
    planner = Planner({"trades": relation_of("trades", trades)})
    before = len(list(p.snapshot()))

    def plan(text: str) -> hr.PCollection:
        return planner.plan(parse_query(text), text).collection

    counts = "SELECT symbol, count(*) AS n FROM trades WHERE price > 1 GROUP BY symbol"
    assert plan(counts) is plan(f"  {counts.replace('symbol', 'SYMBOL')}".replace("SYMBOL,", "symbol,"))
    steps = [node.label.split()[0] for node in list(p.snapshot())[before:]]
    assert steps == ["Where(`price`", "WindowInto(GlobalWindows())", "GroupBy(symbol)"]
    plan("SELECT symbol, sum(price) AS total FROM trades WHERE price > 1 GROUP BY symbol")
    assert len(list(p.snapshot())) == before + 4  # another grouping of the same rows
