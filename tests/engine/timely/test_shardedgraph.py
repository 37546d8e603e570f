"""Graphs whose vertices are in several shards: notices against what comes after them, answers against networkx."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest
import timely_vertices as timely
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.shard.processor import StepResult
from headrace.engine.timely.shardedgraph import ShardedGraphTask
from headrace.engine.timely.vertexplaces import shards_of_input
from headrace.model.tasks import NEXT
from headrace.model.timely.antichains import Time, is_before
from headrace.model.timely.epochs import Epochs
from headrace.model.timely.vertex import Vertex
from headrace.model.timely.vertexgraph import Graph, Stream
from headrace.model.times import MAX_TIME, SECOND
from tests.engine.lockstep import PlayedShards
from tests.engine.timely.vertexgraphs import EVENTS, random_graph
from tests.scale import examples


class PlayedGraph(PlayedShards):
    """A graph in several shards; messages go to those that senders choose."""

    def __init__(self, graph: Graph, outputs: dict[str, Stream], epochs: Epochs, shards: int, rng: Any = None) -> None:
        self.graph, self.named = graph, [(each.node, each.output) for each in outputs.values()]
        super().__init__(lambda number, of: ShardedGraphTask(graph, outputs, epochs, number, of), shards, rng)

    def read(self, messages: list[tuple[str, Any, int | None]]) -> list[list[pa.RecordBatch]]:
        found: list[list[pa.RecordBatch]] = [[] for _ in self.shards]
        for name, message, epoch in messages:
            places = shards_of_input(self.graph, self.named, name, message, len(self.shards))
            for shard in places:
                found[shard].append(pack_list(name, [(message, epoch, shard == places[0])]))
        return found


def sent(results: list[StepResult]) -> list[tuple[str, Any, Time]]:
    found = []
    for result in results:
        for tag, body in zip(result.panes.column("tag").to_pylist(), result.panes.column("batch"), strict=True):
            if tag != NEXT:
                batch = pa.ipc.open_stream(body.as_buffer()).read_next_batch()
                found += [(tag, *each) for _, listed in unpack_lists(batch) for each in listed]
    return found


@pytest.mark.slow("two hundred graphs in shards that go on from their state")
@given(st.integers(0, 10**6), st.sampled_from(["batch", "time"]))
@examples(200)
def test_no_notice_is_followed_by_what_it_excluded_and_all_come(seed: int, epochs: Epochs) -> None:
    rng = random.Random(seed)
    graph, outputs = random_graph(seed)
    played = PlayedGraph(graph, outputs, epochs, rng.randint(2, 3), rng)
    events: list[list[tuple[str, str, Time]]] = [[] for _ in played.shards]

    def step(read: Any, watermark: int) -> None:
        EVENTS.clear()
        before = [len(each) for each in events]
        for number, shard in enumerate(played.shards):
            notes(shard, events[number])
        results = played.step(read, watermark)
        assert min(each.watermark for each in results) <= watermark
        if epochs == "time":
            lows.append(min(each.watermark for each in results))
            assert all(time[0] * SECOND >= lows[-2] for _, _, time in sent(results))
        assert [len(each) for each in events] >= before

    def notes(shard: Any, into: list[Any]) -> None:
        """Notes what the vertices of a shard are called with."""
        executor = shard.task.executor
        call = type(executor)._call

        def noted(deliver: Any, *message: Any) -> None:
            called = executor._called
            kind = "message" if message else "notice"
            if kind == "message":
                assert not any(
                    at == called.stage and was == "notice" and is_before(called.time, time) for at, was, time in into
                ), "a message of a time that was over"
            into.append((called.stage, kind, called.time))
            call(executor, deliver, *message)

        executor._call = noted

    lows = [0]
    closed = 0
    for _ in range(rng.randint(1, 6)):
        names = [rng.choice(list(graph.inputs)) for _ in range(rng.randint(0, 3))]
        messages = [(name, rng.randint(3, 5), closed + rng.randint(0, 2)) for name in names]
        closed += rng.randint(0, 2)
        timed = [(name, message, epoch if epochs == "time" else None) for name, message, epoch in messages]
        step(played.read(timed), closed * SECOND)
        for _ in range(rng.choice([0, 1, 3])):
            if played.moving:
                step((), closed * SECOND)
    step((), MAX_TIME)
    while played.moving:
        step((), MAX_TIME)
        assert played.steps < 500
    for shard in played.shards:
        task: Any = shard.task
        assert not task.executor.under_way()
        # That an input of another shard has ended is said only while somebody waits for it.
        assert {node for node, _ in task.executor.progress.active} <= set(graph.inputs)
        assert task.waiting() is None and task.counts()["late"] == 0
    assert lows[-1] == MAX_TIME or epochs == "batch"


@given(st.integers(0, 10**9))
@examples(100)
def test_answers_after_each_epoch_are_those_of_networkx(seed: int) -> None:
    rng = random.Random(seed)
    graph = Graph()
    roads = graph.input("roads")
    counts = graph.stage(timely.DistinctCount, roads.by(lambda road: road), vertices=4)["counts"]
    outputs = {"labels": timely.components(graph, roads), "steps": timely.distances(graph, roads), "counts": counts}
    played = PlayedGraph(graph, outputs, "batch", rng.randint(2, 4), rng)
    nodes = ["ash", *"bcdefgh"[: rng.randint(1, 7)]]
    ways: list[Any] = []
    answers: dict[str, dict[str, Any]] = {"labels": {}, "steps": {"ash": 0}}
    for epoch in range(rng.randint(1, 4)):
        chosen = [(rng.choice(nodes), rng.choice(nodes)) for _ in range(rng.randint(1, 6))]
        both = [way for one, other in chosen for way in ((one, other), (other, one))]
        ways += both
        distinct = 0
        results = played.step(played.read([("roads", way, None) for way in both]))
        while True:
            for name, message, time in sent(results):
                assert time == (epoch,)
                if name == "counts":
                    distinct += message
                else:
                    town, value = message
                    answers[name][town] = min(value, answers[name].get(town, value))
            if not played.moving:
                break
            results = played.step()
        world = nx.Graph(ways)
        assert distinct == len(set(both))
        assert answers["labels"] == {node: min(nx.node_connected_component(world, node)) for node in world}
        reached = nx.single_source_shortest_path_length(world, "ash") if "ash" in world else {"ash": 0}
        assert answers["steps"] == dict(reached)


class Total(Vertex):
    """Adds up the numbers of a time."""

    def __init__(self) -> None:
        self.totals: Counter[Time] = Counter()

    def on_recv(self, message: int, time: Time) -> None:
        self.totals[time] += message
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        self.send(self.totals.pop(time), time)


def test_late_messages_are_counted_once_and_shards_say_what_they_wait_for() -> None:
    graph = Graph()
    numbers = graph.input("numbers")
    halves = graph.stage(Total, numbers.by(lambda number: number % 4), vertices=4, name="halves")
    others = graph.stage(Total, numbers.by(lambda number: number % 3), vertices=4, name="others")
    whole = graph.stage(Total, halves, name="whole")
    outputs = {"whole": whole, "others": others, "numbers": numbers}
    played = PlayedGraph(graph, outputs, "time", 4)
    results = played.step(played.read([("numbers", number, 3) for number in range(12)]), 2 * SECOND)
    assert sum(1 for name, _, _ in sent(results) if name == "numbers") == 12
    while played.moving:
        results = played.step((), 2 * SECOND)
    waiting = [each.waiting for each in results if each.waiting is not None]
    assert "waits for the input 'numbers', which is in epoch 2" in {each.why for each in waiting}
    results = played.step(played.read([("numbers", number, 1) for number in range(7)]), 4 * SECOND)
    found: list[Any] = []
    while played.moving:
        results = played.step((), 4 * SECOND)
        found += [(name, message) for name, message, _ in sent(results) if name == "whole"]
    assert found == [("whole", sum(range(12)))]
    assert sum(each.counts["late"] for each in results) == 7
