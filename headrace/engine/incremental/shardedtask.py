"""A program in several shards, as tasks of a stream: its rounds are micro-batches, and epochs are computed in turn.

After a micro-batch every shard tells the others what it has under way, and in the next one all of them know as much and
take the same decisions: that an epoch is over, since none has anything to do and nothing is on its way; which epoch is
the next. So its changes leave all shards in one micro-batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.incremental.changeprogram import EpochWork, Place
from headrace.engine.incremental.programtask import Changes
from headrace.engine.incremental.shardedprogram import Message, ShardedProgram, least
from headrace.engine.shard.lockstep import check_step
from headrace.engine.shard.reports import WaitingWindow
from headrace.model.incremental.changingcollections import Collection
from headrace.model.pickling import dumps
from headrace.model.tasks import NEXT, TaskOutput
from headrace.model.timely.epochs import BATCH, Epochs, open_epoch
from headrace.model.times import MAX_TIME, SECOND

_SLICE: Final = 20_000  # changes that an output batch has at most
_ROUND: Final = ""  # in place of an input's name: what another shard sent
_STATE, _TASK, _EARLY, _WAITING, _TAKEN = b"s", b"t", b"e", b"w", b"x"  # the first byte of a block: its kind


class Report(NamedTuple):
    """Report of a shard to another after a micro-batch.

    - step: how many micro-batches it has seen
    - arrived: whether it has read changes in this one
    - waiting: the first epoch of which it has changes that wait
    - busy: whether it has work on its agenda, or has sent some
    - first: the earliest place at which it, or who gets what it sent, could send changes; what it sent to the shard
      that is told does not count, and in its own copy nothing else does
    """

    step: int = 0
    arrived: bool = False
    waiting: int | None = None
    busy: bool = False
    first: Place | None = None


class ShardedProgramTask:
    """Runs the part of a program that a shard has; changes come as (element, count), with the epoch if that is a time.

    The changes of a micro-batch are an epoch, which all shards number alike; or the watermark closes epochs.
    """

    def __init__(self, result: Collection, shard: int, shards: int, epochs: Epochs) -> None:
        self.program = ShardedProgram(result, shard, shards)
        self._shard, self._shards, self._timed = shard, shards, epochs != BATCH
        self._heard = {number: Report() for number in range(shards) if number != shard}
        self._own = Report()  # the last
        self._open: int | None = 0  # the first epoch that is open, None if none is
        self._running: int | None = None
        self._waiting: dict[int, Changes] = {}
        self._counts: dict[str, int] = {"epochs": 0, "rounds": 0, "changes": 0, "late": 0}
        self._arrived: dict[int, Changes] = {}
        self._rounds: list[tuple[int, tuple[Any, ...], list[Message]]] = []
        self._unwritten: list[bytes] = []
        self._stepped = False

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Takes in what was read and what other shards sent."""
        for batch in batches:
            for name, listed in unpack_lists(batch):
                if name == _ROUND:
                    self._rounds += [each for each in listed if each[0] != self._shard]
                else:
                    self._accept(name, listed)
        yield from ()

    def _accept(self, name: str, incoming: list[Any]) -> None:
        for element, count, *epoch in incoming:
            number = epoch[0] if epoch else -1  # that of the micro-batch, which is known when all have been heard
            if self._timed and (self._open is None or number < self._open):
                self._counts["late"] += 1
            else:
                self._arrived.setdefault(number, {}).setdefault(name, []).append((element, count))

    def advance(self, watermark: int) -> Iterator[TaskOutput]:
        """Goes on with the epoch that is computed, as far as can be, and begins the next when it is over."""
        self._stepped = True
        bound = self._hear()
        complete = self._open  # of these epochs, all had come before this micro-batch
        if self._timed:
            self._close_to(open_epoch(watermark))
        self._keep(self._arrived if self._timed else {self._open or 0: self._arrived.get(-1, {})})
        busy = self._own.busy or any(each.busy for each in self._heard.values())
        if self._running is not None and not busy:
            yield from self._finish()
        if self._running is None and (first := self._next(complete)) is not None:
            self._begin(first)
            bound = self.program.first_inputs()
        if self._running is not None:
            self.program.run(bound)
        yield from self._tell()

    def _hear(self) -> Place | None:
        """Takes in what others sent; returns the earliest place at which they might send more."""
        rounds, self._rounds = sorted(self._rounds, key=lambda each: each[0]), []
        for sender, fields, messages in rounds:
            report = Report(*fields)
            check_step(self._own.step, report.step, sender)
            self._heard[sender] = report
            self.program.receive(messages)
        if not self._timed and (self._own.arrived or any(each.arrived for each in self._heard.values())):
            self._open = (self._open or 0) + 1
        self._heard = {sender: report._replace(arrived=False) for sender, report in self._heard.items()}
        return least([self._own.first, *(each.first for each in self._heard.values())])

    def _close_to(self, epoch: int | None) -> None:
        if self._open is not None and (epoch is None or epoch > self._open):
            self._open = epoch

    def _keep(self, arrived: Mapping[int, Changes]) -> None:
        if any(arrived.values()):
            self._unwritten.append(_EARLY + dumps(arrived))
            self._add(arrived)

    def _add(self, arrived: Mapping[int, Changes]) -> None:
        for epoch, changes in arrived.items():
            there = self._waiting.setdefault(epoch, {})
            for name, incoming in changes.items():
                there.setdefault(name, []).extend(incoming)

    def _next(self, complete: int | None) -> int | None:
        """Returns the first epoch that waits anywhere, if it is complete."""
        epochs = [*self._waiting, *(each.waiting for each in self._heard.values() if each.waiting is not None)]
        first = min(epochs, default=None)
        return first if first is not None and (complete is None or first < complete) else None

    def _begin(self, epoch: int) -> None:
        self._running = epoch
        if epoch in self._waiting:
            self.program.begin(self._waiting.pop(epoch))
            self._unwritten.append(_TAKEN + dumps(epoch))
        else:
            self.program.work = EpochWork()

    def _finish(self) -> Iterator[TaskOutput]:
        name, out = str(self._running) if self._timed else "", list(self.program.take().items())
        self._running = None
        self._counts["epochs"] += 1
        for start in range(0, len(out), _SLICE):
            yield None, 0, pack_list(name, out[start : start + _SLICE])

    def _tell(self) -> Iterator[TaskOutput]:
        """Tells all shards what is under way here, as long as that changes; and so each gets another micro-batch."""
        arrived, self._arrived = bool(self._arrived), {}
        sent, work = self.program.sent(), self.program.work
        self._counts |= {"rounds": work.rounds, "changes": work.changes}
        busy, waiting = bool(sent) or not self.program.idle, min(self._waiting, default=None)
        before, step = self._own, self._own.step + 1
        everything = [message for messages in sent.values() for message in messages]
        self._own = Report(step, arrived, waiting, busy, self.program.first_of(everything))
        starts = self._running is None and waiting is not None and (self._open is None or waiting < self._open)
        if not (busy or arrived or starts or self._own[2:4] != before[2:4]):
            return
        first = self.program.first_of_agenda()
        for shard in range(self._shards):
            others = [message for to, messages in sent.items() if to != shard for message in messages]
            report = self._own._replace(first=least([first, self.program.first_of(others)]))
            yield NEXT, shard, pack_list(_ROUND, [(self._shard, tuple(report), sent.get(shard, []))])

    def hold(self) -> int:
        """Returns the earliest event time of later output."""
        epochs = [self._running, self._open, self._own.waiting, *(each.waiting for each in self._heard.values())]
        known = [epoch for epoch in epochs if epoch is not None]
        return min(known) * SECOND if self._timed and known else MAX_TIME

    def waiting(self) -> WaitingWindow | None:
        """Returns the first epoch whose changes wait, and for what."""
        if not self._waiting:
            return None
        first = min(self._waiting)
        why = f"waits until the epoch is closed; the slowest input is in epoch {self._open}"
        if self._running is not None:
            why = f"waits until epoch {self._running} has been computed"
        return WaitingWindow("the program", f"epoch {first}", why, (first + 1) * SECOND if self._timed else MAX_TIME)

    def counts(self) -> Mapping[str, float]:
        """Returns epochs so far; of the last one its rounds, and the changes that operators of this shard saw.

        Also how many changes were late, how many epochs have changes that wait, and the epoch that is computed.
        """
        computed = {} if self._running is None else {"epoch": self._running}
        return {**self._counts, "waiting": len(self._waiting), **computed}

    def changes(self) -> list[bytes]:
        """Returns the state that has changed."""
        unwritten, self._unwritten, stepped, self._stepped = self._unwritten, [], self._stepped, False
        own = [self._task_block()] if stepped else []
        return [*unwritten, *own, *(_STATE + block for block in self.program.changes())]

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes; what waits has the hash 0."""
        waiting = [_WAITING + dumps(self._waiting), self._task_block()] if low == 0 else []
        return [*waiting, *(_STATE + block for block in self.program.part(low, high))]

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads state on top of what there is."""
        for block in blocks:
            kind = block[:1]
            if kind == _STATE:
                self.program.load([block[1:]])
                continue
            state = pickle.loads(block[1:])
            if kind == _EARLY:
                self._add(state)
            elif kind == _WAITING:
                self._waiting = state
            elif kind == _TAKEN:
                del self._waiting[state]
            else:
                own, heard, self._open, self._running, self._counts, work = state
                self._own, self.program.work = Report(*own), EpochWork(*work)
                self._heard = {number: Report(*report) for number, report in heard.items()}

    def _task_block(self) -> bytes:
        heard = {number: tuple(report) for number, report in self._heard.items()}
        work = (self.program.work.changes, self.program.work.rounds)
        return _TASK + dumps((tuple(self._own), heard, self._open, self._running, self._counts, work))
