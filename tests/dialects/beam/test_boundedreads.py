"""Bounded sources in the fast lane give the records that Beam's own sources give, for every range of a file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder
from apache_beam.io import ReadFromText
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.textio import _TextSource
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.beam import HeadraceRunner
from headrace.dialects.beam.boundedreads import lines_of
from tests.scale import examples

_TEXTS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bc", "é".encode()]), max_size=20).map(b"".join)


def source_of(path: Path) -> Any:
    """Beam's source of a text file."""
    return _TextSource(str(path), 0, CompressionTypes.AUTO, True, StrUtf8Coder())


@examples(200, deadline=None)
@given(_TEXTS, st.integers(1, 9), st.integers(1, 40))
def test_lines_of_ranges_are_those_of_beams_source(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, block: int, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(text)
    for bundle in source_of(path).split(size) if text else ():
        tracker = bundle.source.get_range_tracker(bundle.start_position, bundle.stop_position)
        found = lines_of(source_of(path), str(path), bundle.start_position, bundle.stop_position, block)
        assert [line for lines in found for line in lines] == list(bundle.source.read(tracker))


_read: list[Any] = []


def note(record: Any) -> None:
    """Notes a record in this process, where both runners run."""
    _read.append(record)


@pytest.mark.parametrize(
    "options",
    [{}, {"skip_header_lines": 1}, {"strip_trailing_newlines": False}, {"delimiter": b"b"}, {"escapechar": b"a"}],
    ids=["plain", "header", "newlines", "delimiter", "escaped"],
)
@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
def test_a_file_is_read_as_beam_reads_it(tmp_path: Path, options: dict[str, Any], name: str) -> None:
    text = b"abc\nab\r\n\nlast"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    found = []
    for runner in (HeadraceRunner(local=True), "FnApiRunner"):
        _read.clear()
        with beam.Pipeline(runner=runner) as p:
            p | ReadFromText(str(tmp_path / name), **options) | beam.Map(note)
        found.append(sorted(_read))
    assert found[0] == found[1] and found[0]


def test_reading_takes_the_fast_lane_in_a_batch_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    p = beam.Pipeline()
    p | ReadFromText(str(tmp_path / "a"))
    runner = HeadraceRunner()
    batch = runner.stages(p, PipelineOptions())
    stream = runner._fused(runner._planned(p, PipelineOptions()), streaming=True)
    reads = [[name for spec in specs for name in spec.plain if name.endswith("/Process")] for specs in (batch, stream)]
    assert [len(each) for each in reads] == [1, 0]
