"""Tests streams that read sockets, on Spark: lines arrive, also after a restart, and a lost server is reported."""

from __future__ import annotations

import pathlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.edges.linereceiver import LineReceiver
from headrace.engine.connectors import receivers
from headrace.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT = 60


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT)
        yield listening


class Seen:
    """The elements of a stream, each batch once, and a way to wait for a number of them."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.more = threading.Condition()

    def take(self, elements: list[Any], batch: int) -> None:
        with self.more:
            self.batches[batch] = elements
            self.more.notify_all()

    @property
    def lines(self) -> list[str]:
        return [each.value for _, elements in sorted(self.batches.items()) for each in elements]

    def has(self, *lines: str) -> None:
        with self.more:
            self.more.wait_for(lambda: len(self.lines) >= len(lines), WAIT)
            assert self.lines == list(lines)


def test_lines_of_a_socket_come_once_through_restarts_and_savepoints(
    spark: SparkSession, tmp_path: pathlib.Path, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    checkpoint, savepoint, fork = (str(tmp_path / name) for name in ("checkpoint", "savepoint", "fork"))
    name = hr.ReadSocket(uri).address.name

    def stream(seen: Seen, **options: Any) -> Any:
        p = hr.Pipeline(spark=spark)
        p | "lines" >> hr.Read(uri) | hr.ForEachBatch(seen.take)
        return p.run(**options)

    def lost(log: str, line: str) -> None:
        """Appends a line that was received right before the driver was killed, and that no batch has read."""
        topic = Log(f"{log}/log").topic(name)
        topic.append(0, topic.batch([{"value": line}], timestamps=[10**15]))

    seen, forked = Seen(), Seen()
    handle = stream(seen, checkpoint=checkpoint)
    connection, _ = server.accept()
    with connection:
        connection.sendall("to be\nor nöt\nto".encode() + b"\n\xff\n")
        seen.has("to be", "or nöt", "to")
        handle.savepoint(savepoint)
        connection.sendall(b"be\n")
        seen.has("to be", "or nöt", "to", "be")
        metrics = handle.metrics()["lines"]
        handle.stop()
    assert {"received": 4, "connections": 1, "not_text": 1}.items() <= metrics.items()

    lost(checkpoint, "kept")
    handle = stream(seen, checkpoint=checkpoint)
    connection, _ = server.accept()
    with connection:
        seen.has("to be", "or nöt", "to", "be", "kept")
        connection.sendall(b"new\n")
        seen.has("to be", "or nöt", "to", "be", "kept", "new")
        handle.stop()

    handle = stream(forked, checkpoint=fork, savepoint=savepoint)
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"other\n")
        forked.has("other")
        handle.stop()

    server.close()
    monkeypatch.setattr(receivers, "LineReceiver", partial(LineReceiver, attempts=2, pause=lambda seconds: None))
    handle = stream(seen, checkpoint=checkpoint)
    with pytest.raises(ConnectionError, match="Connection refused, 2 times in a row; what was received is in the log"):
        handle.wait(WAIT)
    assert handle.status().state == "failed"


def test_counts_of_words_of_a_socket(spark: SparkSession, tmp_path: pathlib.Path, server: socket.socket) -> None:
    """The usual first example; others read the log, too; draining emits what is still in windows."""
    p = hr.Pipeline(spark=spark)
    lines = p | hr.ReadSocket(f"tcp://127.0.0.1:{server.getsockname()[1]}", log=str(tmp_path / "log"))
    words = lines | hr.FlatMap(str.split) | hr.WindowInto(hr.FixedWindows("1 hour"))
    counts = words | hr.Count.per_element() | hr.Collect()
    seen, again = Seen(), Seen()
    lines | "see" >> hr.ForEachBatch(seen.take)
    same = p | "again" >> hr.ReadSocket(f"tcp://127.0.0.1:{server.getsockname()[1]}", log=str(tmp_path / "log"))
    same | "see again" >> hr.ForEachBatch(again.take)
    handle = p.run()
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"to be\nor not to be\n")
        seen.has("to be", "or not to be")
        again.has("to be", "or not to be")
        other = hr.Pipeline(spark=spark)
        other | hr.ReadSocket(f"tcp://127.0.0.1:{server.getsockname()[1]}", log=str(tmp_path / "log"))
        with pytest.raises(hr.PipelineError, match=r"another stream receives these lines already, into topic:.*/log"):
            other.run()
        handle.stop(drain=True)
    totals: dict[str, int] = {}
    for word, count in counts:  # in the rare case that an hour began in between, of two windows
        totals[word] = totals.get(word, 0) + count
    assert totals == {"to": 2, "be": 2, "or": 1, "not": 1}
    (name,) = Log(tmp_path / "log").topics()
    assert [record.value["value"] for record in Log(tmp_path / "log").topic(name).read(0)] == seen.lines
