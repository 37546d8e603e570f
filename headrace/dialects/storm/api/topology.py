"""Topologies: components, their inputs and their numbers of tasks. A topology knows no Spark.

`TopologyBuilder` collects components; `Topology` is the checked and frozen result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from headrace.dialects.storm.api.components import DEFAULT, Bolt, Component, Spout
from headrace.dialects.storm.api.config import positive_duration
from headrace.dialects.storm.api.groupings import (
    All,
    ByFields,
    Custom,
    CustomGrouping,
    Direct,
    Global,
    Grouping,
    LocalOrShuffle,
    NoGrouping,
    PartialKey,
    Shuffle,
)
from headrace.dialects.storm.api.rules import field_problems, topology_problems
from headrace.model.errors import HeadraceError
from headrace.model.times import DurationLike

MAX_TASKS: Final = 1_000
"""The largest number of tasks of a component. Each has state, and a line in every status."""
_LONGEST: Final = 50  # characters of a number in a message


class TopologyError(HeadraceError, ValueError):
    """The topology cannot run as written; raised before anything runs.

    >>> from headrace import storm
    >>> storm.TopologyBuilder().create()
    Traceback (most recent call last):
        ...
    headrace.dialects.storm.api.topology.TopologyError: the topology has no spout; add one with set_spout(...)
    """


@dataclass(frozen=True)
class Input:
    """A stream that a bolt reads, and the grouping of its tuples."""

    source: str
    stream: str
    grouping: Grouping


@dataclass(frozen=True)
class Node:
    """A component of a topology. `parallelism` is a hint, as in Storm; `tasks` is the number of instances.

    A bolt with a `tick` gets a tick tuple every `tick` microseconds.
    """

    id: str
    component: Component
    parallelism: int
    tasks: int
    tick: int | None = None
    inputs: tuple[Input, ...] = ()

    @property
    def streams(self) -> dict[str, tuple[str, ...]]:
        """The fields of each stream that it may emit to."""
        return self.component.declared()


@dataclass(frozen=True)
class Topology:
    """A directed acyclic graph of spouts and bolts.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Count(storm.Bolt):
    ...     fields = ["word", "count"]
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words(), parallelism=2)
    >>> _ = builder.set_bolt("count", Count(), parallelism=3).fields_grouping("words", ["word"])
    >>> topology = builder.create()
    >>> [(node.id, node.tasks) for node in topology.nodes], list(topology.tasks_of("count")), topology.levels
    ([('words', 2), ('count', 3)], [2, 3, 4], (('count',),))
    """

    nodes: tuple[Node, ...]

    @cached_property
    def _by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @property
    def spouts(self) -> tuple[Node, ...]:
        """The spouts, in the order in which they were set."""
        return tuple(node for node in self.nodes if isinstance(node.component, Spout))

    @property
    def bolts(self) -> tuple[Node, ...]:
        """The bolts, in the order in which they were set."""
        return tuple(node for node in self.nodes if isinstance(node.component, Bolt))

    def node(self, component: str) -> Node:
        """Returns a component by its id."""
        try:
            return self._by_id[component]
        except KeyError:
            raise TopologyError(
                f"the topology has no component {component!r}, only {', '.join(map(repr, self._by_id))}"
            ) from None

    @cached_property
    def _tasks(self) -> dict[str, range]:
        first, tasks = 0, {}
        for node in (*self.spouts, *self.bolts):  # spouts first: their numbers do not depend on the tasks of bolts
            tasks[node.id] = range(first, first + node.tasks)
            first += node.tasks
        return tasks

    def tasks_of(self, component: str) -> range:
        """Returns the numbers of a component's tasks, which are unique in the topology."""
        return self._tasks[self.node(component).id]

    def component_of(self, task: int) -> tuple[str, int]:
        """Returns the component of a task, and the task's place in it."""
        for component, tasks in self._tasks.items():
            if task in tasks:
                return component, task - tasks.start
        raise TopologyError(f"the topology has no task {task!r}; see tasks_of")

    def readers(self, source: str, stream: str) -> list[tuple[Node, Grouping]]:
        """Returns the bolts that read a stream, with their groupings."""
        return [
            (node, read.grouping)
            for node in self.nodes
            for read in node.inputs
            if (read.source, read.stream) == (source, stream)
        ]

    def direct_tasks(self, source: str) -> dict[str, frozenset[int]]:
        """Returns the tasks that may be named, for each stream of a component that is read by direct grouping."""
        tasks: dict[str, frozenset[int]] = {}
        for node in self.nodes:
            for read in node.inputs:
                if read.source == source and isinstance(read.grouping, Direct):
                    tasks[read.stream] = tasks.get(read.stream, frozenset()) | frozenset(self.tasks_of(node.id))
        return tasks

    @cached_property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The bolts by their greatest distance from a spout: a bolt reads spouts and earlier levels only."""
        distances: dict[str, int] = {node.id: 0 for node in self.spouts}
        waiting = list(self.bolts)
        while ready := [node for node in waiting if all(read.source in distances for read in node.inputs)]:
            for node in ready:
                distances[node.id] = 1 + max(distances[read.source] for read in node.inputs)
            waiting = [node for node in waiting if node.id not in distances]
        if waiting:
            raise TopologyError(
                f"the bolts {', '.join(repr(node.id) for node in waiting)} read from each other in a cycle, or from "
                "bolts that do; a topology is a graph without cycles"
            )
        depth = max(distances.values(), default=0)
        return tuple(
            tuple(node.id for node in self.bolts if distances[node.id] == level) for level in range(1, depth + 1)
        )

    def with_tasks(self, tasks: Mapping[str, int]) -> Topology:
        """Returns the same topology with other numbers of tasks, by component."""
        for component, number in tasks.items():
            self.node(component)
            _check_tasks(f"the number of tasks of {component!r}", number)
        return Topology(tuple(replace(node, tasks=tasks.get(node.id, node.tasks)) for node in self.nodes))

    def capped(self, most: int | None) -> Topology:
        """Returns the same topology with at most so many tasks for each component."""
        return self if most is None else self.with_tasks({node.id: min(node.tasks, most) for node in self.nodes})


class Declarer:
    """Declares the inputs of a bolt: each method adds one stream, and returns the declarer for the next.

    `stream` names the stream of the source, if it is not the default one.

    >>> from headrace import storm
    >>> class Join(storm.Bolt):
    ...     pass
    >>> declarer = storm.TopologyBuilder().set_bolt("join", Join())
    >>> declarer.fields_grouping("views", ["user"]).fields_grouping("clicks", ["user"]) is declarer
    True
    """

    def __init__(self, bolt: str) -> None:
        self._bolt = bolt
        self.inputs: list[Input] = []

    def grouping(self, source: str, grouping: Grouping, stream: str = DEFAULT) -> Declarer:
        """Adds a stream with a grouping."""
        if any((read.source, read.stream) == (source, stream) for read in self.inputs):
            raise TopologyError(
                f"the bolt {self._bolt!r} reads the stream {stream!r} of {source!r} twice; remove one of the two"
            )
        self.inputs.append(Input(source, stream, grouping))
        return self

    def shuffle_grouping(self, source: str, stream: str = DEFAULT) -> Declarer:
        """Gives every task the same number of tuples."""
        return self.grouping(source, Shuffle(), stream)

    def fields_grouping(self, source: str, fields: Sequence[str], stream: str = DEFAULT) -> Declarer:
        """Sends tuples with equal values in these fields to the same task."""
        return self.grouping(source, ByFields(_field_names(fields)), stream)

    def partial_key_grouping(self, source: str, fields: Sequence[str], stream: str = DEFAULT) -> Declarer:
        """Groups by fields with two tasks for each key: the less loaded one gets the tuple."""
        return self.grouping(source, PartialKey(_field_names(fields)), stream)

    def all_grouping(self, source: str, stream: str = DEFAULT) -> Declarer:
        """Sends every tuple to every task."""
        return self.grouping(source, All(), stream)

    def global_grouping(self, source: str, stream: str = DEFAULT) -> Declarer:
        """Sends every tuple to the first task."""
        return self.grouping(source, Global(), stream)

    def direct_grouping(self, source: str, stream: str = DEFAULT) -> Declarer:
        """Lets the source name the task of each tuple, by emit_direct."""
        return self.grouping(source, Direct(), stream)

    def local_or_shuffle_grouping(self, source: str, stream: str = DEFAULT) -> Declarer:
        """Works like shuffle_grouping: no task is nearer than another."""
        return self.grouping(source, LocalOrShuffle(), stream)

    def none_grouping(self, source: str, stream: str = DEFAULT) -> Declarer:
        """Works like shuffle_grouping: it does not matter which task gets a tuple."""
        return self.grouping(source, NoGrouping(), stream)

    def custom_grouping(self, source: str, grouping: CustomGrouping, stream: str = DEFAULT) -> Declarer:
        """Adds a stream with a grouping that the user wrote."""
        if not isinstance(grouping, CustomGrouping):
            raise TopologyError(f"a custom grouping is an object of a subclass of CustomGrouping, got {grouping!r}")
        return self.grouping(source, Custom(grouping), stream)


class TopologyBuilder:
    """Collects spouts and bolts, and builds a topology of them.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Print(storm.Bolt):
    ...     def execute(self, tup):
    ...         print(tup["word"])
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words())
    >>> _ = builder.set_bolt("print", Print(), parallelism=2, num_tasks=4).shuffle_grouping("word")
    >>> builder.create()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    headrace.dialects.storm.api.topology.TopologyError: the bolt 'print' reads from 'word', which does not exist; ...
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[Node, Declarer | None]] = []

    def set_spout(self, id: str, spout: Spout, parallelism: int = 1, num_tasks: int | None = None) -> TopologyBuilder:
        """Adds a spout; returns the builder."""
        _check_kind(id, spout, Spout)
        self._add(id, spout, parallelism, num_tasks, None, None)
        return self

    def set_bolt(
        self,
        id: str,
        bolt: Bolt,
        parallelism: int = 1,
        num_tasks: int | None = None,
        tick: DurationLike | None = None,
    ) -> Declarer:
        """Adds a bolt; the declarer it returns declares its inputs. `tick`: how often it gets a tick tuple."""
        _check_kind(id, bolt, Bolt)
        declarer = Declarer(id)
        self._add(id, bolt, parallelism, num_tasks, tick, declarer)
        return declarer

    def create(self) -> Topology:
        """Builds the topology, after checking all rules."""
        topology = Topology(
            tuple(replace(node, inputs=tuple(declarer.inputs) if declarer else ()) for node, declarer in self._nodes)
        )
        for problem in topology_problems(topology):
            raise TopologyError(problem)
        topology.levels  # noqa: B018 (refuses cycles)
        return topology

    def _add(
        self,
        id: str,
        component: Component,
        parallelism: int,
        num_tasks: int | None,
        tick: DurationLike | None,
        declarer: Declarer | None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", id):
            raise TopologyError(f"the id of a component is letters, digits, '_', '-' and '.', got {id!r}")
        if any(node.id == id for node, _ in self._nodes):
            raise TopologyError(f"the topology has a component {id!r} already; choose another id")
        _check_tasks(f"the parallelism of {id!r}", parallelism)
        if num_tasks is not None:
            _check_tasks(f"num_tasks of {id!r}", num_tasks)
        for problem in field_problems(id, component):
            raise TopologyError(problem)
        period = None if tick is None else positive_duration("tick", tick)
        tasks = parallelism if num_tasks is None else num_tasks
        self._nodes.append((Node(id, component, parallelism, tasks, period), declarer))


def _check_kind(id: str, component: object, kind: type) -> None:
    if isinstance(component, type):
        raise TopologyError(f"{id!r}: pass an object, not the class: {component.__name__}()")
    if not isinstance(component, kind):
        raise TopologyError(f"{id!r}: expected a {kind.__name__.lower()}, got {component!r}")


def _check_tasks(what: str, number: Any) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_TASKS:
        raise TopologyError(f"{what} is a whole number from 1 to {MAX_TASKS:,}, got {str(number)[:_LONGEST]}")


def _field_names(fields: Sequence[str]) -> tuple[str, ...]:
    if isinstance(fields, str) or not fields:
        raise TopologyError(f"a grouping's fields are a list of names, got {fields!r}; write e.g. ['word']")
    return tuple(fields)
