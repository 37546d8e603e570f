"""From what a task emitted to record batches for the tasks that get it, by groupings.

A batch on its way has the fields of its stream, and where trees are tracked the columns ROOT and, if some tuples belong
to several trees, MORE. Its schema says where it came from, and how its tuples are numbered (`Header`).
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
from headrace.dialects.storm.api.groupings import Chooser, Chosen, Column, Custom, Direct, Grouping
from headrace.dialects.storm.api.topology import Node
from headrace.dialects.storm.task.tuplecolumns import encode_column
from headrace.dialects.storm.task.tupleids import Ids, seed_of, tuple_ids
from headrace.model.times import Int64Array

ROOT: Final = "__root"
MORE: Final = "__more"

_HEADER: Final = b"headrace.storm"


@dataclass(frozen=True, order=True)
class Header:
    """Where a batch of tuples came from; the order of headers is the order in which a task takes batches.

    `number`: batches of one task in one micro-batch are numbered; those of a spout by the place of their first tuple in
    its sequence, however many parts it is read in. `ids`: the seed of its tuples' numbers and the place of the first,
    if trees are tracked.
    """

    source: str
    task: int
    number: int
    stream: str
    ids: tuple[int, int] | None = field(default=None, compare=False)

    @staticmethod
    def of(batch: pa.RecordBatch) -> Header:
        """Of a batch on its way.

        >>> header = Header("words", 1, 0, "default")
        >>> batch = pa.record_batch({"word": ["a"]}).replace_schema_metadata(header.metadata())
        >>> Header.of(batch)
        Header(source='words', task=1, number=0, stream='default', ids=None)
        """
        source, task, number, stream, ids = json.loads(batch.schema.metadata[_HEADER])
        return Header(source, task, number, stream, None if ids is None else (ids[0], ids[1]))

    def metadata(self) -> dict[bytes, bytes]:
        """For a schema."""
        return {_HEADER: json.dumps(astuple(self)).encode()}


@dataclass(frozen=True)
class Sent:
    """Tuples for a task: the id of its component, its place there, and a record batch with a header."""

    target: str
    task: int
    batch: pa.RecordBatch


@dataclass(frozen=True)
class Copies:
    """Copies of tuples that were sent: the row of each among the tuples emitted (None: one of each), and its number."""

    rows: Int64Array | None
    ids: Ids


def xor_by_row(copies: Sequence[Copies], count: int) -> Ids:
    """For each of so many tuples the XOR of the numbers of its copies.

    >>> ids = np.array([5, 6, 7], np.uint64)
    >>> xor_by_row([Copies(None, ids), Copies(np.array([0, 0, 1]), ids)], 3).tolist() == [5 ^ 5 ^ 6, 6 ^ 7, 7]
    True
    """
    xors = np.zeros(count, np.uint64)
    for each in copies:
        if each.rows is None:
            xors ^= each.ids
        else:
            np.bitwise_xor.at(xors, each.rows, each.ids)
    return xors


@dataclass(frozen=True)
class Emission:
    """Tuples emitted to a stream: columns, roots (None if nothing is tracked), further roots of some rows.

    `tasks`: of a direct stream, the task of each. `sequence`: places in a sequence of the source's, if they have such,
    and `turns` those among the tuples of the stream.
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
    """Sends what one task emits. Groupings that take turns or balance remember how far they are in `memory`."""

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
        return grouping.chooser(context.fields(context.component, stream), node.tasks, context.index)

    def begin(self, now: int) -> None:
        """Begins the batch of this time."""
        self._seed, self._next, self._number = seed_of(self._task, now), 0, 0

    @property
    def memory(self) -> dict[str, list[int]]:
        """What is to be remembered, by stream and reader."""
        choosers = self._choosers()
        return {name: list(chooser.memory) for name, chooser in choosers.items() if chooser.memory}

    @memory.setter
    def memory(self, memory: dict[str, list[int]]) -> None:
        choosers = self._choosers()
        for name, numbers in memory.items():
            if name in choosers:
                choosers[name].memory = list(numbers)

    def reads(self, stream: str) -> bool:
        """Whether anybody reads a stream."""
        return bool(self._readers[stream])

    def send(self, emission: Emission) -> tuple[list[Sent], list[Copies]]:
        """Batches for all who read the stream, and, if tracked, which copies of which tuples they have."""
        sent: list[Sent] = []
        copies: list[Copies] = []
        batch = _batch(emission)
        for node, chooser in self._readers[emission.stream]:
            chosen = _by_task(self._chosen(node, chooser, emission), node.tasks)
            sent += self._split(node, chosen, emission, batch)
            if emission.roots is not None:
                copies.append(Copies(chosen.rows, tuple_ids(self._seed, self._next, len(chosen.tasks))))
                self._next += len(chosen.tasks)
        return sent, copies

    def refusal(self, stream: str, values: Sequence[Any]) -> Exception | None:
        """What is wrong with the values of a tuple if it cannot be sent: they have no pickle, or a grouping fails."""
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

    def _chosen(self, node: Node, chooser: Chooser | None, emission: Emission) -> Chosen:
        if chooser is not None:
            return chooser.choose(emission.columns, emission.count, emission.turns)
        assert emission.tasks is not None
        tasks = self._topology.tasks_of(node.id)
        mine = np.flatnonzero((emission.tasks >= tasks.start) & (emission.tasks < tasks.stop))
        return Chosen(mine, emission.tasks[mine] - tasks.start)

    def _split(self, node: Node, chosen: Chosen, emission: Emission, batch: pa.RecordBatch) -> list[Sent]:
        edges = np.searchsorted(chosen.tasks, np.arange(node.tasks + 1)).tolist()
        batch = batch if chosen.rows is None else batch.take(pa.array(chosen.rows))
        sent = []
        for task, (start, stop) in enumerate(pairwise(edges)):
            if start < stop:
                number = self._number if emission.sequence is None else int(emission.sequence[0])
                ids = None if emission.roots is None else (self._seed, self._next + start)
                header = Header(self._component, self._task, number, emission.stream, ids)
                self._number += 1
                mine = _with_runs(batch.slice(start, stop - start))
                sent.append(Sent(node.id, task, mine.replace_schema_metadata(header.metadata())))
        return sent

    def _choosers(self) -> dict[str, Chooser]:
        return {
            f"{stream}/{node.id}": chooser
            for stream, readers in self._readers.items()
            for node, chooser in readers
            if chooser is not None
        }


