"""Rebalancing: divides the state of a bolt's tasks among another number of tasks.

State moves with its keys: where a bolt reads by fields grouping, the keys of its dicts are values of the grouping's
field (tuples of values, if there are several fields), and every item moves to the task that gets tuples with its key.
A bolt with any other state defines how to divide it, by `split` and `merge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.groupings import ByFields, Global, PartialKey
from headrace.dialects.storm.api.topology import Node, Topology, TopologyError
from headrace.dialects.storm.task.boltstate import EXTRAS, TaskExtras
from headrace.dialects.storm.task.bolttask import BoltTask
from headrace.dialects.storm.task.choosers import fields_tasks
from headrace.dialects.storm.task.tuplecolumns import hash_keys
from headrace.engine.shard.attributeblocks import Attributes

State = Sequence[bytes]


def rebalance(topology: Topology, config: Config, component: str, states: Sequence[State], tasks: int) -> list[State]:
    """Divides the state of a bolt among `tasks` tasks; returns the blocks of each.

    `states` has the blocks of the present tasks, in order; the result is for `topology.with_tasks({component: tasks})`.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Count(storm.Bolt):
    ...     def execute(self, tup): ...
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words())
    >>> _ = builder.set_bolt("count", Count()).fields_grouping("words", ["word"])
    >>> state = Attributes(dicts={"counts": {}}, items={"counts": {"a": 1, "b": 2, "c": 3}}).blocks()
    >>> moved = rebalance(builder.create(), storm.Config(), "count", [state], 2)
    >>> sorted(sorted(Attributes.read(blocks).items["counts"].items()) for blocks in moved)
    [[('a', 1)], [('b', 2), ('c', 3)]]
    """
    node = topology.node(component)
    if len(states) != node.tasks:
        raise ValueError(f"{component!r} has {node.tasks} tasks, got the states of {len(states)}; pass one for each")
    read = [Attributes.read(blocks).without_removed() for blocks in states]
    extras = [TaskExtras.of(state.values.pop(EXTRAS, {})) for state in read]
    if hasattr(node.component, "split") and hasattr(node.component, "merge"):
        moved = _by_methods(topology, config, node, states, tasks)
    else:
        moved = _by_grouping(node, read, tasks)
    ticked = max((task.ticked for task in extras if task.ticked is not None), default=None)
    for index, state in enumerate(moved):
        # Turns continue where they were; new tasks begin anew. Ticks that some tasks have had are past for all.
        memory = extras[index].memory if index < len(extras) else {}
        state.values[EXTRAS] = TaskExtras(memory, ticked).record()
    return [state.blocks() for state in moved]


def _by_methods(
    topology: Topology, config: Config, node: Node, states: Sequence[State], tasks: int
) -> list[Attributes]:
    after = topology.with_tasks({node.id: tasks})
    targets = [BoltTask(after, config, node.id, index) for index in range(tasks)]
    for index, blocks in enumerate(states):
        source = BoltTask(topology, config, node.id, index)
        source.load(blocks)
        shares = source.bolt.split(tasks)
        if len(shares) != tasks:
            raise ValueError(
                f"split({tasks}) of the bolt {node.id!r} returned {len(shares)} shares; return one for each task"
            )
        for target, share in zip(targets, shares, strict=True):
            target.merge(share)
        source.close()
    moved = [Attributes.read(target.dump()).without_removed() for target in targets]
    for target, state in zip(targets, moved, strict=True):
        state.values.pop(EXTRAS, None)
        target.close()
    return moved


def _by_grouping(node: Node, states: Sequence[Attributes], tasks: int) -> list[Attributes]:
    groupings = [read.grouping for read in node.inputs]
    if not any(state.names() for state in states):
        return [Attributes() for _ in range(tasks)]
    if any(isinstance(rule, ByFields) and not isinstance(rule, PartialKey) for rule in groupings):
        return _by_keys(node, states, tasks)
    if all(isinstance(rule, Global) for rule in groupings):
        if any(state.names() for state in states[tasks:]):
            raise _refusal(node, "a task that is removed has state")
        return [states[index] if index < len(states) else Attributes() for index in range(tasks)]
    raise _refusal(node, "it does not read by fields grouping")


def _by_keys(node: Node, states: Sequence[Attributes], tasks: int) -> list[Attributes]:
    moved = [Attributes() for _ in range(tasks)]
    for index, state in enumerate(states):
        if state.values:
            raise _refusal(node, f"its attribute {next(iter(state.values))!r} is not a dict")
        for target in moved:
            target.dicts.update(state.dicts)
        for name, items in state.items.items():
            hashes = hash_keys(list(items)) if items else np.zeros(0, np.uint64)
            misplaced = np.flatnonzero(fields_tasks(hashes, node.tasks) != index)
            if len(misplaced):
                key = list(items)[int(misplaced[0])]
                raise _refusal(
                    node, f"its attribute {name!r} has the key {key!r}, which is not a value of the grouping's fields"
                )
            for (key, value), place in zip(items.items(), fields_tasks(hashes, tasks).tolist(), strict=True):
                moved[place].items.setdefault(name, {})[key] = value
    for name in dict.fromkeys(chain.from_iterable(state.items for state in moved)):
        for state in moved:
            state.dicts.setdefault(name, {})
    return moved


def _refusal(node: Node, why: str) -> TopologyError:
    return TopologyError(
        f"the state of the bolt {node.id!r} cannot be divided among another number of tasks: {why}. Define "
        "split(self, tasks), which returns the attributes for each of so many tasks, and merge(self, attributes)"
    )
