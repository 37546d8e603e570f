"""A program as a task of a stream: every micro-batch is an epoch, in which each loop runs to its end."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.engine.incremental.program import Program
from headrace.model.incremental.collections import Change, Collection
from headrace.model.pickling import dumps
from headrace.model.tasks import TaskOutput

_CHANGES: Final = pa.schema([("input", pa.string()), ("changes", pa.binary())])
_SLICE: Final = 20_000  # changes that an output batch has at most
_EPOCHS, _STATE = b"n", b"s"  # the first byte of a block: its kind


def pack_changes(name: str, changes: list[Any]) -> pa.RecordBatch:
    """Packs changes of one input, or of the output, as a batch of one row.

    >>> batch = pack_changes("edges", [((1, 2), 1)])
    >>> list(unpack_changes(batch))
    [('edges', [((1, 2), 1)])]
    """
    return pa.record_batch([[name], [dumps(changes)]], schema=_CHANGES)


def unpack_changes(batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
    """Unpacks what `pack_changes` packed: names and lists of pairs of element and count."""
    for name, changes in zip(batch.column("input").to_pylist(), batch.column("changes").to_pylist(), strict=True):
        yield name, pickle.loads(changes)


class ProgramTask:
    """Runs a program: the task of one shard, which has the whole state of the program."""

    def __init__(self, result: Collection) -> None:
        self.program = Program(result, stored=True)
        self.epochs, self._moved = 0, False

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Computes the epoch of a micro-batch, if it has changes."""
        changes: dict[str, list[Any]] = {}
        for batch in batches:
            for name, given in unpack_changes(batch):
                changes.setdefault(name, []).extend(given)
        if not changes:
            return
        self.epochs, self._moved = self.epochs + 1, True
        out = list(self.program.step(changes).items())
        for start in range(0, len(out), _SLICE):
            yield None, 0, pack_changes("", out[start : start + _SLICE])

    def counts(self) -> Mapping[str, float]:
        """Returns the number of epochs so far; of the last one the rounds of its longest loop and the changes seen."""
        work = self.program.work
        return {"epochs": self.epochs, "rounds": work.rounds, "changes": work.changes}

    def changes(self) -> list[bytes]:
        """Returns the state that has changed."""
        moved, self._moved = self._moved, False
        return [*([self._epochs()] if moved else []), *(_STATE + block for block in self.program.changes())]

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes."""
        return [*([self._epochs()] if low == 0 else []), *(_STATE + block for block in self.program.part(low, high))]

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads state on top of what there is."""
        for block in blocks:
            if block.startswith(_EPOCHS):
                self.epochs = int(block[1:])
        self.program.load([block[1:] for block in blocks if block.startswith(_STATE)])

    def _epochs(self) -> bytes:
        return _EPOCHS + str(self.epochs).encode()


def compute_once(result: Collection, packed: Sequence[tuple[str, list[Any]]]) -> Iterator[Change]:
    """Computes a program over all of its input, as one epoch."""
    changes: dict[str, list[Any]] = {}
    for name, given in packed:
        changes.setdefault(name, []).extend(given)
    yield from (Change(*change) for change in Program(result).step(changes).items())
