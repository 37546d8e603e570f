"""Mills on Spark: computations added and removed while others run, aborts and restarts, and two owners of one."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headrace import millwheel as mw
from headrace.commands.main import main
from headrace.engine.connectors.topicwriter import TopicWriter
from headrace.log import Log
from headrace.log.offsets import groups_of
from tests.dialects.millwheel.mill.words import Hanging, Running
from tests.scale import only_full
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = pathlib.Path(__file__).with_name("words.py")


class Numbers:
    """A stream of numbers by letter, and what `Running` makes of it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.log = directory / "log"
        if "numbers" not in Log(self.log).topics():
            Log(self.log).create("numbers", partitions=2)
        self.injector = mw.Injector("numbers", log=self.log, name="test")
        self.sent: dict[str, list[int]] = {}
        self.second = 0

    def send(self, letters: str, *numbers: int) -> None:
        """Sends the numbers to each letter, one a second."""
        for number in numbers:
            for letter in letters:
                self.injector.send({"letter": letter, "n": number}, timestamp=self.second, key=letter)
                self.sent.setdefault(letter, []).append(number)
            self.second += 1
        self.injector.advance(self.second)
        self.injector.flush()

    def expected(self) -> Counter[str]:
        return Counter(
            repr([letter, number, total])
            for letter, numbers in self.sent.items()
            for number, total in zip(numbers, accumulate(numbers), strict=True)
        )

    def values(self, stream: str) -> Counter[str]:
        topic = Log(self.log).topic(stream)
        return Counter(repr(record.value) for number in range(len(topic.partitions)) for record in topic.read(number))

    def arrived(self) -> bool:
        return self.values("sums").total() >= self.expected().total()


