"""Tests the line receiver: batches, refused lines, new connections, stopping, and crashes."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.edges.linereceiver import LineReceiver
from headrace.log import Log, LogError, Topic

RECEIVE = """
import sys
from headrace.edges.linereceiver import LineReceiver
from headrace.log import Log

receiver = LineReceiver(Log(sys.argv[1]).topic("lines"), "127.0.0.1", int(sys.argv[2]), linger=0.001, most=50)
append = receiver._append
def append_and_print(values, times):
    append(values, times)
    print(receiver.received, flush=True)
receiver._append = append_and_print
receiver.receive()
"""


@pytest.fixture
def topic(tmp_path: pathlib.Path) -> Topic:
    return Log(tmp_path).create("lines", values=hr.ReadSocket("tcp://127.0.0.1:1").values)


def lines_in(topic: Topic) -> list[str]:
    return [record.value["value"] for record in topic.read(0)]


class Script:
    """A scripted server with clocks: bytes that arrive, seconds that pass, errors, and the end of the connection, b"".

    Each list is a connection; None is one that is refused.
    """

    def __init__(self, *connections: list[Any] | None) -> None:
        self.connections = list(connections)
        self.time = 0.0
        self.clock_runs = 1
        self.pauses: list[float] = []
        self.receiver: LineReceiver | None = None
        self.steps: Iterator[Any] = iter(())
        self.timeout: float | None = None

    def receive(self, topic: Topic, **settings: Any) -> LineReceiver:
        self.receiver = LineReceiver(
            topic,
            "example.com",
            9,
            connect=self.connect,
            clock=lambda: 1_000_000 + int(self.clock_runs * self.time * 1_000_000),
            elapsed=lambda: self.time,
            pause=self.pauses.append,
            **settings,
        )
        return self.receiver

    def connect(self, address: tuple[str, int]) -> Script:
        assert address == ("example.com", 9)
        steps = self.connections.pop(0)
        if steps is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self.steps = iter(steps)
        return self

    def settimeout(self, value: float | None) -> None:
        self.timeout = value

    def recv(self, size: int) -> bytes:
        step = next(self.steps, b"")
        while isinstance(step, int | float):
            if self.timeout is not None and step >= self.timeout:
                self.time += self.timeout
                self.steps = iter([step - self.timeout, *self.steps])
                raise TimeoutError
            self.time += step
            self.timeout = None if self.timeout is None else self.timeout - step
            step = next(self.steps, b"")
        if isinstance(step, Exception):
            raise step
        if step == b"" and not self.connections:
            assert self.receiver is not None
            self.receiver._stopping.set()
        assert isinstance(step, bytes)
        return step

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


def batches(topic: Topic) -> list[list[str]]:
    return [batch.column("value").field("value").to_pylist() for _, batch in topic.partition(0).read(0)]


def test_batches_are_bounded_by_time_and_by_number(topic: Topic) -> None:
    server = Script([b"a\nb", 1.5, b"b\n", 10, b"c\nd\n", b"e\n", b"f\n", 60, b"g\n", 60])
    server.receive(topic, linger=2.0, most=3).receive()
    assert batches(topic) == [["a", "bb"], ["c", "d", "e"], ["f"], ["g"]]
    times = [record.timestamp / 1e6 - 1 for record in topic.read(0)]
    assert times == [0, 1.5, 11.5, 11.5, 11.5, 11.5, 71.5]


def test_times_never_go_back_not_even_after_a_restart(topic: Topic) -> None:
    server = Script([b"a\n", 5, b"b\n", 5])
    server.clock_runs = -1
    server.receive(topic).receive()
    topic.append(0, topic.batch([{"value": "x"}], timestamps=[7_000_000]))
    Script([b"c\n", 1]).receive(topic).receive()
    assert [record.timestamp for record in topic.read(0)] == [1_000_000, 1_000_000, 7_000_000, 7_000_000]


def test_it_connects_again_with_growing_pauses_until_lines_come(topic: Topic) -> None:
    broken = ConnectionResetError(104, "Connection reset by peer")
    server = Script(None, None, [], [b"a\nhal", broken], [b"b\n", b"last"], None, [b"c\n", 1])
    receiver = server.receive(topic)
    receiver.receive()
    assert lines_in(topic) == ["a", "b", "last", "c"]
    assert server.pauses == [0.1, 0.2, 0.4, 0.1]
    assert receiver.counts() == {"received": 4, "connections": 4, "too_long": 0, "not_text": 0, "torn": 1}


def test_it_gives_up_after_so_many_attempts_and_says_so(topic: Topic) -> None:
    server = Script([b"a\n"], *[None] * 9)
    with pytest.raises(ConnectionError, match=r"tcp://example.com:9: Connection refused, 9 times in a row; what was"):
        server.receive(topic, attempts=9).receive()
    assert lines_in(topic) == ["a"]
    assert server.pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_what_is_no_line_is_refused_and_counted(topic: Topic) -> None:
    receiver = Script([b"ok\n\xff\xfe\n", b"x" * (1 << 20), b"x\nb\xc3\xa4\r\n", 1]).receive(topic)
    receiver.receive()
    assert lines_in(topic) == ["ok", "bä"]
    assert receiver.counts() | {"received": 0, "connections": 0} == {
        "received": 0,
        "connections": 0,
        "too_long": 1,
        "not_text": 1,
        "torn": 0,
    }


def test_a_full_disk_ends_it(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int, batch: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(topic, "append", full)
    receiver = Script([b"a\n", 1]).receive(topic)
    with pytest.raises(LogError, match=r"cannot write 1 lines to the log: No space left on device; they are lost"):
        receiver.receive()
    assert receiver.received == 0


# With sockets


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        yield listening


def test_it_stops_while_it_waits_and_keeps_what_came(topic: Topic, server: socket.socket) -> None:
    came = threading.Event()
    append = topic.append

    def append_and_notify(number: int, batch: Any) -> int:
        offset = append(number, batch)
        came.set()
        return offset

    topic.append = append_and_notify  # type: ignore[method-assign]
    receiver = LineReceiver(topic, *server.getsockname(), linger=0.0)
    receiver.start()
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"one\ntwo\nthr")
        assert came.wait(30)
        receiver.stop()
    assert not receiver._thread.is_alive()
    assert receiver.failure is None
    assert lines_in(topic) == ["one", "two"]
    assert receiver.counts()["torn"] == 1


def test_a_failure_is_kept_for_whoever_asks(topic: Topic, server: socket.socket) -> None:
    address = server.getsockname()
    server.close()
    failed = threading.Event()
    receiver = LineReceiver(topic, *address, attempts=2, pause=lambda seconds: None, failed=failed.set)
    receiver.start()
    assert failed.wait(30)
    assert "Connection refused, 2 times in a row" in str(receiver.failure)


@pytest.mark.parametrize("seed", range(4))
def test_lines_that_counted_as_received_survive_a_kill(topic: Topic, server: socket.socket, seed: int) -> None:
    rng = random.Random(seed)
    port = str(server.getsockname()[1])
    sent = 0
    for _ in range(2):  # the second goes on after what the first left
        command = [sys.executable, "-c", RECEIVE, str(topic.folder.parent.parent), port]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            connection, _ = server.accept()
            assert child.stdout is not None
            before, first, received = len(lines_in(topic)), sent, 0
            with connection:
                for _ in range(rng.randint(1, 12)):
                    count = rng.randint(1, 400)
                    connection.sendall(b"".join(b"line %d\n" % (sent + n) for n in range(count)))
                    sent += count
                    if rng.random() < 0.7:
                        received = int(child.stdout.readline())
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
            received = max([received, *(int(line) for line in child.stdout if line.endswith("\n"))])
        lines = lines_in(topic)[before:]
        assert lines == [f"line {first + n}" for n in range(len(lines))]
        assert received <= len(lines) <= sent - first
