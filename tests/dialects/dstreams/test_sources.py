"""Sources, outputs and listeners on Spark: what comes in an interval is in its batch, wherever it comes from."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.dialects.dstreams.graph.fileinputs import _read_lines, lines_of
from headrace.dstreams import ManualClock, StreamingContext, StreamingContextError, StreamingListener
from headrace.log import Log
from tests.dialects.dstreams.programs import START, collect
from tests.edges.kafka import Broker
from tests.scale import only_full
from tests.waiting import wait_for


@pytest.fixture
def lines() -> Iterator[tuple[int, Any]]:
    """The port of a server, and a function that sends text to whoever is connected."""
    server = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        connections.append(server.accept()[0])

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()

    def send(text: str) -> None:
        thread.join(60)
        connections[0].sendall(text.encode())

    yield server.getsockname()[1], send
    for each in (*connections, server):
        each.close()


class Notes(StreamingListener):
    """Notes what happens to batches."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Any] = []
        self.calls: list[str] = []

    def onStreamingStarted(self, streamingStarted: Any) -> None:
        self.calls.append("started" if streamingStarted.time() > 0 else "wrong")

    def onBatchStarted(self, batchSubmitted: Any) -> None:
        raise RuntimeError("a listener that fails harms nobody")

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.batches.append(batchCompleted.batchInfo())

    def onOutputOperationCompleted(self, outputOperationCompleted: Any) -> None:
        self.calls.append(outputOperationCompleted.outputOperationInfo().name())


