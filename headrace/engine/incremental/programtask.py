"""A program as a task of a stream: every micro-batch is an epoch, or the watermark closes epochs, which wait for it.

In an epoch each loop runs to its end.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.incremental.changeprogram import Program
from headrace.engine.incremental.fromscratch import FromScratch
from headrace.engine.incremental.scratcharrays import ScratchArrays
from headrace.engine.shard.reports import WaitingWindow
from headrace.model.errors import PipelineError
from headrace.model.incremental.changingcollections import Change, Collection
from headrace.model.pickling import dumps
from headrace.model.tasks import TaskOutput
from headrace.model.timely.epochs import open_epoch
from headrace.model.times import MAX_TIME, SECOND

_SLICE: Final = 20_000  # changes that an output batch has at most
_COUNTS, _STATE, _EARLY, _WAITING, _CLOSED = b"n", b"s", b"e", b"w", b"c"  # the first byte of a block: its kind

Changes = dict[str, list[Any]]
"""Changes by input: pairs of element and count."""


class ProgramTask:
    """Runs a program: the task of one shard, which has the whole state of the program."""

    def __init__(self, result: Collection) -> None:
        self.program = Program(result, stored=True)
        self._counts: dict[str, int] = {"epochs": 0, "rounds": 0, "changes": 0}
        self._moved = False

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Computes the epoch of a micro-batch, if it has changes."""
        changes: Changes = {}
        for batch in batches:
            for name, incoming in unpack_lists(batch):
                changes.setdefault(name, []).extend(incoming)
        if changes:
            yield from self._compute(changes, "")

    def _compute(self, changes: Changes, name: str) -> Iterator[TaskOutput]:
        """Computes an epoch; `name` is that of its output."""
        out = list(self.program.step(changes).items())
        work = self.program.work
        self._counts |= {"epochs": self._counts["epochs"] + 1, "rounds": work.rounds, "changes": work.changes}
        self._moved = True
        for start in range(0, len(out), _SLICE):
            yield None, 0, pack_list(name, out[start : start + _SLICE])

    def counts(self) -> Mapping[str, float]:
        """Returns the number of epochs so far; of the last one the rounds of its longest loop and the changes seen."""
        return self._counts

    def changes(self) -> list[bytes]:
        """Returns the state that has changed."""
        moved, self._moved = self._moved, False
        return [*([self._counts_block()] if moved else []), *(_STATE + block for block in self.program.changes())]

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes."""
        return [
            *([self._counts_block()] if low == 0 else []),
            *(_STATE + block for block in self.program.part(low, high)),
        ]

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads state on top of what there is."""
        for block in blocks:
            if block.startswith(_COUNTS):
                self._counts = json.loads(block[1:])
        self.program.load([block[1:] for block in blocks if block.startswith(_STATE)])

    def _counts_block(self) -> bytes:
        return _COUNTS + json.dumps(self._counts).encode()


class EpochProgramTask(ProgramTask):
    """Runs a program in epochs that the watermark closes: changes of an epoch wait until it is closed.

    Changes come as (element, count, epoch). Those of closed epochs are late: they are left out, and counted.
    """

    def __init__(self, result: Collection) -> None:
        super().__init__(result)
        self._counts |= {"late": 0, "waiting": 0}
        self._waiting: dict[int, Changes] = {}
        self._open: int | None = 0  # the first epoch that is open, None if none is
        self._unwritten: list[bytes] = []  # blocks of what arrived and was closed

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Takes changes in."""
        arrived: dict[int, Changes] = {}
        for batch in batches:
            for name, incoming in unpack_lists(batch):
                for element, count, epoch in incoming:
                    if self._open is None or epoch < self._open:
                        self._counts["late"] += 1
                        self._moved = True
                    else:
                        arrived.setdefault(epoch, {}).setdefault(name, []).append((element, count))
        self._keep(arrived)
        if arrived:
            self._unwritten.append(_EARLY + dumps(arrived))
        yield from ()

    def advance(self, watermark: int) -> Iterator[TaskOutput]:
        """Computes the epochs that are closed, one after the other."""
        closed_to = open_epoch(watermark)
        if self._open is not None and (closed_to is None or closed_to > self._open):
            self._unwritten.append(_CLOSED + json.dumps(closed_to).encode())
            self._open = closed_to
            for epoch in self._closed():
                yield from self._compute(self._waiting.pop(epoch), str(epoch))
        if self._counts["waiting"] != len(self._waiting):
            self._counts["waiting"] = len(self._waiting)
            self._moved = True

    def hold(self) -> int:
        """Returns the earliest event time of later output."""
        return MAX_TIME if self._open is None else self._open * SECOND

    def waiting(self) -> WaitingWindow | None:
        """Returns the first epoch whose changes wait for it to be closed."""
        if not self._waiting:
            return None
        first = min(self._waiting)
        why = f"waits until the epoch is closed; the slowest input is in epoch {self._open}"
        return WaitingWindow("the program", f"epoch {first}", why, (first + 1) * SECOND)

    def counts(self) -> Mapping[str, float]:
        """Returns also how many changes were late, how many epochs have changes that wait, and the one that is open."""
        return self._counts if self._open is None else {**self._counts, "epoch": self._open}

    def changes(self) -> list[bytes]:
        """Returns the state that has changed."""
        unwritten, self._unwritten = self._unwritten, []
        return [*unwritten, *super().changes()]

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes; what waits has the hash 0."""
        waiting = [_WAITING + dumps(self._waiting), _CLOSED + json.dumps(self._open).encode()] if low == 0 else []
        return [*waiting, *super().part(low, high)]

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads state on top of what there is."""
        for block in blocks:
            if block.startswith(_EARLY):
                self._keep(pickle.loads(block[1:]))
            elif block.startswith(_WAITING):
                self._waiting = pickle.loads(block[1:])
            elif block.startswith(_CLOSED):
                self._open = json.loads(block[1:])
                for epoch in self._closed():
                    del self._waiting[epoch]
        super().load(blocks)

    def _keep(self, arrived: Mapping[int, Changes]) -> None:
        for epoch, changes in arrived.items():
            there = self._waiting.setdefault(epoch, {})
            for name, incoming in changes.items():
                there.setdefault(name, []).extend(incoming)

    def _closed(self) -> list[int]:
        return sorted(epoch for epoch in self._waiting if self._open is None or epoch < self._open)


def compute_once(result: Collection, packed: Iterable[tuple[str, list[Any]]]) -> Iterator[Change]:
    """Computes a program over all of its input, once."""
    changes: Changes = {}
    for name, incoming in packed:
        changes.setdefault(name, []).extend(incoming)
    try:
        found = ScratchArrays(changes).compute(result)
    except PipelineError:
        raise
    except Exception:  # what arrays cannot do, and what a function failed on, which is said there
        found = FromScratch(changes).compute(result)
    yield from (Change(*change) for change in found.items())


def compute_epochs(result: Collection, packed: Iterable[tuple[str, list[Any]]]) -> Iterator[tuple[int, Change]]:
    """Computes a program over all of its input, epoch after epoch; yields the epoch and a change."""
    epochs: dict[int, Changes] = {}
    for name, incoming in packed:
        for element, count, epoch in incoming:
            epochs.setdefault(epoch, {}).setdefault(name, []).append((element, count))
    program = Program(result)
    for epoch in sorted(epochs):
        yield from ((epoch, Change(*change)) for change in program.step(epochs[epoch]).items())
