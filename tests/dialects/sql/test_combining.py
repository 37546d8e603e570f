"""combine(column): aggregates of several rows of a view are those of all rows that they were made of."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.combinedselect import select_views
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import CreateQuery, Select, parse_statements
from headrace.dialects.sql.sqltransform import relation_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from headrace.views.adhoc.sqlrequest import SqlResult
from tests.dialects.sql.answers import answer
from tests.dialects.sql.memoryrun import Change, MemoryRun, duckdb_of_tests
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Trade(NamedTuple):
    k: str | None
    who: str
    x: int | None
    at: int


KINDS = {
    "n": "bigint",
    "total": "bigint",
    "mean": "double",
    "ratio": "double",
    "spread": "bigint",
    "sd": "double",
    "who": "bigint",
    "exact": "bigint",
    "first_x": "bigint",
    "top": "bigint",
}
VIEW = """CREATE VIEW v AS SELECT k, at, count(*) AS n, sum(x) AS total, avg(x) AS mean, sum(x) / count(x) AS ratio,
    max(x) - min(x) AS spread, stddev(x) AS sd, approx_count_distinct(who) FILTER (WHERE x > 0) AS who,
    count(DISTINCT who) AS exact, first(x) AS first_x, max_by(x, who) AS top FROM t GROUP BY k, at"""


def rows_of_view(batches: list[list[Trade]]) -> tuple[pa.Table, View]:
    """Runs the view without Spark; returns its table, with hidden columns, and what the catalog has of it."""
    (statement,) = parse_statements(VIEW)
    assert isinstance(statement, CreateQuery)
    pipeline = hr.Pipeline()
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Trade)
    plan = Planner({"t": relation_of("t", source)}).plan(statement.query, statement.text, combines=True)
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, source, {"v": plan.collection})
    changes: list[Change] = []
    schema = pa.schema([("k", pa.string()), ("who", pa.string()), ("x", pa.int64()), ("at", pa.int64())])
    for batch in batches:
        table = pa.Table.from_pylist([each._asdict() for each in batch], schema)
        times = pa.array([each.at * SECOND for each in batch], pa.int64())
        changes += run.step(table.append_column(TIME, times), 0)["v"]
    kinds = {"k": "string", "at": "bigint", **KINDS}
    cells = list(zip(*answer(changes, plan), strict=True)) or [()] * len(plan.columns)
    named = {bytes: "binary", float: "double", str: "string"}
    found = dict(zip(plan.columns, cells, strict=True))
    hidden = {
        name: next((named[type(each)] for each in found[name] if type(each) in named), "bigint") for name in plan.hidden
    }
    view = View(statement, kinds, plan.key, "", hidden=hidden, combinations=dict(plan.combinations))
    types = [
        pa.binary() if kind == "binary" else {"string": pa.string(), "double": pa.float64()}.get(kind, pa.int64())
        for kind in (*kinds.values(), *hidden.values())
    ]
    columns = {name: pa.array(values, kind) for name, values, kind in zip(plan.columns, cells, types, strict=True)}
    return pa.table(columns), view


class OneTable:
    """Reads one table by any name."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def read(self, schemas: Mapping[str, pa.Schema], equal: object) -> dict[str, pa.Table]:
        return {name: self._table.select(schema.names) for name, schema in schemas.items()}


def ask(text: str, tables: Mapping[str, Any]) -> SqlResult:
    database = duckdb_of_tests()
    for name, table in tables.items():
        database.register(name, table)
    return SqlResult(database.execute(text).to_arrow_table(), False)


def selected(tmp: Path, query: str, table: pa.Table, view: View) -> list[tuple[Any, ...]]:
    catalog = Catalog(tmp / "none.json")
    catalog.views["v"] = view
    (statement,) = parse_statements(query)
    assert isinstance(statement, Select)
    text, tables = select_views(catalog, cast(ResultTables, OneTable(table)), statement, ask)
    return [tuple(row.values()) for row in ask(text, tables).table.to_pylist()]


