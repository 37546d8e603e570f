"""Runs a program over collections that change, an epoch at a time, every loop to its end.

Whatever is to be done lies on an agenda: an operator, a round, and the changes that wait for it. It is done in an
order in which everything comes after what could still add to it: operators one after the other, and within a loop
round after round. So every operator sees the changes of a round at once, and no notices are needed.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from headrace.engine.incremental.changeoperators import DUE, Operator, add_up, operator_of
from headrace.engine.incremental.traces import Counts, Round
from headrace.model.errors import PipelineError
from headrace.model.incremental.changingcollections import INPUT, LEAVE, VARIABLE, Collection, Loop
from headrace.model.pickling import dumps

Place: TypeAlias = tuple[int, ...]
"""A place on the agenda, the same in every process that has the program."""

_FEEDBACK: Final = 1  # the port of a variable on which its loop's result comes round


@dataclass
class Node:
    """A collection of a program: its operator, and who reads it."""

    collection: Collection
    operator: Operator
    number: int
    loops: tuple[Loop, ...]  # around it, the outermost first
    ends: list[int] = field(default_factory=list)  # the numbers of the ends of these loops
    readers: list[tuple[Node, int]] = field(default_factory=list)

    def place(self, round_: Round) -> Place:
        """Returns the place of a round's work on the agenda."""
        place: list[int] = []
        for end, counter in zip(self.ends, round_, strict=True):
            place += (end, counter)
        return (*place, self.number)


@dataclass
class EpochWork:
    """Work of an epoch: the changes that operators got, and the rounds that the longest loop went."""

    changes: int = 0
    rounds: int = 0


