"""output_of(view): every change of a view's rows once, with what was before, what is now, and the difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqltransform import parse_query, relation_of
from headrace.engine.worker.hidden import TIME
from headrace.model.times import SECOND
from tests.dialects.sql.memoryrun import MemoryRun
from tests.dialects.sql.randomqueries import Batch, streams
from tests.dialects.sql.test_prefix_integrity import Row, table_of
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {
    "v": "SELECT k, count(*) AS n, max(y) AS high FROM t GROUP BY k",
    "big": "SELECT k, count(*) AS n, max(y) AS high FROM t GROUP BY k HAVING count(*) < 3",  # rows go, too
    "sizes": "SELECT n, count(*) AS ks FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n",
}


def planner_of(pipeline: hr.Pipeline) -> Planner:
    source = pipeline | "t" >> hr.TestStream().finish().with_output_types(Row)
    tables = {"t": replace(relation_of("t", source), time="ts")}
    return Planner(tables, {name: parse_query(text) for name, text in VIEWS.items()})


def table(view: str, rows: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    """The rows of a view by their keys, from its definition."""
    counts, highs = Counter(k for k, _, _, _ in rows), dict[Any, int]()
    for k, _, y, _ in rows:
        highs[k] = max(y, highs.get(k, y))
    if view == "sizes":
        return {n: (ks,) for n, ks in Counter(counts.values()).items()}
    return {k: (n, highs[k]) for k, n in counts.items() if view == "v" or n < 3}


def expected_changes(before: dict[Any, tuple[Any, ...]], after: dict[Any, tuple[Any, ...]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            op = "insert" if old is None else "delete" if new is None else "update"
            none = (None,) * len(old or new or ())
            delta = ((new or (0,))[0] or 0) - ((old or (0,))[0] or 0)
            found[key, op, *(old or none), *(new or none), delta] += 1
    return found


@pytest.mark.slow("streams by the dozen, each recounted after every batch")
@examples(60, deadline=None)
@given(streams(), st.sampled_from(sorted(VIEWS)))
def test_each_change_of_a_view_comes_once(stream: list[Batch], view: str) -> None:
    pipeline = hr.Pipeline()
    planner = planner_of(pipeline)
    text = f"SELECT * FROM output_of({view})"
    plan = planner.plan(parse_query(text), text)
    assert not plan.retracts
    _ = plan.collection | "collect" >> hr.Collect()
    run = MemoryRun(pipeline, planner.tables["t"].collection, {"output": plan.collection})
    rows: list[tuple[Any, ...]] = []
    for batch, _, restarts in stream:
        before = table(view, rows)
        rows += batch
        new = [{"id": n, "k": k, "x": x, "y": y, "ts": at * SECOND} for n, (k, x, y, at) in enumerate(batch)]
        arrived = table_of(new).drop_columns(["seen"])
        arrived = arrived.append_column(TIME, arrived.column("ts").cast("int64"))
        changes = run.step(arrived, 0)["output"]
        assert not any(change.retraction for change in changes)
        assert Counter(tuple(change.value) for change in changes) == expected_changes(before, table(view, rows))
        if restarts:
            run.restart()


@only_full("the other plans them; aggregates over aggregates run in test_queries.py")
@pytest.mark.slow("a session with four views, started twice")
def test_views_over_the_output_of_a_view(spark: SparkSession, tmp_path: Path) -> None:
    def select(query: str) -> list[tuple[Any, ...]]:
        table = session.execute(query)[0].table
        assert table is not None
        return [tuple(row.values()) for row in table.to_pylist()]

    def insert(*rows: tuple[str, int]) -> None:
        listed = ", ".join(f"('{url}', {ms})" for url, ms in rows)
        session.execute(f"INSERT INTO hits VALUES {listed}")
        session.catch_up()

    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        session.execute(
            "CREATE STREAM hits (url text, ms bigint);"
            "CREATE VIEW pages AS SELECT url, count(*) AS n, max(ms) AS slowest FROM hits GROUP BY url;"
            "CREATE VIEW changes AS SELECT url, op, old_n, new_n, delta_n, new_slowest FROM output_of(pages);"
            "CREATE VIEW records AS SELECT url, count(*) AS records FROM output_of('pages') AS o "
            "WHERE o.old_slowest IS NULL OR new_slowest > o.old_slowest GROUP BY url"
        )
        with pytest.raises(SqlError, match="the view 'changes' reads the view 'pages'"):
            session.execute("DROP VIEW pages")
        for text, reason in {
            "SELECT * FROM output_of(page)": "there is no view 'page'; there are pages, changes, records",
            "SELECT * FROM output_of(changes)": "output_of is of a view of groups",
            "SELECT * FROM inputs_of(pages)": "no table function 'inputs_of'; there are TUMBLE, HOP, SESSION and",
        }.items():
            with pytest.raises(SqlError, match=reason):
                session.execute(f"CREATE VIEW x AS {text}")
        insert(("/", 5), ("/", 7), ("/a", 1))
        insert(("/", 3))
    with SqlSession(str(tmp_path / "home"), spark=spark) as session:
        insert(("/", 9), ("/b", 1))
        assert select("SELECT * FROM changes ORDER BY url, new_n") == [
            ("/", "insert", None, 2, 2, 7),
            ("/", "update", 2, 3, 1, 7),
            ("/", "update", 3, 4, 1, 9),
            ("/a", "insert", None, 1, 1, 1),
            ("/b", "insert", None, 1, 1, 1),
        ]
        assert select("SELECT * FROM records ORDER BY url") == [("/", 2), ("/a", 1), ("/b", 1)]
