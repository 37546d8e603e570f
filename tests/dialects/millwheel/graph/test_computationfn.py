"""Computations as DoFns, without Spark, against a reference that takes a record at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import millwheel as mw
from headrace.engine.worker.blame import WorkerFailure, transform_error
from headrace.model.times import MIN_TIME
from tests.dialects.millwheel.reference import Given, Produced, Reference
from tests.dialects.millwheel.scripted import LateToo, Scripted, Steps
from tests.scale import examples

tags = st.sampled_from(["", "a", "b"])
times = st.integers(0, 40)
simple = st.one_of(
    st.tuples(st.just("add"), st.integers(-3, 3)),
    st.tuples(st.just("note"), st.integers(0, 9)),
    st.just(("forget",)),
    st.tuples(st.just("timer"), st.just("event"), times, tags),
    st.tuples(st.just("produce"), st.just("said"), st.integers(0, 9), st.integers(0, 5)),
)
wall = st.tuples(st.just("timer"), st.just("wall"), times, tags)


def ops(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    planned = st.tuples(st.just("plan"), tags, st.lists(one, max_size=3))
    return st.lists(st.one_of(one, one, planned), max_size=4)


def steps(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    records = st.lists(st.builds(Given, st.sampled_from("xyz"), ops(one), times), max_size=5)
    return st.lists(st.tuples(records, st.integers(0, 45), st.integers(0, 45), st.booleans()), max_size=6)


def compare(kind: type[Scripted], script: list[Any], *, holds: bool) -> None:
    computation, reference = Steps(kind()), Reference(drops_late=kind.late == "drop")
    for records, watermark, now, restart in script:
        expected = reference.step(records, watermark, now)
        found = computation.step(records, watermark, now)
        timed, others = ([each for each in expected if (each.time is None) == none] for none in (False, True))
        left = Counter(each._replace(key=None, value=repr(each.value)) for each in found)
        wanted = Counter(each._replace(key=None, value=repr(each.value)) for each in timed)
        assert wanted <= left
        rest = Counter((each.stream, each.value) for each in (left - wanted).elements())
        assert rest == Counter((each.stream, repr(each.value)) for each in others)
        assert computation.counts == Counter(reference.counts)
        if holds:
            assert computation.low == reference.low
        if restart:
            computation.restart()


@given(steps(simple))
@examples(300)
def test_computations_do_what_the_reference_does(script: list[Any]) -> None:
    compare(Scripted, script, holds=True)


@given(steps(st.one_of(simple, wall)))
@examples(300)
def test_so_do_those_with_wall_timers_and_late_records(script: list[Any]) -> None:
    compare(LateToo, script, holds=False)


class Alone(mw.Computation):
    """One output, no timers, no state."""

    inputs = {"numbers": mw.key("key"), "letters": mw.key("key")}
    outputs = ("said",)

    def process_record(self, record: mw.Record) -> None:
        self.produce("said", (record.stream, record.value, self.low_watermark))


def test_the_inputs_and_the_low_watermark_are_known() -> None:
    steps = Steps(Alone())
    first = steps.step([Given("k", ("numbers", 7), 3)], watermark=5)  # type: ignore[arg-type]
    second = steps.step([Given("k", ("letters", "a"), 6)], watermark=9)  # type: ignore[arg-type]
    assert [each.value for each in first + second] == [("numbers", 7, MIN_TIME), ("letters", "a", 5)]
    assert steps.processor.table.held == 0


class Leaky(mw.Computation):
    """Breaks a rule, which its records name."""

    inputs = {"rules": mw.key("key")}
    outputs = ("said",)
    items = mw.Persistent(list)
    total = mw.Persistent(float)
    stolen: ClassVar[list[Any]] = []

    def process_record(self, record: mw.Record) -> None:
        match record.value:
            case "attribute":
                self.cache = {}
            case "steal":
                self.stolen.append(self.items)
            case "produce":
                self.produce("said", self.items)
            case "alias":
                self.other = self.items
            case "type":
                self.total = "one"  # type: ignore[assignment]
            case "wider":
                self.total = 1
            case "stream":
                self.produce("unsaid", 1)
            case "past":
                self.produce("said", 1, timestamp=mw.Instant(record.timestamp - 1))
            case "timer":
                self.set_timer(mw.Instant(1))
            case "copy":
                try:
                    raise ValueError(self.items)
                except ValueError as error:
                    reason = error  # refers to this frame, and the frame to the state: a cycle
                assert reason is not None
                self.items.append(record.value)
                self.produce("said", list(self.items))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("attribute", "Leaky.cache is set in a callback, but is not Persistent"),
        ("steal", "Leaky.items: something still refers to the state of a key after its callback"),
        ("produce", "Leaky.items: something still refers to the state of a key after its callback"),
        ("alias", "Leaky.other is set in a callback"),
        ("type", "Leaky.total is declared as float, got 'one'; declare it as Persistent(str), or assign a float"),
        ("stream", "produce('unsaid') is for none of its outputs, which are said; declare outputs"),
        ("past", "is before 1970-01-01T00:00:00Z, the time of this callback"),
        ("timer", "it sets a timer, but has no process_timer"),
    ],
)
def test_rules_of_callbacks(rule: str, message: str) -> None:
    Leaky.stolen.clear()
    steps = Steps(Leaky())
    with pytest.raises(WorkerFailure) as failed:
        steps.step([Given("k", rule, 0)])  # type: ignore[arg-type]
    told = str(transform_error(failed.value))
    assert message in told
    assert "ComputationError" in told


def test_copies_of_state_may_leave() -> None:
    steps = Steps(Leaky())
    assert steps.step([Given("k", "copy", 0), Given("k", "wider", 1)]) == [Produced(None, "said", ["copy"], 0)]  # type: ignore[arg-type]
    assert steps.step([Given("k", "copy", 2)]) == [Produced(None, "said", ["copy", "copy"], 2)]  # type: ignore[arg-type]
