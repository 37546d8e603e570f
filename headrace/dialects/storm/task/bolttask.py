"""Bolt tasks: run one instance of a bolt over the tuples of one micro-batch at a time. Arrow in, Arrow out.

    BoltTask(topology, config, "count", index).run(batches, now) -> TaskOutput

- batches: record batches that other tasks sent here (`TaskBatch.batch`), in any order; now: the time of the micro-batch
- TaskOutput: batches for other tasks, rows for the acker, errors and counts
- changes(), dump(), part(low, high), load(blocks): the state, with the methods of the engine's processors

The same task over the same batches at the same time has the same output again, ids of tuples included, so that a batch
can be replayed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.collectors import UNANCHORED, OutputCollector, StreamOutput
from headrace.dialects.storm.api.components import BasicBolt, Bolt, TopologyContext
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Topology
from headrace.dialects.storm.api.tuples import SYSTEM, TICK, Origin, Tuple, make_tuple
from headrace.dialects.storm.task.acker import NO_ACKS
from headrace.dialects.storm.task.ackledger import AckLedger
from headrace.dialects.storm.task.boltstate import BoltState, TaskExtras
from headrace.dialects.storm.task.incoming import Incoming
from headrace.dialects.storm.task.router import EmittedBatch, Router, TaskBatch, xor_by_row
from headrace.dialects.storm.task.taskoutput import TaskCounts, TaskOutput
from headrace.dialects.storm.task.tuplecolumns import encode_column

_MAX_TICKS: Final = 100  # at once; after a pause of an hour nobody waits for 3,600 of them


class BoltTask:
    """One task of a bolt: its instance, with the state of the instance.

    >>> from headrace import storm
    >>> from headrace.dialects.storm.task.spouttask import SpoutTask
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Count(storm.Bolt):
    ...     fields = ["word", "count"]
    ...     def prepare(self, context):
    ...         self.counts = {}
    ...     def execute(self, tup):
    ...         word = tup["word"]
    ...         self.counts[word] = self.counts.get(word, 0) + 1
    ...         self.emit([word, self.counts[word]], anchors=[tup])
    ...         self.ack(tup)
    >>> class Print(storm.Bolt):
    ...     pass
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words())
    >>> _ = builder.set_bolt("count", Count()).fields_grouping("words", ["word"])
    >>> _ = builder.set_bolt("print", Print()).global_grouping("count")
    >>> topology, config = builder.create(), storm.Config()
    >>> words = pa.record_batch({"word": ["nathan", "bob", "joey", "nathan"]})
    >>> [sent] = SpoutTask(topology, config, "words", 0).run("default", words, np.arange(4), now=0).batches
    >>> task = BoltTask(topology, config, "count", 0)
    >>> [counted] = task.run([sent.batch], now=0).batches
    >>> counted.batch.select(["word", "count"]).to_pylist()[-1]
    {'word': 'nathan', 'count': 2}
    """

    def __init__(self, topology: Topology, config: Config, component: str, index: int) -> None:
        node = topology.node(component)
        assert isinstance(node.component, Bolt)
        self._number = topology.tasks_of(component)[index]
        self._acking = config.acking
        self._period: int | None = node.tick or config.tick  # type: ignore[assignment]
        context = TopologyContext(topology, config, component, index)
        self._router = Router(context)
        self.bolt = copy.deepcopy(node.component)
        self.bolt.context = context
        self._collector = OutputCollector(component, self._number, node.streams, topology.direct_tasks(component))
        self.bolt._collector = self._collector
        self._basic = isinstance(self.bolt, BasicBolt)
        self._rows = 0  # that ever arrived, which numbers them
        self.bolt.prepare(self.bolt.context)
        self._state = BoltState(self.bolt, TaskExtras(self._router.memory))

    def run(self, batches: Iterable[pa.RecordBatch], now: int) -> TaskOutput:
        """Processes the tuples of a micro-batch, and the tick tuples that are due."""
        incoming = Incoming.of(batches, self._rows)
        self._rows += incoming.count
        self._collector.begin(incoming.first, now)
        self._router.begin(now)
        counts = TaskCounts()
        start = time.perf_counter()
        for origin, rows in incoming.sources:
            self._execute(origin, rows)
        counts.received = incoming.received
        self._tick(now, counts)
        counts.seconds = time.perf_counter() - start
        counts.executed = incoming.count + counts.ticks
        output = self._output(incoming, counts)
        self._collector.begin(self._rows, now)  # a task may be idle for long: free what it has sent
        return output

    def close(self) -> None:
        """Cleans up the instance."""
        self.bolt.cleanup()

    def changes(self) -> list[bytes]:
        """Returns the state that has changed since it was written last."""
        return self._state.changes()

    def dump(self) -> list[bytes]:
        """Returns all of the state."""
        return self._state.dump()

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes. It does not count as written."""
        return self._state.part(low, high)

    def load(self, blocks: Sequence[bytes]) -> None:
        """Restores state from blocks, in order, on top of the present state."""
        self._state.load(blocks)
        self._router.memory = self._state.extras.memory

    def merge(self, attributes: Mapping[str, Any]) -> None:
        """Calls `merge` of the instance with what `split` of another instance returned."""
        self._state.touch()
        self.bolt.merge(attributes)

    def _execute(self, origin: Origin, rows: Iterable[tuple[Any, ...]]) -> None:
        execute, collector = self.bolt.execute, self._collector
        self._state.touch()
        if self._basic:
            return self._execute_basic(origin, rows)
        for row, values in enumerate(rows, origin.first):
            tup = Tuple()
            tup.values, tup.origin, tup.row = values, origin, row
            try:
                execute(tup)
            except Exception as error:
                collector.failed.append(tup)
                collector.report(error)

    def _execute_basic(self, origin: Origin, rows: Iterable[tuple[Any, ...]]) -> None:
        execute, collector = self.bolt.execute, self._collector
        acked = collector.acked.append
        for row, values in enumerate(rows, origin.first):
            tup = Tuple()
            tup.values, tup.origin, tup.row = values, origin, row
            collector.row, collector.current = row, tup
            try:
                execute(tup)
                acked(row)
            except Exception as error:
                collector.failed.append(tup)
                collector.report(error)
        collector.row, collector.current = UNANCHORED, None

    def _tick(self, now: int, counts: TaskCounts) -> None:
        if self._period is None:
            return
        due = now // self._period
        last = self._state.extras.ticked
        self._state.extras.ticked = due if last is None else max(due, last)
        if last is None or due <= last:
            return
        counts.ticks = min(due - last, _MAX_TICKS)
        counts.ticks_skipped = due - last - counts.ticks
        origin = Origin(SYSTEM, TICK, -1, ("period",))
        self._state.touch()
        for _ in range(counts.ticks):
            tup = make_tuple((self._period,), origin, -1)
            try:
                self.bolt.execute(tup)
            except Exception as error:
                self._collector.report(error)

    def _output(self, incoming: Incoming, counts: TaskCounts) -> TaskOutput:
        collector = self._collector
        ledger = AckLedger(incoming) if self._acking else None
        batches: list[TaskBatch] = []
        for output in (*collector.outputs.values(), *collector.direct_outputs.values()):
            memory = self._router.memory
            try:
                batches += self._send(output, ledger)
            except Exception:
                if not self._drop_unsendable(output, incoming):
                    raise
                self._router.memory = memory
                batches += self._send(output, ledger)
            counts.emitted += len(output.anchors)
        self._state.extras.memory = self._router.memory
        counts.sent = sum(sent.batch.num_rows for sent in batches)
        counts.acked = len(collector.acked) + len(collector.earlier_acked)
        counts.failed = len(collector.failed)
        counts.errors = len(collector.errors) + collector.more_errors
        acks = NO_ACKS if ledger is None else ledger.close(collector)
        return TaskOutput(batches, acks, collector.errors, counts)

    def _drop_unsendable(self, output: StreamOutput, incoming: Incoming) -> bool:
        """Drops tuples that cannot be sent, and fails their anchors, as if `emit` had raised the error.

        Returns whether there was any.
        """
        errors = [self._router.send_error(output.stream, output.row(place)) for place in range(len(output.anchors))]
        origin = incoming.common_origin()
        for anchor, error in zip(output.anchors, errors, strict=True):
            if error is not None:
                self._collector.report(error)
                if anchor >= 0:
                    self._collector.failed.append(make_tuple((), origin, anchor))
                elif anchor < UNANCHORED:
                    self._collector.failed += output.anchors_of(anchor)
        output.select([place for place, error in enumerate(errors) if error is None])
        return any(error is not None for error in errors)

    def _send(self, output: StreamOutput, ledger: AckLedger | None) -> list[TaskBatch]:
        if not output.anchors or not self._router.has_readers(output.stream):
            return []
        width, flat = output.width, output.flat
        columns = [
            encode_column(name, flat if width == 1 else flat[place::width]) for place, name in enumerate(output.fields)
        ]
        tasks = np.array(output.tasks, np.int64) if output.tasks else None
        count = len(output.anchors)
        if ledger is None:
            return self._router.send(EmittedBatch(output.stream, columns, count, tasks=tasks))[0]
        anchors = ledger.anchors(output)
        batches, copies = self._router.send(
            EmittedBatch(output.stream, columns, count, anchors.roots, anchors.more, tasks=tasks)
        )
        ledger.add_sent(anchors, xor_by_row(copies, count))
        return batches
