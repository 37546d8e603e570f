"""COPY: what files say is what the stream has; a bad row is named, and so is what was appended before it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.dialects.sql import copyreader
from headrace.dialects.sql.copyreader import read_rows
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.dialects.sql.sqlstatements import parse_statements
from headrace.log.topics import Log
from tests.scale import examples

COLUMNS = pa.struct(
    [
        ("name", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("on", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
ROWS = st.lists(
    st.tuples(
        TEXT,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.booleans(),
        st.none() | st.dates(date(1, 1, 1)),
        st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    ),
    max_size=30,
)


def told(value: Any) -> Any:
    """A value as files of text tell it; a time without its zone is UTC, too."""
    if isinstance(value, datetime):
        return value.isoformat() if value.microsecond % 2 else value.replace(tzinfo=None).isoformat()
    return value.isoformat() if isinstance(value, date) else value


def cell(value: Any) -> str:
    """A value in CSV: text in quotes, and nothing for none."""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None else str(told(value))


@examples(200)
@given(ROWS, st.booleans(), st.sampled_from([1, 7, 20_000]))
def test_what_a_file_says_is_read(rows: list[tuple[Any, ...]], header: bool, size: int) -> None:
    names = [field.name for field in COLUMNS]
    text = "".join(",".join(map(cell, row)) + "\n" for row in ([names] * header + rows))
    lines = "\n\n".join(json.dumps(dict(zip(names, map(told, row), strict=True))) for row in rows)
    parquet = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], pa.schema(COLUMNS)), parquet
    )

    def read(data: bytes, form: str) -> list[tuple[Any, ...]]:
        found = read_rows(io.BytesIO(data), form, COLUMNS, header=header and form == "csv")
        return [tuple(row.values()) for batch in found for row in batch.to_pylist()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copyreader, "_ROWS", size)
        assert read(text.encode(), "csv") == rows
        assert read(lines.encode(), "json") == rows
        assert read(parquet.getvalue(), "parquet") == rows


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with SqlSession(str(tmp_path / "home")) as opened:
        opened.execute("CREATE STREAM hits (url text, n bigint, at timestamp) WITH (partitions = 2)")
        yield opened


def rows_in(home: Path) -> list[tuple[Any, ...]]:
    topic = Log(home / "log").topic("hits")
    return [tuple(each.value.values()) for number in range(2) for each in topic.read(number)]


def test_files_and_the_standard_input(session: SqlSession, tmp_path: Path) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    (tmp_path / "a.csv").write_text('n,url\n1,"/a\nb"\n2,\n')
    (tmp_path / "a.jsonl").write_text('{"url": "/", "at": "2026-01-31T12:00:00"}\n\n{}\n')
    pq.write_table(pa.table({"n": pa.array([3], pa.int32()), "at": pa.array([noon])}), tmp_path / "a.parquet")
    for file, options in (("a.csv", "(HEADER)"), ("a.jsonl", ""), ("a.parquet", "(FORMAT parquet)")):
        session.execute(f"COPY hits FROM '{tmp_path / file}' {options}")
    (copy,) = parse_statements("COPY hits (n) FROM STDIN")
    assert session.run(copy, stdin=io.BytesIO(b"4\n5\n")).message == "copied 2"
    assert session.run(copy, stdin=io.BytesIO(b"")).message == "copied 0"
    expected = [("/a\nb", 1, None), (None, 2, None), ("/", None, noon), (None, None, None), (None, 3, noon)]
    assert sorted(rows_in(tmp_path / "home"), key=str) == sorted([*expected, (None, 4, None), (None, 5, None)], key=str)


def test_what_is_refused(session: SqlSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    refused = [
        ("csv", b"/,1,\n/,one,", "row 2: the column 'n' is int64, got 'one'; no row was appended"),
        ("csv", b"/,1,\n/,1,noon", "row 2: the column 'at' is timestamp, got 'noon'; no row was appended"),
        ("csv", b"/,1,\n\n/,1", "row 2 has 2 values, and not 3: /,1; no row was appended"),
        ("csv, HEADER", b"url,m\n/,1", "there is no column 'm'"),
        ("csv, HEADER", b"url,n\n/,1\n/", "row 2 has 1 values, and not 2: /; no row was appended"),
        (
            "json",
            b'{"n": 1}\n\n{"n": 1.5}',
            "line 3: Failed to convert JSON to int64, couldn't parse:1.5; expected url",
        ),
        ("json", b'{"n": 1}\n{"m": 1}', "line 2: JSON parse error: unexpected field"),
        ("json", b'{"at": "noon"}', "line 1: the column 'at' is timestamp, got 'noon'; no row was appended"),
        ("json", b'{"n": 1}\n[2]', "line 2: JSON parse error"),
        ("parquet", b"PAR", "this is no Parquet"),
        ("xml", b"", "COPY reads csv, json, parquet, got FORMAT xml"),
        ("json, HEADER", b"", "rows of JSON and Parquet have names"),
    ]
    for options, data, reason in refused:
        file.write_bytes(data)
        with pytest.raises(hr.HeadraceError) as caught:
            session.execute(f"COPY hits FROM '{file}' (FORMAT {options})")
        assert reason in str(caught.value)
    assert rows_in(tmp_path / "home") == []
    monkeypatch.setattr(copyreader, "_ROWS", 2)
    file.write_bytes(b'{"n": 1}\n{"n": 2}\n{"n": 3}\n{"n": "4"}')
    with pytest.raises(hr.HeadraceError, match=r"line 4: .*; the first 2 rows were appended"):
        session.execute(f"COPY hits FROM '{file}' (FORMAT json)")
    assert rows_in(tmp_path / "home") == [(None, 1, None), (None, 2, None)]
    with pytest.raises(hr.HeadraceError, match="cannot read '/none': No such file"):
        session.execute("COPY hits FROM '/none'")
    (copy,) = parse_statements("COPY hits FROM '/etc/passwd'")
    with pytest.raises(hr.HeadraceError, match="COPY reads no files here"):
        session.run(copy, files=False)
    with pytest.raises(hr.HeadraceError, match="there is no standard input here"):
        session.execute("COPY hits FROM STDIN")
