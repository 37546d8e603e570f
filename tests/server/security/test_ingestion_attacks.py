"""Bodies that are costly to refuse: each is refused at about the cost of parsing it, and others do not wait for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headrace.log import LogError
from headrace.log.values import Values
from headrace.server import Service, ingestion
from headrace.server.ingestion import BadLines, Ingestion
from headrace.views.feeds import feed_of
from tests.scale import examples
from tests.server.conftest import LINES, visits

GOOD = b'{"user":"a","url":"b","ts":1}'
SIZE = 4 << 20
LINE = 1 << 20
TYPES = ["string", "boolean", "int", "bigint", "float", "double", "binary", "date", "timestamp"]


def line_of(value: bytes) -> bytes:
    return b'{"ts":1,"user":' + value + b"}"


SHAPES = {
    "brackets": (b"[" * SIZE, 422, "it has 4,194,304 bytes; a line has at most 1,048,576"),
    "brackets in lines": (b"\n".join([b"[" * (LINE - 1)] * 4), 422, "it is nested too deeply"),
    "deep": (line_of(b"[" * 900 + b"]" * 900), 422, "column 'user' is a string, got [[[[[[[...]]]]]]]"),
    "deep lines": (b"\n".join([line_of(b"[" * 900 + b"]" * 900)] * 2_000), 422, "is a string, got [[[["),
    "digits": (line_of(b"1" * (LINE - 99)), 422, "a number of it has more than 4,300 digits"),
    "digits in lines": (b"\n".join([line_of(b"1" * 4_300)] * 900), 422, "column 'user' is a string, got 1111"),
    "times": (b"\n".join([b'{"ts":' + b"1" * 4_300 + b"}"] * 900), 422, "column 'ts' is a timestamp, got 1111"),
    "fractions": (b'{"ts":' + b"1" * (LINE - 99) + b".5}", 422, "column 'ts' is a timestamp, got inf"),
    "list": (line_of(b"[" + b"[]," * (LINE // 3 - 99) + b"1]"), 422, "column 'user' is a string, got [[], [], []"),
    "names": (
        b"{" + b",".join(b'"k%d":1' % n for n in range(80_000)) + b',"ts":1}',
        422,
        "there is no column 'k0'; there are user, url, ts",
    ),
    "name": (b'{"ts":1,"' + b"k" * (LINE - 99) + b'":1}', 422, "there is no column 'kkkk"),
    "same names": (b"{" + b'"user":"a",' * (LINE // 11 - 9) + b'"ts":1}', 200, ""),
    "escapes": (line_of(b'"' + b"\\u0041" * (LINE // 6 - 9) + b'"'), 200, ""),
    "surrogates": (line_of(b'"' + b"\\ud800" * (LINE // 6 - 9) + b'"'), 422, "is a string, got '\\ud800\\ud800"),
    "utf-16": (GOOD.decode().encode("utf-16"), 422, "it is not UTF-8"),
    "empty lines": (b"\n" * SIZE, 413, "a body has at most 100,000 lines"),
    "bad lines": (b"x\n" * 99_999, 422, "it is not JSON: Expecting value at 1"),
    "bad times": (b"\n".join([b'{"ts":"x"}'] * 99_999), 422, "column 'ts' is a timestamp, got 'x'"),
}


def one_bad(count: int, at: int) -> bytes:
    """So many lines, of which that with this number is bad."""
    lines = [GOOD] * count
    lines[at - 1] = line_of(b"3")
    return b"\n".join(lines)


@pytest.mark.parametrize("shape", SHAPES)
def test_costly_bodies(client: httpx.Client, shape: str) -> None:
    body, status, reason = SHAPES[shape]
    began = time.monotonic()
    answer = client.post("/topics/visits", content=body, headers=LINES)
    assert time.monotonic() - began < 10  # a tenth of it on a quiet machine
    assert answer.status_code == status, answer.text[:1_000]
    told = answer.json()
    texts = [told.get("reason", ""), *(line["reason"] for line in told.get("lines", ()))]
    assert any(reason in text for text in texts), texts[:3]
    assert len(answer.content) < 50_000  # nothing large comes back


def test_one_bad_line_among_many_is_found_by_few_steps(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    encode = Values.encode

    def counted(values: Values, events: Sequence[Any]) -> pa.Array:
        rows.append(len(events))
        return encode(values, events)

    monkeypatch.setattr(Values, "encode", counted)
    for at in (1, 30_000, 99_999):
        with pytest.raises(BadLines, match="1 line is no event of the topic") as bad:
            service.topics["visits"].append(one_bad(99_999, at))
        assert (list(bad.value.reasons), bad.value.count) == ([at], 1)
        assert sum(rows) < 110_000 and max(rows) <= 1_000  # no step is long
        rows.clear()


def test_honest_posts_while_costly_ones_run(client: httpx.Client, service: Service) -> None:
    stop, statuses = threading.Event(), list[int]()

    def attack() -> None:
        with httpx.Client(base_url=client.base_url, timeout=60) as mine:
            while not stop.is_set():
                statuses.append(mine.post("/topics/visits", content=one_bad(40_000, 40_000), headers=LINES).status_code)

    attackers = [threading.Thread(target=attack) for _ in range(4)]
    for attacker in attackers:
        attacker.start()
    try:
        waits = []
        while len(statuses) < 4 or len(waits) < 10:
            began = time.monotonic()
            assert client.post("/topics/visits", content=GOOD, headers=LINES).status_code == 200
            waits.append(time.monotonic() - began)
    finally:
        stop.set()
        for attacker in attackers:
            attacker.join()
    assert set(statuses) == {422}
    assert max(waits) < 5


LINES_OF_ALL_KINDS = st.sampled_from(
    [
        GOOD,
        b"",
        b" \r",
        b"{",
        b"[]",
        b'{"ts":1,"x":2}',
        line_of(b"3"),
        line_of(b"[[]]"),
        b'{"user":"a"}',
        b"\xff",
        b"NaN",
    ]
)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES_OF_ALL_KINDS, max_size=30), piece=st.integers(1, 8), most=st.integers(1, 8))
def test_bad_lines_are_those_that_are_bad_alone(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], piece: int, most: int
) -> None:
    feed = feed_of(tmp_path_factory.mktemp("log"), visits)
    feed.create()
    events = Ingestion(feed)
    alone: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            events._parse(line)
        except BadLines as bad:
            alone[number] = bad.reasons[1]
    found: dict[int, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestion, "_PIECE", piece)
        patch.setattr(ingestion, "MAX_BAD", most)
        try:
            parsed, times = events._parse(b"\n".join(lines))
            assert (parsed, times) == ([json.loads(GOOD)] * len(parsed), [1_000_000] * len(parsed))
            assert len(parsed) == lines.count(GOOD)
        except BadLines as bad:
            found = bad.reasons
    assert found == dict(list(alone.items())[:most])


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, -(2**63), 2**63, 10**300, 1e300, 1e308 * 10, 0.0, 2.0, 2.5]),
    st.sampled_from(["", "a", "2026-01-31", "2026-01-31T12:00:00Z", "\ud800", "true", "1"]),
    st.just([]),
    st.just({"a": 1}),
)


@examples(400)
@given(kind=st.sampled_from(TYPES), values=st.lists(VALUES, min_size=1, max_size=6))
def test_a_column_is_wrong_if_a_value_is(kind: str, values: list[Any]) -> None:
    """Bisection relies on it; and on the value in the message being the first that is wrong."""
    column = Values(f"c {kind}")

    def refusal(some: list[Any]) -> str | None:
        try:
            column.encode([{"c": value} for value in some])
        except LogError as error:
            return str(error)
        return None

    alone = [told for value in values if (told := refusal([value])) is not None]
    assert refusal(values) == (alone[0] if alone else None)


def test_what_was_refused_left_nothing(client: httpx.Client, service: Service, tmp_path: Path) -> None:
    assert client.post("/topics/visits", content=one_bad(2_000, 2_000), headers=LINES).status_code == 422
    assert service.topics["visits"].offsets() == {0: 0, 1: 0, 2: 0}
