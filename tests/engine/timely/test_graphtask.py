"""The task of a graph, in its shard: epochs by micro-batch and by watermark, status, and state as deltas and parts."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.taskshard import TaskShard
from headrace.engine.timely.executor import Sent
from headrace.engine.timely.graphtask import GraphTask, compute_graph
from headrace.model.timely.antichains import Time
from headrace.model.timely.epochs import Epochs
from headrace.model.timely.vertex import Vertex
from headrace.model.timely.vertexgraph import Graph, Stream
from headrace.model.times import MAX_TIME, SECOND
from tests.scale import examples


class Gather(Vertex):
    """Sends the sorted messages of a time when it is over."""

    def __init__(self) -> None:
        self.messages: dict[Time, list[Any]] = {}

    def on_recv(self, message: Any, time: Time) -> None:
        self.messages.setdefault(time, []).append(message)
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        self.send(tuple(sorted(self.messages.pop(time))), time)


def gathered() -> tuple[Graph, dict[str, Stream]]:
    graph = Graph()
    return graph, {"out": graph.stage(Gather, graph.input("in").by(lambda message: message), vertices=2)}


def rows_of(messages: list[Any]) -> pa.RecordBatch | None:
    if not messages:
        return None
    rows = [{"task": 0, "batch": arrow_bytes(pack_list("in", messages))}]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([("task", pa.int64()), ("batch", pa.binary())]))


def emitted(body: pa.RecordBatch) -> list[Sent]:
    batches = [pa.ipc.open_stream(cell.as_buffer()).read_next_batch() for cell in body.column("batch")]
    return [Sent(*each) for batch in batches for _, listed in unpack_lists(batch) for each in listed]


def merged(sent: list[Sent]) -> dict[int, list[Any]]:
    """The messages of each epoch, of all vertices."""
    found: dict[int, list[Any]] = {}
    for messages, time in sent:
        found.setdefault(time[0], []).extend(messages)
    return {epoch: sorted(messages) for epoch, messages in found.items()}


@given(st.integers(0, 10**9), st.sampled_from(["batch", "time"]))
@examples(100)
def test_each_epoch_is_gathered_once_it_is_closed(seed: int, epochs: Epochs) -> None:
    rng = random.Random(seed)
    graph, outputs = gathered()
    shard = TaskShard(GraphTask(graph, outputs, epochs))
    expected: dict[int, list[Any]] = {}
    found: dict[int, list[Any]] = {}
    blocks: list[bytes] = []
    closed = late = batches = 0
    for number in range(8):
        messages = [(rng.randrange(9), rng.randint(0, 6)) for _ in range(rng.randint(0, 4))]
        for message, epoch in messages:
            if epochs == "batch":
                expected.setdefault(batches, []).append(message)
            elif epoch < closed:
                late += 1
            else:
                expected.setdefault(epoch, []).append(message)
        batches += bool(messages)
        reached = MAX_TIME if number == 7 else max(closed, rng.randint(0, 6)) * SECOND
        sent: list[Any] = messages if epochs == "time" else [(message, None) for message, _ in messages]
        step = shard.step(rows_of(sent), Clocks(reached, number))
        for epoch, values in merged(emitted(step.panes)).items():
            assert epoch not in found, "an epoch was over before"
            found[epoch] = values
        closed = reached // SECOND
        open_to = batches if epochs == "batch" or number == 7 else closed
        assert set(found) == {epoch for epoch in expected if epoch < open_to or number == 7}
        assert step.counts["late"] == late and step.watermark == reached
        assert (step.waiting is None) == (set(found) == set(expected))
        blocks += shard.changes()
        if rng.random() < 0.3:
            middle = rng.randrange(2**64)
            blocks = [*shard.part(0, middle), *shard.part(middle, 2**64)]
        if rng.random() < 0.5:  # another worker goes on
            shard = TaskShard(GraphTask(graph, outputs, epochs))
            shard.load(blocks)
    assert found == {epoch: sorted(values) for epoch, values in expected.items()}
    if epochs == "time":
        listed = [(value, epoch) for epoch, values in expected.items() for value in values]
        at_once = [sent for _, sent in compute_graph(graph, outputs, [("in", listed)])]
        assert merged(at_once) == found


def test_the_status_says_where_stages_are_and_what_holds_a_notice_back() -> None:
    class Pass(Vertex):
        def on_recv_new(self, message: Any, time: Time) -> None:
            self.notify_at((time[0] + 1, time[1] + 2))

        on_recv_old = on_recv_new

    graph = Graph()
    read = graph.input("in")
    loop = graph.loop("round")
    back = loop.feedback()
    passed = graph.stage(Pass, {"new": loop.enter(read), "old": back})
    back.connect(passed)
    gather = graph.stage(Gather, loop.leave(passed))
    shard = TaskShard(GraphTask(graph, {"out": gather}, "time"))
    step = shard.step(rows_of([("x", 3)]), Clocks(2 * SECOND + 500_000, 0))
    assert step.watermark == 2 * SECOND  # what comes of epoch 2 has the time of its first moment
    assert step.counts == {
        "messages": 1,
        "notices": 0,
        "rounds": 0,
        "late": 0,
        "epoch": 2,
        "Pass notices": 1,
        "Pass epoch": 2,
        "Pass round": 0,
        "Gather notices": 0,
        "Gather epoch": 2,
    }
    assert step.waiting is not None
    assert (step.waiting.key, step.waiting.window) == ("the stage 'Pass'", "the notice of epoch 4, round 2")
    assert step.waiting.why == "waits for the input 'in', which is in epoch 2"
    assert shard.changes() and shard.step(None, Clocks(2 * SECOND + 500_000, 1)).counts == step.counts
    assert len(shard.changes()) == 1  # the clocks, and nothing of the graph


def test_ten_thousand_epochs_take_time_in_proportion() -> None:
    graph, outputs = gathered()
    task = GraphTask(graph, outputs, "time")
    list(task.run([pack_list("in", [(epoch, epoch) for epoch in range(10_000)])], 0))
    list(task.advance(0))
    assert task.executor.counts["notices"] == 0 and task.counts()["Gather notices"] == 10_000
    out = list(task.advance(MAX_TIME))
    assert task.executor.counts["notices"] == 10_000 and len(out) == 1
