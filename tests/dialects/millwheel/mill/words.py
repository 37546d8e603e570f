"""Computations for tests of mills that run in processes of their own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from headrace import millwheel as mw


class Running(mw.Computation):
    """Says of every number the sum so far, by its letter."""

    inputs = {"numbers": mw.key("letter")}
    outputs = ("sums",)
    total = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.total += record.value["n"]
        (sums,) = self.outputs
        self.produce(sums, [record.key, record.value["n"], self.total])


class Largest(mw.Computation):
    """Says of all sums the largest, when time has come to the end of ten seconds."""

    inputs = {"sums": mw.key(lambda record: 0)}
    outputs = ("largest",)
    seen = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.seen = max(self.seen, record.value[2])
        self.set_timer(at=(record.timestamp // 10_000_000 + 1) * 10)

    def process_timer(self, timer: mw.Timer) -> None:
        self.produce("largest", self.seen)


class Doubles(mw.Computation):
    """Doubles sums."""

    inputs = {"sums": mw.key(lambda record: record.value[0])}
    outputs = ("doubles",)

    def process_record(self, record: mw.Record) -> None:
        self.produce("doubles", 2 * record.value[2])


class Hanging(Running):
    """Stops at 13 for as long as a file exists, which the environment names, and makes another file before it does."""

    # The environment may name other streams than Running's.
    inputs = {os.environ.get("HEADRACE_TEST_NUMBERS", "numbers"): mw.key("letter")}
    outputs = (os.environ.get("HEADRACE_TEST_SUMS", "sums"),)

    def process_record(self, record: mw.Record) -> None:
        hang = os.environ.get("HEADRACE_TEST_HANG")
        if record.value["n"] == 13 and hang is not None:
            Path(hang).with_suffix(".reached").touch()
            while Path(hang).exists():
                time.sleep(0.02)
        super().process_record(record)


if __name__ == "__main__":
    # A process that runs the computation until it fails, and looks for nothing else.
    with mw.Mill(sys.argv[1]) as mill:
        from tests.dialects.millwheel.mill import words  # by a name that workers can import

        mill.run(words.Hanging(), "sums")
        try:
            mill.handle("sums").wait()
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(3)  # at once: the test is over
