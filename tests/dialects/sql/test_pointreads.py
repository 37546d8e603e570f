"""Points of views: what the database answers, or leaves to DuckDB to read, is what DuckDB answers over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.pointplans import PointPlans
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlstatements import CreateQuery, Select, parse_statements
from headrace.dialects.sql.viewreads import read_point, read_views, view_schema
from headrace.edges.columntypes import column_kind, sql_type
from tests.edges import postgresql
from tests.scale import examples

COLUMNS = {
    "name": "string",
    "n": "bigint",
    "small": "int",
    "x": "double",
    "d": "decimal(10,2)",
    "at": "timestamp",
    "day": "date",
    "yes": "boolean",
}
NAMES = ["a", "A", "a ", "ä", "", "1", None, "it is"]
INSTANT = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)


def row(at: int) -> dict[str, Any]:
    return {
        "name": NAMES[at % len(NAMES)],
        "n": None if at % 7 == 0 else at % 5 - 2,
        "small": at % 3,
        "x": at / 4,
        "d": None,
        "at": INSTANT if at % 2 else datetime(2026, 1, at % 28 + 1, tzinfo=UTC),
        "day": date(2026, 1, at % 4 + 1),
        "yes": None if at % 5 == 0 else at % 2 == 0,
    }


class Place:
    """A view in a database, and the same rows in DuckDB."""

    def __init__(self, url: str, folder: Path) -> None:
        self.tables, self.catalog = ResultTables(url), Catalog(folder / "catalog.json")
        (statement,) = parse_statements("CREATE VIEW v AS SELECT 1 AS name")
        assert isinstance(statement, CreateQuery)
        view = View(statement, COLUMNS, None, "none")
        self.catalog.add_view(view)
        schema = view_schema(view)
        self.tables.create("v", schema, None)
        typed = [sa.column(each.name, sql_type(each.name, column_kind(each.name, each.type))) for each in schema]
        with self.tables._engine.begin() as connection:
            connection.execute(sa.insert(sa.table("v", *typed)), [row(at) for at in range(60)])
        self.plans = PointPlans(self.tables)
        self.duckdb = duckdb.connect()
        self.duckdb.execute("SET TimeZone = 'UTC'")
        self.duckdb.register("v", self.tables.read({"v": schema})["v"])

    def ask(self, text: str, *, over: pa.Table | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        asked = self.duckdb
        if over is not None:
            asked = duckdb.connect()
            asked.execute("SET TimeZone = 'UTC'")
            asked.register("v", over)
        return rows_of(asked.execute(text).to_arrow_table())


def rows_of(table: pa.Table) -> tuple[list[str], list[tuple[Any, ...]]]:
    rows = [tuple(each.values()) for each in table.to_pylist()] if table.num_columns else []
    return table.column_names, sorted(rows, key=repr)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("points")
    if request.param == "sqlite":
        url = f"sqlite:///{folder}/views.db"
    else:
        url = postgresql.empty(request.getfixturevalue("postgresql_server"), "points")
    place = Place(url, folder)
    yield place
    place.tables.close()


CONSTANTS = {
    "name": ["'a'", "'A'", "'a '", "'ä'", "''", "'it is'", "'none'"],
    "n": ["1", "-2", "0", "99", "1.0"],
    "small": ["1", "2"],
    "x": ["1", "0.5"],
    "at": [
        "'2026-01-31T12:00:00.5Z'",
        "'2026-01-31 12:00:00.500000+00'",
        "'2026-01-03 00:00:00+00:00'",
        "'2026-01-03'",
    ],
    "day": ["'2026-01-02'", "DATE '2026-01-02'"],
    "yes": ["true", "FALSE"],
}


@st.composite
def statements(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(st.sampled_from(sorted(CONSTANTS)), min_size=1, max_size=3))
    conditions = []
    for column in chosen:
        constant = draw(st.sampled_from(CONSTANTS[column]))
        written = draw(st.sampled_from([column, column.upper(), f"v.{column}"]))
        sign = draw(st.sampled_from(["=", "=", "=", "<=", "<>"]))
        conditions.append(draw(st.sampled_from([f"{written} {sign} {constant}", f"({constant} {sign} {written})"])))
    joined = draw(st.sampled_from([" AND ", " AND ", " OR "])).join(conditions)
    what = draw(
        st.sampled_from(
            [
                "*",
                "name, n",
                "n AS name, name AS other",
                "count(*) AS c",
                "n + 1 AS m",
                "DISTINCT small",
                "at, *",
                "v.n",
                "max(x) OVER () AS top, n",
                "NAME",
            ]
        )
    )
    source = draw(st.sampled_from(["v", "v", "v", "(SELECT * FROM v) AS v", "v JOIN (SELECT 1 AS one) AS o ON true"]))
    return f"SELECT {what} FROM {source} WHERE {joined}"


@examples(300)
@given(text=statements())
def test_points_are_what_duckdb_answers(place: Place, text: str) -> None:
    (statement,) = parse_statements(text)
    assert isinstance(statement, Select)
    try:
        expected = place.ask(text)
    except duckdb.Error:
        return
    assert place.ask(text, over=read_views(place.catalog, place.tables, statement)["v"]) == expected
    point = read_point(place.catalog, place.tables, statement, 1_000)
    if point is not None:
        assert rows_of(point) == expected
    planned = place.plans.answer(place.catalog, text, 1_000)
    if planned is not None:
        assert (planned[0], sorted(map(tuple, planned[1]), key=repr)) == expected


def test_a_plan_serves_all_constants(place: Place) -> None:
    def ask(text: str) -> list[list[Any]] | None:
        found = place.plans.answer(place.catalog, text, 1_000)
        return None if found is None else sorted(found[1])

    for name in ("a", "A", "ä", "1"):
        for n in (-2, 1, 2):
            expected = sorted([row(at)["small"], n] for at in range(60) if (row(at)["name"], row(at)["n"]) == (name, n))
            assert ask(f"SELECT small, n FROM v WHERE name = '{name}' AND n = {n}") == expected
            (first, *_) = expected or [None]
            one = ask(f"SELECT small, n FROM v WHERE {n} = n AND '{name}' = name LIMIT 1")
            assert one == [] if first is None else len(one or []) == 1
    forms = [form for form in place.plans._plans[1] if form.startswith("SELECT small, n ")]
    assert len(forms) == 4  # with and without a limit, and a sign
    for text in (
        "SELECT n FROM v WHERE name = 'a'; DROP VIEW v",
        "SELECT n FROM v WHERE name = 'a' AND yes = true",
        "SELECT n FROM v WHERE at = '2026-01-31T12:00:00.5Z'",
        "SELECT n, 3 FROM v WHERE name = 'a'",
        "SELECT n FROM v WHERE name = 3",
        "SELECT n FROM nothing WHERE name = 'a'",
        "SELEC n FROM v WHERE name = 'a'",
        "SELECT n FROM v WHERE n = 1.5",
        "SELECT n FROM v WHERE n = 1 LIMIT 1 OFFSET 1",
    ):
        assert ask(text) is None, text


def test_which_statements_the_database_answers_alone(place: Place) -> None:
    def read(text: str) -> tuple[int, int | None]:
        """How many rows are read, and how many the database answers with."""
        (statement,) = parse_statements(text)
        assert isinstance(statement, Select)
        point = read_point(place.catalog, place.tables, statement, 1_000)
        views = read_views(place.catalog, place.tables, statement)
        return views["v"].num_rows, None if point is None else point.num_rows

    few = len([at for at in range(60) if row(at)["name"] == "a"])
    assert read("SELECT * FROM v WHERE name = 'a'") == (few, few)
    assert read("SELECT n FROM v AS w WHERE w.name = 'a' LIMIT 3") == (few, 3)
    assert read("SELECT count(*) FROM v WHERE name = 'a' AND n > 0 GROUP BY n ORDER BY 1") == (few, None)
    noon = len([at for at in range(60) if row(at)["at"] == INSTANT])
    assert read("SELECT name FROM v WHERE at = '2026-01-31T12:00:00.5Z'") == (noon, noon)
    for text in (
        "SELECT * FROM v",
        "SELECT * FROM v WHERE name = 'a' OR n = 1",
        "SELECT * FROM v WHERE name = 'a\\t'",
        'SELECT * FROM v WHERE name = "n"',
        "SELECT * FROM v WHERE name = 'a' -- and more",
        "SELECT * FROM v WHERE name = 'it''s'",
        "SELECT n AS name FROM v WHERE name = 'a'",
        "SELECT * FROM v WHERE n = 99999999999999999999",
        "SELECT * FROM v WHERE NOT name = 'a'",
        "SELECT * FROM v WHERE name = 'a' UNION ALL SELECT * FROM v",
        "SELECT * FROM v WHERE name = 'a' AND n IN (SELECT n FROM v)",
        "WITH w AS (SELECT * FROM v) SELECT * FROM w WHERE name = 'a'",
        "SELECT * FROM v AS w (n, name, c, d, e, f, g, h) WHERE name = 'a'",
    ):
        assert read(text) == (60, None), text
