"""A computation whose records are programs, and a way to run any computation without Spark, step by step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from headrace import millwheel as mw
from headrace.dialects.millwheel.api.computation import COUNTS
from headrace.dialects.millwheel.graph.computationfn import ComputationFn, computation_fn
from headrace.engine.shard.clocks import Clocks
from headrace.engine.stateful.processor import DoFnProcessor, StatefulWork
from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Call
from headrace.engine.worker.shuffle import row_batch, shuffle_schema
from headrace.model.panes import GLOBAL
from headrace.model.times import MIN_TIME
from tests.dialects.millwheel.reference import Given, Produced


class Scripted(mw.Computation):
    """Runs the operations that records have, and those that were planned for timers."""

    inputs = {"programs": mw.key(lambda record: record.value["key"])}
    outputs = ("seen", "said")
    wall_timers = True
    total = mw.Persistent(int)
    items = mw.Persistent(list)
    plans = mw.Persistent(dict)

    def process_record(self, record: mw.Record) -> None:
        self._run("record", record.value)

    def process_timer(self, timer: mw.Timer) -> None:
        self._run(f"{timer.clock} {timer.tag}", self.plans.pop(timer.tag, []), timer.clock)

    def _run(self, callback: str, ops: list[Any], clock: str = "event") -> None:
        for op in ops:
            match op:
                case ("add", number):
                    self.total += number
                case ("note", value):
                    self.items.append(value)
                case ("forget",):
                    del self.total, self.items
                case ("plan", tag, planned):
                    self.plans[tag] = planned
                case ("timer", clock, at, tag):
                    self.set_timer(mw.Instant(at), clock=clock, tag=tag)
                case ("produce", stream, value, later):
                    floor = self._callback.floor
                    self.produce(stream, value, timestamp=mw.Instant(int(floor) + later))
        self.produce("seen", [callback, self.total, list(self.items)])


class LateToo(Scripted):
    inputs = Scripted.inputs
    late = "process"


class Steps:
    """Runs a computation by the processor of its DoFn, a shard of its own."""

    def __init__(self, computation: mw.Computation) -> None:
        self.computation = computation
        self.counts: Counter[str] = Counter()
        self.low = MIN_TIME
        self.processor = self._made()

    def _made(self) -> DoFnProcessor:
        fn: ComputationFn = computation_fn(self.computation)
        self.main = fn.main
        tags = (*self.computation.outputs, COUNTS)
        self.work = StatefulWork(StatefulFn("computation", Call(fn.process), fn, GLOBAL, tags))
        return self.work.processor()

    def restart(self) -> None:
        """Goes on from the stored state in a new processor."""
        blocks = self.processor.dump()
        self.processor = self._made()
        self.processor.load(blocks)

    def step(self, records: list[Given], watermark: int = MIN_TIME, now: int = 0) -> list[Produced]:
        """Runs a step; returns what it produced, of every output."""
        rows = None
        if records:
            keys, values, times = zip(*records, strict=True)
            bundle = Bundle([None] * len(keys), np.array(times, np.int64))
            rows = row_batch(shuffle_schema(windowed=False, timed=True), keys, values, bundle)
        step = self.processor.step(rows, Clocks(watermark, now))
        produced = []
        for tag, bundle in self.work.bundles(step.panes):
            if tag == COUNTS:
                for counts in bundle.elements:
                    self.counts.update(counts)
            else:
                stream = self.main if tag is None else tag
                assert stream is not None
                times = bundle.all_times().tolist()
                produced += [Produced(None, stream, *each) for each in zip(bundle.elements, times, strict=True)]
        self.low = step.watermark
        return produced
