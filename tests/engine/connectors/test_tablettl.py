"""Tests that rows of a table are deleted when their time is over, in the transaction of a micro-batch."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.engine.connectors.tablewriter import TableWriter
from headrace.model.errors import PipelineError
from headrace.model.tables import WriteTable
from headrace.model.times import MAX_TIME
from tests.edges.tabling import SECOND, at, contents, writer


class Seen(NamedTuple):
    url: str
    at: datetime


def seen(url: str, second: int) -> Seen:
    return Seen(url, datetime.fromtimestamp(second, UTC))


def urls(url: str) -> list[str]:
    return sorted(row[1] for row in contents(url).elements())


def test_rows_of_groups_go_when_the_watermark_has_come_so_far(database: str) -> None:
    options: dict[str, Any] = {"mode": "upsert", "key": ["url"], "ttl": "1 minute", "ttl_column": "at"}
    to = writer(database, Seen, **options)
    to.write([at(seen("a", 0)), at(seen("b", 10))], 0, None)
    to.write([], 1, 59 * SECOND)
    assert urls(database) == ["a", "b"]
    to.write([], 2, 60 * SECOND)
    assert urls(database) == ["b"]
    to.write([at(seen("late", 10)), at(seen("c", 11))], 3, 70 * SECOND)  # one that is over is not there to be seen
    assert urls(database) == ["c"]
    to.close()
    again = writer(database, Seen, **options)  # a batch that comes again is not written twice
    again.write([at(seen("late", 10)), at(seen("c", 11))], 3, 70 * SECOND)
    assert urls(database) == ["c"]
    again.write([], 4, MAX_TIME)
    assert urls(database) == []
    again.close()


def test_rows_that_are_not_grouped_go_when_one_is_so_much_later(database: str) -> None:
    p = hr.Pipeline()
    rows = p | hr.Create([seen("a", 0)]) | hr.Map(lambda x: x).with_output_types(Seen)
    rows | "out" >> WriteTable(database, "things", ttl=60, ttl_column="at")
    to = TableWriter(p.graph().nodes[-1], lambda: None)
    to.begin("stream")
    to.write([at(seen("a", 0)), at(seen("b", 10))], 0, None)
    to.write([at(seen("c", 59))], 1, None)
    assert urls(database) == ["a", "b", "c"]
    to.write([at(seen("d", 60)), at(seen("late", 0))], 2, None)
    assert urls(database) == ["b", "c", "d"]
    to.close()


def test_what_a_ttl_refuses(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    for options, reason in (
        ({"ttl": 60}, "ttl and ttl_column go together"),
        ({"ttl": 0, "ttl_column": "at"}, "ttl must be positive, got 0"),
    ):
        with pytest.raises(PipelineError, match=reason):
            WriteTable(url, "t", **options)  # type: ignore[arg-type]
    for column, reason in (("url", "'url' is text"), ("when", "'when' is none of url, at")):
        with pytest.raises(PipelineError, match=f"ttl_column is a column with times, and {reason}"):
            writer(url, Seen, ttl=60, ttl_column=column)
