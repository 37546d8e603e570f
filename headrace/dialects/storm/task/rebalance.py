"""Rebalancing: the state of a bolt's tasks, for another number of tasks.

State moves with its keys: where tuples come by fields grouping, dicts are keyed by the value of the grouping's field
(by the tuple of values, if it has several), and every item goes where tuples with its key will go. A bolt that keeps
anything else says how it is shared, by `split` and `merge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.groupings import ByFields, Global, PartialKey, fields_tasks
from headrace.dialects.storm.api.topology import Node, Topology, TopologyError
from headrace.dialects.storm.task.attributeblocks import Attributes
from headrace.dialects.storm.task.boltstate import EXTRAS
from headrace.dialects.storm.task.bolttask import BoltTask
from headrace.dialects.storm.task.tuplecolumns import hash_keys

State = Sequence[bytes]


def rebalanced(topology: Topology, config: Config, component: str, states: Sequence[State], tasks: int) -> list[State]:
    """The states of a bolt's tasks, as blocks, if there are to be so many.

    `states` are those of the topology's tasks, in order; the result is for `topology.with_tasks({component: tasks})`.

    >>> from headrace import storm
    >>> class Words(storm.Spout):
    ...     fields = ["word"]
    >>> class Count(storm.Bolt):
    ...     def execute(self, tup): ...
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("words", Words())
    >>> _ = builder.set_bolt("count", Count()).fields_grouping("words", ["word"])
    >>> state = Attributes(dicts={"counts": {}}, items={"counts": {"a": 1, "b": 2, "c": 3}}).blocks()
    >>> moved = rebalanced(builder.create(), storm.Config(), "count", [state], 2)
    >>> sorted(sorted(Attributes.read(blocks).items["counts"].items()) for blocks in moved)
    [[('a', 1)], [('b', 2), ('c', 3)]]
    """
    node = topology.node(component)
    if len(states) != node.tasks:
        raise ValueError(f"{component!r} has {node.tasks} tasks, got the states of {len(states)}; give one for each")
    read = [Attributes.read(blocks).settled() for blocks in states]
    extras = [state.values.pop(EXTRAS, {}) for state in read]
    if hasattr(node.component, "split") and hasattr(node.component, "merge"):
        moved = _by_methods(topology, config, node, states, tasks)
    else:
        moved = _by_grouping(node, read, tasks)
    ticked = max((each["ticked"] for each in extras if each.get("ticked") is not None), default=None)
    for index, state in enumerate(moved):
        # Turns go on where they were; new tasks begin with their own. Ticks that some have had are over for all.
        memory = {"memory": extras[index]["memory"]} if index < len(extras) and "memory" in extras[index] else {}
        state.values[EXTRAS] = {**memory, "ticked": ticked}
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
                f"split({tasks}) of the bolt {node.id!r} gave {len(shares)} shares; give one for each task"
            )
        for target, share in zip(targets, shares, strict=True):
            target.merge(share)
        source.close()
    moved = [Attributes.read(target.dump()).settled() for target in targets]
    for target, state in zip(targets, moved, strict=True):
        state.values.pop(EXTRAS, None)
        target.close()
    return moved


def _by_grouping(node: Node, states: Sequence[Attributes], tasks: int) -> list[Attributes]:
    groupings = [each.grouping for each in node.inputs]
    if not any(state.names() for state in states):
        return [Attributes() for _ in range(tasks)]
    if any(isinstance(each, ByFields) and not isinstance(each, PartialKey) for each in groupings):
        return _by_keys(node, states, tasks)
    if all(isinstance(each, Global) for each in groupings):
        if any(state.names() for state in states[tasks:]):
            raise _refused(node, "a task that goes has state")
        return [states[index] if index < len(states) else Attributes() for index in range(tasks)]
    raise _refused(node, "its tuples do not come by fields grouping")


def _by_keys(node: Node, states: Sequence[Attributes], tasks: int) -> list[Attributes]:
    moved = [Attributes() for _ in range(tasks)]
    for index, state in enumerate(states):
        if state.values:
            raise _refused(node, f"its attribute {next(iter(state.values))!r} is no dict")
        for target in moved:
            target.dicts.update(state.dicts)
        for name, items in state.items.items():
            hashes = hash_keys(list(items)) if items else np.zeros(0, np.uint64)
            strangers = np.flatnonzero(fields_tasks(hashes, node.tasks) != index)
            if len(strangers):
                key = list(items)[int(strangers[0])]
                raise _refused(node, f"its attribute {name!r} has the key {key!r}, which is no value of the grouping's")
            for (key, value), place in zip(items.items(), fields_tasks(hashes, tasks).tolist(), strict=True):
                moved[place].items.setdefault(name, {})[key] = value
    for name in dict.fromkeys(chain.from_iterable(state.items for state in moved)):
        for state in moved:
            state.dicts.setdefault(name, {})
    return moved


def _refused(node: Node, why: str) -> TopologyError:
    return TopologyError(
        f"the state of the bolt {node.id!r} cannot be shared among another number of tasks: {why}. Give the class "
        "split(self, tasks), which returns the attributes for each of so many tasks, and merge(self, attributes)"
    )
