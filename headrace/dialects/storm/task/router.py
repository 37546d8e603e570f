"""The router: splits the tuples that a task emitted into record batches for the tasks that read them.

A batch between tasks has the fields of its stream and, where trees are tracked, the columns ROOT and, if some tuples
belong to several trees, MORE. The metadata of its schema has its origin and the ids of its tuples (`Header`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.dialects.storm.api.components import TopologyContext
from headrace.dialects.storm.api.groupings import Custom, Direct, Grouping
from headrace.dialects.storm.api.topology import Node
from headrace.dialects.storm.api.tuples import Ids
from headrace.dialects.storm.task.choosers import Chooser, Column, TaskChoice, make_chooser
from headrace.dialects.storm.task.tuplecolumns import encode_column
from headrace.dialects.storm.task.tupleids import seed_of, tuple_ids
from headrace.model.times import Int64Array

ROOT: Final = "__root"
MORE: Final = "__more"

_HEADER: Final = b"headrace.storm"


@dataclass(frozen=True, order=True)
class Header:
    """The origin of a batch of tuples. A task processes batches in the order of their headers.

    `number` orders the batches of one task in one micro-batch. That of a spout's batch is the place of its first tuple
    in the sequence, however many parts it is read in. `ids`, if trees are tracked, is the seed of the tuple ids and the
    place of the first.
    """

    source: str
    task: int
    number: int
    stream: str
    ids: tuple[int, int] | None = field(default=None, compare=False)

    @staticmethod
    def of(batch: pa.RecordBatch) -> Header:
        """Reads the header of a batch.

        >>> header = Header("words", 1, 0, "default")
        >>> batch = pa.record_batch({"word": ["a"]}).replace_schema_metadata(header.metadata())
        >>> Header.of(batch)
        Header(source='words', task=1, number=0, stream='default', ids=None)
        """
        source, task, number, stream, ids = json.loads(batch.schema.metadata[_HEADER])
        return Header(source, task, number, stream, None if ids is None else (ids[0], ids[1]))

    def metadata(self) -> dict[bytes, bytes]:
        """Returns the header as metadata of a schema."""
        return {_HEADER: json.dumps(astuple(self)).encode()}


@dataclass(frozen=True)
class TaskBatch:
    """A batch of tuples for one task: the component's id, the task's place in it, and rows with a header."""

    target: str
    task: int
    batch: pa.RecordBatch


@dataclass(frozen=True)
class TupleCopies:
    """The copies of tuples that were sent: for each, the row of the emitted tuple and the id of the copy.

    `rows` is None if there is one copy of each tuple.
    """

    rows: Int64Array | None
    ids: Ids


def xor_by_row(copies: Sequence[TupleCopies], count: int) -> Ids:
    """Computes the XOR of the ids of each tuple's copies, for `count` tuples.

    >>> ids = np.array([5, 6, 7], np.uint64)
    >>> xor_by_row([TupleCopies(None, ids), TupleCopies(np.array([0, 0, 1]), ids)], 3).tolist() == [5 ^ 5 ^ 6, 6 ^ 7, 7]
    True
    """
    xors = np.zeros(count, np.uint64)
    for part in copies:
        if part.rows is None:
            xors ^= part.ids
        else:
            np.bitwise_xor.at(xors, part.rows, part.ids)
    return xors


@dataclass(frozen=True)
class EmittedBatch:
    """Tuples that a task emitted to a stream: columns, roots (None if not tracked) and further roots of some rows.

    `tasks`: for a direct stream, the task of each tuple. `sequence`: for a spout, the place of each tuple in the task's
    sequence; `turns`: its place among the tuples of the stream.
    """

    stream: str
    columns: Sequence[Column]
    count: int
    roots: Ids | None = None
    more: dict[int, tuple[int, ...]] | None = None
    tasks: Int64Array | None = None
    sequence: Int64Array | None = None
    turns: Int64Array | None = None


class Router:
    """Sends the tuples of one task. `memory` has what groupings remember: whose turn it is, and how loads differ."""

    def __init__(self, context: TopologyContext) -> None:
        self._topology, self._component = context.topology, context.component
        self._task = context.task
        self._readers: dict[str, list[tuple[Node, Chooser | None]]] = {
            stream: [
                (node, self._chooser(grouping, stream, node, context))
                for node, grouping in self._topology.readers(self._component, stream)
            ]
            for stream in self._topology.node(self._component).streams
        }
        self.begin(0)

    def _chooser(self, grouping: Grouping, stream: str, node: Node, context: TopologyContext) -> Chooser | None:
        if isinstance(grouping, Direct):
            return None
        if isinstance(grouping, Custom):
            grouping = grouping.prepared(context, stream, node.tasks)
        return make_chooser(grouping, context.fields(context.component, stream), node.tasks, context.index)

    def begin(self, now: int) -> None:
        """Begins the micro-batch of this time."""
        self._seed, self._next, self._number = seed_of(self._task, now), 0, 0

    @property
    def memory(self) -> dict[str, list[int]]:
        """State of groupings, by stream and reader."""
        choosers = self._choosers()
        return {name: list(chooser.memory) for name, chooser in choosers.items() if chooser.memory}

    @memory.setter
    def memory(self, memory: dict[str, list[int]]) -> None:
        choosers = self._choosers()
        for name, numbers in memory.items():
            if name in choosers:
                choosers[name].memory = list(numbers)

    def has_readers(self, stream: str) -> bool:
        """Tells whether a bolt reads a stream."""
        return bool(self._readers[stream])

    def send(self, emitted: EmittedBatch) -> tuple[list[TaskBatch], list[TupleCopies]]:
        """Makes the batches for all tasks that read the stream; returns them and, if tracked, the copies they have."""
        batches: list[TaskBatch] = []
        copies: list[TupleCopies] = []
        rows = _record_batch(emitted)
        for node, chooser in self._readers[emitted.stream]:
            choice = _sort_by_task(self._choose(node, chooser, emitted), node.tasks)
            batches += self._split(node, choice, emitted, rows)
            if emitted.roots is not None:
                copies.append(TupleCopies(choice.rows, tuple_ids(self._seed, self._next, len(choice.tasks))))
                self._next += len(choice.tasks)
        return batches, copies

    def send_error(self, stream: str, values: Sequence[Any]) -> Exception | None:
        """Returns the error that keeps a tuple from being sent: a value has no pickle, or a grouping fails."""
        fields = self._topology.node(self._component).streams[stream]
        try:
            columns = [encode_column(name, [value]) for name, value in zip(fields, values, strict=True)]
            for _, chooser in self._readers[stream]:
                if chooser is not None:
                    memory = list(chooser.memory)
                    chooser.choose(columns, 1, None)
                    chooser.memory = memory
        except Exception as error:
            return error
        return None

    def _choose(self, node: Node, chooser: Chooser | None, emitted: EmittedBatch) -> TaskChoice:
        if chooser is not None:
            return chooser.choose(emitted.columns, emitted.count, emitted.turns)
        assert emitted.tasks is not None
        tasks = self._topology.tasks_of(node.id)
        rows = np.flatnonzero((emitted.tasks >= tasks.start) & (emitted.tasks < tasks.stop))
        return TaskChoice(rows, emitted.tasks[rows] - tasks.start)

    def _split(self, node: Node, choice: TaskChoice, emitted: EmittedBatch, rows: pa.RecordBatch) -> list[TaskBatch]:
        bounds = np.searchsorted(choice.tasks, np.arange(node.tasks + 1)).tolist()
        rows = rows if choice.rows is None else rows.take(pa.array(choice.rows))
        batches = []
        for task, (start, stop) in enumerate(pairwise(bounds)):
            if start < stop:
                number = self._number if emitted.sequence is None else int(emitted.sequence[0])
                ids = None if emitted.roots is None else (self._seed, self._next + start)
                header = Header(self._component, self._task, number, emitted.stream, ids)
                self._number += 1
                batch = _encode_root_runs(rows.slice(start, stop - start))
                batches.append(TaskBatch(node.id, task, batch.replace_schema_metadata(header.metadata())))
        return batches

    def _choosers(self) -> dict[str, Chooser]:
        return {
            f"{stream}/{node.id}": chooser
            for stream, readers in self._readers.items()
            for node, chooser in readers
            if chooser is not None
        }


def _sort_by_task(choice: TaskChoice, tasks: int) -> TaskChoice:
    """Sorts copies by task."""
    if tasks == 1 or len(choice.tasks) < 2:
        return choice
    order = np.argsort(choice.tasks.astype(np.int16) if tasks < 2**15 else choice.tasks, kind="stable")  # by radix
    return TaskChoice(order if choice.rows is None else choice.rows[order], choice.tasks[order])


def _encode_root_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Encodes the roots as runs, if that is shorter: tuples made from one tuple were emitted together."""
    if ROOT not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index(ROOT)
    runs = pc.run_end_encode(batch.column(at))
    return batch.set_column(at, ROOT, runs) if 2 * len(runs.values) < batch.num_rows else batch


def roots_of(batch: pa.RecordBatch) -> Ids:
    """Returns the first root of each tuple of a batch."""
    column = batch.column(ROOT)
    column = pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column
    roots: Ids = column.to_numpy()
    return roots


def _record_batch(emitted: EmittedBatch) -> pa.RecordBatch:
    fields, columns = [field for field, _ in emitted.columns], [column for _, column in emitted.columns]
    if emitted.roots is not None:
        fields.append(pa.field(ROOT, pa.uint64()))
        columns.append(pa.array(emitted.roots))
        if emitted.more:
            fields.append(pa.field(MORE, pa.list_(pa.uint64())))
            columns.append(pa.array([emitted.more.get(row) for row in range(emitted.count)], fields[-1].type))
    return pa.record_batch(columns, schema=pa.schema(fields))