def _by_task(chosen: Chosen, tasks: int) -> Chosen:
    """The same, those for one task after those for another."""
    if tasks == 1 or len(chosen.tasks) < 2:
        return chosen
    order = np.argsort(chosen.tasks.astype(np.int16) if tasks < 2**15 else chosen.tasks, kind="stable")  # by radix
    return Chosen(order if chosen.rows is None else chosen.rows[order], chosen.tasks[order])


def _with_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With its roots as runs, if that is shorter: what was made of one tuple was emitted together."""
    if ROOT not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index(ROOT)
    runs = pc.run_end_encode(batch.column(at))
    return batch.set_column(at, ROOT, runs) if 2 * len(runs.values) < batch.num_rows else batch


def roots_of(batch: pa.RecordBatch) -> Ids:
    """The first root of each tuple of a batch on its way."""
    roots = batch.column(ROOT)
    roots = pc.run_end_decode(roots) if pa.types.is_run_end_encoded(roots.type) else roots
    found: Ids = roots.to_numpy()
    return found


def _batch(emission: Emission) -> pa.RecordBatch:
    fields, columns = [field for field, _ in emission.columns], [column for _, column in emission.columns]
    if emission.roots is not None:
        fields.append(pa.field(ROOT, pa.uint64()))
        columns.append(pa.array(emission.roots))
        if emission.more:
            fields.append(pa.field(MORE, pa.list_(pa.uint64())))
            columns.append(pa.array([emission.more.get(row) for row in range(emission.count)], fields[-1].type))
    return pa.record_batch(columns, schema=pa.schema(fields))
