"""`headrace topic`: what it prints, and with which exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.commands.main import main
from headrace.log import Group, Log

VISITS = '{"user": "ann", "url": "/a", "ts": "2026-01-01T00:00:00Z"}\n{"user": "bob", "url": "/b", "ts": 1767225605}\n'


@pytest.fixture
def topic(log: Log) -> Any:
    def invoke(*args: str, given: str = "") -> Result:
        return CliRunner().invoke(main, ["topic", args[0], *args[1:], "--log", str(log.path)], input=given)

    return invoke


def test_from_pipe_to_pipe(topic: Any) -> None:
    made = topic("create", "visits", "--partitions", "2", "--values", "user string, url string, ts timestamp")
    assert made.stdout == "created visits: 2 partitions of user string, url string, ts timestamp\n"
    assert topic("produce", "visits", "--key", "user", "--timestamp", "ts", given=VISITS).stdout == "2 records\n"
    assert topic("consume", "visits").stdout.splitlines() == [
        '{"user": "ann", "url": "/a", "ts": "2026-01-01T00:00:00+00:00"}',
        '{"user": "bob", "url": "/b", "ts": "2026-01-01T00:00:05+00:00"}',
    ]
    shown = topic("consume", "visits", "--meta", "--from", "2026-01-01T00:00:01").stdout
    assert shown.split("\t")[1:3] == ["2026-01-01T00:00:05Z", "bob"]
    assert "visits  2           2        user string" in topic("list").stdout


def test_groups_remember_and_are_moved(topic: Any) -> None:
    topic("create", "visits")
    topic("produce", "visits", given="1\n2\n3\n")
    assert topic("consume", "visits", "--group", "g", "--max", "2").stdout == "1\n2\n"
    assert topic("consume", "visits", "--group", "g").stdout == "1\n2\n3\n"  # what was cut short was not committed
    assert topic("consume", "visits", "--group", "g").stdout == ""
    assert topic("groups", "visits").stdout.split()[-5:] == ["g", "0", "3", "0", "0"]
    assert topic("reset", "visits", "--group", "g", "--to", "earliest").stdout == "visits/0: 0\n"
    assert topic("reset", "visits", "--group", "g", "--to", "@1", "--partition", "0").stdout == "visits/0: 1\n"
    assert "choose one from 0 to 3" in topic("reset", "visits", "--group", "g", "--to", "@99").stderr
    assert topic("consume", "visits", "--group", "g").stdout == "2\n3\n"
    assert topic("consume", "visits", "--from", "@2").stdout == "3\n"


def test_bad_lines_are_told_and_the_others_kept(topic: Any) -> None:
    topic("create", "visits")
    done = topic("produce", "visits", "--key", "user", given='{"user": "ann"}\nnot json\n{"url": "/"}\n')
    assert (done.exit_code, done.stdout) == (1, "1 records, 2 lines refused\n")
    assert "line 2 refused: Expecting value" in done.stderr
    assert "line 3 refused: no field 'user'" in done.stderr
    assert topic("consume", "visits").stdout == '{"user": "ann"}\n'


def test_a_topic_that_is_not_there(topic: Any) -> None:
    done = topic("consume", "nothing")
    assert done.exit_code == 1
    assert "error: there is no topic 'nothing'" in done.stderr


def test_retention_by_command(log: Log, topic: Any) -> None:
    topic("create", "visits", "--keep", "1 day")
    assert "kept for 1 d" in topic("describe", "visits").stdout
    assert topic("retain", "visits").stdout == "0 records removed\n"
    old = log.create("old", keep_age=1, segment_bytes=1)
    Group(log, "old", "g").commit({0: 1})
    for number in range(3):
        old.append(0, old.batch([number], timestamps=[number]))
    assert topic("retain", "old").stdout == "0 records removed\n"  # a segment goes by itself when one begins
    assert topic("retain", "old", "--force").stdout == "1 records removed\n"


def test_following_sees_what_another_process_appends(log: Log, topic: Any) -> None:
    topic("create", "visits")
    command = [sys.executable, "-m", "headrace", "topic", "consume", "visits", "--follow", "--max", "2"]
    command += ["--log", str(log.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as follower:
        assert follower.stdout is not None
        topic("produce", "visits", given='"first"\n')
        assert follower.stdout.readline() == '"first"\n'
        topic("produce", "visits", given='"second"\n')
        assert follower.stdout.readline() == '"second"\n'
        assert follower.wait(timeout=60) == 0
