"""The notices of Spark's JVM that are kept off the terminal, against a naive reference and in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.spark.jvmstderr import NoticeFilter, all_notices

NOTICES = all_notices("/spark")

LINES = st.sampled_from(
    [*NOTICES, *(notice[:-1] + b" \n" for notice in NOTICES), *(notice[:20] for notice in NOTICES), b"\n", b"x", b"x\n"]
)


def without_notices(text: bytes) -> bytes:
    """The reference: looks for notices where a line begins, from left to right."""
    passed, at = b"", 0
    while at < len(text):
        starts_line = at == 0 or text[at - 1 : at] == b"\n"
        notice = next((each for each in NOTICES if starts_line and text.startswith(each, at)), None)
        if notice is None:
            passed += text[at : at + 1]
        at += 1 if notice is None else len(notice)
    return passed


@given(st.lists(LINES, max_size=8).map(b"".join), st.lists(st.integers(0, 400), max_size=6))
def test_notices_are_left_out_however_the_bytes_arrive(text: bytes, cuts: list[int]) -> None:
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    notices = NoticeFilter(NOTICES)
    passed = [notices.feed(text[begin:end]) for begin, end in pairwise(bounds)]
    assert b"".join(passed) + notices.finish() == without_notices(text)


def test_what_is_no_notice_passes_at_once() -> None:
    assert NoticeFilter().feed(b"no end of line yet") == b"no end of line yet"


def test_the_process_passes_on_what_is_left_and_ends_with_its_input() -> None:
    script = (
        "import os, pyspark; from headrace.engine.spark.jvmstderr import all_notices, launch_filter;"
        "package = os.path.dirname(pyspark.__file__);"
        "notices = all_notices(package); filtered = launch_filter(package);"
        "filtered.stdin.write(b'a\\n' + b''.join(notices) + b'b'); filtered.stdin.close();"
        "raise SystemExit(filtered.wait())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"a\nb")


def test_a_filter_whose_reader_is_gone_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    script = "from headrace.engine.spark.jvmstderr import main; main()"
    with subprocess.Popen([sys.executable, "-c", script, "/spark"], stdin=subprocess.PIPE, stderr=writing) as filtered:
        os.close(writing)
        filtered.communicate(b"nobody reads this\n", timeout=60)
    assert filtered.returncode == 0


SCRIPT = """
from typing import NamedTuple
import headrace as hr

class Visit(NamedTuple):
    url: str
    user: int

with hr.Pipeline() as p:
    people = p | hr.Create([Visit("a", 1), Visit("a", 2)]) | hr.GroupBy("url").aggregate(n=hr.approx_distinct("user"))
    counted = people | hr.Collect()
p = hr.Pipeline()
sums = p | hr.Create([("a", 1), ("b", 2), ("a", 3)]) | hr.CombinePerKey(sum) | hr.Collect()
p.run(stream=True).wait()
print(len(counted), sorted(sums))
"""


@pytest.mark.slow("a driver of its own")
def test_a_run_that_goes_well_prints_its_own_lines_only() -> None:
    """A batch with a sketch and a stream with state, in a JVM of their own."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1 [('a', 4), ('b', 2)]\n"
