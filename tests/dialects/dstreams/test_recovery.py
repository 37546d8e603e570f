"""Programs that fail, or whose process is killed, and are continued: nothing is lost and nothing counts twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.dstreams import ManualClock, StateSpec, StreamingContext
from tests import reference_dstreams as reference
from tests.dialects.dstreams.programs import START
from tests.scale import only_full
from tests.waiting import wait_for

BATCHES: list[list[Any]] = [[("a", 1), ("b", 2)], [("a", 3)], [], [("c", 4), ("a", 5)], [("b", 6)], [("d", 1)], [], []]
WIDTH = 6


class Broken(Exception):
    """What makes a batch fail."""


class Record:
    """Appends the time and the elements of each batch to a file, and then fails in some batches, once each."""

    def __init__(self, path: Path, breaking: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.path, self.breaking = path, breaking

    def __call__(self, time: Any, rdd: Any) -> None:
        number = round(time.timestamp()) - START // 1000
        with self.path.open("a") as file:
            file.write(json.dumps([number, sorted(map(repr, rdd.collect()))]) + "\n")
        if number in self.breaking and once(self.path.with_suffix(f".{number}")):
            raise Broken(f"after {self.path.name} in batch {number}")


def once(flag: Path) -> bool:
    """Whether this is the first time that somebody asks."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def records(path: Path) -> tuple[dict[int, list[str]], int]:
    """The elements by batch, which are the same each time, and how many batches came again."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    by_batch = dict(map(tuple, found))
    assert all(by_batch[number] == elements for number, elements in found)
    return by_batch, len(found) - len(by_batch)


def update_with_failures(flags: Path) -> Any:
    def update(values: Any, state: Any) -> Any:
        if 4 in values and once(flags / "update"):
            raise Broken("in the function of a state")
        return sum(values) + (state or 0)

    return update


def tally(key: Any, value: Any, state: Any) -> Any:
    state.update((state.getOption() or 0) + value)
    return key, state.get()


def is_over(run: Any) -> bool:
    return bool(run.ended.is_set() or run.done == START + 1000 * len(BATCHES))


@pytest.mark.slow("a program that fails and is continued five times")
def test_a_program_that_fails_anywhere_continues_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, clock, made = str(tmp_path / "checkpoint"), ManualClock(START), []

    def setup() -> StreamingContext:
        made.append(1)
        ssc = StreamingContext(spark.sparkContext, 1, clock=clock)
        pairs = ssc.queueStream(BATCHES[:6])
        pairs.map(lambda pair: pair).window(3).foreachRDD(Record(tmp_path / "window", {2, 6}))
        pairs.updateStateByKey(update_with_failures(tmp_path), 2, [("z", 9)]).foreachRDD(
            Record(tmp_path / "state", {3})
        )
        pairs.reduceByKeyAndWindow(lambda a, b: a + b, lambda a, b: a - b, WIDTH).foreachRDD(
            Record(tmp_path / "reduced")
        )
        mapped = pairs.mapWithState(StateSpec.function(tally))
        mapped.stateSnapshots().foreachRDD(Record(tmp_path / "snapshots", {5}))
        mapped.foreachRDD(Record(tmp_path / "mapped"))
        pairs.saveAsTextFiles(str(tmp_path / "out"))
        return ssc

    runs = 0
    while True:
        ssc = StreamingContext.getOrCreate(checkpoint, setup, clock=clock)
        ssc.start()
        runs += 1
        if runs == 1:
            clock.advance(len(BATCHES))
        run = ssc._run
        assert run is not None
        wait_for(partial(is_over, run))
        try:
            ssc.awaitTermination(0)
            break
        except Exception as error:
            assert "Broken" in repr(error) or "in the function of a state" in str(error)
        finally:
            ssc.stop(stopSparkContext=False)
    assert (runs, len(made)) == (6, 1)
    combined = reference.reduce_window(BATCHES, lambda a, b: a + b, lambda a, b: a - b, WIDTH)
    mapped, snapshots = reference.map_with_state(BATCHES, tally)
    expected = {
        "window": reference.window(BATCHES, 3),
        "state": reference.update_state(BATCHES, lambda values, state: sum(values) + (state or 0), [("z", 9)]),
        "reduced": combined,
        "snapshots": snapshots,
        "mapped": mapped,
    }
    for name, batches in expected.items():
        found, _ = records(tmp_path / name)
        assert found == {number: sorted(map(repr, batch)) for number, batch in enumerate(batches, 1)}, name
    assert records(tmp_path / "mapped")[1] == 0  # what was done is not done again
    assert records(tmp_path / "window")[1] == 5  # a batch that failed is
    for number, batch in enumerate(BATCHES, 1):
        texts = [part.read_text() for part in (tmp_path / f"out-{START + 1000 * number}").glob("part-*")]
        assert Counter("".join(texts).splitlines()) == Counter(map(repr, batch))


# Processes that are killed.


class Server:
    """Sends some lines to the first that connects, and others to the second."""

    def __init__(self, *texts: str) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self.thread = threading.Thread(target=self._serve, args=(texts,), daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def _serve(self, texts: tuple[str, ...]) -> None:
        for text in texts:
            self.connections.append(self.socket.accept()[0])
            self.connections[-1].sendall(text.encode())


@pytest.fixture
def killed() -> Iterator[Any]:
    """A function that runs a program in a process which it kills in the middle of a batch; gives what was saved."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(folder: Path, module: str, port: int) -> subprocess.Popen[bytes]:
        (folder / "ready").unlink(missing_ok=True)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.dialects.dstreams.driver", str(folder), module, str(port)],
                cwd=Path(__file__).parents[3],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        processes.append(process)

        def is_ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            return (folder / "ready").exists()

        wait_for(is_ready, 240)
        return process

    def run(folder: Path, module: str, port: int = 0) -> Counter[str]:
        (folder / "in").mkdir(parents=True)
        process = start(folder, module, port)
        if not port:
            place(folder, "first", "f1\nf2\n")
            wait_for(lambda: "f2" in saved(folder), 120)
            place(folder, "second", "s1\ns2\nkill\ns3\n")
        assert process.wait(240) == -signal.SIGKILL
        process = start(folder, module, port)
        if not port:
            place(folder, "third", "t1\nt2\n")
        wait_for(lambda: "t2" in saved(folder), 120)
        (folder / "stop").touch()
        assert process.wait(240) == 0, (folder / "log").read_text()[-3000:]
        return saved(folder)

    yield run
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def place(folder: Path, name: str, text: str) -> None:
    (folder / "in" / f".{name}").write_text(text)
    (folder / "in" / f".{name}").rename(folder / "in" / name)


