"""Spout tasks: send the tuples that a spout emitted to the tasks that read them. Arrow in, Arrow out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.collectors import MAX_ERRORS
from headrace.dialects.storm.api.components import TopologyContext
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.failures import ErrorReport
from headrace.dialects.storm.api.topology import Topology
from headrace.dialects.storm.api.tuples import Ids
from headrace.dialects.storm.task.acker import FAIL, NO_ACKS, acks
from headrace.dialects.storm.task.choosers import Column
from headrace.dialects.storm.task.router import EmittedBatch, Router, xor_by_row
from headrace.dialects.storm.task.taskoutput import TaskCounts, TaskOutput
from headrace.dialects.storm.task.tuplecolumns import decode_column
from headrace.dialects.storm.task.tupleids import NO_ROOT, root_ids
from headrace.model.times import Int64Array


class SpoutTask:
    """Sends the tuples of a spout task, as its log has them, to the tasks that read them, and begins their trees.

    It has no state: trees and turns follow from the places of the tuples in the task's sequence.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Print(storm.Bolt):
    ...     pass
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words())
    >>> _ = builder.set_bolt("print", Print(), parallelism=2).shuffle_grouping("words")
    >>> task = SpoutTask(builder.create(), storm.Config(), "words", 0)
    >>> output = task.run("default", pa.record_batch({"word": ["a", "b", "c"]}), np.array([4, 5, 6]), now=0)
    >>> [(sent.target, sent.task, sent.batch.column("word").to_pylist()) for sent in output.batches]
    [('print', 0, ['a', 'c']), ('print', 1, ['b'])]
    >>> output.acks.num_rows
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
    ) -> TaskOutput:
        """Sends rows of a stream. The trees of rows that cannot be sent, because a grouping fails, fail at once.

        - rows: a column for each field, typed or as `encode_column` made it
        - sequence: the place of each row in the sequence of all that this task ever emitted
        - tracked: which rows were emitted with a message id; None means all
        - tasks: for a direct stream, the task of each row
        - turns: the place of each row among those of its stream; None means as in the sequence
        """
        self._router.begin(now)
        roots = root_ids(self._task, sequence) if self._acking else None
        if roots is not None and tracked is not None:
            roots = np.where(tracked, roots, NO_ROOT)
        turns = sequence if turns is None else turns
        emitted = EmittedBatch(
            stream, _columns(rows), rows.num_rows, roots, tasks=tasks, sequence=sequence, turns=turns
        )
        try:
            batches, copies = self._router.send(emitted)
        except Exception:
            errors = self._send_errors(stream, rows)
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
            return self._with_failures(rest, None if roots is None else roots[~good], errors, now)
        counts = TaskCounts(emitted=rows.num_rows, sent=sum(sent.batch.num_rows for sent in batches))
        if roots is None:
            return TaskOutput(batches, NO_ACKS, counts=counts)
        xors = xor_by_row(copies, rows.num_rows)
        begun = roots != NO_ROOT
        return TaskOutput(batches, acks(roots[begun], xors[begun], self._task), counts=counts)

    def _send_errors(self, stream: str, rows: pa.RecordBatch) -> list[Exception | None]:
        """Returns for each row the error that keeps it from being sent, or None."""
        tuples = zip(*[decode_column(*column) for column in _columns(rows)], strict=True)
        return [self._router.send_error(stream, values) for values in tuples]

    def _with_failures(
        self, rest: TaskOutput, roots: Ids | None, errors: list[Exception | None], now: int
    ) -> TaskOutput:
        reports = [ErrorReport.of(self._component, self._task, now, error) for error in errors if error is not None]
        rest.counts.errors += len(reports)
        rows = [rest.acks]
        if roots is not None:
            roots = roots[roots != NO_ROOT]
            zeros = np.zeros(len(roots), np.uint64)
            rows += [acks(roots, zeros, self._task), acks(roots, zeros, FAIL)]
        return TaskOutput(rest.batches, pa.concat_batches(rows), [*reports[:MAX_ERRORS], *rest.errors], rest.counts)


def _columns(rows: pa.RecordBatch) -> list[Column]:
    return list(zip(rows.schema, rows.columns, strict=True))
