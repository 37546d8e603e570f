"""The tasks of a topology as DoFns and tasks of the model: they send spouts' tuples, run bolts and run ackers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Topology
from headrace.dialects.storm.api.totopic import ToTopic
from headrace.dialects.storm.task.acker import COMPLETE, FAILED, TIMED_OUT, Acker, acker_of
from headrace.dialects.storm.task.bolttask import BoltTask
from headrace.dialects.storm.task.loggedtuple import WAKE, TupleRecords, task_and_stream
from headrace.dialects.storm.task.rebalance import rebalance
from headrace.dialects.storm.task.spouttask import SpoutTask
from headrace.dialects.storm.task.taskoutput import TaskCounts
from headrace.dialects.storm.task.treeoutcomes import TreeOutcomes
from headrace.dialects.storm.task.tuplecolumns import encode_column
from headrace.dialects.storm.task.tupleids import sequence_of
from headrace.model.dofn import DoFn, TaggedOutput
from headrace.model.tasks import TaskOutput

ACKER: Final = "__acker"
ERRORS: Final = "__errors"
WRITTEN: Final = "__written"
VERDICTS: Final = "__verdicts"
"""Tags of the outputs of tasks besides tuples for bolts."""

FROM: Final = "from "
"""The prefix, before component and stream, of the name of a count of tuples received from there."""

_COUNTS, _STATE = b"n", b"s"  # the first byte of a bolt task's block: its kind


def to_ackers(acks: pa.RecordBatch, ackers: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Splits rows for the ackers by acker."""
    if not acks.num_rows:
        return
    if ackers == 1:
        yield 0, acks
        return
    acker = acker_of(acks.column("root").to_numpy(), ackers)
    for number in range(ackers):
        rows = np.flatnonzero(acker == number)
        if len(rows):
            yield number, acks.take(pa.array(rows))


class SpoutSender(DoFn):
    """Sends the tuples of a spout, read from its topic, to the tasks that read them."""

    def __init__(self, topology: Topology, config: Config, spout: str, ackers: int) -> None:
        self.topology, self.config, self.spout, self.ackers = topology, config, spout, ackers

    def setup(self) -> None:
        count = self.topology.node(self.spout).tasks
        self.tasks = [SpoutTask(self.topology, self.config, self.spout, index) for index in range(count)]

    def start_bundle(self) -> None:
        self.records: list[list[Any]] = []

    def process(self, element: Any, *args: Any, **kwargs: Any) -> None:
        self.records.append(element)

    def finish_bundle(self) -> Iterator[TaggedOutput]:
        by_stream: dict[tuple[int, str], list[list[Any]]] = {}
        for record in self.records:
            by_stream.setdefault(task_and_stream(record), []).append(record)
        for (index, stream), records in by_stream.items():
            if stream != WAKE:
                yield from self._send(index, stream, TupleRecords.of(records))

    def _send(self, index: int, stream: str, tuples: TupleRecords) -> Iterator[TaggedOutput]:
        names = self.topology.node(self.spout).streams[stream]
        columns = [
            encode_column(name, column) for name, column in zip(names, zip(*tuples.values, strict=True), strict=True)
        ]
        rows = pa.record_batch([column for _, column in columns], schema=pa.schema([field for field, _ in columns]))
        output = self.tasks[index].run(
            stream,
            rows,
            np.array(tuples.sequence, np.int64),
            # Instead of a time: it only makes ids differ from those of other batches, which the place does as well.
            tuples.sequence[0],
            tracked=np.array([message is not None for message in tuples.message_id]),
            tasks=None if tuples.target[0] is None else np.array(tuples.target, np.int64),
            turns=np.array(tuples.turn, np.int64),
        )
        for sent in output.batches:
            yield TaggedOutput(sent.target, (sent.task, sent.batch))
        for acker, acks in to_ackers(output.acks, self.ackers):
            yield TaggedOutput(ACKER, (acker, acks))
        if output.errors:
            yield TaggedOutput(ERRORS, (0, _texts(map(asdict, output.errors))))


