"""Progress against a search by hand, and the rule that a notice is never followed by a message it excluded."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import PipelineError
from headrace.model.timely.antichains import Antichain, Time, is_before, least_upper_bound
from headrace.model.timely.loopgraph import LoopGraph
from headrace.model.timely.pathsummaries import ENTER, FEEDBACK, LEAVE, STAY, PathSummary
from headrace.model.timely.progress import Pointstamp, Progress
from tests.model.timely.loopgraphs import random_graph
from tests.scale import examples

TOP = 3
"""The largest counter of times that are compared."""

BOUND = TOP + 6
"""The largest counter that the search by hand looks at: who leaves a loop may have gone round in it before."""


def after(graph: LoopGraph, node: str, time: Time) -> Time:
    """What a node does to the time of a message: the definition, without summaries."""
    kind = graph.kinds.get(node, STAY)
    if kind == ENTER:
        return (*time, 0)
    if kind == LEAVE:
        return time[:-1]
    return (*time[:-1], time[-1] + 1) if kind == FEEDBACK else time


def reached(graph: LoopGraph, start: Pointstamp) -> set[Pointstamp]:
    """Everything that a message at a pointstamp could lead to, with counters up to BOUND: by walking there."""
    found, waiting = {start}, deque([start])
    while waiting:
        node, time = waiting.popleft()
        onward = after(graph, node, time)
        for receiver in graph.successors[node]:
            if max(onward) <= BOUND and (receiver, onward) not in found:
                found.add((receiver, onward))
                waiting.append((receiver, onward))
    return found


def random_time(rng: random.Random, depth: int) -> Time:
    return tuple(rng.randint(0, TOP) for _ in range(depth))


@given(st.integers(0, 10**6))
@examples(400)
def test_could_result_in_is_what_a_search_finds(seed: int) -> None:
    graph, rng = random_graph(seed), random.Random(seed)
    for _ in range(10):
        start = rng.choice(graph.nodes)
        one = (start, random_time(rng, graph.depth[start]))
        walked = reached(graph, one)
        for end in graph.nodes:
            other = (end, random_time(rng, graph.depth[end]))
            expected = any(node == end and is_before(time, other[1]) for node, time in walked)
            assert graph.could_result_in(one, other) == expected, (one, other)


summaries = st.builds(
    lambda keep, add, append: PathSummary(keep, add, tuple(append)),
    st.integers(1, 3),
    st.integers(0, 2),
    st.lists(st.integers(0, 2), max_size=2),
)


@given(summaries, summaries, st.lists(st.integers(0, 3), min_size=5, max_size=5))
@examples(500)
def test_summaries_compose_as_functions_do(one: PathSummary, other: PathSummary, numbers: list[int]) -> None:
    time = tuple(numbers[: one.keep])
    if other.keep <= one.depth:
        assert one.then(other)(time) == other(one(time))


@given(summaries, summaries)
@examples(500)
def test_a_summary_precedes_another_if_it_does_so_for_every_time(one: PathSummary, other: PathSummary) -> None:
    if one.depth == other.depth:
        depth = max(one.keep, other.keep)
        times = [(a, b, c)[:depth] for a in range(4) for b in range(4) for c in range(4)]
        assert one.precedes(other) == all(is_before(one(time), other(time)) for time in times)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
@examples(200)
def test_an_antichain_has_the_minimal_elements(times: list[Time]) -> None:
    minimal = {time for time in times if not any(each != time and is_before(each, time) for each in times)}
    assert set(Antichain(is_before, times)) == minimal
    for one in times:
        for other in times:
            bound = least_upper_bound(one, other)
            assert is_before(one, bound) and is_before(other, bound)


@given(st.integers(0, 10**6))
@examples(100)
def test_no_notice_is_followed_by_a_message_that_it_excluded(seed: int) -> None:
    graph, rng = random_graph(seed), random.Random(seed)
    progress = Progress(graph)
    messages: list[Pointstamp] = []
    notices: list[Pointstamp] = []
    notified: dict[str, list[Time]] = {}
    sent, delivered = 0, 0

    def send(node: str, time: Time) -> None:
        nonlocal sent
        onward = after(graph, node, time)
        for receiver in graph.successors[node]:
            if sent < 150 and rng.random() < 0.8:
                sent += 1
                progress.add(receiver, onward)
                messages.append((receiver, onward))

    epoch: int | None = 0
    progress.add("in", (0,))
    while messages or notices or epoch is not None:
        safe = [(node, time) for node, time in notices if progress.is_safe(node, time) and (node, time) not in messages]
        choice = rng.random()
        if epoch is not None and (choice < 0.2 or not (messages or safe)):
            if rng.random() < 0.5:
                send("in", (epoch,))
            else:
                if epoch < 3:
                    progress.add("in", (epoch + 1,))
                progress.remove("in", (epoch,))
                epoch = epoch + 1 if epoch < 3 else None
        elif messages and (choice < 0.7 or not safe):
            node, time = messages.pop(rng.randrange(len(messages)))
            assert not any(is_before(time, known) for known in notified.get(node, [])), (node, time, notified[node])
            send(node, time)
            if rng.random() < 0.5 and graph.kinds.get(node, STAY) == STAY:
                later = tuple(at + rng.randint(0, 1) for at in time)
                progress.add(node, later)
                notices.append((node, later))
            progress.remove(node, time)
        else:
            assert safe, "something waits for ever"
            node, time = rng.choice(safe)
            notices.remove((node, time))
            if (node, time) not in notices:  # others that wait for the same time are still to come
                notified.setdefault(node, []).append(time)
            send(node, time)
            progress.remove(node, time)
            delivered += 1
    assert progress.active == {}
    assert all(progress.frontier(node) == [] for node in graph.nodes)


@pytest.mark.parametrize(
    ("edges", "kinds", "why"),
    [
        ([("in", "a"), ("a", "b"), ("b", "a")], {}, "time would stand still"),
        (
            [("in", "e"), ("e", "f"), ("f", "l"), ("l", "e")],
            {"e": ENTER, "f": FEEDBACK, "l": LEAVE},
            "time would stand still",
        ),
        ([("in", "a"), ("a", "l")], {"l": LEAVE}, "in no loop"),
        ([("in", "e"), ("e", "a"), ("in", "a")], {"e": ENTER}, "loops of different depth, 1 and 0|0 and 1"),
        ([("a", "b"), ("b", "a")], {}, "reached from no input"),
        ([("in", "a")], {"a": "jump"}, "not 'jump'"),
    ],
)
def test_graphs_without_a_meaning_are_refused(edges: list[tuple[str, str]], kinds: dict[str, str], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        LoopGraph(edges, kinds)


def test_progress_refuses_what_cannot_be() -> None:
    progress = Progress(LoopGraph([("in", "a")]))
    with pytest.raises(PipelineError, match="0 loop counters"):
        progress.add("a", (0, 1))
    progress.add("a", (0,))
    progress.remove("a", (0,))
    with pytest.raises(PipelineError, match="more often than it was begun"):
        progress.remove("a", (0,))
