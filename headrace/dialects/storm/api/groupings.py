"""Groupings: declare which tasks of a bolt get a tuple.

`task/choosers` applies them to whole batches. Tasks are numbered by their place among the bolt's tasks, from 0.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from headrace.dialects.storm.api.components import TopologyContext


class Grouping(Protocol):
    """A rule by which tuples are shared among the tasks of a bolt."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the choice depends on."""


@dataclass(frozen=True)
class Shuffle:
    """Tasks take turns: their counts never differ by more than one tuple."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalOrShuffle(Shuffle):
    """Like `Shuffle`: Spark places the tasks, so no task is known to be local."""


@dataclass(frozen=True)
class NoGrouping(Shuffle):
    """Like `Shuffle`: the choice does not matter."""


@dataclass(frozen=True)
class ByFields:
    """Tuples with equal values in these fields go to the same task, in every run."""

    fields: tuple[str, ...]


@dataclass(frozen=True)
class PartialKey(ByFields):
    """Like `ByFields`, with two tasks for each key: the task that was sent fewer tuples gets the tuple."""


@dataclass(frozen=True)
class All:
    """Every task gets every tuple."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Global:
    """The first task gets every tuple."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Direct:
    """The emitter names the task of each tuple, by `emit_direct`."""

    fields: tuple[str, ...] = ()


class CustomGrouping:
    """A grouping that a user writes: override `choose`, which returns the numbers of the tasks that get a tuple.

    Each task that emits has a copy of it, on which `prepare` is called first. The choice may depend on the values and
    on the arguments of `prepare` only: anything else that a copy remembers is lost when a worker ends.

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
        """Called once in each task that emits to the stream, with the context of that task."""

    def choose(self, values: tuple[Any, ...], tasks: int) -> Sequence[int]:
        """Returns the numbers of the tasks that get a tuple, from 0 to `tasks` - 1."""
        raise NotImplementedError(f"{type(self).__name__} is a grouping without choose(); override it")


@dataclass(frozen=True)
class Custom:
    """Applies a user's grouping."""

    grouping: CustomGrouping
    fields: tuple[str, ...] = ()

    def prepared(self, context: TopologyContext, stream: str, tasks: int) -> Custom:
        """Returns a prepared copy for a task that emits to a stream, which so many tasks read."""
        grouping = copy.deepcopy(self.grouping)
        grouping.prepare(context, stream, tasks)
        return Custom(grouping)


def describe_grouping(grouping: Grouping) -> str:
    """Names a grouping in a word or two.

    >>> describe_grouping(ByFields(("word", "day"))), describe_grouping(LocalOrShuffle())
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
