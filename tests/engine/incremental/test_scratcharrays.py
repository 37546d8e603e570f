"""Arrays against dicts: the same answers and errors, also where arrays cannot. Random programs: test_changeprogram."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from headrace.engine.incremental.codedchanges import NotByArrays
from headrace.engine.incremental.fromscratch import FromScratch
from headrace.engine.incremental.programtask import compute_once
from headrace.engine.incremental.projections import projection
from headrace.engine.incremental.scratcharrays import ScratchArrays
from headrace.model.errors import PipelineError
from headrace.model.incremental.changingcollections import Collection, iterate

EDGES = Collection.input("edges")


class Edge(NamedTuple):
    """A pair that is equal to a plain one."""

    one: Any
    other: Any


def once(result: Collection, changes: list[tuple[Any, int]]) -> dict[Any, int]:
    return {change.element: change.diff for change in compute_once(result, [("edges", changes)])}


@pytest.mark.parametrize(
    ("result", "changes"),
    [
        (EDGES.join(EDGES, lambda key, one, other: (one, other)), [((1, 2), 2**40), ((1, 3), 2**40)]),
        (EDGES.distinct(), [((1, 2), 2**62), ((1, 2), 2**62)]),
        (EDGES.distinct(), [((1, 2), 2**70)]),
        (EDGES.reduce(min), [((1, Decimal(2)), 1), ((1, 3), 1)]),
        (EDGES.distinct(), [(Edge(1, 2), 1), ((1, 2), -1)]),
    ],
)
def test_what_arrays_cannot_do_is_done_by_dicts(result: Collection, changes: list[tuple[Any, int]]) -> None:
    with pytest.raises(NotByArrays):
        ScratchArrays({"edges": changes}).compute(result)
    assert once(result, changes) == FromScratch({"edges": changes}).compute(result)


@pytest.mark.parametrize(
    ("result", "changes"),
    [
        (EDGES.reduce(max), [((True, "b"), 1), ((1, "a"), 1), ((1.0, "c"), -1), ((2, "a"), 1)]),
        (EDGES.map(lambda edge: (edge[-1], None)).count(), [(("a", "b"), 3), (("c", "b"), 2)]),
        (EDGES.map(lambda edge: edge[1]).distinct(), [(("a", ("b", "c")), 1), (("a", "b"), 1)]),
        (EDGES.reduce(sum).concat(EDGES.negate()), [((1, 5), 2), ((1, 6), 1), ((2, 0), 1)]),
        (EDGES.join(EDGES), [((1, 5), 2), ((1, 6), -1), ((2, 0), 1)]),
        (EDGES.map(lambda edge: (edge[0], edge)).filter(lambda pair: pair[0] > 1), [((1, 5), 2), ((2, 0), 1)]),
    ],
)
def test_answers_are_those_of_dicts(result: Collection, changes: list[tuple[Any, int]]) -> None:
    expected = FromScratch({"edges": changes}).compute(result)
    assert expected and ScratchArrays({"edges": changes}).compute(result) == expected == once(result, changes)
    assert ScratchArrays({"edges": []}).compute(result) == {}


def test_functions_that_fail_and_loops_without_end_are_told_as_ever() -> None:
    with pytest.raises(ZeroDivisionError) as failed:
        once(EDGES.map(lambda edge: 1 // edge[0]), [((1, 0), 1), ((0, 1), 1)])
    assert failed.value.__notes__ == ["(of the element (0, 1))"]
    with pytest.raises(PipelineError, match="pairs of key and value, got 7"):
        once(EDGES.count(), [(7, 1)])
    endless = iterate(EDGES, lambda pairs: pairs.map(lambda pair: (pair[0], pair[1] + 1)), limit=20)
    with pytest.raises(PipelineError, match="gone round 20 times, its limit, and 2 changes still go round"):
        once(endless, [((1, 0), 1)])


@pytest.mark.parametrize(
    "fn",
    [
        min,
        lambda edge: (edge[0], edge[1], edge[0]),
        lambda edge: (edge[0], edge[2]),
        lambda edge: (edge[0], str(edge[1])),
        lambda edge: (edge[0], edge[1]) if edge[0] else (edge[1], edge[0]),
        lambda edge, more=1: (edge[0], more),
        lambda *edge: (edge[0], edge[1]),
        lambda edge: [edge[0], edge[1]],
        lambda edge: (yield edge),
        lambda edge: (edge[0][0], edge[1]),
    ],
)
def test_functions_that_do_more_are_called(fn: Any) -> None:
    assert projection(fn, 1) is None
