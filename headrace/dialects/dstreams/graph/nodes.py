"""Nodes of a program: each makes an RDD for each of its batches, from RDDs of the nodes before it.

A node's RDD of a batch depends on the batch alone: on what the log says the inputs had, and on the state that is stored
for it. So it can be made again at any time, in this run or a later one. Times and durations are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from pyspark import RDD, StorageLevel

from headrace.dialects.dstreams.graph.inputs import Cut, Input, InputContext
from headrace.dialects.dstreams.worker.keyedblocks import (
    Combiner,
    Merge,
    blocked,
    combine,
    decoded,
    exchanged,
    gather,
)
from headrace.dialects.dstreams.worker.mappedstate import MapState, Snapshots
from headrace.dialects.dstreams.worker.statefiles import StateFiles, StateOperator
from headrace.dialects.dstreams.worker.windowstate import ReduceWindow


class Batches(InputContext, Protocol):
    """The run that a node is in, as far as it knows of it."""

    zero: int
    """The time before the first batch."""
    run: str
    """The name of this run: another one may have other functions."""

    def cut(self, number: int, time: int) -> Cut:
        """Returns what the log says an input had in a batch."""

    def slots(self, count: int) -> RDD[int]:
        """Returns an RDD of so many partitions, for tasks that read what is theirs by its number."""


class Node:
    """One step of a program. `slide` is the time from one of its batches to the next."""

    def __init__(self, parents: Iterable[Node], slide: int) -> None:
        self.parents, self.slide = tuple(parents), slide
        self.number = -1  # its place in the program, once that is complete
        self.level: StorageLevel | None = None
        self.horizon = slide
        """For how long RDDs of earlier batches are needed."""
        self._made: dict[int, RDD[Any] | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}  # RDDs belong to a process

    def get(self, batches: Batches, time: int) -> RDD[Any] | None:
        """Returns the RDD of a batch; None if this node has none at that time."""
        if time <= batches.zero or (time - batches.zero) % self.slide:
            return None
        if time not in self._made:
            rdd = self.make(batches, time)
            if rdd is not None and self.level is not None:
                rdd.persist(self.level)
            self._made[time] = rdd
        return self._made[time]

    def make(self, batches: Batches, time: int) -> RDD[Any] | None:
        raise NotImplementedError

    def horizon_of_parents(self) -> int:
        """Returns for how long this node needs RDDs of its parents."""
        return self.horizon

    def forget(self, batches: Batches, before: int) -> None:
        """Forgets RDDs up to a time that nobody needs any more."""
        for time in [time for time in list(self._made) if time <= before]:
            self._release(self._made.pop(time))

    def close(self) -> None:
        """Forgets all RDDs; what is stored stays."""
        while self._made:
            self._release(self._made.popitem()[1])

    def _release(self, rdd: RDD[Any] | None) -> None:
        if rdd is not None and self.level is not None:
            rdd.unpersist()


class InputNode(Node):
    """Reads an input."""

    def __init__(self, source: Input, number: int, slide: int) -> None:
        super().__init__((), slide)
        self.source, self.input_number = source, number

    def make(self, batches: Batches, time: int) -> RDD[Any]:
        return self.source.rdd(batches, batches.cut(self.input_number, time))


class TransformNode(Node):
    """Calls a function of the batch's time and the RDDs of all parents."""

    def __init__(self, parents: Iterable[Node], function: Callable[..., RDD[Any] | None], slide: int) -> None:
        super().__init__(parents, slide)
        self.function = function

    def make(self, batches: Batches, time: int) -> RDD[Any] | None:
        rdds = [parent.get(batches, time) for parent in self.parents]
        if any(rdd is None for rdd in rdds):
            return None
        return self.function(datetime.fromtimestamp(time / 1000), *rdds)


class WindowNode(Node):
    """The union of the last RDDs of its parent."""

    def __init__(self, parent: Node, width: int, slide: int) -> None:
        super().__init__((parent,), slide)
        self.width = width
        if parent.level is None and not (isinstance(parent, InputNode) and parent.source.lasting):
            parent.level = StorageLevel.MEMORY_ONLY

    def horizon_of_parents(self) -> int:
        return self.width + self.horizon

    def make(self, batches: Batches, time: int) -> RDD[Any]:
        found = [
            self.parents[0].get(batches, each) for each in times(self.parents[0], batches, time - self.width, time)
        ]
        rdds = [rdd for rdd in found if rdd is not None and rdd.getNumPartitions()]
        return batches.sc.union(rdds) if rdds else batches.sc.emptyRDD()