class Program:
    """Computes collections incrementally: gets changes of the inputs, returns those of the output.

    >>> from headrace.model.incremental.changingcollections import Collection, iterate
    >>> edges, roots = Collection.input("edges"), Collection.input("roots")
    >>> step = lambda reached: reached.join(edges, lambda at, root, to: (to, root)).concat(roots).distinct()
    >>> program = Program(iterate(roots, step))
    >>> program.step({"roots": [(("a", "a"), 1)], "edges": [(("a", "b"), 1), (("b", "c"), 1)]})
    {('a', 'a'): 1, ('b', 'a'): 1, ('c', 'a'): 1}
    >>> program.step({"edges": [(("b", "c"), -1)]})
    {('c', 'a'): -1}
    """

    def __init__(self, result: Collection, *, stored: bool = False) -> None:
        if result.loop is not None:
            raise PipelineError("a program cannot end within a loop; use what iterate returned")
        collections = sorted(collections_before(result), key=lambda each: each.serial)
        self._nodes = [
            Node(each, operator_of(each, stored=stored), number, loops_around(each))
            for number, each in enumerate(collections)
        ]
        by_collection = {node.collection: node for node in self._nodes}
        for node in self._nodes:
            node.ends = [by_collection[loop.end].number for loop in node.loops if loop.end is not None]
            for port, read in enumerate(node.collection.inputs):
                by_collection[read].readers.append((node, 0 if node.collection.kind != "join" else port))
            if node.collection.kind == VARIABLE:
                loop = node.collection.loop
                assert loop is not None and loop.result is not None
                by_collection[loop.result].readers.append((node, _FEEDBACK))
        self.inputs = {each.name: by_collection[each] for each in inputs_of(result)}
        self._result = by_collection[result]
        # Rounds that an earlier run has not gone cannot be made up for: how often a loop goes round is part of it.
        self._shape = [
            (
                node.collection.kind,
                [by_collection[r].number for r in node.collection.inputs],
                [loop.iterations for loop in node.loops],
            )
            for node in self._nodes
        ]
        self._agenda: list[tuple[Place, int, Round]] = []
        self._waiting: dict[tuple[int, Round], dict[int, list[Any]]] = {}
        self._out: list[tuple[Any, int]] = []
        self.work = EpochWork()

    def step(self, changes: Mapping[str, Iterable[tuple[Any, int]]]) -> Counts:
        """Computes an epoch: takes changes of inputs by name, as pairs of element and count, returns the output's."""
        self.begin(changes)
        while self._agenda:
            self._do_next()
        return self.take()

    def begin(self, changes: Mapping[str, Iterable[tuple[Any, int]]]) -> None:
        """Begins an epoch with changes of inputs."""
        self.work = EpochWork()
        for name, incoming in changes.items():
            if name not in self.inputs:
                raise PipelineError(f"the program has no input {name!r}; it has {', '.join(map(repr, self.inputs))}")
            if listed := list(add_up(incoming).items()):
                self._send(self.inputs[name], (), listed)

    def take(self) -> Counts:
        """Returns the changes of the output, when the epoch is over."""
        out, self._out = self._out, []
        return add_up(out)

    def _do_next(self) -> None:
        _, number, round_ = heapq.heappop(self._agenda)
        node, ports = self._nodes[number], self._waiting.pop((number, round_))
        self.work.changes += sum(len(batch) for batches in ports.values() for batch in batches)
        self.work.rounds = max(self.work.rounds, *(1 + counter for counter in round_), 0)
        for when, made in node.operator.run(round_, ports, partial(self._look_again, node)):
            if made and node is self._result:
                self._out += made
            if made:
                self._send(node, when, made)

    def _send(self, node: Node, round_: Round, changes: list[tuple[Any, int]]) -> None:
        for reader, port, when, sign in self._onward(node, round_):
            sent = changes if sign > 0 else [(element, -count) for element, count in changes]
            self._deliver(node, reader, when, port, sent)

    def _deliver(self, sender: Node, reader: Node, round_: Round, port: int, changes: list[tuple[Any, int]]) -> None:
        self._put(reader, round_, port, changes)

    def _onward(self, node: Node, round_: Round) -> Iterator[tuple[Node, int, Round, int]]:
        """Yields who reads a node's changes of a round: the reader, its port and round, and -1 if they are negated.

        What a loop begins with is taken back from its next round, where the result of its body comes in its place.
        """
        if node.collection.kind == LEAVE:
            round_ = round_[:-1]
        for reader, port in node.readers:
            if reader.collection.kind == VARIABLE and port == _FEEDBACK:
                again, sign = (*round_[:-1], round_[-1] + 1), 1
            else:
                entered = (*round_, *(0,) * (len(reader.loops) - len(round_)))
                yield reader, port, entered, 1
                if reader.collection.kind != VARIABLE:
                    continue
                again, sign = (*entered[:-1], 1), -1
            iterations = reader.loops[-1].iterations
            if iterations is None or again[-1] < iterations:
                yield reader, _FEEDBACK, again, sign

    def _look_again(self, node: Node, round_: Round, keys: list[Any]) -> None:
        self._put(node, round_, DUE, keys)

    def _put(self, node: Node, round_: Round, port: int, changes: list[Any]) -> None:
        ports = self._waiting.get((node.number, round_))
        if ports is None:
            for loop, counter in zip(node.loops, round_, strict=True):
                check_limit(loop, counter, changes)
            ports = self._waiting[node.number, round_] = {}
            heapq.heappush(self._agenda, (node.place(round_), node.number, round_))
        ports.setdefault(port, []).append(changes)

    def changes(self) -> list[bytes]:
        """Returns the state that has changed since the last call, as blocks."""
        return self._blocks(
            (node.number, side, *part)
            for node in self._nodes
            for side, trace in enumerate(node.operator.traces)
            for part in trace.changes()
        )

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state of keys whose hash is in a range, as blocks."""
        return self._blocks(
            (node.number, side, *part)
            for node in self._nodes
            for side, trace in enumerate(node.operator.traces)
            for part in trace.part(low, high)
        )

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads blocks, in the order in which they were returned."""
        for block in blocks:
            shape, *part = pickle.loads(block)
            if shape != self._shape:
                raise PipelineError(
                    "the stored state is of another program: its operators, or the iterations of its loops, are not "
                    "the ones that it was written with; begin with a new checkpoint"
                )
            self._load(*part)

    def _load(self, number: int, side: int, *part: Any) -> None:
        self._nodes[number].operator.traces[side].load(*part)

    def _blocks(self, parts: Iterable[tuple[Any, ...]]) -> list[bytes]:
        return [dumps((self._shape, *part)) for part in parts]


def check_limit(loop: Loop, counter: int, changes: list[Any]) -> None:
    """Refuses a loop that has gone round more often than its limit, with what still changes."""
    if counter > loop.limit:
        some = ", ".join(repr(change) for change in changes[:3])
        raise PipelineError(
            f"a loop has gone round {loop.limit} times, its limit, and {len(changes)} changes still go round, such as "
            f"{some}; give iterate(..., iterations=n), a larger limit, or a body with a fixed point"
        )


def inputs_of(result: Collection) -> list[Collection]:
    """Returns the inputs that a collection is made of, in the order of their creation."""
    inputs = sorted((each for each in collections_before(result) if each.kind == INPUT), key=lambda each: each.serial)
    names = [each.name for each in inputs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PipelineError(f"two inputs are called {twice[0]!r}; make one collection of it, and use that twice")
    return inputs


def collections_before(result: Collection) -> set[Collection]:
    """Returns all collections that a result is made of, and it."""
    found, waiting = {result}, [result]
    while waiting:
        collection = waiting.pop()
        ends = () if collection.loop is None else (collection.loop.variable, collection.loop.result)
        for read in (*collection.inputs, *ends):
            if read is not None and read not in found:
                found.add(read)
                waiting.append(read)
    return found


def loops_around(collection: Collection) -> tuple[Loop, ...]:
    """Returns the loops that a collection is in, the outermost first."""
    loops: list[Loop] = []
    loop = collection.loop
    while loop is not None:
        loops.append(loop)
        loop = loop.parent
    return tuple(reversed(loops))