@contextmanager
def following(mill: mw.Mill) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=mill.follow, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow("four starts of a stream")
def test_computations_come_and_go_while_others_run(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    numbers = Numbers(tmp_path)

    def said(*words: str) -> str:
        result = CliRunner().invoke(main, ["millwheel", *words, "--directory", str(tmp_path)])
        assert result.exit_code == 0, result.output
        return result.output

    with mw.Mill(tmp_path, spark=spark) as mill, following(mill):
        said("add", f"{WORDS}:Running")
        numbers.send("ab", 1, 2, 3)
        wait_for(numbers.arrived)
        said("add", f"{WORDS}:Largest")  # it reads what is there already
        numbers.send("ab", 4, 5, 6)
        wait_for(lambda: mill.folder.owner("Largest") is not None)
        assert said("remove", "Running").startswith("removed Running; its position is kept")
        assert [each.name for each in mill.folder.declared()] == ["Largest"]
        numbers.send("abc", 7, 8, 9, 10, 11)  # while nobody reads
        assert said("add", f"{WORDS}:Running").startswith("added Running: it goes on where it was removed")
        wait_for(numbers.arrived)
        assert numbers.values("sums") == numbers.expected()
        wait_for(lambda: numbers.values("largest").total() == 1)  # its watermark is 10 s, by that of the first
        assert numbers.values("largest") == {"66": 1}
        expected = {"records": 27, "late": 0, "timers_set": 0, "timers_fired": 0, "produced": 27}
        wait_for(lambda: mill.folder.statuses()[1].counts == expected)
        status = mill.folder.statuses()[1]
        assert (status.name, status.keys, status.owner, status.behind) == ("Running", 3, os.getpid(), 0)
        assert (status.low_watermark, status.token) == (11_000_000, 2)
        assert f"Running      running  {os.getpid()}" in said("status")
        with pytest.raises(mw.ComputationError, match="'Running' is run by process"):
            mw.Mill(tmp_path, spark=spark).run(Running())
    assert "Running      waiting  -" in said("status")
    with mw.Mill(tmp_path, spark=spark) as mill:
        mill.run(Running())  # and nothing is there to be read
        status = mill.status("Running")
        assert (status.state, status.batches, status.keys, status.low_watermark) == ("running", 0, 3, 11_000_000)
    fences = Log(numbers.log).topic("sums").folder / "fences"
    assert len(list(fences.glob("[0-9]*"))) == 1
    assert said("remove", "Running", "--discard").startswith("removed Running; its position is discarded")
    assert groups_of(Log(numbers.log).groups, "numbers") == []
    assert list(fences.glob("[0-9]*")) == []


class Aborted(Exception):
    """The injected fault."""


@contextmanager
def aborting(plan: dict[int, str]) -> Iterator[None]:
    """Fails at appends to topics, by their numbers: before or after they are done."""
    original, calls = TopicWriter.append, [0]

    def append(self: TopicWriter, *args: Any, **kwargs: Any) -> None:
        calls[0] += 1
        place = plan.pop(calls[0], None)
        if place == "before":
            raise Aborted(place)
        original(self, *args, **kwargs)
        if place == "after":
            raise Aborted(place)

    TopicWriter.append = append  # type: ignore[method-assign]
    try:
        yield
    finally:
        TopicWriter.append = original  # type: ignore[method-assign]


class Weak(Running):
    inputs = Running.inputs
    productions = "weak"


@pytest.mark.slow("streams are started six times")
@pytest.mark.parametrize("kind", [Running, pytest.param(Weak, marks=only_full("strong ones are aborted in every run"))])
def test_aborted_computations(kind: type[Running], spark: SparkSession, tmp_path: pathlib.Path) -> None:
    numbers = Numbers(tmp_path)
    strong = kind.productions == "strong"
    plan = {2: "before", 3: "after", 6: "before", 8: "after"} if strong else {2: "before", 4: "after"}
    aborts = len(plan)
    with aborting(plan):
        batches = iter(((1, 2), (3, 4), (5, 6), (7,), (8, 9)))
        left, starts = 5, 0
        while left or not numbers.arrived():
            with mw.Mill(tmp_path, spark=spark) as mill:
                mill.run(kind(), "sums")
                starts += 1
                handle = mill.handle("sums")
                while handle.status().state == "running" and (left or not numbers.arrived()):
                    if left:
                        numbers.send("abc", *next(batches))
                        left -= 1
                    run_out(handle.query.processAllAvailable)
    happened = aborts - len(plan)  # how many there are depends on how many micro-batches the records became
    assert happened >= 2
    assert starts >= happened  # the last one perhaps happened when everything had arrived
    if strong:
        assert numbers.values("sums") == numbers.expected()
    else:  # nothing is missing, and what there is more is a repetition
        assert set(numbers.values("sums")) == set(numbers.expected())
        assert numbers.values("sums").total() > numbers.expected().total()
    counts: Counter[str] = Counter()
    for record in Log(numbers.log).topic("sums..counts").read(0):
        counts.update(record.value)
    assert counts["records"] == counts["produced"] == numbers.expected().total()


def run_out(process: Callable[[], None]) -> None:
    try:
        process()
    except Exception as error:
        assert "Aborted" in str(error)


@only_full("appends with an older fence are refused in tests/log")
@pytest.mark.slow("another process with a Spark of its own")
def test_the_older_of_two_owners_can_write_no_more(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    numbers = Numbers(tmp_path)
    hang = tmp_path / "hang"
    hang.touch()
    numbers.send("ab", 1, 2)
    environment = {**os.environ, "HEADRACE_TEST_HANG": str(hang)}
    command = [sys.executable, "-m", "tests.dialects.millwheel.mill.words", str(tmp_path)]
    with (tmp_path / "output").open("w+") as output:
        older = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_for(lambda: "sums" in Log(numbers.log).topics() and numbers.arrived(), 200)
            numbers.send("abc", 12, 13, 14)
            wait_for(hang.with_suffix(".reached").exists, 200)  # it is in the midst of a batch
            os.killpg(older.pid, signal.SIGSTOP)
            with mw.Mill(tmp_path, spark=spark, take_over=True) as mill:
                mill.run(Hanging(), "sums")
                wait_for(numbers.arrived, 200)
                os.killpg(older.pid, signal.SIGCONT)
                hang.unlink()
                assert older.wait(200) == 3  # it has gone on with its batch, and was refused
                numbers.send("ac", 15)
                wait_for(numbers.arrived, 200)
                assert mill.status("sums").token == 2
        finally:
            if older.poll() is None:
                os.killpg(older.pid, signal.SIGKILL)
        output.seek(0)
        assert "this process appends with token 1, but another has taken over with token 2" in output.read()
    with mw.Mill(tmp_path, spark=spark) as mill:  # from state of which the older process has written files again
        mill.run(Hanging(), "sums")
        numbers.send("abc", 16)
        wait_for(numbers.arrived, 200)
    assert numbers.values("sums") == numbers.expected()


@only_full("mills follow directories in every run, on the session of the suite")
@pytest.mark.slow("a process with a Spark of its own")
def test_the_command_runs_what_a_directory_has(tmp_path: pathlib.Path) -> None:
    numbers = Numbers(tmp_path)

    def said(*words: str) -> str:
        result = CliRunner().invoke(main, ["millwheel", *words, "--directory", str(tmp_path)])
        assert result.exit_code == 0, result.output
        return result.output

    for name in ("Running", "Largest"):
        said("add", f"{WORDS}:{name}")
    with (tmp_path / "output").open("w+") as output:
        command = [sys.executable, "-m", "headrace", "millwheel", "run", "--directory", str(tmp_path)]
        environment = {**os.environ, "SPARK_MASTER": "local[2]"}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            numbers.send("ab", *range(1, 12))
            wait_for(lambda: numbers.values("largest").total() == 1, 200)  # 11 seconds have passed
            assert numbers.values("sums") == numbers.expected()
            said("add", f"{WORDS}:Doubles")
            wait_for(lambda: numbers.values("doubles").total() == numbers.expected().total(), 200)
            said("remove", "Largest")
            owned = f"in process {process.pid}"
            assert said("list") == f"Doubles  {owned}  sums -> doubles\nRunning  {owned}  numbers -> sums\n"
            numbers.send("abc", *range(12, 25))  # which passes the next ten seconds
            wait_for(lambda: numbers.values("doubles").total() == numbers.expected().total(), 200)
            assert numbers.values("sums") == numbers.expected()
            process.send_signal(signal.SIGTERM)
            assert process.wait(200) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        printed = output.read()
    assert f"running the computations of {tmp_path}; Ctrl-C stops them" in printed
    assert "Traceback" not in printed
    assert numbers.values("largest").total() == 1
    waiting = [line.split()[:3] for line in said("status").splitlines()[1:]]
    assert waiting == [["Doubles", "waiting", "-"], ["Running", "waiting", "-"]]