class StateNode(Node):
    """Has a state, of which every batch makes a version, in all partitions, whether or not anybody reads its RDD."""

    def __init__(self, parent: Node, operator: StateOperator, partitions: int, slide: int) -> None:
        super().__init__((parent,), slide)
        self.operator, self.partitions = operator, partitions
        self.initial: RDD[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "initial": None}  # it is in the first version

    def horizon_of_parents(self) -> int:
        return self.slide

    def make(self, batches: Batches, time: int) -> RDD[Any]:
        """Returns the elements of a version, by an RDD that makes the version, too, if that has not been done."""
        version = (time - batches.zero) // self.slide
        if not self._is_complete(batches, version):
            self.begin(batches)
            advancing = self._advancing(batches, version, time)
            if self.level is None:
                return advancing
            advancing.foreachPartition(lambda _: None)  # an RDD that is kept shall not depend on what the batch brought
        return read_rows(batches, self.folder(batches), self.operator, self.partitions, version)

    def complete(self, batches: Batches, time: int) -> None:
        """Makes the version of a batch in those partitions whose elements nobody has read."""
        rdd = self.get(batches, time)
        if rdd is None:
            return
        version = (time - batches.zero) // self.slide
        if not self._is_complete(batches, version):
            rdd.foreachPartition(lambda _: None)
        if self.level is None:  # who reads it later shall not depend on what the batch brought either
            self._made[time] = read_rows(batches, self.folder(batches), self.operator, self.partitions, version)

    def _is_complete(self, batches: Batches, version: int) -> bool:
        folder = self.folder(batches)
        return all((folder / str(number) / f"{version}.delta").exists() for number in range(self.partitions))

    def folder(self, batches: Batches) -> Path:
        return batches.folder / "state" / str(self.number)

    def forget(self, batches: Batches, before: int) -> None:
        super().forget(batches, before)
        version = (before - batches.zero) // self.slide
        if version > 0 and version % 16 == 0:
            for number in range(self.partitions):
                StateFiles(str(self.folder(batches) / str(number)), batches.run, self.operator).forget(version)

    def blocks(self, batches: Batches, time: int) -> RDD[Any] | None:
        """Returns the RDD of blocks that a batch brings; None if it brings nothing."""
        rdd = self.parents[0].get(batches, time)
        return None if rdd is None or not rdd.getNumPartitions() else blocked(rdd, self.partitions, gather)

    def begin(self, batches: Batches) -> None:
        """Writes the first version, once."""
        folder = self.folder(batches)
        if (folder / "begun").exists():
            return
        operator, run, path = self.operator, batches.run, str(folder)

        def begin(number: int, blocks: Iterable[Any]) -> Iterator[int]:
            first: dict[Any, Any] = {}
            for block in decoded(blocks):
                for key, values in block.pairs.items():
                    first.setdefault(key, values[0])
            StateFiles(f"{path}/{number}", run, operator).begin(first)
            return iter((1,))

        slots = batches.slots(self.partitions)
        if self.initial is None:
            slots.mapPartitionsWithIndex(lambda number, _: begin(number, ())).count()
        else:
            blocks = blocked(self.initial, self.partitions, gather)
            exchanged(blocks, self.partitions).mapPartitionsWithIndex(begin).count()
        (folder / "begun").touch()

    def _advancing(self, batches: Batches, version: int, time: int) -> RDD[Any]:
        operator, run, path = self.operator, batches.run, str(self.folder(batches))

        def advance(number: int, blocks: Iterable[Any]) -> Iterator[Any]:
            files = StateFiles(f"{path}/{number}", run, operator)
            files.advance(version, lambda: decoded(blocks), time)
            for (
                _
            ) in blocks:  # if the version was there: Spark ends a worker, and with it a copy, that leaves some unread
                pass
            return files.rows(version)

        blocks = self.blocks(batches, time)
        if blocks is None:
            return batches.slots(self.partitions).mapPartitionsWithIndex(lambda number, _: advance(number, ()))
        return exchanged(blocks, self.partitions).mapPartitionsWithIndex(advance)


class WindowStateNode(StateNode):
    """Reduces the values of a window by key; see ReduceWindow."""

    operator: ReduceWindow

    def __init__(self, parent: Node, operator: ReduceWindow, partitions: int) -> None:
        super().__init__(parent, operator, partitions, operator.slide)

    def blocks(self, batches: Batches, time: int) -> RDD[Any] | None:
        parent, reduce = self.parents[0], self.operator.reduce
        tagged = []
        for each in times(parent, batches, time - self.slide, time):
            rdd = parent.get(batches, each)
            if rdd is not None and rdd.getNumPartitions():
                tagged.append(blocked(rdd, self.partitions, _combining(reduce), each))
        return batches.sc.union(tagged) if len(tagged) > 1 else next(iter(tagged), None)


class SnapshotNode(Node):
    """All keys of a mapWithState with their states."""

    def __init__(self, mapped: StateNode) -> None:
        super().__init__((mapped,), mapped.slide)

    def make(self, batches: Batches, time: int) -> RDD[Any]:
        (mapped,) = self.parents
        assert isinstance(mapped, StateNode) and isinstance(mapped.operator, MapState)
        mapped.complete(batches, time)
        operator = Snapshots(mapped.operator.function, mapped.operator.timed, mapped.operator.timeout)
        version = (time - batches.zero) // self.slide
        return read_rows(batches, mapped.folder(batches), operator, mapped.partitions, version)


def _combining(reduce: Merge) -> Callable[[Iterable[Any]], Iterator[dict[Any, Any]]]:
    return lambda pairs: combine(pairs, Combiner(None, reduce, reduce))


def read_rows(batches: Batches, folder: Path, operator: StateOperator, partitions: int, version: int) -> RDD[Any]:
    """Returns the RDD of the elements of a version of a state."""
    run, path = batches.run, str(folder)

    def rows(number: int, _: Iterable[Any]) -> Iterator[Any]:
        return StateFiles(f"{path}/{number}", run, operator).rows(version)

    return batches.slots(partitions).mapPartitionsWithIndex(rows)


def times(node: Node, batches: Batches, after: int, until: int) -> range:
    """Returns the times of a node's batches after a time and up to another."""
    first = max(after, batches.zero)
    behind = (first - batches.zero) % node.slide
    return range(first - behind + node.slide, until + 1, node.slide)
