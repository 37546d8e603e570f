"""Groupings: which tasks of a bolt get a tuple. Declarations, and for each the chooser that works on a whole batch.

Tasks are meant by their places among the bolt's tasks, from 0.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.task.tuplecolumns import decode_column, hash_columns
from headrace.engine.columns.hashing import Hashes, mixed
from headrace.model.times import Int64Array

if TYPE_CHECKING:
    from headrace.dialects.storm.api.components import TopologyContext

Column: TypeAlias = tuple[pa.Field, pa.Array]


@dataclass(frozen=True)
class Chosen:
    """Copies of tuples: for each, the tuple's row and the task; `rows` is None if each tuple goes to one task."""

    rows: Int64Array | None
    tasks: Int64Array


class Chooser(Protocol):
    """Chooses tasks for batches of tuples, for one task that emits them. What it remembers is numbers."""

    memory: list[int]

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> Chosen:
        """The tasks of so many tuples; `turns`: their places among those of the stream, if the source knows them.

        With turns the choice follows from them and the tuples alone: nothing is remembered.
        """


class Grouping(Protocol):
    """Which tasks get a tuple."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it depends on."""

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        """For a stream with these fields, towards so many tasks, as the source's task of this place sends them."""


@dataclass(frozen=True)
class Shuffle:
    """In turns: no two tasks differ by more than one tuple.

    >>> Shuffle().chooser((), 3, source=0).choose([], 5, None).tasks.tolist()
    [0, 1, 2, 0, 1]
    """

    fields: tuple[str, ...] = ()

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        return _Turns(tasks, source)


@dataclass(frozen=True)
class LocalOrShuffle(Shuffle):
    """As `Shuffle`: where a task of the next bolt runs is for Spark to say, so none is nearer than others."""


@dataclass(frozen=True)
class NoGrouping(Shuffle):
    """The choice does not matter: as `Shuffle`."""


@dataclass(frozen=True)
class ByFields:
    """By the values of some fields: tuples with equal values go to the same task, in every run.

    >>> from headrace.dialects.storm.task.tuplecolumns import encode_column
    >>> words = encode_column("word", ["nathan", "bob", "nathan"])
    >>> ByFields(("word",)).chooser(("word",), 12, source=0).choose([words], 3, None).tasks.tolist()
    [7, 3, 7]
    """

    fields: tuple[str, ...]

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        return _Hashed(_places(self.fields, fields), tasks)


@dataclass(frozen=True)
class PartialKey(ByFields):
    """By the values of some fields, but with two tasks for each: the one that was sent less gets the tuple."""

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        return _TwoChoices(_places(self.fields, fields), tasks)


@dataclass(frozen=True)
class All:
    """Every task gets every tuple.

    >>> chosen = All().chooser((), 2, source=0).choose([], 2, None)
    >>> chosen.rows.tolist(), chosen.tasks.tolist()
    ([0, 1, 0, 1], [0, 0, 1, 1])
    """

    fields: tuple[str, ...] = ()

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        return _Everyone(tasks)


@dataclass(frozen=True)
class Global:
    """The first task gets every tuple."""

    fields: tuple[str, ...] = ()

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        return _Hashed([], 1)


@dataclass(frozen=True)
class Direct:
    """Who emits a tuple names its task, by `emit_direct`."""

    fields: tuple[str, ...] = ()

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        raise TypeError("tuples of a direct stream carry their task; nothing is left to be chosen")


class CustomGrouping:
    """A grouping of one's own: overrides `choose`, which gives the places of the tasks that get a tuple.

    Each task that emits has a copy of it, and `prepare` is called there first. The choice may depend on nothing but the
    values and what `prepare` was told: what a copy remembers beyond that is lost when a worker ends.

    >>> class ByFirstLetter(CustomGrouping):
    ...     def prepare(self, context, stream, tasks):
    ...         self.place = context.fields(context.component, stream).index("word")
    ...     def choose(self, values, tasks):
    ...         return [ord(values[self.place][0]) % tasks]
    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["length", "word"]
    >>> topology = storm.TopologyBuilder().set_spout("words", Words()).create()
    >>> grouping = ByFirstLetter()
    >>> grouping.prepare(storm.TopologyContext(topology, storm.Config(), "words", 0), "default", 4)
    >>> grouping.choose((5, "apple"), 4)
    [1]
    """

    def prepare(self, context: TopologyContext, stream: str, tasks: int) -> None:
        """Called once for each task that emits to the stream; `context` is that task's."""

    def choose(self, values: tuple[Any, ...], tasks: int) -> Sequence[int]:
        """The places, from 0 to `tasks` - 1."""
        raise NotImplementedError(f"{type(self).__name__} is a grouping without choose(); override it")


