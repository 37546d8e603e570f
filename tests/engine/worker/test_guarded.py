"""Dead letters: what a function fails on, compared with a loop over the elements; in pipelines, batch and stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.plan.translation import operator
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Operator
from headrace.model.elementwise import Elementwise
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Calls = list[int]


def choosy(x: int) -> int:
    if x % 3 == 0:
        raise ValueError(f"{x} is no good")
    return x * 2


def at_time(x: int, time: Any = hr.DoFn.TimestampParam) -> tuple[int, int]:
    return choosy(x), int(time)


def halfway(x: int) -> Any:
    yield x
    yield choosy(x)


class Neither:
    def __init__(self, x: int) -> None:
        self.x = x

    def __bool__(self) -> bool:
        return choosy(self.x) > 0


class Process(hr.DoFn):
    def process(self, x: int) -> Any:
        return None if x % 5 == 0 and choosy(x) else [choosy(x), hr.TaggedOutput("more", x)]


KINDS: dict[str, tuple[Elementwise, Callable[[int], list[Any]]]] = {
    "map": (hr.Map(choosy), lambda x: [choosy(x)]),
    "arguments": (hr.Map(lambda x, y: choosy(x) + y, 1), lambda x: [choosy(x) + 1]),
    "context": (hr.Map(at_time), lambda x: [(choosy(x), x * SECOND)]),
    "key by": (hr.KeyBy(choosy), lambda x: [(choosy(x), x)]),
    "filter": (hr.Filter(lambda x: choosy(x) % 4), lambda x: [x] * bool(choosy(x) % 4)),
    "no truth": (hr.Filter(Neither), lambda x: [x] * (choosy(x) > 0)),
    "flat map": (hr.FlatMap(lambda x: [choosy(x)] * (x % 2)), lambda x: [choosy(x)] * (x % 2)),
    "halfway": (hr.FlatMap(halfway), lambda x: [x, choosy(x)]),
    "do": (
        hr.ParDo(Process()).with_outputs("more"),
        lambda x: [choosy(x), x] if x % 5 else [choosy(x)] * 0,
    ),
}


def op_of(transform: Elementwise) -> Operator:
    p = hr.Pipeline()
    _ = p | hr.Create([1]) | "guarded" >> transform.with_exception_handling()
    return operator(p.graph().nodes[-1])


@pytest.mark.parametrize("kind", list(KINDS))
@given(st.lists(st.integers(0, 50), max_size=30), st.booleans())
def test_each_element_has_all_its_outputs_or_is_a_dead_letter(kind: str, elements: list[int], windowed: bool) -> None:
    transform, expected = KINDS[kind]
    times = np.array(elements, np.int64) * SECOND
    bundle = Bundle(list(elements), times, *([times, times + 1] if windowed else []))
    good, dead = [], []
    for x in elements:
        window = (x * SECOND, x * SECOND + 1) if windowed else None
        try:
            good += [(result, x * SECOND, window) for result in expected(x)]
        except ValueError:
            dead.append((hr.DeadLetter(x, "guarded", "ValueError", f"{x} is no good"), x * SECOND, window))
    got: dict[bool, list[Any]] = {True: [], False: []}
    for tag, out in op_of(transform).run(bundle):
        windows: Any = out.windows() if windowed else [None] * len(out.elements)
        got[tag == "dead_letters"] += zip(out.elements, out.all_times().tolist(), windows, strict=True)
    assert got[True] == dead
    assert sorted(got[False], key=repr) == sorted(good, key=repr)


def test_functions_are_called_once_for_each_element() -> None:
    calls: list[int] = []

    def counted(x: int) -> int:
        calls.append(x)
        return choosy(x)

    list(op_of(hr.Map(counted)).run(Bundle(list(range(10)))))
    assert calls == list(range(10))


def test_a_dofn_begins_and_ends_its_bundles() -> None:
    class Framed(hr.DoFn):
        def start_bundle(self) -> None:
            self.seen: list[int] = []

        def process(self, x: int) -> Any:
            self.seen.append(choosy(x))

        def finish_bundle(self) -> Any:
            yield self.seen

    outputs = [(tag, out.elements) for tag, out in op_of(hr.ParDo(Framed())).run(Bundle([1, 3, 4]))]
    dead = hr.DeadLetter(3, "guarded", "ValueError", "3 is no good")
    assert outputs == [("dead_letters", [dead]), (None, [[2, 8]])]


def test_whatever_is_raised_has_a_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even that")

    def fails(x: int) -> None:
        raise Mute

    ((_, bundle),) = op_of(hr.Map(fails)).run(Bundle([1]))
    (letter,) = bundle.elements
    assert (letter.error, letter.message) == ("Mute", "<Mute whose text fails: RuntimeError('not even that')>")


def test_an_error_that_is_of_no_element_ends_the_run() -> None:
    class Broken(hr.DoFn):
        def process(self, x: int) -> Any:
            yield x

        def finish_bundle(self) -> Any:
            raise OSError("gone")

    with pytest.raises(Exception, match=r"guarded.*OSError: gone"):
        list(op_of(hr.ParDo(Broken())).run(Bundle([1])))


class Stateful(hr.DoFn):
    seen = hr.ValueState("seen")

    def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(seen)) -> None: ...


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: hr.ParDo(Stateful()).with_exception_handling(), "not for a DoFn with state or timers"),
        (lambda: hr.ParDo(Process()).with_exception_handling().with_outputs("a"), "must come before"),
        (lambda: hr.ParDo(Process()).with_outputs("dead_letters").with_exception_handling(), "choose another tag"),
    ],
)
def test_mistakes_are_refused(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match):
        build()


def test_dead_letters_in_batch_and_stream_are_the_same_and_counted(spark: SparkSession) -> None:
    texts = [hr.TimestampedValue(text, second) for second, text in enumerate(["1", "x", "0", "7"])]
    side = {"times": 10}
    for source in (hr.Create(texts), hr.TestStream().add(texts[:2]).add(texts[2:]).finish()):
        p = hr.Pipeline(spark=spark)
        windowed = p | source | hr.WindowInto(hr.FixedWindows(2))
        factor = p | "factor" >> hr.Create(list(side.items()))
        parsed = (
            windowed
            | "parse"
            >> hr.Map(lambda text, side: side["times"] // int(text), hr.AsDict(factor)).with_exception_handling()
        )
        sums = parsed.main | hr.Sum.globally() | "good" >> hr.Collect()
        dead = parsed.dead_letters | "dead" >> hr.Collect()
        handle = p.run()
        handle.wait()
        assert sorted((pane.window.start // SECOND, pane.value) for pane in sums.windowed) == [(0, 10), (2, 1)]
        letters = sorted((e.timestamp // SECOND, e.window.start // SECOND, e.value.element) for e in dead.windowed)
        assert letters == [(1, 0, "x"), (2, 2, "0")]
        assert {(d.label, d.error) for d in dead} == {
            ("parse", "ValueError"),
            ("parse", "ZeroDivisionError"),
        }
        assert handle.metrics()["parse"] == {"in": 4, "out": 2, "dead": 2}
