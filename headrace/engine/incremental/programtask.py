"""A program as a task of a stream: every micro-batch is an epoch, in which each loop runs to its end."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.engine.incremental.changeprogram import Program
from headrace.engine.incremental.fromscratch import FromScratch
from headrace.model.incremental.changingcollections import Change, Collection
from headrace.model.pickling import dumps
from headrace.model.tasks import TaskOutput

_CHANGES: Final = pa.schema([("input", pa.string()), ("changes", pa.binary())])
_SLICE: Final = 20_000  # changes that an output batch has at most
_COUNTS, _STATE = b"n", b"s"  # the first byte of a block: its kind


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
        self._counts: dict[str, int] = {"epochs": 0, "rounds": 0, "changes": 0}
        self._moved = False

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterator[TaskOutput]:
        """Computes the epoch of a micro-batch, if it has changes."""
        changes: dict[str, list[Any]] = {}
        for batch in batches:
            for name, incoming in unpack_changes(batch):
                changes.setdefault(name, []).extend(incoming)
        if not changes:
            return
        out = list(self.program.step(changes).items())
        work = self.program.work
        self._counts = {"epochs": self._counts["epochs"] + 1, "rounds": work.rounds, "changes": work.changes}
        self._moved = True
        for start in range(0, len(out), _SLICE):
            yield None, 0, pack_changes("", out[start : start + _SLICE])

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


def compute_once(result: Collection, packed: Sequence[tuple[str, list[Any]]]) -> Iterator[Change]:
    """Computes a program over all of its input, once."""
    changes: dict[str, list[Any]] = {}
    for name, incoming in packed:
        changes.setdefault(name, []).extend(incoming)
    yield from (Change(*change) for change in FromScratch(changes).compute(result).items())
