"""The executor against a search by hand, cut anywhere; and what vertices must not do."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.timely.executor import Executor, Sent
from headrace.model.errors import PipelineError
from headrace.model.timely.antichains import Time, is_before
from headrace.model.timely.loopgraph import LoopGraph
from headrace.model.timely.progress import Pointstamp
from headrace.model.timely.vertex import Vertex
from headrace.model.timely.vertexgraph import Graph, Stream
from tests.engine.timely.vertexgraphs import EVENTS, random_graph
from tests.model.timely.test_progress import after
from tests.scale import examples


def script_of(seed: int, inputs: list[str]) -> list[tuple[str, str, int | None]]:
    """What is put into inputs and when their epochs are closed; at the end all are."""
    rng = random.Random(seed)
    at = dict.fromkeys(inputs, 0)
    script: list[tuple[str, str, int | None]] = []
    for _ in range(rng.randint(1, 12)):
        name = rng.choice(inputs)
        if rng.random() < 0.6:
            script.append(("put", name, at[name] + rng.randint(0, 2)))
        else:
            at[name] += rng.randint(1, 2)
            script.append(("advance", name, at[name]))
    return [*script, *(("advance", name, None) for name in inputs)]


def play(executor: Executor, step: tuple[str, str, int | None]) -> None:
    kind, name, epoch = step
    if kind == "put":
        assert epoch is not None
        executor.put(name, 5, epoch)
    else:
        executor.advance(name, epoch)


class Search:
    """Finds by walking what a pointstamp could lead to: the definition, without summaries."""

    def __init__(self, graph: LoopGraph) -> None:
        self.graph = graph
        self.known: dict[tuple[Pointstamp, int], dict[str, set[Time]]] = {}

    def could_lead_to(self, start: Pointstamp, end: Pointstamp) -> bool:
        # Whoever goes round once more than he has to has been everywhere in a loop.
        bound = max(*start[1], *end[1]) + 2
        return any(is_before(time, end[1]) for time in self.reached(start, bound).get(end[0], ()))

    def reached(self, start: Pointstamp, bound: int) -> dict[str, set[Time]]:
        if (start, bound) not in self.known:
            found: dict[str, set[Time]] = {start[0]: {start[1]}}
            waiting = [start]
            while waiting:
                node, time = waiting.pop()
                onward = after(self.graph, node, time)
                for receiver in self.graph.successors[node]:
                    times = found.setdefault(receiver, set())
                    if max(onward) <= bound and onward not in times:
                        times.add(onward)
                        waiting.append((receiver, onward))
            self.known[start, bound] = found
        return self.known[start, bound]


def under_way(executor: Executor) -> list[Pointstamp]:
    return list(executor.under_way().elements())


@given(st.integers(0, 10**6))
@examples(150)
def test_notices_come_when_nothing_can_come_before_them_and_not_later(seed: int) -> None:
    graph, outputs = random_graph(seed)
    executor = Executor(graph, outputs)
    EVENTS.clear()
    notified: list[Pointstamp] = []
    search = Search(graph.loops)
    read = 0

    def check() -> None:
        nonlocal read
        for stage, kind, time in EVENTS[read:]:
            if kind == "message":
                assert not any(at == stage and is_before(time, known) for at, known in notified), (stage, time)
            else:
                notified.append((stage, time))
        read = len(EVENTS)

    for step in script_of(seed, list(graph.inputs)):
        play(executor, step)
        steps = 0
        while True:
            before = set(under_way(executor))
            idle = not executor._messages
            waiting = {(n.stage, n.time) for of_epoch in executor._notices.values() for n in of_epoch} if idle else ()
            safe = {
                each
                for each in waiting
                if not any(other != each and search.could_lead_to(other, each) for other in before)
            }
            if not executor.step():
                assert idle and not safe, "a notice that is safe does not come"
                break
            if idle:
                assert EVENTS[-1][1] == "notice" and (EVENTS[-1][0], EVENTS[-1][2]) in safe
            check()
            steps += 1
            assert steps < 5000
        assert executor.progress.active == Counter(under_way(executor))
    assert under_way(executor) == []


@given(st.integers(0, 10**6))
@examples(150)
def test_an_executor_goes_on_wherever_its_state_is_loaded(seed: int) -> None:
    rng = random.Random(seed)
    graph, outputs = random_graph(seed)
    script = script_of(seed, list(graph.inputs))
    whole = Executor(graph, outputs)
    cut = Executor(graph, outputs)
    blocks = cut.part(0, 2**64)
    for step in script:
        play(whole, step)
        whole.run()
        play(cut, step)
        while cut.step():
            if rng.random() < 0.2:
                blocks += cut.changes()
                if rng.random() < 0.3:
                    middle = rng.randrange(2**64)
                    blocks = [*cut.part(0, middle), *cut.part(middle, 2**64)]
                cut = Executor(graph, outputs)
                cut.load(blocks)
        blocks += cut.changes()
        assert {name: cut.take(name) for name in outputs} == {name: whole.take(name) for name in outputs}
        blocks += cut.changes()
        assert cut.status() == whole.status() and cut.counts == whole.counts


class Scripted(Vertex):
    """Does in on_recv what its message is, a function of the vertex and the time."""

    def on_recv(self, message: Any, time: Time) -> None:
        message(self, time)

    def on_notify(self, time: Time) -> None:
        self.send("notice", time)


def one_stage() -> tuple[Executor, Graph]:
    graph = Graph()
    return Executor(graph, {"out": graph.stage(Scripted, graph.input("in"))}), graph


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (lambda self, time: self.send("x", (1,)), r"was called at \(2,\) and sends at \(1,\), back in time"),
        (lambda self, time: self.notify_at((0,)), r"asks for a notice at \(0,\), back in time"),
        (lambda self, time: self.send("x", (2, 0)), r"tuples of 1 whole numbers, such as \(2,\)"),
        (lambda self, time: self.send("x", 2), "tuples of 1 whole numbers"),
        (lambda self, time: self.send_by("side", "x", time), "its outputs are 'out'"),
    ],
)
def test_what_goes_back_in_time_is_refused(message: Any, why: str) -> None:
    executor, _ = one_stage()
    executor.put("in", message, 2)
    with pytest.raises(PipelineError, match=why) as raised:
        executor.run()
    assert "vertex 0 of the stage 'Scripted' at (2,)" in raised.value.__notes__[0]


def test_closed_epochs_take_no_messages() -> None:
    executor, _ = one_stage()
    executor.advance("in", 3)
    with pytest.raises(PipelineError, match="is at epoch 3 and gets a message of epoch 2, which is closed"):
        executor.put("in", None, 2)
    executor.advance("in", None)
    with pytest.raises(PipelineError, match="is at its end"):
        executor.put("in", None, 9)
    with pytest.raises(PipelineError, match="no input 'inn'; it has 'in'"):
        executor.put("inn", None, 9)


def test_who_asks_twice_gets_one_notice_and_never_of_the_same_time_again() -> None:
    executor, _ = one_stage()
    for _ in range(2):
        executor.put("in", lambda self, time: self.notify_at(time), 0)
    executor.advance("in", 1)
    executor.run()
    assert executor.take("out") == [Sent("notice", (0,))]

    class Again(Scripted):
        def on_notify(self, time: Time) -> None:
            self.notify_at(time)

    graph = Graph()
    executor = Executor(graph, {"out": graph.stage(Again, graph.input("in"))})
    executor.put("in", lambda self, time: self.notify_at(time), 0)
    executor.advance("in", None)
    with pytest.raises(PipelineError, match="in on_notify of that time; ask for a later one"):
        executor.run()


def test_notices_that_follow_each_other_for_ever_are_refused() -> None:
    class Clock(Scripted):
        def on_notify(self, time: Time) -> None:
            self.notify_at((time[0] + 1,))

    graph = Graph()
    executor = Executor(graph, {"out": graph.stage(Clock, graph.input("in"))})
    executor.put("in", lambda self, time: self.notify_at(time), 0)
    executor.advance("in", 7)
    executor.run()
    assert executor.status()["Clock"].next_notice == (7,)
    executor.advance("in", None)
    with pytest.raises(PipelineError, match="ended after epoch 6, but 'Clock' asks for a notice of"):
        executor.run()


class Grow(Vertex):
    """Sends on whatever it gets, for ever."""

    def on_recv_new(self, message: Any, time: Time) -> None:
        self.send(message, time)

    on_recv_old = on_recv_new


def round_and_round(**options: Any) -> Executor:
    graph = Graph()
    numbers = graph.input("numbers")
    loop = graph.loop("round", **options)
    back = loop.feedback()
    grown = graph.stage(Grow, {"new": loop.enter(numbers), "old": back})
    back.connect(grown)
    return Executor(graph, {"out": loop.leave(grown), "inside": grown})


def test_a_loop_without_an_end_is_stopped_with_what_still_moves() -> None:
    executor = round_and_round(limit=20)
    executor.put("numbers", "x", 0)
    executor.put("numbers", "y", 0)
    with pytest.raises(PipelineError, match="'round' has gone round 20 times, its limit, and 'x' still goes round"):
        executor.run()


def test_a_bounded_loop_ends() -> None:
    executor = round_and_round(iterations=3)
    executor.put("numbers", "x", 4)
    executor.run()
    assert [time for _, time in executor.take("inside")] == [(4, 0), (4, 1), (4, 2)]
    assert executor.take("out") == [Sent("x", (4,))] * 3 and executor.counts["rounds"] == 3


def test_state_of_another_graph_is_refused() -> None:
    executor, _ = one_stage()
    with pytest.raises(PipelineError, match="the stored state is of another graph"):
        round_and_round().load(executor.part(0, 2**64))


def test_graphs_without_a_meaning_are_refused() -> None:
    graph, other = Graph(), Graph()
    numbers = graph.input("numbers")
    loop = graph.loop()

    def refused(why: str, build: Any) -> None:
        with pytest.raises(PipelineError, match=why):
            build()

    refused("two parts of the graph are called 'numbers'", lambda: graph.input("numbers"))
    refused("reads streams of its graph", lambda: graph.stage(Scripted, other.input("numbers")))
    refused("has no method on_recv", lambda: graph.stage(Grow, numbers))
    refused("reads 'a', but Grow has no method on_recv_a", lambda: graph.stage(Grow, {"a": numbers}))
    refused("has 2 vertices, but", lambda: graph.stage(Scripted, numbers, vertices=2))
    refused("number of vertices, at least 1, got 0", lambda: graph.stage(Scripted, numbers, vertices=0))
    refused("takes a class of vertices", lambda: graph.stage(dict, numbers))  # type: ignore[arg-type]
    refused("leave takes a stream of the loop", lambda: loop.leave(numbers))
    refused("enter takes a stream of the context around", lambda: loop.enter(loop.enter(numbers)))
    refused(
        "of different loops; let each enter",
        lambda: graph.stage(Grow, {"new": numbers, "old": loop.enter(numbers)}),
    )
    refused("no output 'side'", lambda: graph.stage(Scripted, numbers)["side"])
    refused("iterations must be a whole number", lambda: graph.loop(iterations=0))
    loop.feedback()
    refused("nothing goes round by", lambda: graph.loops)


def test_a_message_goes_to_the_vertex_of_its_key() -> None:
    class Own(Vertex):
        def __init__(self) -> None:
            self.keys: set[Any] = set()

        def on_recv(self, message: Any, time: Time) -> None:
            self.keys.add(message[0])
            self.send((message[0], sorted(self.keys)), time)

    graph = Graph()
    owned: Stream = graph.stage(Own, graph.input("in").by(lambda message: message[0]), vertices=4)
    executor = Executor(graph, {"out": owned})
    for number in range(40):
        executor.put("in", (number % 10, number), 0)
    executor.run()
    last = dict(sent.message for sent in executor.take("out"))
    groups = {tuple(keys) for keys in last.values()}
    assert sorted(key for keys in groups for key in keys) == list(range(10)) and 1 < len(groups) <= 4


def test_a_vertex_sends_only_while_it_is_called() -> None:
    vertex = Scripted()
    with pytest.raises(PipelineError, match="send works within on_recv and on_notify alone"):
        vertex.send("x", (0,))
    executor, _ = one_stage()
    inside = executor._vertices["Scripted", 0]
    with pytest.raises(PipelineError, match="sends while it is not called"):
        inside.send("x", (0,))


def test_of_a_vertex_what_has_changed_is_written() -> None:
    class Counts(Vertex):
        def __init__(self) -> None:
            self.counts: dict[Any, int] = {}
            self.last: list[Any] = []

        def on_recv(self, message: Any, time: Time) -> None:
            self.counts[message] = self.counts.get(message, 0) + 1
            self.last[:] = [message]

    graph = Graph()
    outputs = {"out": graph.stage(Counts, graph.input("in"))}
    executor = Executor(graph, outputs)
    blocks: list[bytes] = []
    for number in range(5000):
        executor.put("in", ("word", number), 0)
    executor.run()
    blocks += executor.changes()
    whole = sum(map(len, blocks))
    executor.put("in", ("word", 7), 0)
    executor.run()
    change = executor.changes()
    assert sum(map(len, change)) < whole / 10
    assert len(executor.changes()) == 1  # what is under way, and nothing of the vertex
    other = Executor(graph, outputs)
    other.load([*blocks, *change])
    found: Any = other._vertices["Counts", 0]
    assert found.counts == executor._vertices["Counts", 0].counts and found.counts["word", 7] == 2  # type: ignore[attr-defined]
    assert found.last == [("word", 7)]
