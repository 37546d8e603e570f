"""Ad-hoc SQL over HTTP: views are tables, and nothing else is. What statements may not do is held in tests/views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

import headrace as hr
from headrace.model.windows import Window
from headrace.server import Limits
from headrace.server.tables import table
from headrace.views import adhoc
from headrace.views.layout import Layout
from headrace.views.queries import Row
from headrace.views.stores.store import StoredView
from tests.server.conftest import feed, publish, seen


@pytest.fixture(autouse=True)
def rows(view: StoredView) -> None:
    publish(view, seen("foo.com/blog", 0, "ann", "bob"), seen("foo.com/about", 0, "ann"))
    feed(view, seen("foo.com/blog", 1, "ann"))


def ask(client: httpx.Client, sql: str, status: int = 200, **more: Any) -> Any:
    answer = client.post("/sql", json={"sql": sql, **more})
    assert answer.status_code == status, answer.text
    return answer.json()


def test_views_are_tables_of_merged_answers(client: httpx.Client) -> None:
    answer = ask(client, "SELECT url, sum(hits)::BIGINT AS hits FROM Visitors GROUP BY url ORDER BY hits DESC")
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
