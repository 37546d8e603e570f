"""The processor of stateful DoFns against their definition, against itself restored, and a stream against the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.rows import has_bounds
from headrace.engine.shard.work import SlicedProcessor
from headrace.engine.stateful.processor import DoFnProcessor, StatefulWork
from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Call
from headrace.engine.worker.shuffle import row_batch, shuffle_schema
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, Instant
from headrace.model.windows import FixedWindows, GlobalWindows, SlidingWindows, UnalignedWindows
from tests.engine.worker.test_program import created, run
from tests.reference_stateful import EMPTY, LIFETIMES, TIMERS, Element, Reference
from tests.scale import examples


class Scripted(hr.DoFn):
    """Its elements are programs: operations on its states and timers. Every call gives what the states are after it."""

    value = hr.ValueState("value", expires=LIFETIMES["value"] / SECOND)
    items = hr.ListState("items")
    kinds = hr.SetState("kinds")
    prices = hr.MapState("prices", expires=LIFETIMES["prices"] / SECOND)
    total = hr.CombiningState("total", sum)
    due, last = hr.TimerSpec("due"), hr.TimerSpec("last")
    wake, nap = hr.TimerSpec("wake", "processing"), hr.TimerSpec("nap", "processing")

    def process(
        self,
        pair: Any,
        time: Any = hr.DoFn.TimestampParam,
        window: Any = hr.DoFn.WindowParam,
        value: Any = hr.DoFn.StateParam(value),
        items: Any = hr.DoFn.StateParam(items),
        kinds: Any = hr.DoFn.StateParam(kinds),
        prices: Any = hr.DoFn.StateParam(prices),
        total: Any = hr.DoFn.StateParam(total),
        due: Any = hr.DoFn.TimerParam(due),
        last: Any = hr.DoFn.TimerParam(last),
        wake: Any = hr.DoFn.TimerParam(wake),
        nap: Any = hr.DoFn.TimerParam(nap),
    ) -> Iterator[Any]:
        key, ops = pair
        states = {"value": value, "items": items, "kinds": kinds, "prices": prices, "total": total}
        yield self.worked(
            key, window, "process", time, ops, states, {"due": due, "last": last, "wake": wake, "nap": nap}
        )

    def worked(self, key: Any, window: Any, what: str, time: Any, ops: Any, states: Any, timers: Any) -> Any:
        for name, *rest in ops:
            match name:
                case "write":
                    states["value"].write(*rest)
                case "add":
                    states["items"].add(*rest)
                case "note":
                    states["kinds"].add(*rest)
                case "sum":
                    states["total"].add(*rest)
                case "plan":
                    states["prices"].put(*rest)
                case "clear":
                    states[rest[0]].clear()
                case "set":
                    timers[rest[0]].set(Instant(rest[1]))
                case "after":
                    timers[rest[0]].after(rest[1] / SECOND)
                case "unset":
                    timers[rest[0]].clear()
        shown = {name: states[name].read() for name in ("value", "items", "kinds", "total")}
        return key, tuple(window), (what, int(time), {**shown, "prices": dict(states["prices"].items())})


def callback(timer: str) -> Any:
    def fired(
        self: Scripted,
        key: Any = hr.DoFn.ElementParam,
        time: Any = hr.DoFn.TimestampParam,
        window: Any = hr.DoFn.WindowParam,
        value: Any = hr.DoFn.StateParam(Scripted.value),
        items: Any = hr.DoFn.StateParam(Scripted.items),
        kinds: Any = hr.DoFn.StateParam(Scripted.kinds),
        prices: Any = hr.DoFn.StateParam(Scripted.prices),
        total: Any = hr.DoFn.StateParam(Scripted.total),
        due: Any = hr.DoFn.TimerParam(Scripted.due),
        last: Any = hr.DoFn.TimerParam(Scripted.last),
        wake: Any = hr.DoFn.TimerParam(Scripted.wake),
        nap: Any = hr.DoFn.TimerParam(Scripted.nap),
    ) -> Iterator[Any]:
        states = {"value": value, "items": items, "kinds": kinds, "prices": prices, "total": total}
        timers = {"due": due, "last": last, "wake": wake, "nap": nap}
        planned = prices.get(timer, [])
        prices.remove(timer)
        yield self.worked(key, window, timer, time, planned, states, timers)

    return hr.on_timer(getattr(Scripted, timer))(fired)


for _timer in TIMERS:
    setattr(Scripted, f"on_{_timer}", callback(_timer))

seconds = st.integers(0, 40).map(lambda second: second * SECOND)
timers = st.sampled_from(TIMERS)
plain = st.one_of(
    st.tuples(st.sampled_from(["write", "add", "note", "sum"]), st.integers(1, 9)),
    st.tuples(st.just("clear"), st.sampled_from(sorted(EMPTY))),
    st.tuples(st.just("set"), timers, seconds),
    st.tuples(st.just("after"), timers, st.integers(1, 12).map(lambda second: second * SECOND)),
    st.tuples(st.just("unset"), timers),
)


def planning(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just("plan"), timers, st.lists(inner, min_size=1, max_size=2))


ops = st.one_of(plain, plain, planning(plain), planning(st.one_of(plain, planning(plain))))
programs = st.lists(ops, min_size=1, max_size=4)
windowings = st.builds(
    Windowing,
    window=st.sampled_from([GlobalWindows(), FixedWindows(10), SlidingWindows(20, period=10), UnalignedWindows(15)]),
    allowed_lateness=st.sampled_from([0, 0, 7]),
)


@dataclass
class Move:
    """A step: (key, program, second) of its elements, how far the clocks go, and how its state is stored then."""

    elements: list[tuple[int, Any, int]]
    watermark: int
    now: int
    store: str


moves = st.builds(
    Move,
    elements=st.lists(st.tuples(st.integers(0, 2), programs, st.integers(0, 30)), max_size=4),
    watermark=st.sampled_from([0, 0, 3, 9, 20]),
    now=st.sampled_from([0, 0, 4, 15]),
    store=st.sampled_from(["", "", "changes", "changes", "dump", "parts", "reload", "catch up", "catch up"]),
)


def scripted_fn(windowing: Windowing) -> StatefulFn:
    scripted = Scripted()
    return StatefulFn("scripted", Call(scripted.process), scripted, windowing)


def elements_of(windowing: Windowing, given: list[tuple[Any, Any, int]]) -> list[Element]:
    """An element for each window of those given, in order."""
    placed = []
    for key, program, second in given:
        for window in windowing.window.windows_of(second * SECOND, key):
            placed.append(Element(key, program, second * SECOND, (int(window[0]), int(window[1]))))
    return placed


def rows_of(windowing: Windowing, elements: list[Element]) -> pa.RecordBatch | None:
    if not elements:
        return None
    bounds = np.array([element.window for element in elements], np.int64).T
    bundle = Bundle([None] * len(elements), np.array([element.time for element in elements]), *bounds)
    schema = shuffle_schema(windowed=has_bounds(windowing), timed=True)
    return row_batch(schema, [element.key for element in elements], [element.ops for element in elements], bundle)


def shown(work: StatefulWork, given: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """What a step gave: key, window, time and value."""
    outputs = []
    for tag, bundle in work.bundles(given):
        assert tag is None
        for (key, window, value), time, placed in zip(
            bundle.elements, bundle.all_times().tolist(), bundle.windows(), strict=True
        ):
            assert window == placed
            outputs.append((key, window, time, value))
    return outputs


def by_place(outputs: list[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    places: dict[Any, list[Any]] = {}
    for key, window, *rest in outputs:
        places.setdefault((key, window), []).append(rest)
    return places


class Restored:
    """A processor that is now and then made anew from what was stored of it."""

    def __init__(self, work: StatefulWork) -> None:
        self.work, self.processor, self.blocks = work, work.processor(), work.processor().dump()
        self.older, self.since = work.processor(), self.blocks  # a copy that was left behind, and what it missed

    def store(self, how: str) -> None:
        if not how:
            return
        if how == "dump":
            self.older.load(self.since + self.processor.changes())
            self.blocks, self.since = self.processor.dump(), []
            return
        changes = self.processor.changes()
        self.blocks, self.since = self.blocks + changes, self.since + changes
        if how == "reload":
            self.processor = self.work.processor()
            self.processor.load(self.blocks)
        elif how == "parts":
            middle = HASHES // 3
            self.blocks = self.processor.part(0, middle) + self.processor.part(middle, HASHES)
        elif how == "catch up":
            self.older.load(self.since)
            self.processor, self.older, self.since = self.older, self.processor, []


@examples(250)
@given(windowings, st.lists(moves, min_size=1, max_size=8), st.booleans())
def test_the_processor_is_the_definition(windowing: Windowing, script: list[Move], finish: bool) -> None:
    work = StatefulWork(scripted_fn(windowing))
    processor, restored, reference = work.processor(), Restored(work), Reference(windowing)
    assert isinstance(processor, SlicedProcessor)
    watermark, now = MIN_TIME, 0
    ending = [Move([], MAX_TIME, 1, "")] if finish else []
    for move in script + ending:
        watermark = min(max(watermark, 0) + move.watermark * SECOND, MAX_TIME) if move.watermark else watermark
        now += move.now * SECOND
        elements = elements_of(windowing, move.elements)
        outputs, late = reference.step(elements, watermark, now)
        rows, clocks = rows_of(windowing, elements), Clocks(watermark, now)
        step = processor.step(rows, clocks)
        expected = by_place([(output.key, output.window, output.time, output.value) for output in outputs])
        assert by_place(shown(work, step.panes)) == expected
        assert (0 if step.late is None else step.late.num_rows) == late
        assert (step.watermark, step.held) == (reference.low, len(reference.cells))
        again = restored.processor.step(rows, clocks)
        assert shown(work, again.panes) == shown(work, step.panes)
        assert (again.watermark, again.held) == (step.watermark, step.held)
        restored.store(move.store)


in_event_time = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "add", "note", "sum"]), st.integers(1, 9)),
        st.tuples(st.just("set"), st.sampled_from(["due", "last"]), seconds),
        st.tuples(st.just("after"), st.sampled_from(["due", "last"]), st.integers(1, 12).map(lambda s: s * SECOND)),
        st.tuples(st.just("set"), st.sampled_from(["wake", "nap"]), st.integers(50, 60).map(lambda s: s * SECOND)),
        planning(st.tuples(st.just("after"), st.sampled_from(["due", "last"]), st.just(2 * SECOND))),
    ),
    min_size=1,
    max_size=3,
)


@examples(100)
@given(st.sampled_from([GLOBAL, Windowing(FixedWindows(10))]), st.dictionaries(st.integers(0, 30), in_event_time))
def test_one_element_at_a_time_gives_what_a_batch_gives(windowing: Windowing, programs: dict[int, Any]) -> None:
    """If the watermark follows the elements of a key and the clock stands still, a stream is a batch."""
    data = [(("k", program), second) for second, program in sorted(programs.items())]
    p = hr.Pipeline()
    pairs = created(p, [hr.TimestampedValue(*each) for each in data]) | hr.WindowInto(windowing.window)
    batch = pairs | hr.ParDo(Scripted()) | hr.Collect()
    run(p)
    work = StatefulWork(scripted_fn(windowing))
    processor, streamed = work.processor(), []
    for (key, program), second in data:
        streamed += shown(work, processor.step(None, Clocks(second * SECOND)).panes)
        elements = elements_of(windowing, [(key, program, second)])
        streamed += shown(work, processor.step(rows_of(windowing, elements), Clocks(second * SECOND)).panes)
    streamed += shown(work, processor.step(None, Clocks(MAX_TIME)).panes)
    assert by_place([(*each.value[:2], each.timestamp, each.value[2]) for each in batch.windowed]) == by_place(streamed)


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(0, 29)), max_size=20), st.randoms())
def test_any_order_and_batching_gives_what_a_batch_gives(data: list[Any], chance: random.Random) -> None:
    """Of a DoFn that does not care in which order its elements come."""
    windowing = Windowing(FixedWindows(10))
    programs = [
        (key, [("sum", number), ("set", "due", (second // 10 + 1) * 10 * SECOND)], second)
        for key, number, second in data
    ]
    p = hr.Pipeline()
    timed = [hr.TimestampedValue((key, program), second) for key, program, second in programs]
    batch = created(p, timed) | hr.WindowInto(windowing.window) | hr.ParDo(Scripted()) | hr.Collect()
    run(p)
    chance.shuffle(programs)
    work = StatefulWork(scripted_fn(windowing))
    processor: DoFnProcessor = work.processor()
    streamed: list[Any] = []
    while programs:
        count = chance.randint(1, len(programs))
        elements = elements_of(windowing, programs[:count])
        programs = programs[count:]
        low = min((second for _, _, second in programs), default=30) * SECOND
        streamed += shown(work, processor.step(rows_of(windowing, elements), Clocks(low)).panes)
    streamed += shown(work, processor.step(None, Clocks(MAX_TIME)).panes)

    def ends(outputs: list[tuple[Any, ...]]) -> list[str]:
        fired = [(*rest, value[2]["total"]) for *rest, value in outputs if value[0] == "due"]
        return sorted(map(repr, fired))

    assert ends(streamed) == ends([(*each.value[:2], each.timestamp, each.value[2]) for each in batch.windowed])
