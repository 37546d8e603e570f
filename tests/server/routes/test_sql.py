"""Ad-hoc SQL over HTTP: views and topics are tables, and nothing else is. What they may not do is in tests/views."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import headrace as hr
from headrace.model.windows import Window
from headrace.server import Limits, Server, Service
from headrace.server.routes.viewtables import table
from headrace.views import adhoc
from headrace.views.adhoc.sqlrequest import ParquetRows
from headrace.views.archive.archivetable import Archive
from headrace.views.declare.layout import Layout
from headrace.views.query.queries import Row
from headrace.views.stores.store import StoredView
from tests.server.conftest import HOUR, LIMITS, feed, partial_row, publish, visits
from tests.views.archives import write


@pytest.fixture(autouse=True)
def rows(view: StoredView) -> None:
    publish(view, partial_row("foo.com/blog", 0, "ann", "bob"), partial_row("foo.com/about", 0, "ann"))
    feed(view, partial_row("foo.com/blog", 1, "ann"))


def ask(client: httpx.Client, sql: str, status: int = 200, **more: Any) -> Any:
    answer = client.post("/sql", json={"sql": sql, **more})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_views_are_tables_of_merged_answers(client: httpx.Client) -> None:
    answer = ask(client, "SELECT url, sum(hits) AS hits FROM Visitors GROUP BY url ORDER BY hits DESC")
    assert answer["columns"] == ["url", "hits"]
    assert answer["rows"] == [["foo.com/blog", 3], ["foo.com/about", 1]]
    assert (answer["truncated"], answer["views"]["visitors"]["version"]) == (False, 1)
    assert ask(client, "SELECT count(*) FROM users")["rows"] == [[0]]
    assert ask(client, "SELECT window_start FROM visitors", **{"from": "1970-01-01T01:00:00Z"})["rows"] == [
        ["1970-01-01T01:00:00Z"]
    ]


REFUSED = [
    "DELETE FROM visitors",
    "WITH x AS (DELETE FROM visitors RETURNING *) SELECT * FROM x",
    "COPY visitors TO '/tmp/stolen'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM 'http://169.254.169.254/latest/meta-data'",
    "SELECT * FROM headrace_views",
]


def test_nothing_else_is(client: httpx.Client, view: StoredView) -> None:
    before = view.provenance()
    for sql in REFUSED:
        assert ask(client, sql, status=400)["reason"]
    assert view.provenance() == before


@pytest.mark.parametrize("body", [{}, {"sql": 3}, {"sql": "SELECT 1", "from": 3}, {"sql": "SELECT 1", "x": ""}, []])
def test_bodies_that_are_no_question(client: httpx.Client, body: Any) -> None:
    assert client.post("/sql", json=body).status_code == 400


def test_limits(started: Callable[..., httpx.Client]) -> None:
    client = started(limits=Limits(sql_rows=2, sql=adhoc.Limits(seconds=20, rows=1)))
    assert "has more than 2 rows" in ask(client, "SELECT * FROM visitors", status=400)["reason"]
    answer = ask(client, "SELECT * FROM range(3)")
    assert (answer["rows"], answer["truncated"]) == ([[0]], True)


def test_answers_of_several_types_are_json() -> None:
    layout = Layout.of("hits", keys={"n": "bigint"}, aggregations={"most": hr.heavy_hitters("user", 3)})
    mixed = [Row({"n": 1}, Window(0, 60), {"most": [("ann", 2)]}), Row({"n": None}, Window(0, 60), {"most": None})]
    assert table(layout, mixed).to_pylist()[0]["most"] == '[["ann",2]]'
    assert table(layout, mixed)["n"].to_pylist() == [1, None]


@pytest.fixture
def archives(service: Service, tmp_path: Path) -> Service:
    """A service with two archive steps of a topic."""
    archive = Archive(visits, tmp_path / "master/visits")

    def visit(partition: int, user: str, hour: int) -> Any:
        return partition, {"user": user, "url": "foo.com", "ts": hour * HOUR}, hour // 24

    steps = [visit(0, "ann", 1), visit(0, "bob", 30)], [visit(0, "cid", 2), visit(1, "dan", 31)]
    write(archive, tmp_path / "master/visits", *steps)
    return dataclasses.replace(service, archives={"visits": archive})


class Recorded:
    """Stands for Spark: notes what it is asked."""

    limits = adhoc.Limits()

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.closed = False

    def query(self, sql: str, tables: adhoc.Tables) -> adhoc.SqlResult:
        raise AssertionError("the server asks for JSON")

    def query_json(self, sql: str, tables: adhoc.Tables, limits: adhoc.JsonLimits) -> adhoc.JsonResult:
        self.asked.append((sql, [name for name, table in tables.items() if isinstance(table, ParquetRows)]))
        return adhoc.JsonResult(["n"], b"[[1]]", False)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engine() -> Recorded:
    return Recorded()


def test_topics_are_tables_of_what_is_archived(archives: Service) -> None:
    with Server(archives, port=0, limits=LIMITS) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        answer = ask(client, "SELECT user, ts, _partition, _offset FROM visits ORDER BY ts")
        assert answer["rows"] == [
            ["ann", "1970-01-01T01:00:00Z", 0, 0],
            ["cid", "1970-01-01T02:00:00Z", 0, 2],
            ["bob", "1970-01-02T06:00:00Z", 0, 1],
            ["dan", "1970-01-02T07:00:00Z", 1, 0],
        ]
        assert answer["topics"] == {"visits": {"archived": {"0": 3, "1": 1}}}
        users = "SELECT user FROM visits ORDER BY 1"
        assert ask(client, users, **{"from": "1970-01-01T02:00:00Z", "to": "1970-01-02T07:00:00Z"})["rows"] == [
            ["bob"],
            ["cid"],
        ]
        was = ask(client, users, asof={"visits": {"0": 2}})
        assert (was["rows"], was["topics"]) == ([["ann"], ["bob"]], {"visits": {"archived": {"0": 2, "1": 0}}})
        both = "SELECT v.user, h.hits FROM visits v JOIN visitors h ON h.url LIKE v.url || '%' WHERE user = 'ann'"
        assert sorted(ask(client, both)["rows"]) == [["ann", 1], ["ann", 1], ["ann", 2]]
        for wrong in ({"visits": {"0": 9}}, {"visits": {"x": 1}}, {"visits": {"0": -1}}, {"x": {}}, {"visits": 3}, []):
            assert ask(client, users, status=400, asof=wrong)["reason"]
        assert "no Spark; leave engine out" in ask(client, users, status=400, engine="spark")["reason"]
        assert "duckdb or spark" in ask(client, users, status=400, engine="hive")["reason"]
        folder = next(Path(archives.archives["visits"]._data).rglob("*.parquet"))
        for sql in (f"SELECT * FROM '{folder}'", f"SELECT * FROM read_parquet('{folder}')"):
            assert ask(client, sql, status=400)["reason"]
        for name in (str(folder), "sqlite_master", "SQLITE_MASTER", "DUCKDB_VIEWS"):  # behind a CTE of that name
            for sql in (
                f'WITH "{name}" AS (FROM "{name}") FROM "{name}", visits',
                f'FROM (WITH "{name}" AS (SELECT 1) FROM visits), "{name}"',
            ):
                said = ask(client, sql, status=400, asof={"visits": {"0": 1}})["reason"]
                assert said.startswith(f"there is no table {name!r}; there are")
        for sql in ("WITH sqlite_master AS (SELECT 1) FROM main.sqlite_master", "SELECT stats(user) FROM visits"):
            assert "CREATE VIEW" not in ask(client, sql, status=400)["reason"]


def test_spark_answers_if_it_is_asked(archives: Service, engine: Recorded) -> None:
    service = dataclasses.replace(archives, spark=engine)
    with Server(service, port=0, limits=LIMITS) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert ask(client, "SELECT count(*) FROM visits", engine="spark")["rows"] == [[1]]
        ask(client, "SELECT 1")
    assert (engine.asked, engine.closed) == ([("SELECT count(*) FROM visits", ["visits"])], True)
