"""Creates writers of tables without Spark and elements to write, and reads the tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import sqlalchemy as sa

import headrace as hr
from headrace.engine.connectors.tablewriter import TableWriter
from headrace.engine.worker.blame import plain_error
from headrace.model.errors import TransformError
from headrace.model.panes import PaneInfo
from headrace.model.sinks import WindowedValue
from headrace.model.tables import WriteTable
from headrace.model.windows import Window, WindowFn

SECOND = 1_000_000


class Hit(NamedTuple):
    url: str
    hits: int


@dataclass
class Click:
    url: str
    hits: int | None


def at(
    value: Any, start: int = 0, end: int = 60, *, index: int = 0, time: int | None = None, back: bool = False
) -> WindowedValue:
    """Returns an element of pane `index` of the window from `start` to `end`, in seconds; `back`: a retraction."""
    pane = PaneInfo("early", index, -1, index == 0, False)
    timestamp = end * SECOND - 1 if time is None else time * SECOND
    return WindowedValue(value, timestamp, Window(start * SECOND, end * SECOND), pane, back)


def writer(
    url: str,
    kind: object = None,
    *,
    stream: str = "stream",
    window: WindowFn = hr.FixedWindows(60),
    known: pa.Schema | None = None,
    retracting: bool = False,
    **options: Any,
) -> TableWriter:
    """Returns a writer of elements of a type, or of an unknown one; `known` are columns that only Spark knows.

    `retracting`: some elements may be retractions.
    """
    p = hr.Pipeline()
    read = p | hr.Create([("a", 1)]) | hr.WindowInto(window, accumulation="retracting" if retracting else "discarding")
    elements = read | hr.GroupByKey() | hr.Map(lambda x: x).with_output_types(kind)
    elements | "out" >> WriteTable(url, options.pop("table", "things"), **options)
    table_writer = TableWriter(p.graph().nodes[-1], lambda: known)
    table_writer.begin(stream)
    return table_writer


def written(url: str, *batches: list[WindowedValue], kind: object = None, **options: Any) -> Counter[tuple[Any, ...]]:
    """Writes batches to a table and returns its rows."""
    to = writer(url, kind, **options)
    for number, batch in enumerate(batches):
        to.write(batch, number)
    to.close()
    return contents(url, options.get("table", "things"))


def contents(url: str, table: str = "things") -> Counter[tuple[Any, ...]]:
    """Returns the rows of a table with their numbers; columns are in the order of their names."""
    with connected(url) as connection:
        names = sorted(column["name"] for column in sa.inspect(connection).get_columns(table))
        columns = map(sa.column, names)
        return Counter(map(tuple, connection.execute(sa.select(*columns).select_from(sa.table(table)))))


def execute(url: str, *statements: str) -> None:
    with connected(url) as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def connected(url: str) -> Any:
    """Begins a transaction of a database."""
    url = url.replace("postgresql:", "postgresql+psycopg:")
    return sa.create_engine(url, poolclass=sa.NullPool).begin()


def failing(to: Any, elements: list[WindowedValue], batch_id: int = 0) -> str:
    """Returns the message with which a batch fails."""
    with pytest.raises(Exception) as raised:
        to.write(elements, batch_id)
    error = plain_error(raised.value)
    assert isinstance(error, TransformError)
    to.close()
    return str(error)
