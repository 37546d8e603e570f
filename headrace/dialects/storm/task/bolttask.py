"""Tasks: one instance of a component, run over the tuples of one micro-batch at a time. Arrow in, Arrow out.

    BoltTask(topology, config, "count", index).run(batches, now) -> Outcome
    SpoutTask(topology, config, "words", index).run(stream, rows, sequence, now) -> Outcome

- batches: record batches that other tasks sent here (`Sent.batch`), in any order; now: the time of the micro-batch
- Outcome.sent: record batches for other tasks, each with the component's id and the task's place in it
- Outcome.acks: one record batch of acker.ACKS, for the acker; Outcome.errors, Outcome.counts
- BoltTask.changes(), dump(), part(low, high), load(blocks): its state, as processors of the engine have it

The same task over the same batches at the same time gives the same again, numbers of tuples and all, so that a batch
can be replayed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.collectors import MANY_ERRORS, UNANCHORED, Collected, ErrorReport, Out, error_report
from headrace.dialects.storm.api.components import BasicBolt, Bolt, TopologyContext
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.groupings import Column
from headrace.dialects.storm.api.topology import Topology
from headrace.dialects.storm.api.tuples import SYSTEM, TICK, Origin, Tuple, made
from headrace.dialects.storm.task.acker import FAIL, NO_ACKS, acks
from headrace.dialects.storm.task.boltstate import Kept
from headrace.dialects.storm.task.incoming import Incoming
from headrace.dialects.storm.task.ledger import Ledger
from headrace.dialects.storm.task.router import Emission, Router, Sent, xor_by_row
from headrace.dialects.storm.task.tuplecolumns import decode_column, encode_column
from headrace.dialects.storm.task.tupleids import NO_ROOT, Ids, root_ids
from headrace.model.times import Int64Array

_MANY_TICKS: Final = 100  # at once; after a pause of an hour nobody waits for 3,600 of them


@dataclass
class Counts:
    """What a task did in a batch. `emitted` counts tuples, `sent` their copies; `seconds` were spent in `execute`.

    - ticks_skipped: after a long pause only some of the tick tuples come
    - received: tuples that came, by the component and the stream they came from
    """

    executed: int = 0
    acked: int = 0
    failed: int = 0
    emitted: int = 0
    sent: int = 0
    errors: int = 0
    ticks: int = 0
    ticks_skipped: int = 0
    seconds: float = 0.0
    received: dict[str, int] = field(default_factory=dict)

    def add(self, more: Counts) -> None:
        """Takes in what was done besides.

        >>> counts = Counts(executed=2, received={"words default": 2})
        >>> counts.add(Counts(executed=3, received={"words default": 1, "rules default": 2}))
        >>> counts.executed, counts.received
        (5, {'words default': 3, 'rules default': 2})
        """
        for each in fields(Counts):
            if each.name != "received":
                setattr(self, each.name, getattr(self, each.name) + getattr(more, each.name))
        for source, count in more.received.items():
            self.received[source] = self.received.get(source, 0) + count


@dataclass(frozen=True)
class Outcome:
    """What a task gives after a batch; see above."""

    sent: list[Sent]
    acks: pa.RecordBatch
    errors: list[ErrorReport] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


class SpoutTask:
    """Sends the tuples that a spout task emitted, as they come out of its log, on their way, and begins their trees.

    It keeps nothing: trees and turns follow from the tuples' places in the task's sequence.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Print(storm.Bolt):
    ...     pass
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words())
    >>> _ = builder.set_bolt("print", Print(), parallelism=2).shuffle_grouping("words")
    >>> task = SpoutTask(builder.create(), storm.Config(), "words", 0)
    >>> outcome = task.run("default", pa.record_batch({"word": ["a", "b", "c"]}), np.array([4, 5, 6]), now=0)
    >>> [(sent.target, sent.task, sent.batch.column("word").to_pylist()) for sent in outcome.sent]
    [('print', 0, ['a', 'c']), ('print', 1, ['b'])]
    >>> outcome.acks.num_rows
    3
    """

    def __init__(self, topology: Topology, config: Config, component: str, index: int) -> None:
        self._component, self._task = component, topology.tasks_of(component)[index]
        self._acking = config.acking
        self._router = Router(TopologyContext(topology, config, component, index))

    def run(
        self,
        stream: str,
        rows: pa.RecordBatch,
        sequence: Int64Array,
        now: int,
        *,
        tracked: np.ndarray | None = None,
        tasks: Int64Array | None = None,
        turns: Int64Array | None = None,
    ) -> Outcome:
        """Sends rows of a stream on. Trees of rows that cannot be sent, since a grouping fails, fail at once.

        - rows: a column for each field, typed or as `encode_column` made it
        - sequence: the place of each row in the sequence of all that this task ever emitted
        - tracked: which rows were emitted with a message id; if it is None, all
        - tasks: of a direct stream, the task of each row
        - turns: the place of each row among those of its stream; if it is None, as in the sequence
        """
        self._router.begin(now)
        roots = root_ids(self._task, sequence) if self._acking else None
        if roots is not None and tracked is not None:
            roots = np.where(tracked, roots, NO_ROOT)
        turns = sequence if turns is None else turns
        emission = Emission(stream, _columns(rows), rows.num_rows, roots, tasks=tasks, sequence=sequence, turns=turns)
        try:
            sent, copies = self._router.send(emission)
        except Exception:
            errors = self._refusals(stream, rows)
            good = np.array([error is None for error in errors])
            if good.all():
                raise
            rest = self.run(
                stream,
                rows.filter(pa.array(good)),
                sequence[good],
                now,
                tracked=None if tracked is None else tracked[good],
                tasks=None if tasks is None else tasks[good],
                turns=turns[good],
            )
            return self._failed(rest, None if roots is None else roots[~good], errors, now)
        counts = Counts(emitted=rows.num_rows, sent=sum(each.batch.num_rows for each in sent))
        if roots is None:
            return Outcome(sent, NO_ACKS, counts=counts)
        xors = xor_by_row(copies, rows.num_rows)
        begun = roots != NO_ROOT
        return Outcome(sent, acks(roots[begun], xors[begun], self._task), counts=counts)

    def _refusals(self, stream: str, rows: pa.RecordBatch) -> list[Exception | None]:
        values = zip(*[decode_column(*column) for column in _columns(rows)], strict=True)
        return [self._router.refusal(stream, each) for each in values]

    def _failed(self, rest: Outcome, roots: Ids | None, errors: list[Exception | None], now: int) -> Outcome:
        reports = [error_report(self._component, self._task, now, error) for error in errors if error is not None]
        rest.counts.errors += len(reports)
        told = [rest.acks]
        if roots is not None:
            roots = roots[roots != NO_ROOT]
            nothing = np.zeros(len(roots), np.uint64)
            told += [acks(roots, nothing, self._task), acks(roots, nothing, FAIL)]
        return Outcome(rest.sent, pa.concat_batches(told), [*reports[:MANY_ERRORS], *rest.errors], rest.counts)


def _columns(rows: pa.RecordBatch) -> list[Column]:
    return list(zip(rows.schema, rows.columns, strict=True))


class BoltTask:
    """One task of a bolt: its instance, with the state the instance has.

    >>> from headrace import storm
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
    >>> [sent] = SpoutTask(topology, config, "words", 0).run("default", words, np.arange(4), now=0).sent
    >>> task = BoltTask(topology, config, "count", 0)
    >>> [counted] = task.run([sent.batch], now=0).sent
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
        self._collected = Collected(component, self._number, node.streams, topology.direct_tasks(component))
        self.bolt._collected = self._collected
        self._basic = isinstance(self.bolt, BasicBolt)
        self._rows = 0  # that ever came, which numbers them
        self.bolt.prepare(self.bolt.context)
        self._kept = Kept(self.bolt, {"memory": self._router.memory, "ticked": None})

    def run(self, batches: Iterable[pa.RecordBatch], now: int) -> Outcome:
        """Works on the tuples of a micro-batch, and on ticks that are due."""
        incoming = Incoming.of(batches, self._rows)
        self._rows += incoming.count
        self._collected.begin(incoming.first, now)
        self._router.begin(now)
        counts = Counts()
        start = time.perf_counter()
        for origin, rows in incoming.sources:
            self._execute(origin, rows)
        counts.received = incoming.received
        self._tick(now, counts)
        counts.seconds = time.perf_counter() - start
        counts.executed = incoming.count + counts.ticks
        outcome = self._finished(incoming, counts)
        self._collected.begin(self._rows, now)  # a task may rest for long, and need not keep what it has sent
        return outcome

    def close(self) -> None:
        """Ends the instance."""
        self.bolt.cleanup()

    def changes(self) -> list[bytes]:
        """What has changed of the state since it was last written."""
        return self._kept.changes()

    def dump(self) -> list[bytes]:
        """All of the state."""
        return self._kept.dump()

    def part(self, low: int, high: int) -> list[bytes]:
        """The state in a range of hashes. It does not count as written."""
        return self._kept.part(low, high)

    def load(self, blocks: Sequence[bytes]) -> None:
        """Takes over state from blocks, in order, on top of what there is."""
        self._kept.load(blocks)
        self._router.memory = self._kept.extras["memory"]

    def merge(self, attributes: Mapping[str, Any]) -> None:
        """Has the instance take over what another one's `split` gave."""
        self._kept.touch()
        self.bolt.merge(attributes)

    def _execute(self, origin: Origin, rows: Iterable[tuple[Any, ...]]) -> None:
        execute, collected = self.bolt.execute, self._collected
        self._kept.touch()
        if self._basic:
            return self._execute_basic(origin, rows)
        for row, values in enumerate(rows, origin.first):
            tup = Tuple()
            tup.values, tup.origin, tup.row = values, origin, row
            try:
                execute(tup)
            except Exception as error:
                collected.failed.append(tup)
                collected.report(error)

    def _execute_basic(self, origin: Origin, rows: Iterable[tuple[Any, ...]]) -> None:
        execute, collected = self.bolt.execute, self._collected
        acked = collected.acked.append
        for row, values in enumerate(rows, origin.first):
            tup = Tuple()
            tup.values, tup.origin, tup.row = values, origin, row
            collected.row = row
            collected.current = (tup,)
            try:
                execute(tup)
                acked(row)
            except Exception as error:
                collected.failed.append(tup)
                collected.report(error)
        collected.row, collected.current = -1, ()

    def _tick(self, now: int, counts: Counts) -> None:
        if self._period is None:
            return
        due = now // self._period
        last = self._kept.extras["ticked"]
        self._kept.extras["ticked"] = due if last is None else max(due, last)
        if last is None or due <= last:
            return
        counts.ticks = min(due - last, _MANY_TICKS)
        counts.ticks_skipped = due - last - counts.ticks
        origin = Origin(SYSTEM, TICK, -1, ("period",))
        self._kept.touch()
        for _ in range(counts.ticks):
            tup = made((self._period,), origin, -1)
            try:
                self.bolt.execute(tup)
            except Exception as error:
                self._collected.report(error)

    def _finished(self, incoming: Incoming, counts: Counts) -> Outcome:
        collected = self._collected
        ledger = Ledger(incoming) if self._acking else None
        sent: list[Sent] = []
        for out in (*collected.outs.values(), *collected.direct.values()):
            memory = self._router.memory
            try:
                sent += self._sent(out, ledger)
            except Exception:
                if not self._refused(out, incoming):
                    raise
                self._router.memory = memory
                sent += self._sent(out, ledger)
            counts.emitted += len(out.anchors)
        self._kept.extras["memory"] = self._router.memory
        counts.sent = sum(each.batch.num_rows for each in sent)
        counts.acked = len(collected.acked) + len(collected.held_acked)
        counts.failed = len(collected.failed)
        counts.errors = len(collected.errors) + collected.more_errors
        told = NO_ACKS if ledger is None else ledger.close(collected)
        return Outcome(sent, told, collected.errors, counts)

    def _refused(self, out: Out, incoming: Incoming) -> bool:
        """Takes out what cannot be sent, which fails what it was made of, as if `emit` had raised the error."""
        errors = [self._router.refusal(out.stream, out.row(place)) for place in range(len(out.anchors))]
        origin = incoming.whole()
        for anchor, error in zip(out.anchors, errors, strict=True):
            if error is not None:
                self._collected.report(error)
                if anchor >= 0:
                    self._collected.failed.append(made((), origin, anchor))
                elif anchor < UNANCHORED:
                    self._collected.failed += out.several[UNANCHORED - 1 - anchor]
        out.keep([place for place, error in enumerate(errors) if error is None])
        return any(error is not None for error in errors)

    def _sent(self, out: Out, ledger: Ledger | None) -> list[Sent]:
        if not out.anchors or not self._router.reads(out.stream):
            return []
        width, flat = out.width, out.flat
        columns = [
            encode_column(name, flat if width == 1 else flat[place::width]) for place, name in enumerate(out.fields)
        ]
        tasks = np.array(out.tasks, np.int64) if out.tasks else None
        count = len(out.anchors)
        if ledger is None:
            return self._router.send(Emission(out.stream, columns, count, tasks=tasks))[0]
        anchored = ledger.anchored(out)
        sent, copies = self._router.send(
            Emission(out.stream, columns, count, anchored.roots, anchored.more, tasks=tasks)
        )
        ledger.emitted(anchored, xor_by_row(copies, count))
        return sent
