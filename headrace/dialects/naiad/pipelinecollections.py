"""From a pipeline to collections that change, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.incremental.changeprogram import inputs_of
from headrace.engine.incremental.programtask import EpochProgramTask, ProgramTask, compute_epochs, compute_once
from headrace.engine.incremental.shardedtask import ShardedProgramTask
from headrace.engine.incremental.shardplaces import brought_home, by_shard
from headrace.model.dofn import DoFn, TimestampedValue
from headrace.model.elementwise import FlatMap, ParDo
from headrace.model.errors import PipelineError
from headrace.model.incremental.changingcollections import Change, Collection
from headrace.model.keyed import Flatten, GroupByKey
from headrace.model.pipeline import PCollection
from headrace.model.tasks import Task, Tasks, checked_shards
from headrace.model.timely.epochs import TIME, Epochs, checked_epochs, epoch_of


def collection(elements: PCollection) -> Collection:
    """Makes a collection that changes of a pipeline's: an element is one more of it, a `Change` says how many.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     words = hr.collection(p | hr.Create(["a", "b", "a", hr.Change("b", -1)]))
    ...     counts = hr.changes(words.map(lambda word: (word, None)).count()) | hr.Collect()
    >>> list(counts)
    [Change(element=('a', 2), diff=1)]
    """
    if not isinstance(elements, PCollection):
        raise PipelineError(f"collection takes a collection of a pipeline, got {elements!r}")
    return Collection.input(elements.label, elements)


def changes(result: Collection, label: str = "changes", *, epochs: Epochs = "batch", shards: int = 1) -> PCollection:
    """Gives the changes of a collection to the pipeline, as elements `Change(element, diff)`.

    In a stream every micro-batch is an epoch: its changes together lead from the answer before it to the one after
    it, each of which is what a computation from scratch gives. Where all inputs are bounded, all of them are one epoch,
    also in a stream. The program runs in one shard, which has its state; the state is found by the label.

    With several `shards`, a stream divides each collection among them by key, a pair's first or else the element, and
    they exchange what has to meet from one micro-batch to the next: a round of a loop is a micro-batch, or as many as
    its body has exchanges. The changes of an epoch still come out in one micro-batch.

    With epochs="time", the epoch of an element is its event time, in whole seconds, and the watermark closes epochs:
    each is computed when it is closed, and its changes have its time. An element of an epoch that is closed is late: it
    is left out, and counted.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> script = hr.TestStream().add([("a", "b"), ("b", "c")]).add([("x", "y")]).add([hr.Change(("a", "b"), -1)])
    >>> edges = hr.collection(p | script.finish())
    >>> roots = hr.collection(p | hr.Create([("a", "a")]))
    >>> def one_step_more(reached):
    ...     return reached.join(edges, lambda at, root, to: (to, root)).concat(roots).distinct()
    >>> out = hr.changes(hr.iterate(roots, one_step_more)) | hr.Collect()
    >>> status = p.run(stream=True).wait()
    >>> sorted(change for change in out if change.diff > 0)
    [Change(element=('a', 'a'), diff=1), Change(element=('b', 'a'), diff=1), Change(element=('c', 'a'), diff=1)]
    >>> sorted(change for change in out if change.diff < 0)
    [Change(element=('b', 'a'), diff=-1), Change(element=('c', 'a'), diff=-1)]
    """
    inputs = inputs_of(result)
    if not inputs or any(each.origin is None for each in inputs):
        raise PipelineError("changes takes a collection that is made of hr.collection(...) of a pipeline")
    timed, bounded = checked_epochs(epochs) == TIME, all(each.origin.bounded for each in inputs)
    shards = 1 if checked_shards(shards) == 1 or bounded else shards
    sender = _TimedSender if timed else _Sender
    sent = tuple(
        each.origin | f"{label}/send {number}" >> ParDo(sender(each.name, shards)) for number, each in enumerate(inputs)
    )
    program = _MakeProgram(result if shards == 1 else brought_home(result), epochs)
    if bounded:
        together = sent | f"{label}/together" >> Flatten() | f"{label}/at one place" >> GroupByKey()
        return together | f"{label}/compute" >> FlatMap(program.compute)  # type: ignore[no-any-return]
    note = "a program, all in one shard" if shards == 1 else "a program, a round a micro-batch"
    made = sent | label >> Tasks(program, tasks=shards, note=note, rounds=shards > 1)
    return made | f"{label}/read" >> FlatMap(program.read)  # type: ignore[no-any-return]


class _Sender(DoFn):
    """Packs a bundle's changes of one input for the shards that have the program."""

    def __init__(self, name: str, shards: int) -> None:
        self.name, self.shards = name, shards

    def start_bundle(self) -> None:
        self.changes: list[tuple[Any, ...]] = []

    def process(self, element: Any, *args: Any, **kwargs: Any) -> None:
        self.changes.append(_change(element))

    def finish_bundle(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for shard, changes in by_shard(self.changes, self.shards).items():
            yield shard, pack_list(self.name, changes)


class _TimedSender(_Sender):
    """Packs changes with their epochs."""

    def process(self, element: Any, timestamp: Any = DoFn.TimestampParam) -> None:
        self.changes.append((*_change(element), epoch_of(timestamp)))


def _change(element: Any) -> tuple[Any, int]:
    return tuple(element) if type(element) is Change else (element, 1)


@dataclass(frozen=True)
class _MakeProgram:
    """Makes the task of a program, computes it at once in a batch, and reads its changes."""

    result: Collection
    epochs: Epochs
    __name__ = "program"

    @property
    def timed(self) -> bool:
        return self.epochs == TIME

    def __call__(self, number: int, of: int) -> Task:
        if of > 1:
            return ShardedProgramTask(self.result, number, of, self.epochs)
        return EpochProgramTask(self.result) if self.timed else ProgramTask(self.result)

    def compute(self, group: tuple[int, Any]) -> Iterator[Any]:
        packed = (changes for batch in group[1] for changes in unpack_lists(batch))
        if self.timed:
            return (TimestampedValue(change, epoch) for epoch, change in compute_epochs(self.result, packed))
        return compute_once(self.result, packed)

    def read(self, output: tuple[int, pa.RecordBatch]) -> Iterator[Any]:
        for epoch, listed in unpack_lists(output[1]):
            changes = (Change(*change) for change in listed)
            yield from (TimestampedValue(change, int(epoch)) for change in changes) if self.timed else changes
