"""Tasks of a topology as the engine runs them: what spouts emitted is sent on, bolts work, ackers judge."""

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
from headrace.dialects.storm.task.bolttask import BoltTask, Counts, SpoutTask
from headrace.dialects.storm.task.loggedtuple import WAKE
from headrace.dialects.storm.task.rebalance import rebalanced
from headrace.dialects.storm.task.tuplecolumns import encode_column
from headrace.dialects.storm.task.tupleids import sequence_of
from headrace.model.dofn import DoFn, TaggedOutput
from headrace.model.tasks import TaskOutput

ACKER: Final = "__acker"
ERRORS: Final = "__errors"
WRITTEN: Final = "__written"
VERDICTS: Final = "__verdicts"
"""Tags of what tasks give besides tuples for bolts."""

FROM: Final = "from "
"""Before the component and the stream, in the name of a count of tuples that came from there."""

_COUNTS, _STATE = b"n", b"s"  # what blocks of a bolt's task are


def to_ackers(acks: pa.RecordBatch, ackers: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """What tasks tell of trees, by the acker that is told."""
    if not acks.num_rows:
        return
    if ackers == 1:
        yield 0, acks
        return
    acker = acker_of(acks.column("root").to_numpy(), ackers)
    for number in range(ackers):
        mine = np.flatnonzero(acker == number)
        if len(mine):
            yield number, acks.take(pa.array(mine))


class Sending(DoFn):
    """Sends what spouts emitted on its way, from the records of their topic."""

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
            by_stream.setdefault((record[0], record[2]), []).append(record)
        for (index, stream), records in by_stream.items():
            if stream != WAKE:
                yield from self._sent(index, stream, records)

    def _sent(self, index: int, stream: str, records: list[list[Any]]) -> Iterator[TaggedOutput]:
        _, sequence, _, values, messages, targets, _, _, turns = zip(*records, strict=True)
        names = self.topology.node(self.spout).streams[stream]
        columns = [encode_column(name, column) for name, column in zip(names, zip(*values, strict=True), strict=True)]
        rows = pa.record_batch([column for _, column in columns], schema=pa.schema([field for field, _ in columns]))
        outcome = self.tasks[index].run(
            stream,
            rows,
            np.array(sequence, np.int64),
            # It only sets what is sent here apart from what is sent at other times, which their places do.
            sequence[0],
            tracked=np.array([message is not None for message in messages]),
            tasks=None if targets[0] is None else np.array(targets, np.int64),
            turns=np.array(turns, np.int64),
        )
        for sent in outcome.sent:
            yield TaggedOutput(sent.target, (sent.task, sent.batch))
        for acker, acks in to_ackers(outcome.acks, self.ackers):
            yield TaggedOutput(ACKER, (acker, acks))
        if outcome.errors:
            yield TaggedOutput(ERRORS, (0, _texts(map(asdict, outcome.errors))))


class BoltOnEngine:
    """A task of a bolt. What it has counted in all its life is part of its state."""

    def __init__(self, topology: Topology, config: Config, bolt: str, ackers: int, number: int) -> None:
        self._task, self._ackers = BoltTask(topology, config, bolt, number), ackers
        self._counts, self._queued = Counts(), 0

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        outcome = self._task.run(batches, now)
        self._counts.add(outcome.counts)
        self._queued = outcome.counts.executed - outcome.counts.ticks
        for sent in outcome.sent:
            yield sent.target, sent.task, sent.batch
        for acker, acks in to_ackers(outcome.acks, self._ackers):
            yield ACKER, acker, acks
        if outcome.errors:
            yield ERRORS, 0, _texts(map(asdict, outcome.errors))
        if isinstance(self._task.bolt, ToTopic) and (rows := self._task.bolt.taken()):
            yield WRITTEN, 0, pa.record_batch({"text": pa.array(rows, pa.string())})

    def counts(self) -> Mapping[str, float]:
        told = asdict(self._counts)
        received = {f"{FROM}{stream}": count for stream, count in told.pop("received").items()}
        return {**told, **received, "queued": self._queued}

    def changes(self) -> list[bytes]:
        return self._blocks(self._task.changes())

    def part(self, low: int, high: int) -> list[bytes]:
        return self._blocks(self._task.part(low, high))

    def load(self, blocks: Sequence[bytes]) -> None:
        self._counts = _counted(blocks) or self._counts
        self._task.load(_of(_STATE, blocks))

    def _blocks(self, blocks: list[bytes]) -> list[bytes]:
        return [_COUNTS + json.dumps(asdict(self._counts)).encode(), *(_STATE + block for block in blocks)]


def rebalanced_bolt(
    topology: Topology, config: Config, bolt: str, blocks: Sequence[Sequence[bytes]], tasks: int
) -> list[list[bytes]]:
    """The blocks of a bolt's tasks, if there are to be so many. What they have counted is the first one's then."""
    total = Counts()
    for each in blocks:
        total.add(_counted(each) or Counts())
    moved = rebalanced(topology, config, bolt, [_of(_STATE, each) for each in blocks], tasks)
    return [
        [_COUNTS + json.dumps(asdict(Counts() if number else total)).encode(), *(_STATE + block for block in state)]
        for number, state in enumerate(moved)
    ]


def end_bolt(topology: Topology, config: Config, bolt: str, blocks: Sequence[Sequence[bytes]]) -> None:
    """Has each task of a bolt clean up: an instance of it here, with the state that the blocks say it had."""
    for number, each in enumerate(blocks):
        task = BoltTask(topology, config, bolt, number)
        task.load(_of(_STATE, each))
        task.close()


def _of(kind: bytes, blocks: Sequence[bytes]) -> list[bytes]:
    return [block[1:] for block in blocks if block[:1] == kind]


def _counted(blocks: Sequence[bytes]) -> Counts | None:
    counted = _of(_COUNTS, blocks)
    return Counts(**json.loads(counted[-1])) if counted else None


class AckerOnEngine:
    """One of the ackers."""

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


def outcomes(element: tuple[int, pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Verdicts as records of the topic of outcomes: one for each spout task, with the places of its tuples.

    >>> from headrace.dialects.storm.task.acker import VERDICTS as SCHEMA
    >>> from headrace.dialects.storm.task.tupleids import root_ids
    >>> roots = root_ids(2, np.array([4, 5]))
    >>> list(outcomes((0, pa.record_batch([pa.array(roots), [2, 2], [0, 1], [0, 0]], schema=SCHEMA))))
    [{'spout': 2, 'acked': [4], 'failed': [5], 'timed_out': []}]
    """
    _, verdicts = element
    spouts, places = sequence_of(verdicts.column("root").to_numpy())
    kind = verdicts.column("verdict").to_numpy()
    for spout in np.unique(spouts).tolist():
        names = {"acked": COMPLETE, "failed": FAILED, "timed_out": TIMED_OUT}
        told = {name: places[(spouts == spout) & (kind == each)].tolist() for name, each in names.items()}
        yield {"spout": spout, **told}


def read_texts(element: tuple[int, pa.RecordBatch]) -> list[Any]:
    """The objects of a batch of JSON texts."""
    return [json.loads(text) for text in element[1].column("text").to_pylist()]


def _texts(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array([json.dumps(row) for row in rows], pa.string())})
