"""Tests that records encoded from columns and from objects are those of a naive loop over the elements."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.plan import plan
from headrace.engine.plan.lowering import lower
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import PANE_COLUMNS, ColumnBundle
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.torecords import ANY, RETRACTION_HEADER, ToRecords, read_blocks, to_records
from headrace.log import Log, LogError
from headrace.log.partitioning import partitions_of
from headrace.log.values import Values
from headrace.model.schema import schema_of
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND

MARKED = {RETRACTION_HEADER: b"true"}


class Visit(NamedTuple):
    user: str | None
    n: int | None
    at: dt.datetime | None


VISITS = st.builds(
    Visit,
    user=st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
    n=st.none() | st.integers(-(2**31), 2**31 - 1),
    at=st.none() | st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC)),
)
TIMES = st.integers(-(10**15), 10**15) | st.sampled_from([MIN_TIME, MAX_TIME, MAX_TIME - 1])
ELEMENTS = st.lists(st.tuples(VISITS, TIMES, st.booleans()), min_size=1, max_size=20)

Decoded = tuple[int, bytes | None, int | None, Any, dict[str, bytes]]
"""A record: partition, key, timestamp if there is one, value and headers."""


def decoded(values: Values, blocks: Iterator[pa.RecordBatch]) -> list[Decoded]:
    cells = [cell.as_buffer() for block in blocks for cell in block.column(0)]
    return [
        (partition, record.key, record.timestamp, shown(record.value), dict(record.headers))
        for partition, batch in read_blocks(cells)
        for record in values.records(partition, 0, batch)
    ]


def shown(value: Any) -> Any:
    """Returns a value whose times are compared by the instant, not by the time zone."""
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    return value.isoformat() if isinstance(value, dt.datetime) else value


def expected(values: Values, key: str | None, timestamp: str | None, visit: Visit, time: int, back: bool) -> Decoded:
    """Defines the record of one element."""
    fields = visit._asdict()
    chosen = None if key is None else fields[key]
    octets = None
    if chosen is not None:
        octets = (chosen if isinstance(chosen, str) else json.dumps(chosen)).encode()
    stamp = None if timestamp is None else fields[timestamp]
    micros = time if MIN_TIME < time < MAX_TIME - 1 else None
    if isinstance(stamp, dt.datetime):
        micros = (stamp - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    elif stamp is not None:
        micros = stamp * SECOND
    value = fields
    if values.kind == "json":
        at = None if visit.at is None else visit.at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        value = {**fields, "at": at}
    partition = ANY if octets is None else int(partitions_of(pa.array([octets]), 5)[0])
    return partition, octets, micros, shown(value), MARKED if back else {}


@given(
    ELEMENTS,
    st.sampled_from(["json", "user string, n int, at timestamp"]),
    st.sampled_from([None, "user", "n"]),
    st.sampled_from([None, "n", "at"]),
)
def test_records_are_those_of_the_elements(
    elements: list[tuple[Visit, int, bool]], kind: str, key: str | None, timestamp: str | None
) -> None:
    values, schema = Values(kind), schema_of(Visit)
    assert schema is not None
    want = Counter(str(expected(values, key, timestamp, *each)) for each in elements)
    visits = [visit for visit, _, _ in elements]
    rows = pa.record_batch(
        [*schema.to_columns(visits), pa.array([time for _, time, _ in elements])], names=[*schema.names, TIME]
    )
    panes = pa.record_batch([np.array([back for *_, back in elements])] * len(PANE_COLUMNS), names=list(PANE_COLUMNS))
    columns = ToRecords("to", values, 5, schema, key, timestamp)
    got = [*decoded(values, columns.add_columns(ColumnBundle(rows, schema, panes))), *decoded(values, columns.finish())]
    assert Counter(map(str, got)) == want
    for known in (schema, None):
        objects, got = ToRecords("to", values, 5, known, key, timestamp), []
        for visit, time, back in elements:
            got += decoded(values, objects.add(Bundle([visit], np.array([time]), retraction=back)))
        got += decoded(values, objects.finish())
        assert Counter(map(str, got)) == want


def test_functions_see_elements() -> None:
    values, schema = Values("json"), schema_of(Visit)
    assert schema is not None
    rows = pa.record_batch([*schema.to_columns([Visit("amy", 3, None)]), pa.array([5])], names=[*schema.names, TIME])
    output = ToRecords("to", values, 1, schema, lambda visit: visit.user[0], lambda visit: visit.n + 1)
    got = [*decoded(values, output.add_columns(ColumnBundle(rows, schema))), *decoded(values, output.finish())]
    assert got == [(0, b"a", 4 * SECOND, {"user": "amy", "n": 3, "at": None}, {})]


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("kind", "element", "value"),
    [
        ("json", {"a": [1, None]}, {"a": [1, None]}),
        ("json", Point(3), {"x": 3}),
        ("json", ("a", 1), ["a", 1]),
        ("json", None, None),
        ("bytes", b"\xff", b"\xff"),
        ("bytes", "é", "é".encode()),
        ("x int", {"x": 3}, {"x": 3}),
        ("x int", Point(3), {"x": 3}),
        ("x int", {}, {"x": None}),
    ],
)
def test_objects_of_unknown_type(kind: str, element: Any, value: Any) -> None:
    values = Values(kind)
    output = ToRecords("to", values, 1, None, None, None)
    got = [*decoded(values, output.add(Bundle([element], time=7))), *decoded(values, output.finish())]
    assert got == [(ANY, None, 7, value, {})]


@pytest.mark.parametrize(
    ("kind", "element", "match"),
    [
        ("json", {1, 2}, "not JSON"),
        ("x int", ("a", 1), "has no named columns"),
        ("x int", {"y": 1}, "no column 'y'"),
        ("x int", {"x": "one"}, "a value is not x int"),
        ("bytes", 7, "a value is not bytes"),
    ],
)
def test_elements_that_are_no_values_of_the_topic(kind: str, element: Any, match: str) -> None:
    output = ToRecords("to", Values(kind), 1, None, None, None)
    with pytest.raises(Exception, match=match):
        list(output.add(Bundle([element])))
        list(output.finish())


def test_a_column_that_is_not_there() -> None:
    output = ToRecords("to", Values("json"), 1, None, "user", None)
    with pytest.raises(Exception, match="there is no column 'user'"):
        list(output.add_columns(ColumnBundle(pa.record_batch({"x": [1], TIME: [2]}), None)))


# Refusals, before anything runs


@pytest.fixture
def log() -> Log:
    return Log(tempfile.mkdtemp())


@pytest.mark.parametrize("planned", [plan, lambda graph: lower(graph, shards=2, partitions=2)], ids=["batch", "stream"])
@pytest.mark.parametrize(
    ("kind", "elements", "options", "match"),
    [
        (None, ["a"], {}, r"'to' .*: there is no topic 'visits' .*headrace topic create visits"),
        ("bytes", [("a", 1)], {}, r"'to' .*: the topic's values are bytes, but elements are \(_1 string, _2 int64\)"),
        ("x int", [("a", 1)], {}, r"'to' .*: the topic's columns are x int, but elements are .*write rows"),
        ("json", [("a", 1)], {"key": "user"}, r"'to' .*: there is no column 'user'; there are _1, _2"),
    ],
)
def test_refusals(
    planned: Callable[[Any], Any], kind: str | None, elements: list[Any], options: Any, match: str, log: Log
) -> None:
    if kind is not None:
        log.create("visits", values=kind)
    p = hr.Pipeline()
    p | hr.Create(elements) | "to" >> hr.WriteTopic("visits", log=str(log.path), **options)
    with pytest.raises(hr.PipelineError, match=match):
        planned(p.graph())


def test_a_topic_that_is_there(log: Log) -> None:
    log.create("visits", partitions=3, values="user string, n bigint, at timestamp, more string")
    p = hr.Pipeline()
    p | hr.Create([Visit("a", 1, None)]) | "to" >> hr.WriteTopic("visits", log=str(log.path), key="user")
    [*_, node] = p.graph()
    output = to_records(node, node.inputs[0])
    assert (output.partitions, output.key, output.timestamp) == (3, "user", None)
    assert issubclass(LogError, ValueError)
