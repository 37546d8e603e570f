"""Bounded sources in the fast lane: what a source reads goes on in bundles, and the lines of a text file in blocks.

In a batch nobody splits a source that is being read, so it need not be driven as the splittable DoFn that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
from apache_beam.coders import StrUtf8Coder

from headrace.dialects.beam.compat import SingleFileSource, TextSource
from headrace.dialects.beam.fastlane import CallStep
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle

_BLOCK: Final = 1 << 20


class ReadStep(CallStep):
    """Reads the sources that restrictions have."""

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        for position, ((_, (restriction, _)), _) in enumerate(bundle.elements):
            for piece in records_of(restriction):
                index = np.full(len(piece), position)
                yield from self.placed(bundle.with_elements(piece) if bundle.bare else bundle.take(index, piece))


def records_of(restriction: Any) -> Iterator[list[Any]]:
    """Yields the records of a bounded source, some at a time."""
    source = restriction.source()
    if _is_plain_text(source):
        tracker = restriction.range_tracker()
        text = source._file_based_source
        for lines in lines_of(text, source._file_name, tracker.start_position(), tracker.stop_position()):
            for at in range(0, len(lines), BUNDLE_SIZE):
                yield lines[at : at + BUNDLE_SIZE]
        return
    records = iter(source.read(restriction.range_tracker()))
    while piece := list(islice(records, BUNDLE_SIZE)):
        yield piece


def _is_plain_text(source: Any) -> bool:
    """Returns whether a source gives the lines of a text, without headers, delimiters or coders of its own."""
    if type(source) is not SingleFileSource or type(source._file_based_source) is not TextSource:
        return False
    text = source._file_based_source
    return (
        text._delimiter is None
        and text._escapechar is None
        and text._strip_trailing_newlines
        and text._skip_header_lines == 0
        and text._header_matcher is None
        and type(text._coder) is StrUtf8Coder
    )


def lines_of(text: Any, name: str, start: int, stop: float, block: int = _BLOCK) -> Iterator[list[str]]:
    """Yields the lines of a file that begin at `start` or later and before `stop`, as Beam's text source has them."""
    with text.open_file(name) as file:
        data, position, skipping = b"", 0, start > 0
        if skipping:
            position = start - 1
            file.seek(position)
        while more := file.read(block):
            data += more
            if skipping:  # what is left of a line that began before
                end = data.find(b"\n") + 1
                skipping, position = end == 0, position + (end or len(data))
                data = data[end:] if end else b""
                if skipping:
                    continue
            if position >= stop:
                return
            if position + len(data) >= stop:
                end = data.find(b"\n", int(stop) - 1 - position) + 1
                if end:
                    yield _lines(data[:end])
                    return
                continue  # the last line goes on in the next block
            end = data.rfind(b"\n") + 1
            if end:
                yield _lines(data[:end])
                data, position = data[end:], position + end
        if data and position < stop:
            yield _lines(data)


def _lines(data: bytes) -> list[str]:
    r"""Returns the lines of a text; they end with \n or \r\n, but for the last, which may have no end.

    >>> _lines(b"a\r\n\nb\r")
    ['a', '', 'b\r']
    """
    *lines, last = data.decode().split("\n")
    if b"\r\n" in data:
        lines = [line.removesuffix("\r") for line in lines]
    return [*lines, last] if last else lines