class EngineBoltTask:
    """A bolt task as a task of the model. Its counts since it began are part of its state."""

    def __init__(self, topology: Topology, config: Config, bolt: str, ackers: int, number: int) -> None:
        self._task, self._ackers = BoltTask(topology, config, bolt, number), ackers
        self._counts, self._queued = TaskCounts(), 0

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        output = self._task.run(batches, now)
        self._counts.add(output.counts)
        self._queued = output.counts.executed - output.counts.ticks
        for sent in output.batches:
            yield sent.target, sent.task, sent.batch
        for acker, acks in to_ackers(output.acks, self._ackers):
            yield ACKER, acker, acks
        if output.errors:
            yield ERRORS, 0, _texts(map(asdict, output.errors))
        if isinstance(self._task.bolt, ToTopic) and (rows := self._task.bolt.take_rows()):
            yield WRITTEN, 0, pa.record_batch({"text": pa.array(rows, pa.string())})

    def counts(self) -> Mapping[str, float]:
        counts = asdict(self._counts)
        received = {f"{FROM}{stream}": count for stream, count in counts.pop("received").items()}
        return {**counts, **received, "queued": self._queued}

    def changes(self) -> list[bytes]:
        return self._blocks(self._task.changes())

    def part(self, low: int, high: int) -> list[bytes]:
        return self._blocks(self._task.part(low, high))

    def load(self, blocks: Sequence[bytes]) -> None:
        self._counts = _read_counts(blocks) or self._counts
        self._task.load(_blocks_of(_STATE, blocks))

    def _blocks(self, blocks: list[bytes]) -> list[bytes]:
        return _tagged(self._counts, blocks)


def rebalance_bolt(
    topology: Topology, config: Config, bolt: str, blocks: Sequence[Sequence[bytes]], tasks: int
) -> list[list[bytes]]:
    """Divides the blocks of a bolt among `tasks` tasks. The first one gets all counts."""
    total = TaskCounts()
    for task_blocks in blocks:
        total.add(_read_counts(task_blocks) or TaskCounts())
    states = rebalance(topology, config, bolt, [_blocks_of(_STATE, task_blocks) for task_blocks in blocks], tasks)
    return [_tagged(TaskCounts() if number else total, state) for number, state in enumerate(states)]


def clean_up_bolt(topology: Topology, config: Config, bolt: str, blocks: Sequence[Sequence[bytes]]) -> None:
    """Calls `cleanup` for each task of a bolt, on an instance made here with the state in the blocks."""
    for number, task_blocks in enumerate(blocks):
        task = BoltTask(topology, config, bolt, number)
        task.load(_blocks_of(_STATE, task_blocks))
        task.close()


def _blocks_of(kind: bytes, blocks: Sequence[bytes]) -> list[bytes]:
    return [block[1:] for block in blocks if block[:1] == kind]


def _read_counts(blocks: Sequence[bytes]) -> TaskCounts | None:
    counts = _blocks_of(_COUNTS, blocks)
    return TaskCounts(**json.loads(counts[-1])) if counts else None


def _tagged(counts: TaskCounts, state: Iterable[bytes]) -> list[bytes]:
    return [_COUNTS + json.dumps(asdict(counts)).encode(), *(_STATE + block for block in state)]


class EngineAckerTask:
    """An acker as a task of the model."""

    def __init__(self, timeout: int, number: int, of: int) -> None:
        self._acker = Acker(timeout)

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        verdicts = self._acker.step(batches, now)
        if verdicts.num_rows:
            yield VERDICTS, 0, verdicts

    def counts(self) -> Mapping[str, float]:
        return {"pending": self._acker.pending, "bytes": self._acker.nbytes, "orphans": self._acker.orphans}

    def changes(self) -> list[bytes]:
        return self._acker.changes()

    def part(self, low: int, high: int) -> list[bytes]:
        return self._acker.part(low, high)

    def load(self, blocks: Sequence[bytes]) -> None:
        self._acker.load(blocks)


def outcome_records(element: tuple[int, pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Converts verdicts to records of the topic of outcomes: one for each spout task.

    >>> from headrace.dialects.storm.task.acker import VERDICTS as SCHEMA
    >>> from headrace.dialects.storm.task.tupleids import root_ids
    >>> roots = root_ids(2, np.array([4, 5]))
    >>> list(outcome_records((0, pa.record_batch([pa.array(roots), [2, 2], [0, 1], [0, 0]], schema=SCHEMA))))
    [{'spout': 2, 'acked': [4], 'failed': [5], 'timed_out': []}]
    """
    _, verdicts = element
    spouts, places = sequence_of(verdicts.column("root").to_numpy())
    verdict = verdicts.column("verdict").to_numpy()
    for spout in np.unique(spouts).tolist():
        acked, failed, timed_out = (
            tuple(places[(spouts == spout) & (verdict == kind)].tolist()) for kind in (COMPLETE, FAILED, TIMED_OUT)
        )
        yield TreeOutcomes(spout, acked, failed, timed_out).record()


def read_texts(element: tuple[int, pa.RecordBatch]) -> list[Any]:
    """Decodes a batch of JSON texts."""
    return [json.loads(text) for text in element[1].column("text").to_pylist()]


def _texts(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array([json.dumps(row) for row in rows], pa.string())})
