"""A graph whose vertices are in several shards, as tasks of a stream: messages to another shard take a micro-batch.

After a micro-batch every shard tells the others which pointstamps are under way in it, as often as that changes. In the
next one it counts theirs as active beside its own: whatever comes of what they heard since could result from those. So
a notice is given only when nothing in any shard, nor on its way to one, could result in it.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.shard.lockstep import check_step
from headrace.engine.timely.executor import Delivery, Executor
from headrace.engine.timely.graphtask import GraphTask
from headrace.model.pickling import dumps
from headrace.model.tasks import NEXT, TaskOutput
from headrace.model.timely.epochs import BATCH, Epochs, open_epoch
from headrace.model.timely.progress import Pointstamp
from headrace.model.timely.vertexgraph import Graph, Stream
from headrace.model.times import MAX_TIME, SECOND

_ROUND: Final = ""  # in place of an input's name: what another shard sent
_TASK: Final = b"t"  # the first byte of a block: its kind


class ShardedGraphTask(GraphTask):
    """Runs the vertices of one shard. Messages come as (message, epoch, first): whether this shard counts them if late.

    Where micro-batches are epochs, all shards number them alike: the next epoch begins when any of them has read.
    """

    def __init__(self, graph: Graph, outputs: Mapping[str, Stream], epochs: Epochs, shard: int, shards: int) -> None:
        super().__init__(graph, outputs, epochs)
        self.executor = Executor(graph, outputs, shard, shards)
        self._shard, self._shards = shard, shards
        self._rounds: list[tuple[int, int, bool, Counter[Pointstamp], list[Any]]] = []
        self._incoming: list[tuple[str, Any, int | None, bool]] = []
        self._steps, self._read = 0, False
        self._reported: dict[int, Counter[Pointstamp]] = {}  # what is under way here, as others know it
        self._waits: dict[int, bool] = {}  # whether others wait for notices

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Takes in what was read and what other shards sent."""
        for batch in batches:
            for name, listed in unpack_lists(batch):
                if name == _ROUND:
                    self._rounds += [each for each in listed if each[0] != self._shard]
                else:
                    self._incoming += [(name, *message) for message in listed]
        yield from ()

    def advance(self, watermark: int) -> Iterator[TaskOutput]:
        """Delivers messages, and notices that nothing in any shard could come before."""
        self._moved = True
        read = self._hear()
        arrived, self._incoming = self._incoming, []
        reached, closed_to = self._open(), open_epoch(watermark)
        if self._epochs == BATCH:
            if reached is not None:
                reached += read
                self._close_to(reached)
            closed_to = None if closed_to is None else reached
            arrived = [(name, message, reached, first) for name, message, _, first in arrived]
        self.deliver(self._in_time(arrived, reached), reached, closed_to)
        self._read = bool(arrived)
        yield from self._outgoing()
        yield from self._tell()

    def _hear(self) -> bool:
        """Takes in what others sent and said; returns whether any shard has read messages in the last micro-batch."""
        rounds, self._rounds = sorted(self._rounds, key=lambda each: each[0]), []
        read = self._read
        for sender, step, has_read, under_way, messages in rounds:
            check_step(self._steps, step, sender)
            self.executor.hear(sender, under_way)
            self.executor.receive(Delivery(*each) for each in messages)
            self._waits[sender] = self._waiting_in(under_way)
            read |= has_read
        return read

    def _in_time(
        self, arrived: list[tuple[str, Any, int | None, bool]], reached: int | None
    ) -> list[tuple[str, Any, int | None]]:
        """Leaves out what is late, and counts it where it is counted."""
        in_time: list[tuple[str, Any, int | None]] = []
        for name, message, epoch, first in arrived:
            if reached is None or epoch is None or epoch < reached:
                self._late += first
            else:
                in_time.append((name, message, epoch))
        return in_time

    def _tell(self) -> Iterator[TaskOutput]:
        """Tells all shards what is under way here, if it matters to them; and so each gets another micro-batch."""
        self._steps += 1
        settled = self.executor.arrived()  # what was sent in the last micro-batch, of which those who got it tell now
        leaving = self.executor.leaving()
        under_way = {shard: self.executor.under_way(shard) for shard in range(self._shards)}
        changed = settled or {**under_way, self._shard: None} != {**self._reported, self._shard: None}
        waits = any(self._waits.values()) or any(map(self._waiting_in, (*under_way.values(), *self._reported.values())))
        if not (leaving or self._read or (changed and waits)):
            return
        self._reported = under_way
        for shard in range(self._shards):
            messages = [tuple(each) for each in leaving.get(shard, ())]
            report = (self._shard, self._steps, self._read, under_way[shard], messages)
            yield NEXT, shard, pack_list(_ROUND, [report])

    def _waiting_in(self, under_way: Counter[Pointstamp]) -> bool:
        """Whether anything but inputs is under way."""
        return any(node not in self.executor.graph.inputs for node, _ in under_way)

    def hold(self) -> int:
        """Returns the earliest event time of later output: that of what is under way here."""
        if self._epochs == BATCH:
            return MAX_TIME
        return min((time[0] * SECOND for _, time in self.executor.under_way()), default=MAX_TIME)

    def changes(self) -> list[bytes]:
        """Returns the state that has changed."""
        return [self._task_block(), *super().changes()] if self._moved else []

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes."""
        return [*([self._task_block()] if low == 0 else []), *super().part(low, high)]

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads state on top of what there is."""
        super().load(blocks)
        for block in blocks:
            if block.startswith(_TASK):
                self._steps, self._read, self._reported, self._waits = pickle.loads(block[1:])

    def _task_block(self) -> bytes:
        return _TASK + dumps((self._steps, self._read, self._reported, self._waits))
