"""Choosers: apply groupings to whole batches of tuples.

A chooser belongs to one task that emits and to one bolt that reads. Tasks are numbered by their place among the
bolt's tasks, from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.groupings import (
    All,
    ByFields,
    Custom,
    CustomGrouping,
    Global,
    Grouping,
    PartialKey,
    Shuffle,
)
from headrace.dialects.storm.task.tuplecolumns import decode_column, hash_columns
from headrace.engine.columns.hashing import Hashes, mixed
from headrace.model.times import Int64Array

Column: TypeAlias = tuple[pa.Field, pa.Array]


@dataclass(frozen=True)
class TaskChoice:
    """The copies of tuples to send: for each copy, the row of the tuple and the task that gets it.

    `rows` is None if each tuple goes to one task.
    """

    rows: Int64Array | None
    tasks: Int64Array


class Chooser(Protocol):
    """Chooses tasks for batches of tuples. All that it remembers between batches is in `memory`."""

    memory: list[int]

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> TaskChoice:
        """Chooses the tasks of `count` tuples.

        `turns` are the places of the tuples in their stream, if the source knows them. Then the choice depends on the
        turns and the tuples alone, and nothing is remembered.
        """


@singledispatch
def make_chooser(grouping: Grouping, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    """Makes the chooser of a grouping, for a stream with these fields, which `tasks` tasks of a bolt read.

    `source` is the number of the task that emits, among the tasks of its component.

    >>> from headrace.dialects.storm.task.tuplecolumns import encode_column
    >>> make_chooser(Shuffle(), (), 3, source=0).choose([], 5, None).tasks.tolist()
    [0, 1, 2, 0, 1]
    >>> words = encode_column("word", ["nathan", "bob", "nathan"])
    >>> make_chooser(ByFields(("word",)), ("word",), 12, source=0).choose([words], 3, None).tasks.tolist()
    [7, 3, 7]
    >>> choice = make_chooser(All(), (), 2, source=0).choose([], 2, None)
    >>> choice.rows.tolist(), choice.tasks.tolist()
    ([0, 1, 0, 1], [0, 0, 1, 1])
    """
    raise TypeError(f"there is no chooser for the grouping {grouping!r}; write a CustomGrouping")


@make_chooser.register
def _(grouping: Shuffle, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    return _RoundRobin(tasks, source)


@make_chooser.register
def _(grouping: ByFields, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    return _ByHash(_places(grouping.fields, fields), tasks)


@make_chooser.register
def _(grouping: PartialKey, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    return _TwoChoices(_places(grouping.fields, fields), tasks)


@make_chooser.register
def _(grouping: All, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    return _Broadcast(tasks)


@make_chooser.register
def _(grouping: Global, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    return _ByHash([], 1)


@make_chooser.register
def _(grouping: Custom, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
    return _ByUserCode(grouping.grouping, tasks)


def fields_tasks(hashes: Hashes, tasks: int) -> Int64Array:
    """Returns the tasks to which `ByFields` sends tuples with these hashes.

    >>> fields_tasks(np.array([0, 2**63, 2**64 - 1], np.uint64), 4).tolist()
    [0, 0, 3]
    """
    return ((hashes >> _HALF).astype(np.int64)) % tasks


_HALF: Final = np.uint64(32)
_SECOND: Final = np.array([1], np.int64)  # mixed into a hash, it makes a second, independent hash


def _places(names: tuple[str, ...], fields: tuple[str, ...]) -> list[int]:
    return [fields.index(name) for name in names]


class _RoundRobin:
    """Gives each task its turn."""

    def __init__(self, tasks: int, source: int) -> None:
        self._tasks, self._source = tasks, source
        self.memory = [0]

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> TaskChoice:
        if turns is None:
            turns = np.arange(self.memory[0], self.memory[0] + count)
            self.memory = [(self.memory[0] + count) % self._tasks]
        # Sources begin with different tasks, so that a few tuples of each are spread as well.
        return TaskChoice(None, (turns + self._source) % self._tasks)


class _ByHash:
    """Chooses by the hash of some columns."""

    def __init__(self, places: list[int], tasks: int) -> None:
        self._places, self._tasks = places, tasks
        self.memory: list[int] = []

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> TaskChoice:
        if self._tasks == 1:
            return TaskChoice(None, np.zeros(count, np.int64))
        return TaskChoice(None, fields_tasks(hash_columns([columns[place] for place in self._places]), self._tasks))


class _TwoChoices:
    """Chooses the less loaded one of two tasks for each key. Remembers how many tuples each task was sent."""

    def __init__(self, places: list[int], tasks: int) -> None:
        self._places, self._tasks = places, tasks
        self.memory = [0] * tasks

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> TaskChoice:
        hashes = hash_columns([columns[place] for place in self._places])
        firsts = fields_tasks(hashes, self._tasks).tolist()
        seconds = fields_tasks(mixed(hashes, np.broadcast_to(_SECOND, len(hashes))), self._tasks).tolist()
        known = turns is None and len(self.memory) == self._tasks  # false after a change of the number of tasks
        loads = list(self.memory) if known else [0] * self._tasks
        # Turns decide between equals: batches may be so small that loads never differ.
        odd = [0] * count if turns is None else (turns % 2).tolist()
        tasks = np.empty(count, np.int64)
        for row, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
            task = first if loads[first] + odd[row] <= loads[second] else second
            loads[task] += 1
            tasks[row] = task
        if turns is None:
            least = min(loads, default=0)
            self.memory = [load - least for load in loads]  # only differences matter, and they stay small
        return TaskChoice(None, tasks)


class _Broadcast:
    """Sends a copy to every task."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self.memory: list[int] = []

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> TaskChoice:
        rows, tasks = np.arange(count), np.arange(self._tasks)
        return TaskChoice(np.tile(rows, self._tasks), np.repeat(tasks, count))


class _ByUserCode:
    """Calls a user's grouping for each tuple."""

    def __init__(self, grouping: CustomGrouping, tasks: int) -> None:
        self._grouping, self._tasks = grouping, tasks
        self.memory: list[int] = []

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> TaskChoice:
        rows: list[int] = []
        tasks: list[int] = []
        for row, values in enumerate(zip(*[decode_column(*column) for column in columns], strict=True)):
            chosen = list(self._grouping.choose(values, self._tasks))
            if wrong := [task for task in chosen if task not in range(self._tasks)]:
                raise ValueError(
                    f"{type(self._grouping).__name__}.choose returned {wrong[0]!r} for {values!r}; tasks are numbered "
                    f"from 0 to {self._tasks - 1}"
                )
            rows += [row] * len(chosen)
            tasks += chosen
        return TaskChoice(np.array(rows, np.int64), np.array(tasks, np.int64))