@pytest.mark.slow("waits for a socket and for batches")
def test_sources_outputs_and_listeners(
    spark: SparkSession, tmp_path: Path, lines: tuple[int, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    port, send = lines
    folders = {name: tmp_path / name for name in ("text", "binary")}
    for folder in folders.values():
        folder.mkdir()
    (folders["text"] / "old").write_text("not new\n")
    topic = Log(tmp_path / "log").create("numbers", partitions=2)
    topic.append(0, topic.batch([-1], timestamps=[0]))
    clock, listener = ManualClock(START), Notes()
    ssc = StreamingContext(spark.sparkContext, 1, clock=clock)
    ssc.remember(60)
    ssc.addStreamingListener(listener)
    streams = {
        "socket": ssc.socketTextStream("127.0.0.1", port),
        "text": ssc.textFileStream(str(folders["text"])),
        "binary": ssc.binaryRecordsStream(str(folders["binary"]), 2),
        "topic": ssc.topicStream("numbers", log=str(tmp_path / "log")),
        "all of the topic": ssc.topicStream("numbers", log=str(tmp_path / "log"), start="earliest"),
        "queue": ssc.queueStream([[1], [2]], oneAtATime=False, default=[9]),
    }
    found: dict[str, list[list[Any]]] = {name: [] for name in streams}
    for name, stream in streams.items():
        collect(stream, found[name])
    streams["queue"].pprint(2)
    streams["text"].saveAsTextFiles(str(tmp_path / "out"), "txt")
    ssc.start()

    def interval(number: int, received: int) -> None:
        """Ends an interval in which so many lines have been received."""
        wait_for(lambda: Log(ssc._run.folder / "log").topic("socket-0").partition(0).next_offset() == received)  # type: ignore[union-attr]
        clock.advance(1)
        wait_for(lambda: ssc._run.done == START + 1000 * number)  # type: ignore[union-attr]

    send("one\ntwo\n")
    (folders["text"] / ".hidden").write_text("not yet\n")
    (folders["text"] / "a").write_text("x\ny\r\nz")
    (folders["binary"] / "b").write_bytes(b"aabbcc")
    topic.append(1, topic.batch([7, 8], timestamps=[0, 0]))
    interval(1, 2)
    (folders["text"] / ".hidden").rename(folders["text"] / "now")
    (folders["text"] / "a").unlink()
    interval(2, 2)
    (folders["text"] / "a").write_text("again\n")
    send("three\n")
    interval(3, 3)
    slices = [rdd.collect() for rdd in streams["all of the topic"].slice(START // 1000 + 1, START // 1000 + 3)]
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert found == {
        "socket": [["one", "two"], [], ["three"]],
        "text": [["x", "y", "z"], ["not yet"], ["again"]],
        "binary": [[b"aa", b"bb", b"cc"], [], []],
        "topic": [[7, 8], [], []],
        "all of the topic": [[-1, 7, 8], [], []],
        "queue": [[1, 2], [9], [9]],
    }
    assert slices == found["all of the topic"]
    printed = capsys.readouterr().out.split("-" * 43 + "\n")
    assert printed[1].startswith("Time: 2023-11-") and printed[2::2] == ["1\n2\n\n", "9\n\n", "9\n\n"]
    saved = {
        path.name: sorted("".join(part.read_text() for part in path.glob("part-*")).split())
        for path in tmp_path.glob("out-*")
    }
    assert saved == {
        f"out-{START + 1000}.txt": ["x", "y", "z"],
        f"out-{START + 2000}.txt": ["not", "yet"],
        f"out-{START + 3000}.txt": ["again"],
    }
    assert [info.batchTime().milliseconds() - START for info in listener.batches] == [1000, 2000, 3000]
    assert [info.numRecords() for info in listener.batches] == [2 + 2 + 3, 0, 1]
    info = listener.batches[0]
    assert min(info.schedulingDelay(), info.processingDelay(), info.totalDelay()) >= 0
    assert info.streamIdToInputInfo()[0].numRecords() == 2
    assert [each.failureReason() for each in info.outputOperationInfos().values()] == [None] * 8
    assert listener.calls[0] == "started" and listener.calls.count("saveAsTextFiles") == 3


@pytest.mark.slow("two streams, and a socket to wait for")
def test_a_graceful_stop_processes_what_was_received_and_a_failure_ends_the_program(
    spark: SparkSession, tmp_path: Path, lines: tuple[int, Any]
) -> None:
    port, send = lines
    ssc = StreamingContext(spark.sparkContext, 1, clock=ManualClock(START))
    found: list[list[Any]] = []
    collect(ssc.socketTextStream("127.0.0.1", port), found)
    ssc.start()
    send("a\nb\n")
    wait_for(lambda: Log(ssc._run.folder / "log").topic("socket-0").partition(0).next_offset() == 2)  # type: ignore[union-attr]
    folder = ssc._run.folder  # type: ignore[union-attr]
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert found == [["a", "b"]]
    assert not folder.exists()  # nobody could continue it

    clock = ManualClock(START)
    ssc = StreamingContext(spark.sparkContext, 1, clock=clock)
    ssc.binaryRecordsStream(str(tmp_path), 4).foreachRDD(lambda rdd: rdd.count())
    ssc.start()
    (tmp_path / "torn").write_bytes(b"12345")
    clock.advance(1)
    with pytest.raises(Exception, match="5 bytes, which is not a multiple of the record length 4"):
        ssc.awaitTermination(60)
    ssc.stop(stopSparkContext=False)
    with pytest.raises(StreamingContextError, match="stopped"):
        ssc.start()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_files_are_read_in_parts(tmp_path: Path, size: int) -> None:
    data = b"one\n\ntwo\r\nthr\ree\nf\xc3\xbcnf\nlast"
    path = tmp_path / "file"
    path.write_bytes(data)
    parts = [(str(path), at, min(at + size, len(data))) for at in range(0, len(data), size)]
    assert [line for part in parts for line in _read_lines([[part]])] == lines_of(data)
    assert lines_of(data) == ["one", "", "two", "thr", "ee", "fünf", "last"]


@pytest.mark.slow("waits for a broker")
@only_full("topics of the log are read in every run, and Kafka's connector by other tests")
def test_topics_of_kafka(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    uri = broker.create("dstreams-pairs", 2)
    broker.send("dstreams-pairs", (b"old", b"0", 0))
    clock = ManualClock(START)
    ssc = StreamingContext(spark.sparkContext, 1, clock=clock)
    latest: list[list[Any]] = []
    earliest: list[list[Any]] = []
    collect(ssc.topicStream(uri), latest)
    collect(ssc.topicStream(uri, start="earliest"), earliest)
    ssc.start()
    broker.send("dstreams-pairs", (b"a", b"1", 0), (None, b"2", 0))
    clock.advance(2)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert [sorted(batch, key=repr) for batch in latest] == [[(None, b"2"), (b"a", b"1")], []]
    assert [sorted(batch, key=repr) for batch in earliest] == [[(None, b"2"), (b"a", b"1"), (b"old", b"0")], []]
