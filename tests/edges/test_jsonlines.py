"""JSON lines read by Arrow: every line once, read as Python reads it, or left as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges import jsonlines
from headrace.edges.jsonlines import INSTANT, TEXT, read_lines
from tests.scale import examples

COLUMNS = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("t", INSTANT)])
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5),
    st.just("2026-01-31T10:00:00Z"),
    st.lists(st.just({"n": 1}), max_size=1),
)
LINES = st.one_of(
    st.dictionaries(st.sampled_from(["n", "x", "s", "t", "u"]), VALUES, max_size=4).map(json.dumps),
    st.sampled_from(["{}", " ", "", "{", "5", '{"n":1}{"n":2}', '{"n":1} ', '{"n":1,"n":1}']),
)


def rows_of(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    batches = list(read_lines(str(path), COLUMNS, **options))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@given(st.lists(LINES, max_size=40), st.integers(1, 5), st.sampled_from([1, 30, 10_000]))
@examples(400)
def test_every_line_is_in_one_share_and_read_or_left(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], shares: int, piece: int
) -> None:
    path = tmp_path_factory.mktemp("in") / "lines"
    path.write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonlines, "_PIECE", piece)
        found = [row for share in range(shares) for row in rows_of(path, share=share, shares=shares)]
    records = [line for line in lines if line.strip()]
    assert len(found) == len(records)
    for line, (n, x, s, t, text) in zip(records, found, strict=True):
        if text is not None:
            assert text == line.encode()
        else:
            value = json.loads(line)
            assert (value.get("n"), value.get("x"), value.get("s")) == (n, x, s)
            assert (value.get("t") is None) == (t is None)


def test_one_line_costs_its_neighbours_nothing(tmp_path: Path) -> None:
    good = [json.dumps({"n": n, "x": n / 7, "s": "é", "t": "2026-01-31T10:00:00.5Z", "u": [{}]}) for n in range(20_000)]
    for bad in (
        '{"n": "1"}',
        '{"n": 1',
        '{"n": 1}{"n": 2}',
        '{"n": 1, "n": 2}',
        '{"x": -0}',
        '{"t": "soon"}',
        '{"n": 1.5}',
    ):
        (tmp_path / "lines").write_text("\n".join([*good[:7_000], bad, *good[7_000:]]))
        left = [text for *_, text in rows_of(tmp_path / "lines") if text is not None]
        assert bad.encode() in left and len(left) < 50


def test_a_file_of_other_lines_is_soon_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    parsed = jsonlines._Parser._parsed
    monkeypatch.setattr(jsonlines._Parser, "_parsed", lambda self, lines: (tried.append(lines), parsed(self, lines))[1])
    (tmp_path / "lines").write_text('{"t": "31.1.2026"}\n' * 100_000)
    assert [text for *_, text in rows_of(tmp_path / "lines")] == [b'{"t": "31.1.2026"}'] * 100_000
    assert len(tried) <= 2 * jsonlines._REFUSALS + 1


def test_lines_without_an_event_time_are_left(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"n": 1}\n{"n": null}\n{"t": "2026-01-31T10:00:00Z"}\n{"n": 999999999999999}\n')
    assert [text is None for *_, text in rows_of(tmp_path / "lines", event_time="n")] == [True, False, False, False]
    assert [text is None for *_, text in rows_of(tmp_path / "lines", event_time="t")] == [False, False, True, False]


def test_a_column_is_missing_or_text_is_long(tmp_path: Path) -> None:
    """Lines of more than 1,000 bytes are read, if nothing in them is beyond what Spark's parser takes."""
    fine = [{"n": 1, "u": "x" * 5_000}, {"n": 1, "u": [[1, 2]] * 400}]
    odd = [
        '{"n":1,"u":' + "[" * 1200 + "]" * 1200 + "}",
        '{"n":1,"u":' + "1" * 1200 + "}",
        '{"n":1,"' + "x" * 60_000 + '":1}',
    ]
    for line in [*map(json.dumps, fine), *odd]:
        (tmp_path / "lines").write_text(line)
        [(n, *_, text)] = rows_of(tmp_path / "lines")
        assert (text is not None) == (line in odd) and (n == 1) == (line not in odd)
    assert TEXT not in COLUMNS.names
