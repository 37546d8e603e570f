"""The fast lane gives what Beam's bundle processor gives: elements, times, windows, panes, metrics and errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms import window
from apache_beam.transforms.combiners import CountCombineFn, MeanCombineFn, TopCombineFn
from apache_beam.transforms.cy_combiners import SumInt64Fn
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.beam import HeadraceRunner, stagespecs
from headrace.dialects.beam.errors import BeamPipelineError
from headrace.dialects.beam.stageprocess import plain_steps
from tests.scale import examples

_seen: list[Any] = []


class Seen(beam.DoFn):  # type: ignore[misc]
    """Notes each element with its time, window and pane, in this process, where both lanes run."""

    def process(
        self,
        element: Any,
        time: Any = beam.DoFn.TimestampParam,
        placed: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> None:
        bounds = getattr(placed, "_start_micros", None), placed.max_timestamp().micros
        _seen.append((repr(element), time.micros, bounds, str(pane)))


class Halves(beam.DoFn):  # type: ignore[misc]
    """A DoFn of its own class, with a life cycle, metrics and a second output."""

    def setup(self) -> None:
        self.even = Metrics.counter("fastlane", "even")

    def process(self, pair: tuple[str, int], least: int = 0) -> Iterator[Any]:
        key, number = pair
        if number % 2:
            yield TaggedOutput("odd", (key, number))
        elif number >= least:
            self.even.inc()
            yield key, number // 2


class Returning(beam.DoFn):  # type: ignore[misc]
    """A DoFn that returns what it is told to."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def process(self, pair: tuple[str, int]) -> Any:
        return self.result


def _spread(pair: tuple[str, int]) -> list[tuple[str, int]]:
    key, number = pair
    Metrics.distribution("fastlane", "numbers").update(number)
    return [(key, n) for n in range(number % 4)]


def _again(pair: tuple[str, int]) -> Any:
    key, number = pair
    if number % 3 == 0:
        return TimestampedValue((key, number), number)
    return key, number


def _globally(pair: tuple[str, int]) -> Any:
    return WindowedValue(pair, pair[1], (window.GlobalWindow(),)) if pair[1] % 2 else pair


def _halves(pcoll: Any, label: str) -> Any:
    both = pcoll | label >> beam.ParDo(Halves(), 2).with_outputs("odd", main="even")
    return (both.even, both.odd) | f"{label} flat" >> beam.Flatten()


_STEPS: dict[str, Any] = {
    "map": lambda pc, label: pc | label >> beam.Map(lambda pair: (pair[0], pair[1] + 1)),
    "map more": lambda pc, label: (
        pc | label >> beam.Map(lambda pair, by, and_=0: (pair[0], pair[1] + by + and_), 2, and_=3)
    ),
    "map tuple": lambda pc, label: pc | label >> beam.MapTuple(lambda key, number: (key * 2, number)),
    "flat map": lambda pc, label: pc | label >> beam.FlatMap(_spread),
    "flat map tuple": lambda pc, label: pc | label >> beam.FlatMapTuple(lambda key, number: [(key, number)] * 2),
    "nothing": lambda pc, label: pc | label >> beam.FlatMap(lambda pair: None),
    "filter": lambda pc, label: pc | label >> beam.Filter(lambda pair: pair[1] % 5),
    "filter more": lambda pc, label: pc | label >> beam.Filter(lambda pair, n: pair[1] != n, 3),
    "timestamps": lambda pc, label: pc | label >> beam.Map(lambda pair: TimestampedValue(pair, 3 * pair[1])),
    "some timestamps": lambda pc, label: pc | label >> beam.Map(_again),
    "windowed values": lambda pc, label: (
        pc | f"{label} global" >> beam.WindowInto(window.GlobalWindows()) | label >> beam.Map(_globally)
    ),
    "two outputs": _halves,
    "undeclared": lambda pc, label: (
        pc | label >> beam.Map(lambda pair: TaggedOutput("other", pair) if pair[1] % 2 else pair)
    ),
    "fixed": lambda pc, label: pc | label >> beam.WindowInto(window.FixedWindows(7, 2)),
    "sliding": lambda pc, label: pc | label >> beam.WindowInto(window.SlidingWindows(6, 3)),
    "sessions": lambda pc, label: pc | label >> beam.WindowInto(window.Sessions(4)),
    "global": lambda pc, label: pc | label >> beam.WindowInto(window.GlobalWindows()),
    "sum": lambda pc, label: pc | label >> beam.CombinePerKey(sum),
    "sum ints": lambda pc, label: pc | label >> beam.CombinePerKey(SumInt64Fn()),
    "max": lambda pc, label: pc | label >> beam.CombinePerKey(max),
    "count": lambda pc, label: pc | label >> beam.CombinePerKey(CountCombineFn()),
    "mean": lambda pc, label: (
        pc | label >> beam.CombinePerKey(MeanCombineFn()) | f"{label} int" >> beam.MapTuple(lambda k, x: (k, int(x)))
    ),
    "top": lambda pc, label: (
        pc | label >> beam.CombinePerKey(TopCombineFn(2)) | f"{label} sum" >> beam.MapTuple(lambda k, x: (k, sum(x)))
    ),
    "groups": lambda pc, label: (
        pc | label >> beam.GroupByKey() | f"{label} sum" >> beam.MapTuple(lambda k, x: (k, sum(x)))
    ),
}


