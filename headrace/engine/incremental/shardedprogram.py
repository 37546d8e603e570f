"""A program of which each shard has a part of every collection, and the shards exchange changes between micro-batches.

A shard does what is on its agenda in the same order as a shard that is alone, but only as far as nothing that is under
way elsewhere could still add to it: that is the earliest place at which another shard, or what is on its way to one,
could send changes. So each operator still sees the changes of a round at once. A loop in which nothing has to be sent
goes round within a micro-batch, and so does a shard while the others have nothing to do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from headrace.engine.incremental.changeprogram import Node, Place, Program
from headrace.engine.incremental.shardplaces import by_shard, check_pairs, is_at_home, is_sent
from headrace.engine.incremental.traces import Counts, Round
from headrace.model.incremental.changingcollections import Collection
from headrace.model.timely.antichains import is_before

Message: TypeAlias = tuple[int, Round, int, list[Any]]
"""Changes for an operator of another shard: the operator's number, the round, the port, and the changes."""

_UNDER_WAY: Final = -1  # in place of an operator's number, in blocks of what is on the agenda


class ShardedProgram(Program):
    """The part of a program that one of several shards has.

    >>> from headrace.engine.incremental.shardplaces import by_shard
    >>> words = Collection.input("words")
    >>> shards = [ShardedProgram(words.distinct(), number, 2) for number in range(2)]
    >>> for number, changes in by_shard([("a", 1), ("b", 1), ("a", 1)], 2).items():
    ...     shards[number].begin({"words": changes})
    ...     shards[number].run(None)
    >>> sorted(element for shard in shards for element in shard.take())
    ['a', 'b']
    """

    def __init__(self, result: Collection, shard: int, shards: int) -> None:
        super().__init__(result, stored=True)
        assert is_at_home(result), "what is added up in the end must be in one shard"
        self.shard, self.shards = shard, shards
        self._is_sent = {
            (node.number, reader.number)
            for node in self._nodes
            for reader, _ in node.readers
            if is_sent(node.collection, reader.collection)
        }
        self._bound: Place | None = None
        self._sent: dict[int, list[Message]] = {}
        self._reached: dict[tuple[int, Round], Place | None] = {}
        self._put_since: list[Message] = []  # since `changes` was last called
        self._done_since: list[tuple[int, Round]] = []
        self._stored: set[tuple[int, Round]] = set()  # what is on the agenda and stored
        self._out_stored = 0  # how many changes of the output are

    def receive(self, messages: Iterable[Message]) -> None:
        """Takes changes of other shards in."""
        for number, round_, port, changes in messages:
            self._put(self._nodes[number], round_, port, changes)

    def run(self, bound: Place | None) -> None:
        """Does what is on the agenda, up to the place where others might send changes."""
        self._bound = bound
        while self._agenda and (self._bound is None or self._agenda[0][0] < self._bound):
            self._done_since.append(self._agenda[0][1:])
            self._do_next()

    def sent(self) -> dict[int, list[Message]]:
        """Returns what has been sent to other shards since it was last called."""
        sent, self._sent = self._sent, {}
        return sent

    def first_inputs(self) -> Place | None:
        """Returns the earliest place at which a shard could send changes that has all inputs and nothing else."""
        return least(self.reach(node, ()) for node in self.inputs.values())

    def first_of_agenda(self) -> Place | None:
        """Returns the earliest place at which this shard could send changes."""
        return least(self.reach(self._nodes[number], round_) for _, number, round_ in self._agenda)

    def first_of(self, sent: Iterable[Message]) -> Place | None:
        """Returns the earliest place at which those who get messages could send changes."""
        return least(self.reach(self._nodes[number], round_) for number, round_, _, _ in sent)

    @property
    def idle(self) -> bool:
        """Whether nothing is on the agenda."""
        return not self._agenda

    def reach(self, node: Node, round_: Round) -> Place | None:
        """Returns the earliest place at which work of an operator in a round could bring changes to another shard."""
        if (node.number, round_) not in self._reached:
            self._reached[node.number, round_] = least(self._arrivals(node, round_))
        return self._reached[node.number, round_]

    def _arrivals(self, node: Node, round_: Round) -> Iterator[Place]:
        seen: dict[int, list[Round]] = {}
        waiting = [(node, round_)]
        while waiting:
            node, round_ = waiting.pop()
            for reader, _, when, _ in self._onward(node, round_):
                rounds = seen.setdefault(reader.number, [])
                if (node.number, reader.number) in self._is_sent:
                    yield reader.place(when)
                elif not any(is_before(each, when) for each in rounds):
                    rounds.append(when)
                    waiting.append((reader, when))

    def take(self) -> Counts:
        """Returns the changes of the output, when the epoch is over."""
        self._reached.clear()
        self._out_stored = -1
        return super().take()

    def _deliver(self, sender: Node, reader: Node, round_: Round, port: int, changes: list[tuple[Any, int]]) -> None:
        check_pairs(reader.collection, changes)
        if (sender.number, reader.number) not in self._is_sent:
            self._put(reader, round_, port, changes)
            return
        for shard, part in by_shard(changes, self.shards).items():
            if shard == self.shard:
                self._put(reader, round_, port, part)
            else:
                self._sent.setdefault(shard, []).append((reader.number, round_, port, part))
                self._bound = least([self._bound, self.reach(reader, round_)])

    def _put(self, node: Node, round_: Round, port: int, changes: list[Any]) -> None:
        super()._put(node, round_, port, changes)
        self._put_since.append((node.number, round_, port, changes))

    def changes(self) -> list[bytes]:
        """Returns the state that has changed since the last call: of operators, and what is under way."""
        done = [each for each in self._done_since if each in self._stored]
        new = [each for each in self._put_since if each[:2] in self._waiting]
        self._stored.difference_update(done)
        self._stored.update(each[:2] for each in new)
        anew, known = self._out_stored < 0, max(self._out_stored, 0)
        out = self._out[known:]
        self._put_since, self._done_since, self._out_stored = [], [], len(self._out)
        parts = [(_UNDER_WAY, anew, done, new, out)] if anew or done or new or out else []
        return [*self._blocks(parts), *super().changes()]

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state of keys whose hash is in a range; what is under way has the hash 0."""
        all_ = [
            (number, round_, port, changes)
            for (number, round_), ports in self._waiting.items()
            for port, batches in ports.items()
            for changes in batches
        ]
        under_way = self._blocks([(_UNDER_WAY, True, None, all_, self._out)]) if low == 0 else []
        return [*under_way, *super().part(low, high)]

    def _load(self, number: int, side: int, *part: Any) -> None:
        if number != _UNDER_WAY:
            super()._load(number, side, *part)
            return
        done, new, out = part
        if done is None:  # all that is under way follows
            self._agenda, self._waiting = [], {}
        for key in done or ():
            del self._waiting[key]
        if done:
            self._agenda = [each for each in self._agenda if each[1:] in self._waiting]
            heapq.heapify(self._agenda)
        self._out = [*([] if side else self._out), *out]
        self.receive(new)
        self._put_since, self._stored, self._out_stored = [], set(self._waiting), len(self._out)


def least(places: Iterable[Place | None]) -> Place | None:
    """Returns the earliest place; None is later than all.

    >>> least([None, (3, 1), (2, 7)]), least([])
    ((2, 7), None)
    """
    return min((place for place in places if place is not None), default=None)