def saved(folder: Path) -> Counter[str]:
    """The lines of all directories that are complete."""
    done = [path.parent for path in folder.glob("out-*/_SUCCESS")]
    return Counter(line for each in done for part in each.glob("part-*") for line in part.read_text().split())


FILES = Counter(["f1", "f2", "s1", "s2", "kill", "s3", "t1", "t2"])
LINES = Counter(["x1", "x2", "kill", "t1", "t2"])


@only_full("a program that fails anywhere continues where it was; other drivers are killed")
@pytest.mark.slow("a driver is killed and started again")
def test_a_killed_driver_loses_no_file(killed: Any, tmp_path: Path) -> None:
    assert killed(tmp_path, "headrace.dstreams") == FILES


@pytest.mark.slow("a driver is killed and started again")
@only_full("files are killed in every run, lines by `make chaos`")
def test_a_killed_driver_loses_no_line_of_a_socket(killed: Any, tmp_path: Path) -> None:
    server = Server("x1\nx2\nkill\n", "t1\nt2\n")
    assert killed(tmp_path, "headrace.dstreams", server.port) == LINES


@pytest.mark.slow("a driver is killed and started again")
@only_full("what Spark does is no part of this package")
def test_spark_loses_the_lines_of_a_socket(killed: Any, tmp_path: Path) -> None:
    server = Server("x1\nx2\nkill\n", "t1\nt2\n")
    # Lines that were received are in the memory of the process that died.
    assert killed(tmp_path, "pyspark.streaming", server.port) == Counter(["t1", "t2"])
