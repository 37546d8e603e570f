"""Stateful DoFns over a batch: each key and window on its own, in the order of time, timers between the elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.model.times import SECOND
from tests.engine.worker.test_program import created, fails, run, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def p() -> hr.Pipeline:
    return hr.Pipeline()


class Number(hr.DoFn):
    """Numbers the elements of a key."""

    seen = hr.ValueState("seen")

    def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(seen)) -> Iterator[Any]:
        seen.write((seen.read() or 0) + 1)
        yield (*pair, seen.read())


class Remember(hr.DoFn):
    """Uses every kind of state."""

    items = hr.ListState("items")
    kinds = hr.SetState("kinds")
    last = hr.MapState("last")
    total = hr.CombiningState("total", sum)

    def process(
        self,
        pair: Any,
        items: Any = hr.DoFn.StateParam(items),
        kinds: Any = hr.DoFn.StateParam(kinds),
        last: Any = hr.DoFn.StateParam(last),
        total: Any = hr.DoFn.StateParam(total),
    ) -> Iterator[Any]:
        key, value = pair
        if value == 0:
            for state in (items, kinds, last, total):
                state.clear()
        items.add(value)
        kinds.add(value % 2)
        last.put(value % 2, value)
        if value == 5:
            last.remove(1)
        total.add(value)
        yield key, items.read(), kinds.read(), sorted(last.items()), last.get(7, "none"), total.read()


def test_elements_come_in_the_order_of_their_times(p: hr.Pipeline) -> None:
    data = timed((("a", "late"), 9), (("b", "only"), 5), (("a", "early"), 1), (("a", "middle"), 4))
    numbered = created(p, data) | hr.ParDo(Number()) | hr.Collect()
    run(p)
    assert sorted(numbered) == [("a", "early", 1), ("a", "late", 3), ("a", "middle", 2), ("b", "only", 1)]
    assert {e.value[1]: e.timestamp for e in numbered.windowed}["middle"] == 4 * SECOND


def test_each_window_has_its_own_state(p: hr.Pipeline) -> None:
    pairs = created(p, timed(*[(("a", i), i) for i in range(6)])) | hr.WindowInto(hr.FixedWindows(4))
    numbered = pairs | hr.ParDo(Number()) | hr.Collect()
    run(p)
    assert sorted(numbered) == [("a", 0, 1), ("a", 1, 2), ("a", 2, 3), ("a", 3, 4), ("a", 4, 1), ("a", 5, 2)]
    assert {e.value[1]: e.window.start // SECOND for e in numbered.windowed} == {0: 0, 1: 0, 2: 0, 3: 0, 4: 4, 5: 4}


def test_every_kind_of_state(p: hr.Pipeline) -> None:
    pairs = created(p, timed(*[(("a", v), t) for t, v in enumerate([2, 3, 4, 5, 0, 1])]))
    states = pairs | hr.ParDo(Remember()) | hr.Collect()
    run(p)
    by_time = [e.value for e in sorted(states.windowed, key=lambda e: e.timestamp)]
    assert by_time[1] == ("a", [2, 3], {0, 1}, [(0, 2), (1, 3)], "none", 5)
    assert by_time[3] == ("a", [2, 3, 4, 5], {0, 1}, [(0, 4)], "none", 14)
    assert by_time[4] == ("a", [0], {0}, [(0, 0)], "none", 0)


def test_equal_keys_share_state(p: hr.Pipeline) -> None:
    numbered = created(p, timed(((1, "x"), 1), ((1.0, "y"), 2), ((True, "z"), 3))) | hr.ParDo(Number()) | hr.Collect()
    run(p)
    assert sorted(number for *_, number in numbered) == [1, 2, 3]


class Alarms(hr.DoFn):
    """Sets, moves and clears timers as its elements say."""

    due = hr.TimerSpec("due")
    end = hr.TimerSpec("end", "processing")
    waiting = hr.ListState("waiting")

    def process(
        self,
        pair: Any,
        due: Any = hr.DoFn.TimerParam(due),
        end: Any = hr.DoFn.TimerParam(end),
        waiting: Any = hr.DoFn.StateParam(waiting),
    ) -> Iterator[Any]:
        _, (what, at) = pair
        waiting.add(what)
        if what == "set":
            due.set(at)
        elif what == "clear":
            due.clear()
        elif what == "end":
            end.set(at)
        yield what

    @hr.on_timer(due)
    def ring(
        self,
        key: Any = hr.DoFn.ElementParam,
        at: Any = hr.DoFn.TimestampParam,
        window: Any = hr.DoFn.WindowParam,
        waiting: Any = hr.DoFn.StateParam(waiting),
    ) -> Iterator[Any]:
        yield "ring", key, at // SECOND, waiting.read()
        waiting.clear()

    @hr.on_timer(end)
    def close(self, waiting: Any = hr.DoFn.StateParam(waiting)) -> Iterator[Any]:
        yield "closed", waiting.read()


def played(p: hr.Pipeline, *script: tuple[str, int, int]) -> list[Any]:
    """What Alarms gives for (what, at, time of the element) of one key, in order."""
    pairs = created(p, timed(*[(("k", (what, at)), time) for what, at, time in script]))
    out = pairs | hr.ParDo(Alarms()) | hr.Collect()
    run(p)
    return list(out)


def test_a_timer_fires_between_the_elements(p: hr.Pipeline) -> None:
    found = played(p, ("set", 5, 1), ("x", 0, 4), ("y", 0, 6))
    assert found == ["set", "x", ("ring", "k", 5, ["set", "x"]), "y"]


def test_a_timer_fires_before_an_element_of_its_time(p: hr.Pipeline) -> None:
    assert played(p, ("set", 5, 1), ("x", 0, 5)) == ["set", ("ring", "k", 5, ["set"]), "x"]


def test_what_is_still_set_fires_at_the_end(p: hr.Pipeline) -> None:
    assert played(p, ("set", 50, 1)) == ["set", ("ring", "k", 50, ["set"])]


def test_a_timer_is_moved_and_cleared(p: hr.Pipeline) -> None:
    assert played(p, ("set", 5, 1), ("set", 9, 2), ("x", 0, 8)) == [
        "set",
        "set",
        "x",
        ("ring", "k", 9, ["set", "set", "x"]),
    ]
    assert played(hr.Pipeline(), ("set", 5, 1), ("clear", 0, 2)) == ["set", "clear"]


def test_processing_time_timers_fire_at_the_end_of_a_batch(p: hr.Pipeline) -> None:
    assert played(p, ("end", 1, 5), ("x", 0, 9)) == ["end", "x", ("closed", ["end", "x"])]


def test_outputs_of_processing_timers_have_the_time_they_were_set_at(p: hr.Pipeline) -> None:
    pairs = created(p, timed((("k", ("end", 1_000_000)), 3), (("k", ("x", 0)), 9)))
    out = pairs | hr.ParDo(Alarms()) | hr.Collect()
    run(p)
    assert [e.timestamp // SECOND for e in out.windowed] == [3, 9, 3]


def test_timer_outputs_have_the_time_of_the_timer(p: hr.Pipeline) -> None:
    pairs = created(p, timed((("k", ("set", 7)), 1))) | hr.WindowInto(hr.FixedWindows(10))
    out = pairs | hr.ParDo(Alarms()) | hr.Collect()
    run(p)
    assert [(e.timestamp // SECOND, e.window.end // SECOND) for e in out.windowed] == [(1, 10), (7, 10)]


class Again(hr.DoFn):
    """A timer that sets itself again."""

    due = hr.TimerSpec("due")

    def process(self, pair: Any, due: Any = hr.DoFn.TimerParam(due)) -> None:
        due.set(pair[1])

    @hr.on_timer(due)
    def ring(self, at: Any = hr.DoFn.TimestampParam, due: Any = hr.DoFn.TimerParam(due)) -> Iterator[Any]:
        yield at // SECOND
        if at < 9 * SECOND:
            due.set(at // SECOND + 3)


def test_a_timer_may_set_itself_again(p: hr.Pipeline) -> None:
    out = created(p, timed((("k", 2), 1))) | hr.ParDo(Again()) | hr.Collect()
    run(p)
    assert list(out) == [2, 5, 8, 11]


class Split(Number):
    """Tagged and timestamped outputs."""

    def process(self, pair: Any, limit: int, seen: Any = hr.DoFn.StateParam(Number.seen)) -> Iterator[Any]:  # type: ignore[override]
        seen.write((seen.read() or 0) + 1)
        yield hr.TaggedOutput("more", pair) if seen.read() > limit else hr.TimestampedValue(pair, 77)


def test_tags_times_and_side_inputs(p: hr.Pipeline) -> None:
    limit = p | "limit" >> hr.Create([2])
    pairs = created(p, timed(*[(("k", i), i) for i in range(4)]))
    parts = pairs | hr.ParDo(Split(), hr.AsSingleton(limit)).with_outputs("more", main="few")
    few, more = parts.few | hr.Collect(), parts.more | hr.Collect()
    run(p)
    assert sorted(few) == [("k", 0), ("k", 1)]
    assert sorted(more) == [("k", 2), ("k", 3)]
    assert {e.timestamp for e in few.windowed} == {77 * SECOND}


def test_a_failure_names_the_element(p: hr.Pipeline) -> None:
    class Fails(Number):
        def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(Number.seen)) -> Any:
            return [1 / pair[1]]

    created(p, [("k", 0)]) | "invert" >> hr.ParDo(Fails())
    fails(p, r"'invert' failed on the element \('k', 0\): ZeroDivisionError")


def test_a_failing_timer_names_its_transform(p: hr.Pipeline) -> None:
    class Fails(Again):
        @hr.on_timer(Again.due)
        def ring(self) -> Any:  # type: ignore[override]
            raise RuntimeError("no bell")

    created(p, timed((("k", 1), 1))) | "ring" >> hr.ParDo(Fails())
    fails(p, "'ring' failed on the element 'k': RuntimeError: no bell")


def test_the_life_cycle_frames_the_calls(p: hr.Pipeline) -> None:
    class Framed(Number):
        def setup(self) -> None:
            self.calls = ["setup"]

        def start_bundle(self) -> None:
            self.calls.append("start")

        def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(Number.seen)) -> Any:
            self.calls.append("process")

        def finish_bundle(self) -> Any:
            return [" ".join(self.calls)]

    out = created(p, [("k", 0)]) | hr.ParDo(Framed()) | hr.Collect()
    run(p)
    assert list(out) == ["setup start process"]


def test_on_spark(spark: SparkSession) -> None:
    with hr.Pipeline(spark=spark) as p:
        pairs = p | hr.Create(timed(*[(("ab"[i % 2], i), 100 - i) for i in range(20)]))
        numbered = pairs | hr.ParDo(Number()) | hr.Collect()
        rung = p | "alarm" >> hr.Create(timed((("k", 2), 1))) | hr.ParDo(Again()) | hr.Collect()
    assert sorted(numbered) == sorted(("ab"[i % 2], i, 10 - i // 2) for i in range(20))
    assert list(rung) == [2, 5, 8, 11]


def test_a_pair_is_in_the_pane_it_came_in(p: hr.Pipeline) -> None:
    class Pane(Number):
        def process(
            self, pair: Any, seen: Any = hr.DoFn.StateParam(Number.seen), pane: Any = hr.DoFn.PaneInfoParam
        ) -> Any:
            return [pane.timing]

    pairs = created(p, [("k", 0)])
    never = pairs | hr.ParDo(Pane()) | hr.Collect()
    once = pairs | hr.CombinePerKey(sum) | hr.ParDo(Pane()) | hr.Collect()
    run(p)
    assert list(never) == ["unknown"]
    assert list(once) == ["on_time"]