@dataclass(frozen=True)
class Custom:
    """By a grouping of the user's."""

    grouping: CustomGrouping
    fields: tuple[str, ...] = ()

    def prepared(self, context: TopologyContext, stream: str, tasks: int) -> Custom:
        """One for a task that emits to a stream which so many tasks read."""
        grouping = copy.deepcopy(self.grouping)
        grouping.prepare(context, stream, tasks)
        return Custom(grouping)

    def chooser(self, fields: tuple[str, ...], tasks: int, source: int) -> Chooser:
        return _Asked(self.grouping, tasks)


def described(grouping: Grouping) -> str:
    """A grouping in a word or two, for people.

    >>> described(ByFields(("word", "day"))), described(LocalOrShuffle())
    ('fields word, day', 'local or shuffle')
    """
    if isinstance(grouping, Custom):
        return f"custom {type(grouping.grouping).__name__}"
    return " ".join(filter(None, [_NAMES.get(type(grouping), type(grouping).__name__), ", ".join(grouping.fields)]))


_NAMES: Final[dict[type, str]] = {
    Shuffle: "shuffle",
    LocalOrShuffle: "local or shuffle",
    NoGrouping: "none",
    ByFields: "fields",
    PartialKey: "partial key",
    All: "all",
    Global: "global",
    Direct: "direct",
}


def fields_tasks(hashes: Hashes, tasks: int) -> Int64Array:
    """The places of the tasks that `ByFields` gives tuples with these hashes.

    >>> fields_tasks(np.array([0, 2**63, 2**64 - 1], np.uint64), 4).tolist()
    [0, 0, 3]
    """
    return ((hashes >> _HALF).astype(np.int64)) % tasks


_HALF: Final = np.uint64(32)
_SECOND: Final = np.array([1], np.int64)  # mixed into a hash, it gives another one


def _places(names: tuple[str, ...], fields: tuple[str, ...]) -> list[int]:
    return [fields.index(name) for name in names]


class _Turns:
    def __init__(self, tasks: int, source: int) -> None:
        self._tasks, self._source = tasks, source
        self.memory = [0]

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> Chosen:
        if turns is None:
            turns = np.arange(self.memory[0], self.memory[0] + count)
            self.memory = [(self.memory[0] + count) % self._tasks]
        # Sources begin with different tasks, so that few tuples of each are spread as well.
        return Chosen(None, (turns + self._source) % self._tasks)


class _Hashed:
    def __init__(self, places: list[int], tasks: int) -> None:
        self._places, self._tasks = places, tasks
        self.memory: list[int] = []

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> Chosen:
        if self._tasks == 1:
            return Chosen(None, np.zeros(count, np.int64))
        return Chosen(None, fields_tasks(hash_columns([columns[place] for place in self._places]), self._tasks))


class _TwoChoices:
    def __init__(self, places: list[int], tasks: int) -> None:
        self._places, self._tasks = places, tasks
        self.memory = [0] * tasks  # tuples sent to each

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> Chosen:
        hashes = hash_columns([columns[place] for place in self._places])
        firsts = fields_tasks(hashes, self._tasks).tolist()
        seconds = fields_tasks(mixed(hashes, np.broadcast_to(_SECOND, len(hashes))), self._tasks).tolist()
        known = turns is None and len(self.memory) == self._tasks  # it is not if tasks were added or taken away
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
        return Chosen(None, tasks)


class _Everyone:
    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self.memory: list[int] = []

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> Chosen:
        rows, tasks = np.arange(count), np.arange(self._tasks)
        return Chosen(np.tile(rows, self._tasks), np.repeat(tasks, count))


class _Asked:
    def __init__(self, grouping: CustomGrouping, tasks: int) -> None:
        self._grouping, self._tasks = grouping, tasks
        self.memory: list[int] = []

    def choose(self, columns: Sequence[Column], count: int, turns: Int64Array | None) -> Chosen:
        rows: list[int] = []
        tasks: list[int] = []
        for row, values in enumerate(zip(*[decode_column(*column) for column in columns], strict=True)):
            chosen = list(self._grouping.choose(values, self._tasks))
            if wrong := [task for task in chosen if task not in range(self._tasks)]:
                raise ValueError(
                    f"{type(self._grouping).__name__}.choose gave {wrong[0]!r} for {values!r}; tasks are numbered from "
                    f"0 to {self._tasks - 1}"
                )
            rows += [row] * len(chosen)
            tasks += chosen
        return Chosen(np.array(rows, np.int64), np.array(tasks, np.int64))
