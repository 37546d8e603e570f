"""Formats of CSV files: what is refused when they are declared."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.model.csvformat import ENCODINGS, CsvFormat


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ""}, "separator is one character, such as ',' or ';'"),
        ({"separator": "\n"}, "separator is one character"),
        ({"quote": '""'}, "quote is one character"),
        ({"escape": "ab"}, r"escape is the one character before a quote in quotes.*got 'ab'"),
        ({"separator": '"'}, "the separator '\"' is the quote or the escape"),
        ({"separator": "\\", "escape": "\\"}, "is the quote or the escape"),
        ({"header": "yes"}, "header is True or False, got 'yes'"),
        ({"null": None}, "null is the text of a field that is null.*got None"),
        ({"null": "a,b"}, "without separators, quotes and line breaks, got 'a,b'"),
        ({"encoding": "utf-9"}, "encoding is one of utf-8, ascii.*got 'utf-9'"),
        ({"encoding": "cp1252"}, "encoding is one of utf-8"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    for transform in (hr.ReadCsv, hr.WriteCsv):
        with pytest.raises(hr.PipelineError, match=f"{transform.__name__}: .*{message}"):
            transform("x", **options)


def test_what_only_one_of_them_refuses() -> None:
    with pytest.raises(hr.PipelineError, match="ReadCsv: lines of utf-16 are read with multi_line=True only"):
        hr.ReadCsv("x", encoding="utf-16")
    with pytest.raises(hr.PipelineError, match="WriteCsv: quote is one character; without quotes"):
        hr.WriteCsv("x", quote=None)  # type: ignore[arg-type]
    with pytest.raises(hr.PipelineError, match="escape is the one character"):
        hr.ReadCsv("x", quote=None, escape="\\")
    with pytest.raises(hr.PipelineError, match="it needs columns, but 'Create'"):
        p = hr.Pipeline()
        p | hr.Create([{"a": 1}]) | hr.WriteCsv("out")
        p.run()


def test_encodings_have_any_of_their_names() -> None:
    for name in ("latin-1", "UTF8", *ENCODINGS):
        assert CsvFormat("ReadCsv", encoding=name, multi_line=True).java_encoding in ENCODINGS.values()
