"""Operators on bundles: the same results however they are bundled, times and windows preserved, failures by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import (
    Call,
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    LifeCycle,
    MapOperator,
    Operator,
    ParDoOperator,
    TimesOperator,
    WindowOperator,
    split_by_tag,
)
from headrace.model.times import MIN_TIME, SECOND

Windowed = tuple[Any, int, tuple[int, int]]


def rows_of(bundle: Bundle) -> list[Windowed]:
    """Returns the elements of a bundle with their times and windows."""
    return list(zip(bundle.elements, bundle.all_times().tolist(), bundle.windows(), strict=True))


def results(op: Operator, *bundles: Bundle) -> list[Windowed]:
    return [row for bundle in bundles for _, out in op.run(bundle) for row in rows_of(out)]


def bundle_of(elements: list[int], kind: str) -> Bundle:
    """A bare bundle, one with times, or one with windows, too; element i is at i seconds."""
    times = np.array(elements, np.int64) * SECOND
    if kind == "bare":
        return Bundle(elements)
    return Bundle(elements, times) if kind == "timed" else Bundle(elements, times, times, times + SECOND)


OPS: dict[str, tuple[Operator, Callable[[int], list[Any]]]] = {
    "map": (MapOperator("op", Call(lambda x: x * 2)), lambda x: [x * 2]),
    "key by": (KeyByOperator("op", Call(lambda x: x % 2)), lambda x: [(x % 2, x)]),
    "filter": (FilterOperator("op", Call(lambda x: x % 3)), lambda x: [x] if x % 3 else []),
    "filter all": (FilterOperator("op", Call(lambda x: False)), lambda x: []),
    "flat map": (FlatMapOperator("op", Call(lambda x: range(x % 4))), lambda x: list(range(x % 4))),
    "generator": (FlatMapOperator("op", Call(lambda x: (y for y in [x] * (x % 3)))), lambda x: [x] * (x % 3)),
    "arguments": (MapOperator("op", Call(lambda x, y, z: (x, y, z), (1,), {"z": 2})), lambda x: [(x, 1, 2)]),
    "star": (MapOperator("op", Call(lambda *x: x, (1,), star=True)), lambda x: [(x, 1)]),
}


@pytest.mark.parametrize("kind", ["bare", "timed", "windowed"])
@pytest.mark.parametrize("name", OPS)
@given(elements=st.lists(st.integers(0, 50), min_size=1, max_size=12), size=st.integers(1, 12))
def test_outputs_keep_time_and_window_at_every_bundle_size(
    kind: str, name: str, elements: list[int], size: int
) -> None:
    op, expected = OPS[name]
    given_elements: list[Any] = [(x,) for x in elements] if name == "star" else elements
    whole = bundle_of(elements, kind)
    wanted = [(out, time, window) for x, time, window in rows_of(whole) for out in expected(x)]
    bundles = []
    for at in range(0, len(elements), size):
        part = bundle_of(elements[at : at + size], kind)
        part.elements = given_elements[at : at + size]
        bundles.append(part)
    assert results(op, *bundles) == wanted


@pytest.mark.parametrize("kind", ["bare", "timed", "windowed"])
def test_many_outputs_of_one_element_come_in_bundles_of_bounded_size(kind: str) -> None:
    outs = [out for _, out in FlatMapOperator("op", Call(lambda x: range(300_000))).run(bundle_of([1, 2], kind))]
    assert [x for out in outs for x in out.elements] == [*range(300_000)] * 2
    if kind == "bare":
        assert max(len(out.elements) for out in outs) <= 100_000


def test_times_out_of_wrappers() -> None:
    def timed(x: int) -> list[Any]:
        return [x, hr.TimestampedValue(-x, 100)]

    outputs = results(FlatMapOperator("op", Call(timed)), bundle_of([1, 2], "bare"))
    assert [(x, t) for x, t, _ in outputs] == [(1, MIN_TIME), (-1, 100 * SECOND), (2, MIN_TIME), (-2, 100 * SECOND)]
    outputs = results(MapOperator("op", Call(lambda x: hr.TimestampedValue(x, x + 1))), bundle_of([1, 2], "windowed"))
    assert [(x, t, w[0]) for x, t, w in outputs] == [(1, 2 * SECOND, SECOND), (2, 3 * SECOND, 2 * SECOND)]


def test_tagged_outputs_are_split_by_tag() -> None:
    elements = [1, hr.TaggedOutput("a", 2), hr.TaggedOutput("b", hr.TimestampedValue(3, 9)), hr.TaggedOutput("a", 4)]
    out = {tag: rows_of(bundle) for tag, bundle in split_by_tag(Bundle(elements, np.arange(4)), ("a", "b"))}
    assert {tag: [(x, t) for x, t, _ in rows] for tag, rows in out.items()} == {
        None: [(1, 0)],
        "a": [(2, 1), (4, 3)],
        "b": [(3, 9 * SECOND)],
    }
    with pytest.raises(ValueError, match=r"tagged 'a', which is not declared.*with_outputs\('a'\)"):
        list(split_by_tag(Bundle(elements), ("b",)))


def test_a_bundle_is_not_changed_by_who_reads_it() -> None:
    bundle = Bundle([hr.TimestampedValue(1, 5), 2])
    list(split_by_tag(bundle, ()))
    assert bundle.elements == [hr.TimestampedValue(1, 5), 2]


def test_times_and_windows_are_set() -> None:
    bundle = bundle_of([1, 12], "bare")
    (_, timed) = next(iter(TimesOperator("op", lambda x: x).run(bundle)))
    assert timed.all_times().tolist() == [SECOND, 12 * SECOND]
    sliding = results(WindowOperator("op", hr.SlidingWindows(10, 5)), timed)
    assert [(x, w[0] // SECOND) for x, _, w in sliding] == [(1, -5), (1, 0), (12, 5), (12, 10)]
    assert [w for *_, w in results(WindowOperator("op", hr.CountWindows(3)), timed)] == [(0, 3), (0, 3)]
    (_, back) = next(iter(WindowOperator("op", hr.GlobalWindows()).run(bundle_of([1], "windowed"))))
    assert back.starts is None


def test_keyed_windows_need_pairs() -> None:
    with pytest.raises(WorkerFailure, match=r"must be pairs \(key, value\), got 1"):
        results(WindowOperator("op", hr.UnalignedWindows(10)), bundle_of([1], "timed"))


@pytest.mark.parametrize("kind", ["bare", "timed", "windowed"])
@pytest.mark.parametrize("op", [MapOperator, KeyByOperator, FilterOperator, FlatMapOperator])
def test_a_failure_names_the_element(op: Any, kind: str) -> None:
    with pytest.raises(WorkerFailure, match=r'"label": "my step".*"element": "3"'):
        results(op("my step", Call(lambda x: [1 / (x - 3)])), bundle_of([1, 2, 3, 4], kind))


def test_the_life_cycle_frames_each_bundle() -> None:
    calls: list[Any] = []

    class Traced(hr.DoFn):
        def setup(self) -> None:
            calls.append("setup")

        def start_bundle(self) -> None:
            calls.append("start")

        def process(self, x: int) -> Iterator[int]:
            calls.append(x)
            yield x

        def finish_bundle(self) -> Any:
            calls.append("finish")

        def teardown(self) -> None:
            calls.append("teardown")

    fn = Traced()
    life = LifeCycle("op", fn, WindowOperator("op", hr.GlobalWindows()))
    op = ParDoOperator("op", FlatMapOperator("op", Call(fn.process)), life)
    op.open()
    results(op, Bundle([1, 2]), Bundle([3]))
    assert list(op.close()) == []
    assert calls == ["setup", "start", 1, 2, "finish", "start", 3, "finish", "teardown"]
