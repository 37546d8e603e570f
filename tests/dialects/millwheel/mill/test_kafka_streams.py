"""Computations between topics of Kafka: the same records, watermarks and tokens as with topics of the log."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace import millwheel as mw
from headrace.log import Log
from tests.dialects.millwheel.mill.words import Hanging
from tests.edges.kafka import Broker
from tests.scale import only_full
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Numbers:
    """A stream of numbers by letter in Kafka, and what a computation that sums them up makes of it."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.uri = broker.create(f"{name}-numbers", partitions=2)
        self.sums = f"kafka://{broker.address}/{name}-sums"
        self.injector = mw.Injector(self.uri, name="test")
        self.sent: dict[str, list[int]] = {}
        self.second = 1

    def send(self, letters: str, *numbers: int) -> None:
        """Sends the numbers to each letter, one a second; times have fractions that Kafka cuts off."""
        for number in numbers:
            time = mw.Instant(self.second * 1_000_000 + 700)
            for letter in letters:
                self.injector.send({"letter": letter, "n": number}, timestamp=time, key=letter)
                self.sent.setdefault(letter, []).append(number)
            self.second += 1
            self.injector.advance(mw.Instant(int(time) + 1))
        self.injector.flush()

    def expected(self) -> Counter[str]:
        return Counter(
            json.dumps([letter, number, total])
            for letter, numbers in self.sent.items()
            for number, total in zip(numbers, accumulate(numbers), strict=True)
        )

    def values(self) -> Counter[str]:
        """What consumers read that know nothing of watermarks: records without a value they skip."""
        found = self.broker.contents(f"{self.name}-sums")
        return Counter(json.dumps(json.loads(each.value())) for each in found if each.value() is not None)

    def arrived(self) -> bool:
        return self.values().total() >= self.expected().total()


@only_full("injectors and watermarks in Kafka have tests, and computations on topics of the log")
@pytest.mark.slow("a broker, and four starts of streams")
def test_streams_in_kafka(spark: SparkSession, broker: Broker, tmp_path: pathlib.Path) -> None:
    numbers = Numbers(broker, "mill")
    sums = numbers.sums

    class Running(mw.Computation):
        inputs = {numbers.uri: mw.key("letter")}
        outputs = {sums: lambda value: value[0]}  # keyed by the letter
        total = mw.Persistent(int)

        def process_record(self, record: mw.Record) -> None:
            self.total += record.value["n"]
            self.produce(sums, [record.key, record.value["n"], self.total])

    class Last(mw.Computation):
        inputs = {sums: mw.key(lambda record: record.value[0])}
        outputs = ("last",)
        seen = mw.Persistent(dict)

        def process_record(self, record: mw.Record) -> None:
            end = (record.timestamp // 10_000_000 + 1) * 10
            self.seen[end] = record.value[2]
            self.set_timer(at=end)

        def process_timer(self, timer: mw.Timer) -> None:
            end = timer.timestamp // 1_000_000
            self.produce("last", [timer.key, end, self.seen.pop(end)])

    def last() -> list[object]:
        return sorted(record.value for record in Log(tmp_path / "log").topic("last").read(0))

    numbers.send("ab", 1, 2, 3)
    with mw.Mill(tmp_path, spark=spark) as mill:
        mill.run(Running())
        mill.run(Last())
        wait_for(numbers.arrived)
        numbers.send("ab", 4)
        wait_for(lambda: mill.status("Last").low_watermark == 4_000_000)  # in milliseconds
        assert last() == []
    numbers.send("abc", *range(5, 14))  # while nobody reads
    with mw.Mill(tmp_path, spark=spark) as mill:
        mill.run(Running())
        mill.run(Last())
        wait_for(lambda: len(last()) == 3)
        assert last() == [["a", 10, 45], ["b", 10, 45], ["c", 10, 35]]
        status = mill.status("Last")
        assert (status.low_watermark, status.counts["late"], status.counts["records"]) == (13_000_000, 0, 35)
        assert mill.status("Running").behind == 0
    assert numbers.values() == numbers.expected()


@pytest.mark.slow("a broker, and two starts of a stream")
def test_a_topic_whose_writers_say_no_watermarks(spark: SparkSession, broker: Broker, tmp_path: pathlib.Path) -> None:
    uri = broker.create("mill-visits")

    class Visits(mw.Computation):
        inputs = {uri: mw.key("user", watermark=hr.BoundedDisorder("2 seconds"))}
        outputs = ("visits",)
        late = "process"
        n = mw.Persistent(int)

        def process_record(self, record: mw.Record) -> None:
            self.n += 1
            self.set_timer(at=10)

        def process_timer(self, timer: mw.Timer) -> None:
            self.produce("visits", [timer.key, self.n])

    def visits() -> list[Any]:
        return [record.value for record in Log(tmp_path / "log").topic("visits").read(0)]

    visit = b'{"user": "ann"}'
    with mw.Mill(tmp_path, spark=spark) as mill:
        mill.run(Visits())
        broker.send("mill-visits", (None, visit, 1_000), (None, visit, 11_000), (None, visit, 4_000))
        wait_for(lambda: mill.status("Visits").low_watermark == 9_000_000)
        assert visits() == []
        broker.send("mill-visits", (None, b'{"user": "bob"}', 12_500))
        wait_for(lambda: sorted(visits()) == [["ann", 3], ["bob", 1]])  # whose timer is due at once
        broker.send("mill-visits", (None, b"<visit/>", 13_000))
        wait_for(lambda: mill.status("Visits").state == "failed")
        assert "mill-visits: a value is not JSON: b'<visit/>'" in (mill.status("Visits").error or "")


@only_full("the older owner of a computation is refused by the log in every run, and by Kafka as a producer")
@pytest.mark.slow("a broker, and another process with a Spark of its own")
def test_the_older_of_two_owners_can_write_no_more(spark: SparkSession, broker: Broker, tmp_path: pathlib.Path) -> None:
    numbers = Numbers(broker, "owners")
    hang = tmp_path / "hang"
    hang.touch()
    numbers.send("ab", 1, 2)
    environment = {
        **os.environ,
        "HEADRACE_TEST_HANG": str(hang),
        "HEADRACE_TEST_NUMBERS": numbers.uri,
        "HEADRACE_TEST_SUMS": numbers.sums,
    }
    broker.create("owners-sums")
    command = [sys.executable, "-m", "tests.dialects.millwheel.mill.words", str(tmp_path)]

    class Newer(Hanging):
        inputs = {numbers.uri: mw.key("letter")}
        outputs = (numbers.sums,)

    with (tmp_path / "output").open("w+") as output:
        older = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            wait_for(numbers.arrived, 200)
            numbers.send("abc", 12, 13, 14)
            wait_for(hang.with_suffix(".reached").exists, 200)  # it is in the midst of a batch
            os.killpg(older.pid, signal.SIGSTOP)
            with mw.Mill(tmp_path, spark=spark, take_over=True) as mill:
                mill.run(Newer(), "sums")
                wait_for(numbers.arrived, 200)
                os.killpg(older.pid, signal.SIGCONT)
                hang.unlink()
                assert older.wait(200) == 3  # it has gone on with its batch, and was refused
                numbers.send("ac", 15)
                wait_for(numbers.arrived, 200)
        finally:
            if older.poll() is None:
                os.killpg(older.pid, signal.SIGKILL)
        output.seek(0)
        said = output.read()
        assert "another run of the same stream writes" in said or "another has taken over with token 2" in said
    assert numbers.values() == numbers.expected()
