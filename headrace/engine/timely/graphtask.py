"""A graph of vertices as the task of a shard, and computed at once over input that ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.shard.reports import WaitingWindow
from headrace.engine.timely.executor import Executor, Sent
from headrace.model.tasks import TaskOutput
from headrace.model.timely.antichains import Time
from headrace.model.timely.epochs import BATCH, Epochs, open_epoch
from headrace.model.timely.progress import Pointstamp
from headrace.model.timely.vertexgraph import Graph, Stream
from headrace.model.times import MAX_TIME, SECOND

_SLICE: Final = 20_000  # messages that an output batch has at most
_COUNTS, _STATE = b"n", b"s"  # the first byte of a block: its kind


class GraphTask:
    """Runs a graph: the task of the only shard, which has all vertices.

    Messages come as pairs (message, epoch) by input; the epoch is None where a micro-batch is one. All inputs are as
    far as the watermark, which is that of the slowest.
    """

    def __init__(self, graph: Graph, outputs: Mapping[str, Stream], epochs: Epochs) -> None:
        self.executor = Executor(graph, outputs)
        self._outputs, self._epochs = tuple(outputs), epochs
        self._arrived: list[tuple[str, Any, int | None]] = []
        self._late = 0
        self._moved = False

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Takes messages in; they are delivered by `advance`."""
        for batch in batches:
            for name, messages in unpack_lists(batch):
                self._arrived += [(name, message, epoch) for message, epoch in messages]
        yield from ()

    def advance(self, watermark: int) -> Iterator[TaskOutput]:
        """Delivers messages and, of epochs that are closed, notices."""
        arrived, self._arrived = self._arrived, []
        reached = self._open()
        closed_to = open_epoch(watermark)
        if self._epochs == BATCH:
            if closed_to is not None and reached is not None:
                closed_to = reached + 1 if arrived else reached
            arrived = [(name, message, reached) for name, message, _ in arrived]
        if arrived or closed_to != reached:
            self._moved = True
            self.deliver(arrived, reached, closed_to)
        yield from self._outgoing()

    def _outgoing(self) -> Iterator[TaskOutput]:
        for name in self._outputs:
            sent = self.executor.take(name)
            for start in range(0, len(sent), _SLICE):
                yield name, 0, pack_list(name, [tuple(each) for each in sent[start : start + _SLICE]])

    def deliver(
        self, arrived: Iterable[tuple[str, Any, int | None]], reached: int | None, closed_to: int | None
    ) -> None:
        """Delivers epoch after epoch, so that notices of one come before messages of the next."""
        by_epoch: dict[int, list[tuple[str, Any]]] = {}
        for name, message, epoch in arrived:
            if reached is None or epoch is None or epoch < reached:
                self._late += 1
            else:
                by_epoch.setdefault(epoch, []).append((name, message))
        for epoch in sorted(by_epoch):
            self._close_to(epoch if closed_to is None else min(epoch, closed_to))
            for name, message in by_epoch[epoch]:
                self.executor.put(name, message, epoch)
            self.executor.run()
        self._close_to(closed_to)

    def _close_to(self, epoch: int | None) -> None:
        for name in self.executor.graph.inputs:
            self.executor.advance(name, epoch)
        self.executor.run()

    def _open(self) -> int | None:
        """Returns the first epoch that is open; all inputs are equally far."""
        return self.executor.epoch(next(iter(self.executor.graph.inputs)))

    def hold(self) -> int:
        """Returns the earliest event time of later output, which is that of its epoch."""
        epoch = self._open()
        return MAX_TIME if self._epochs == BATCH or epoch is None else epoch * SECOND

    def waiting(self) -> WaitingWindow | None:
        """Returns the first notice that is held back, and by what."""
        stages = {name: each for name, each in self.executor.status().items() if each.next_notice is not None}
        if not stages:
            return None
        name = min(stages, key=lambda each: stages[each].next_notice or ())
        time = stages[name].next_notice
        assert time is not None
        why = f"waits for {', '.join(self._shown(each) for each in stages[name].blockers[:3])}"
        deadline = (time[0] + 1) * SECOND if self._epochs != BATCH else MAX_TIME
        return WaitingWindow(f"the stage {name!r}", f"the notice of {shown_time(time)}", why, deadline)

    def _shown(self, blocker: Pointstamp) -> str:
        name, time = blocker
        if name in self.executor.graph.inputs:
            return f"the input {name!r}, which is in epoch {time[0]}"
        return f"{name!r} at {shown_time(time)}"

    def counts(self) -> Mapping[str, float]:
        """Returns messages, notices and rounds, late messages, and the epoch and round of each stage."""
        found: dict[str, float] = {**self.executor.counts, "late": self._late}
        if (epoch := self._open()) is not None:
            found["epoch"] = epoch
        for name, stage in self.executor.status().items():
            found[f"{name} notices"] = stage.notices
            if stage.frontier:
                found[f"{name} epoch"] = stage.frontier[0][0]
                if len(stage.frontier[0]) > 1:
                    found[f"{name} round"] = stage.frontier[0][1]
        return found

    def changes(self) -> list[bytes]:
        """Returns the state that has changed."""
        moved, self._moved = self._moved, False
        return [self._late_block(), *(_STATE + block for block in self.executor.changes())] if moved else []

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes."""
        state = [_STATE + block for block in self.executor.part(low, high)]
        return [self._late_block(), *state] if low == 0 else state

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads state on top of what there is."""
        for block in blocks:
            if block.startswith(_COUNTS):
                self._late = json.loads(block[1:])
        self.executor.load([block[1:] for block in blocks if block.startswith(_STATE)])

    def _late_block(self) -> bytes:
        return _COUNTS + json.dumps(self._late).encode()


def compute_graph(
    graph: Graph, outputs: Mapping[str, Stream], messages: Sequence[tuple[str, list[Any]]]
) -> Iterator[tuple[str, Sent]]:
    """Computes a graph over input that ends: all messages by input, as pairs (message, epoch); None is epoch 0."""
    task = GraphTask(graph, outputs, "time")
    arrived = [(name, message, epoch or 0) for name, listed in messages for message, epoch in listed]
    task.deliver(arrived, 0, None)
    for name in outputs:
        yield from ((name, sent) for sent in task.executor.take(name))


def shown_time(time: Time) -> str:
    """Renders a time.

    >>> shown_time((3,)), shown_time((3, 1)), shown_time((3, 1, 4))
    ('epoch 3', 'epoch 3, round 1', 'epoch 3, rounds 1, 4')
    """
    rounds = ", ".join(map(str, time[1:]))
    return f"epoch {time[0]}" + (f", round{'s' if len(time) > 2 else ''} {rounds}" if rounds else "")
