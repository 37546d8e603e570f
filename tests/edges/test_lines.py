"""Tests that lines do not depend on how their bytes are cut into pieces."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.lines import Lines

texts = st.lists(st.sampled_from([b"", b"a", b"\r", b"\xc3\xa4", b"\xff", b"b" * 4, b"c" * 5, b"d" * 9]).map(bytes))


def naive(sent: bytes, longest: int) -> tuple[list[str], int, int]:
    """Defines the lines of bytes that arrive in one piece."""
    lines, too_long, not_text = [], 0, 0
    for line in sent.split(b"\n") if not sent.endswith(b"\n") else sent.split(b"\n")[:-1]:
        if len(line) > longest:
            too_long += 1
        else:
            try:
                lines.append((line[:-1] if line.endswith(b"\r") else line).decode())
            except UnicodeDecodeError:
                not_text += 1
    return lines, too_long, not_text


@given(texts, st.booleans(), st.lists(st.integers(0, 60)), st.integers(1, 8))
def test_pieces_make_the_lines_of_the_whole(lines: list[bytes], ended: bool, cuts: list[int], longest: int) -> None:
    sent = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    edges = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    splitter = Lines(longest)
    got = [line for begin, end in pairwise(edges) for line in splitter.feed(sent[begin:end])]
    got += splitter.end()
    expected, too_long, not_text = naive(sent, longest) if sent else ([], 0, 0)
    assert (got, splitter.too_long, splitter.not_text, splitter.torn) == (expected, too_long, not_text, 0)
    assert splitter.feed(b"new\n" if longest > 2 else b"n\n") == (["new"] if longest > 2 else ["n"])


def test_what_breaks_off_is_counted_and_forgotten() -> None:
    lines = Lines(longest=3)
    assert lines.feed(b"a\nb") == ["a"]
    lines.broken()
    assert (lines.feed(b"c\n"), lines.torn) == (["c"], 1)
    lines.feed(b"far too long")
    lines.broken()
    assert (lines.feed(b"d\n"), lines.torn, lines.too_long) == (["d"], 1, 1)


def test_a_line_that_never_ends_takes_no_memory() -> None:
    lines = Lines(longest=10)
    for _ in range(1000):
        assert lines.feed(b"x" * 100) == []
        assert len(lines._begun) <= 10
    assert (lines.feed(b"\nok\n"), lines.too_long) == (["ok"], 1)


def test_a_line_that_comes_byte_by_byte_is_not_copied_each_time() -> None:
    lines, began = Lines(), time.process_time()
    for _ in range(600_000):
        lines.feed(b"x")
    assert lines.feed(b"\n") == ["x" * 600_000]
    assert time.process_time() - began < 6  # copied each time, it would be 180 GB