def run(pairs: list[tuple[str, int]], steps: list[str]) -> tuple[Counter[Any], Any]:
    """Runs steps over pairs; returns what came out, and the counters."""
    _seen.clear()
    with beam.Pipeline(runner=HeadraceRunner(local=True)) as p:
        pc = p | beam.Create(pairs)
        for number, step in enumerate(steps):
            pc = _STEPS[step](pc, f"{number} {step}")
        pc | beam.ParDo(Seen())
    found = p.result.metrics().query()
    counters = sorted((result.key.step, result.committed) for result in found["counters"])
    numbers = sorted((r.key.step, r.committed.sum, r.committed.count) for r in found["distributions"])
    return Counter(_seen), (counters, numbers)


@pytest.mark.slow("two pipelines for each example")
@examples(20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=12),
    st.lists(st.sampled_from(sorted(_STEPS)), min_size=1, max_size=5),
)
def test_both_lanes_give_the_same(pairs: list[tuple[str, int]], steps: list[str]) -> None:
    fast = run(pairs, steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stagespecs, "_plain", lambda *_: frozenset())
        assert run(pairs, steps) == fast


@pytest.mark.parametrize("step", sorted(_STEPS.keys() - {"sliding"}))
def test_a_step_takes_the_fast_lane(step: str) -> None:
    p = beam.Pipeline(runner=HeadraceRunner(local=True))
    _STEPS[step](p | beam.Create([("a", 1)]), step)
    plain = frozenset[str]().union(*(spec.plain for spec in HeadraceRunner().stages(p, PipelineOptions())))
    assert any(name.startswith(step) for name in plain)


def test_steps_are_known_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a\n")
    p = beam.Pipeline(runner=HeadraceRunner(local=True))
    pc = p | beam.io.ReadFromText(str(tmp_path / "text.txt")) | beam.Map(lambda line: (line, 1))
    for step in sorted(_STEPS.keys() - {"sliding"}):
        pc = _STEPS[step](pc, step)
    specs = HeadraceRunner().stages(p, PipelineOptions())
    here = [type(step).__name__ for spec in specs for step in plain_steps(spec).values()]
    script = (
        "import pickle, sys; from headrace.dialects.beam.stageprocess import plain_steps\n"
        "specs = pickle.load(sys.stdin.buffer)\n"
        "print([type(step).__name__ for spec in specs for step in plain_steps(spec).values()])"
    )
    there = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(specs), capture_output=True, check=True)
    assert eval(there.stdout) == here
    assert {"ReadStep", "MapStep", "FilterStep", "FlatMapStep", "DoFnStep", "PrecombineStep"} <= set(here)


class Expecting(beam.DoFn):  # type: ignore[misc]
    """A DoFn with a bundle of its own."""

    def start_bundle(self) -> None:
        self.count = 0

    def process(self, element: Any) -> Iterator[Any]:
        self.count += 1
        yield element


@pytest.mark.parametrize(
    "slow",
    [
        beam.WindowInto(window.SlidingWindows(6, 3)),
        beam.ParDo(Expecting()),
        beam.ParDo(Seen()),
        beam.Map(lambda pair, time=beam.DoFn.TimestampParam: pair),
        beam.Map(lambda pair: pair).with_exception_handling(),
    ],
    ids=["sliding", "bundle", "params", "param of a function", "exceptions"],
)
def test_other_transforms_do_not(slow: Any) -> None:
    p = beam.Pipeline(runner=HeadraceRunner(local=True))
    p | beam.Create([("a", 1)]) | "slow" >> slow
    specs = HeadraceRunner().stages(p, PipelineOptions())
    named = [name for spec in specs for name in spec.plain if name.startswith("slow")]
    assert [name for name in named if "Map" not in name.removeprefix("slow")] == []


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (beam.Map(lambda pair: {}[pair]), r"KeyError: \('a', 1\) \[while running 'broken'\]"),
        (beam.Filter(lambda pair: 1 // 0), r"by zero \[while running 'broken'\]"),
        (beam.ParDo(Returning("text")), r"Returning a str .* is not allowed.* \[while running 'broken'\]"),
        (beam.FlatMap(lambda pair: 3), r"'int' object is not iterable \[while running 'broken'\]"),
    ],
    ids=["map", "filter", "text", "no iterable"],
)
@pytest.mark.parametrize("lane", ["fast", "slow"])
def test_an_error_names_the_step(step: Any, message: str, lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lane == "slow":
        monkeypatch.setattr(stagespecs, "_plain", lambda *_: frozenset())
    with pytest.raises(BeamPipelineError, match=message), beam.Pipeline(runner=HeadraceRunner(local=True)) as p:
        p | beam.Create([("a", 1)]) | "broken" >> step | beam.Map(lambda pair: pair)


@pytest.mark.parametrize(
    ("values", "total"), [([2**62, 2**62, -(2**62)], 2**62), ([2**63 - 1, 1], -(2**63)), ([True, 2], 3)]
)
@pytest.mark.parametrize("lane", ["fast", "slow"])
def test_sums_of_ints_have_64_bits(values: list[int], total: int, lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lane == "slow":
        monkeypatch.setattr(stagespecs, "_plain", lambda *_: frozenset())
    found, _ = run([("a", value) for value in values], ["sum ints"])
    assert [eval(element) for element, *_ in found] == [("a", total)]
