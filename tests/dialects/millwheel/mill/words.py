"""Computations for tests of mills that run in processes of their own."""

from __future__ import annotations

from headrace import millwheel as mw


class Running(mw.Computation):
    """Says of every number the sum so far, by its letter."""

    inputs = {"numbers": mw.key("letter")}  # noqa: RUF012
    outputs = ("sums",)
    total = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.total += record.value["n"]
        self.produce("sums", [record.key, record.value["n"], self.total])


class Largest(mw.Computation):
    """Says of all sums the largest, when time has come to the end of ten seconds."""

    inputs = {"sums": mw.key(lambda record: 0)}  # noqa: RUF012
    outputs = ("largest",)
    seen = mw.Persistent(int)

    def process_record(self, record: mw.Record) -> None:
        self.seen = max(self.seen, record.value[2])
        self.set_timer(at=(record.timestamp // 10_000_000 + 1) * 10)

    def process_timer(self, timer: mw.Timer) -> None:
        self.produce("largest", self.seen)
