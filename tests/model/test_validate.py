"""Breaks each rule of a graph: the error names the transform, its place in this file, and the remedy. No Spark."""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.model.sources import Source
from headrace.model.validate import RULES, validate


class Endless(Source):
    """Returns an unbounded collection of pairs."""

    bounded = False
    output_type = tuple[str, int]


def lock_holder() -> Callable[[Any], Any]:
    lock = threading.Lock()
    return lambda x: (lock, x)


def used_twice(p: hr.Pipeline) -> None:
    numbers = p | hr.Create([1])
    numbers | "same" >> hr.Map(abs)
    numbers | "same" >> hr.Map(abs)


def windows_differ(p: hr.Pipeline) -> None:
    a = p | "a" >> hr.Create([("k", 1)]) | "wa" >> hr.WindowInto(hr.FixedWindows(60))
    b = p | "b" >> hr.Create([("k", 1)]) | "wb" >> hr.WindowInto(hr.FixedWindows(61))
    (a, b) | "both" >> hr.Flatten()


def joined_windows_differ(p: hr.Pipeline) -> None:
    a = p | "a" >> hr.Create([("k", 1)])
    b = p | "b" >> hr.Create([("k", 1)]) | hr.WindowInto(hr.Sessions(5))
    {"a": a, "b": b} | "join" >> hr.CoGroupByKey()


def side_input_of_another(p: hr.Pipeline) -> None:
    other = hr.Pipeline() | "elsewhere" >> hr.Create([1])
    p | hr.Create([1]) | "look up" >> hr.Map(lambda x, y: x, hr.AsList(other))


def side_input_in_sessions(p: hr.Pipeline) -> None:
    recent = p | hr.Create([1]) | "recent" >> hr.WindowInto(hr.Sessions(5))
    p | "numbers" >> hr.Create([1]) | "look up" >> hr.Map(lambda x, y: x, hr.AsList(recent))


class Counting(hr.DoFn):
    """A stateful DoFn, which needs pairs."""

    last = hr.ValueState("last")

    def process(self, pair: Any, last: Any = hr.DoFn.StateParam(last)) -> None:
        last.write(1)


class Silent(hr.DoFn):
    """A DoFn with a timer, but no method for it."""

    due = hr.TimerSpec("due")

    def process(self, pair: Any, due: Any = hr.DoFn.TimerParam(due)) -> None:
        due.set(1)


BROKEN: list[tuple[Callable[[hr.Pipeline], Any], list[str]]] = [
    (lambda p: None, ["the pipeline is empty", "p | hr.Create"]),
    (used_twice, ["'same' is used twice", "test_validate.py:", "rename one"]),
    (
        lambda p: p | hr.Create([1, 2]) | "group" >> hr.GroupByKey(),
        ["'group'", "pairs (key, value)", "gives int", "KeyBy"],
    ),
    (lambda p: p | hr.ReadText("x") | "sum" >> hr.CombinePerKey(sum), ["'sum'", "gives str"]),
    (lambda p: p | hr.Create(["ab"]) | "state" >> hr.ParDo(Counting()), ["'state'", "gives str"]),
    (lambda p: p | hr.Create([("k", 1)]) | "wait" >> hr.ParDo(Silent()), ["'wait'", "timer 'due'", "on_timer"]),
    (lambda p: {"x": p | hr.Create([1])} | "join" >> hr.CoGroupByKey(), ["'join/tag x'", "gives int"]),
    (lambda p: p | Endless() | "group" >> hr.GroupByKey(), ["'group'", "wait for ever", "FixedWindows", "trigger="]),
    (windows_differ, ["'both'", "FixedWindows('1 min')", "FixedWindows('1 min 1 s')", "same WindowInto"]),
    (joined_windows_differ, ["'join/Flatten'", "Sessions('5 s')", "GlobalWindows()"]),
    (lambda p: p | hr.Create([1]) | "locked" >> hr.Map(lock_holder()), ["'locked'", "cannot be pickled", "DoFn.setup"]),
    (lambda p: p | "locks" >> hr.Create([threading.Lock()]), ["'locks'", "cannot be pickled"]),
    (
        lambda p: p | hr.Create([1]) | hr.Map(lambda x: x) | "pick" >> hr.Select("a"),
        ["'pick'", "needs columns", "NamedTuple"],
    ),
    (lambda p: p | hr.Create([1]) | hr.Map(lambda x: x) | "out" >> hr.WriteParquet("x"), ["'out'", "needs columns"]),
    (side_input_in_sessions, ["'look up'", "'recent'", "Sessions('5 s')", "fixed windows"]),
    (side_input_of_another, ["'look up'", "another pipeline"]),
    (
        lambda p: p | hr.Create([1]) | hr.WindowInto(hr.CountWindows(2)) | hr.GroupBy("value").top(1, by=["value"]),
        ["CountWindows(2)", "CombinePerKey"],
    ),
]


@pytest.mark.parametrize(("build", "parts"), BROKEN, ids=[parts[0] for _, parts in BROKEN])
def test_a_broken_rule_is_reported_before_anything_runs(build: Callable[[hr.Pipeline], Any], parts: list[str]) -> None:
    p = hr.Pipeline()
    build(p)
    with pytest.raises(hr.PipelineError) as raised:
        validate(p.graph())
    for part in parts:
        assert part in str(raised.value)
    if p.graph().nodes:
        assert "test_validate.py:" in str(raised.value)


class Named(NamedTuple):
    key: str
    value: int


def test_a_sound_graph_keeps_every_rule() -> None:
    p = hr.Pipeline()
    p | "named pairs" >> hr.Create([Named("a", 1)]) | hr.CombinePerKey(sum)
    p | Endless() | hr.WindowInto(hr.FixedWindows(60)) | hr.GroupByKey()
    (
        p
        | "again" >> Endless()
        | hr.WindowInto(hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)))
        | hr.CombinePerKey(sum)
    )
    assert validate(p.graph()) is p.graph()
    assert len(RULES) >= 9
