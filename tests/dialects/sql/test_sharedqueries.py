"""Queries of one shape together, as a batch and as a stream: each has the answer that it has alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.dialects.sql.planner import Planned, Planner
from headrace.dialects.sql.relations import NUMBER, MatchedQueries
from headrace.dialects.sql.shapes import shape_of
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream, parse_statements
from headrace.dialects.sql.sqltransform import relation_of
from headrace.local.querytable import QueryTable
from tests.dialects.sql.test_queries import WINDOWS, Trade, answer, assert_same, trades
from tests.scale import FULL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "CREATE STREAM trades (symbol text, trader text, price double, size bigint, at timestamp)"
WHERE = [
    "symbol IN ('IBM', 'MSFT') AND price BETWEEN 101 AND 110.5",
    "symbol = 'IBM' AND price > 103",
    "symbol = 'AAPL' AND price <= 99",
    "symbol IN ('AAPL', 'MSFT', 'IBM') AND price >= 0",
    "symbol = 'IBM' AND price > 103",
]
"""What queries of one shape compare; the third matches nothing."""
if not FULL:
    del WHERE[3:], WHERE[1]
NOTHING = WHERE.index("symbol = 'AAPL' AND price <= 99")
SHAPES = {
    "rows": "SELECT trader, price * size AS amount, at FROM trades WHERE {}",
    "plain rows": "SELECT price, symbol FROM trades WHERE {} AND size > 1",
    "all columns": "SELECT t.* FROM trades AS t WHERE {} AND size IS NOT NULL",
    "groups": "SELECT trader, count(*) AS n, sum(size) AS total FROM trades WHERE {} GROUP BY trader",
    "renamed": "SELECT upper(symbol) AS symbol, max(at) AS latest FROM trades WHERE {} GROUP BY 1",
    "all": "SELECT count(*) AS n, max_by(trader, at) AS latest FROM trades WHERE {}",
    "having": "SELECT trader, sum(size) AS total FROM trades WHERE {} GROUP BY trader HAVING count(*) > 2",
    "unnamed": "SELECT count(*) AS n FROM trades WHERE {} GROUP BY symbol, trader",
    "rows in windows": f"SELECT symbol, window_end, price FROM {WINDOWS['hop']} WHERE {{}}",
    "tumble": f"SELECT window_start, sum(price) AS total FROM {WINDOWS['tumble']} WHERE {{}} GROUP BY window_start",
    "hop": f"SELECT symbol, window_start, count(*) AS n FROM {WINDOWS['hop']} AS w WHERE {{}} GROUP BY 1, 2",
    "session": f"SELECT window_start, window_end, count(*) AS n FROM {WINDOWS['session']} WHERE {{}} GROUP BY 1, 2",
    "emit": f"""SELECT window_start, count(*) AS n FROM {WINDOWS["tumble"]} WHERE {{}} GROUP BY window_start
        EMIT AFTER WATERMARK""",
}
# What only FULL runs: each is planned as one of the others is.
LIKE_OTHERS = {"plain rows", "all columns", "renamed", "unnamed", "rows in windows", "tumble", "hop"}


@dataclass
class Together:
    """A shape as it is planned, and its queries as they are planned one by one."""

    shape: Planned
    alone: list[Planned]

    def collect(self, name: str) -> tuple[Any, list[Any]]:
        alone = [plan.collection | f"{name} {n}" >> hr.Collect() for n, plan in enumerate(self.alone)]
        return self.shape.collection | name >> hr.Collect(), alone


def plan(source: hr.PCollection, folder: Path) -> dict[str, Together]:
    (stream,) = parse_statements(STREAM)
    assert isinstance(stream, CreateStream)
    planner = Planner({"trades": replace(relation_of("trades", source), time="at")})
    plans = {}
    for name, text in SHAPES.items():
        if name in LIKE_OTHERS and not FULL:
            continue
        alone, queries, names = [], QueryTable(folder / name), set()
        for where in WHERE:
            (view,) = parse_statements(f"CREATE VIEW v AS {text.format(where)}")
            assert isinstance(view, CreateQuery)
            alone.append(planner.plan(view.query, view.text))
            shape = shape_of(view, {"trades": stream})
            assert shape is not None
            names.add(shape.name)
            queries.add(shape.constants, view.text, lambda: 0)
        assert len(names) == 1, name
        together = planner.plan(shape.query, view.text, MatchedQueries(str(queries.path), shape.parameters))
        plans[name] = Together(together, alone)
    return plans


def part_of(rows: list[Any], plan: Planned, number: int) -> list[tuple[Any, ...]]:
    """The rows of one query, without its number."""
    at = plan.columns.index(NUMBER)
    return [(*row[:at], *row[at + 1 :]) for row in rows if row[at] == number]


@pytest.mark.slow("sixty-five queries alone and together, as a batch and as a stream")
def test_queries_of_one_shape_have_the_answers_that_they_have_alone(spark: SparkSession, tmp_path: Path) -> None:
    timed = [hr.TimestampedValue(row, row.at) for row in trades()]
    p = hr.Pipeline(spark=spark)
    (tmp_path / "batch").mkdir()
    plans = plan(p | "trades" >> hr.Create(timed).with_output_types(Trade), tmp_path / "batch")
    collected = {name: each.collect(name) for name, each in plans.items()}
    p.run().wait()
    for name, (together, alone) in collected.items():
        assert any(map(len, alone)), name
        for number, values in enumerate(alone):
            found = part_of(list(map(tuple, together)), plans[name].shape, number)
            # In a batch, all rows are one group even if there are none; views are streams, where it is not there yet.
            expected = [] if (name, number) == ("all", NOTHING) else list(map(tuple, values))
            assert_same(f"{name} {number}", found, expected)

    script, size = hr.TestStream(), 9 if FULL else 20
    for start in range(0, len(timed), size):
        script = script.add(timed[start : start + size])
    p = hr.Pipeline(spark=spark)
    (tmp_path / "stream").mkdir()
    plans = plan(p | "trades" >> script.finish().with_output_types(Trade), tmp_path / "stream")
    collected = {name: each.collect(name) for name, each in plans.items()}
    p.run().wait()
    for name, (together, alone) in collected.items():
        rows = answer(together.windowed, plans[name].shape)
        for number, values in enumerate(alone):
            found = part_of(rows, plans[name].shape, number)
            assert_same(f"{name} {number}", found, answer(values.windowed, plans[name].alone[number]))
