"""Topics as tables of ad-hoc SQL: of any times, and as of any offsets, the rows that a naive count finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.times import DAY, SECOND
from headrace.views.adhoc.duckdbsandbox import open_tables
from headrace.views.adhoc.sqlrequest import DUCKDB, Limits, encode_request
from headrace.views.archive.archivetable import Archive
from headrace.views.errors import ViewError
from tests.scale import examples
from tests.views.archives import Event, write

VISITS = hr.Topic("visits", schema="user string, at timestamp", event_time="at")
EVENTS = st.tuples(st.integers(0, 2), st.none() | st.integers(-40, 80))
"""A partition, and the hour of the event, if it has a time."""
HOURS = st.none() | st.integers(-50, 90)


def event(partition: int, hour: int | None) -> Event:
    time = None if hour is None else hour * 3600 * SECOND
    return partition, {"user": f"{hour}", "at": time}, None if time is None else time // DAY


@examples(40)
@given(
    st.lists(st.lists(EVENTS, max_size=5), max_size=4),
    HOURS,
    HOURS,
    st.none() | st.dictionaries(st.integers(0, 2), st.integers(0, 9)),
)
def test_a_table_has_the_records_that_are_meant(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[list[tuple[int, int | None]]],
    since: int | None,
    until: int | None,
    asof: dict[int, int] | None,
) -> None:
    folder = tmp_path_factory.mktemp("master")
    archive = Archive(VISITS, folder)
    write(archive, folder, *[[event(*each) for each in step] for step in steps])
    ends = {n: sum(partition == n for step in steps for partition, _ in step) for n in range(3)}
    asked: dict[str, Any] = {
        "since": None if since is None else since * 3600,
        "until": None if until is None else until * 3600,
        "asof": asof,
    }
    if asof is not None and any(at > ends[n] for n, at in asof.items()):
        with pytest.raises(ViewError, match=r"is archived up to .*, not yet to"):
            archive.table(**asked)
        return
    table, archived = archive.table(**asked)
    meant, places = [], dict.fromkeys(range(3), 0)
    for partition, hour in (each for step in steps for each in step):
        offset = places[partition]
        places[partition] += 1
        within = hour is not None and (since is None or hour >= since) and (until is None or hour < until)
        if (asof is None or offset < asof.get(partition, 0)) and (within or (since is None and until is None)):
            meant.append((f"{hour}", partition, offset))
    assert sorted(meant) == sorted(_rows(table))
    assert archived == {n: end if asof is None else asof.get(n, 0) for n, end in ends.items() if end}


def _rows(table: Any) -> list[tuple[Any, ...]]:
    """What DuckDB finds in it."""
    head = json.loads(encode_request("", {"visits": table}, Limits(), DUCKDB).partition(b"\n")[0])
    arrow = {"visits": table} if isinstance(table, pa.Table) else {}
    with open_tables(arrow, head["parquet"], 128) as connection:
        found: list[tuple[Any, ...]] = connection.execute('SELECT "user", _partition, _offset FROM visits').fetchall()
    return found


def test_times_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ViewError, match="'; DROP"):
        Archive(VISITS, tmp_path).table("'; DROP TABLE visits; --")