def expected(trades: list[Trade]) -> dict[str, Any]:
    """The aggregates of rows, from their definitions."""
    xs = [each.x for each in trades if each.x is not None]
    first = min(trades, key=lambda each: (each.at, each.x is not None, each.x or 0))
    top = max(each.who for each in trades)
    return {
        "n": len(trades),
        "total": sum(xs) if xs else None,
        "mean": sum(xs) / len(xs) if xs else None,
        "ratio": sum(xs) / len(xs) if xs else None,
        "spread": max(xs) - min(xs) if xs else None,
        "sd": stdev(xs) if len(xs) > 1 else None,
        "who": len({each.who for each in trades if each.x is not None and each.x > 0}),
        "exact": len({each.who for each in trades}),
        "first_x": first.x,
        "top": max((each.x for each in trades if each.who == top), key=lambda x: (x is not None, x or 0)),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and other is not None:
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


TRADES = st.builds(
    Trade,
    st.sampled_from(["a", "b", None]),
    st.sampled_from("pqrst"),
    st.none() | st.integers(-100, 100),
    st.integers(0, 3),
)


@pytest.mark.slow("streams by the dozen, each recounted after every batch")
@examples(60, deadline=None)
@given(st.lists(st.lists(TRADES, max_size=8), max_size=4))
def test_combined_aggregates_are_those_of_all_rows(batches: list[list[Trade]]) -> None:
    table, view = rows_of_view(batches)
    trades = [each for batch in batches for each in batch if each.at > 0]
    listed = ", ".join(f"combine({name}) AS {name}" for name in KINDS)
    found = selected(Path("nowhere"), f"SELECT k, {listed} FROM v WHERE at > 0 GROUP BY k", table, view)
    groups = defaultdict(list)
    for each in trades:
        groups[each.k].append(each)
    assert {row[0] for row in found} == {*groups}
    for key, *values in found:
        wanted = expected(groups[key])
        for name, value in zip(KINDS, values, strict=True):
            assert same(wanted[name], value), (name, wanted[name], value)
    (whole,) = selected(Path("nowhere"), "SELECT combine(n), combine(who) FROM v WHERE at > 0", table, view)
    if trades:
        assert whole == (len(trades), expected(trades)["who"])


def test_groups_are_by_columns_before_aliases_and_nobody_else_merges() -> None:
    table, view = rows_of_view([[Trade("a", "p", 1, 1), Trade("b", "q", 1, 1), Trade("b", "r", 1, 2)]])
    text = "SELECT lower('K') AS k, combine(who) AS who, combine(n) AS n FROM v GROUP BY k"
    assert sorted(selected(Path("nowhere"), text, table, view)) == [("k", 1, 1), ("k", 2, 2)]
    with pytest.raises(SqlError, match="there is no function 'merged'"):
        selected(Path("nowhere"), "SELECT combine(n), merged('x'::BLOB, 'quantiles(x, 3)') FROM v", table, view)


@only_full("the others combine without Spark")
@pytest.mark.slow("a session with two passes, and a database of its own")
def test_rows_of_views_are_combined(spark: SparkSession, tmp_path: Path) -> None:
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(
            "CREATE STREAM trades (symbol text, trader text, price double, size bigint, at timestamp, "
            "WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH (partitions = 2);"
            "CREATE VIEW minutes AS SELECT symbol, window_start, count(*) AS n, sum(price * size) / sum(size) AS vwap, "
            "avg(price) AS mean, approx_count_distinct(trader) AS traders, to_json(approx_top_k(trader, 1)) AS top, "
            "to_json(quantiles(price, 3)) AS prices, upper(max(trader)) AS loud "
            "FROM TUMBLE(TABLE trades, DESCRIPTOR(at), INTERVAL '1' MINUTE) GROUP BY symbol, window_start;"
            "CREATE VIEW ibm AS SELECT trader, avg(price) AS mean FROM trades WHERE symbol = 'IBM' GROUP BY trader;"
            "CREATE VIEW plain AS SELECT symbol, max(price) AS high FROM trades GROUP BY symbol"
        )
        traders = [f"t{n % 7}" for n in range(20)]
        rows = ", ".join(
            f"('{'IBM' if n % 2 else 'SAP'}', '{who}', {n}.0, {n + 1}, '2026-01-31T12:{n // 4:02}:00Z')"
            for n, who in enumerate(traders)
        )

        def select(query: str) -> list[tuple[Any, ...]]:
            table = session.execute(query)[0].table
            assert table is not None
            return [tuple(row.values()) for row in table.to_pylist()]

        with session.subscribe("minutes", snapshot=False) as changes:
            session.execute(f"INSERT INTO trades VALUES {rows}")
            session.catch_up()
            assert {tuple(change.new or ()) for change in changes.read()} == {
                tuple(session.catalog.views["minutes"].columns)
            }
        columns = [name for (name, _) in select("DESCRIBE minutes")]
        assert columns == ["symbol", "window_start", "n", "vwap", "mean", "traders", "top", "prices", "loud"]
        assert len(select("SELECT * FROM minutes")[0]) == len(columns)
        own = range(1, 20, 2)
        vwap = sum(n * (n + 1) for n in own) / sum(n + 1 for n in own)
        (ibm, _) = select(
            "SELECT symbol AS s, combine(n) AS n, combine(vwap), combine(mean), combine(traders), combine(prices), "
            "combine(top) FROM minutes AS m GROUP BY s HAVING combine(traders) > 0 ORDER BY combine(traders), s"
        )
        assert ibm == ("IBM", 10, pytest.approx(vwap), 10.0, 7, "[1.0,9.0,19.0]", '[{"item":"t1","count":2}]')
        assert select("SELECT combine(traders) + 1 AS more, count(*) AS rows FROM minutes") == [(8, 10)]
        assert select("SELECT combine(mean) FROM ibm") == [(10.0,)]
        assert select("SELECT combine(high) FROM plain") == [(19.0,)]
        inner = "SELECT max(t) AS most FROM (SELECT symbol, combine(traders) AS t FROM minutes GROUP BY 1)"
        assert select(inner) == [(7,)]
        refused = {
            "SELECT combine(symbol) FROM minutes": "the column 'symbol' of minutes is no aggregate",
            "SELECT combine(loud) FROM minutes": "there are n, vwap, mean, traders, top, prices",
            "SELECT combine(x) FROM minutes": "there is no column 'x'",
            "SELECT combine(n) FROM minutes JOIN plain USING (symbol)": "the view alone in FROM",
            "SELECT combine(n, 1) FROM minutes": "combine takes a column",
            "CREATE VIEW v AS SELECT combine(n) AS n FROM minutes": "combine is for a SELECT that reads a view",
        }
        for text, reason in refused.items():
            with pytest.raises(SqlError, match=reason):
                session.execute(text)
        session.execute("DROP VIEW minutes")
        assert "headrace_of_minutes" not in session._tables.views()
        session.execute("CREATE VIEW minutes AS SELECT symbol, avg(price) AS mean FROM trades GROUP BY symbol")
