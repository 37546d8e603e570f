"""Records of a shard by name, stored as blocks: what changed, a part, or all of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headrace.engine.columns.hashing import HASHES, hash_bytes
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.stateblocks import Removals, ShardState, read_state, write_state
from headrace.model.times import MIN_TIME


class Stored(Protocol):
    """A record: its number, which no two records of a shard ever share, and its name."""

    seq: int
    name: bytes


R = TypeVar("R", bound=Stored)


class StoredRecords(Generic[R]):
    """Records by name. `dump` makes one cell of a record's contents; `load` makes a record of number, name and cell.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Total:
    ...     seq: int
    ...     name: bytes
    ...     total: int
    >>> def make():
    ...     def load(seq, name, cell):
    ...         return Total(seq, name, int(cell))
    ...     return StoredRecords(lambda record: b"%d" % record.total, load)
    >>> records, copy = make(), make()
    >>> record = records.add(Total(records.next_seq, b"k", 5))
    >>> copy.load(records.changes({"now": 1})), copy.by_name[b"k"].total
    ({'now': 1}, 5)
    >>> records.drop(record)
    >>> copy.load(records.changes({"now": 2})), copy.by_name
    ({'now': 2}, {})
    """

    def __init__(self, dump: Callable[[R], bytes], load: Callable[[int, bytes, bytes], R]) -> None:
        self._dump, self._load = dump, load
        self.by_name: dict[bytes, R] = {}
        self.changed: dict[int, R] = {}
        self.next_seq = 0
        self._by_seq: dict[int, R] = {}
        self._stored = 0  # records from this number on were never written
        self._gone: list[R] = []  # since the state was last written

    def add(self, record: R) -> R:
        """Adds a new record."""
        self._put(record)
        self.next_seq += 1
        self.changed[record.seq] = record
        return record

    def drop(self, record: R) -> None:
        """Removes a record."""
        self._remove(record)
        self.changed.pop(record.seq, None)
        if record.seq < self._stored:
            self._gone.append(record)

    def part(self, numbers: Mapping[str, int], low: int, high: int) -> list[bytes]:
        """Encodes the records whose hashes are in a range."""
        records = sorted(self._by_seq.values(), key=lambda record: record.seq)
        if records and (low, high) != (0, HASHES):
            hashes = _hashes(records)
            inside = (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
            records = [record for record, there in zip(records, inside.tolist(), strict=True) if there]
        return self._blocks(numbers, records, Removals())

    def changes(self, numbers: Mapping[str, int]) -> list[bytes]:
        """Encodes the delta since the state was last written or loaded."""
        gone = Removals(np.array([record.seq for record in self._gone], np.int64), _hashes(self._gone))
        blocks = self._blocks(numbers, [record for _, record in sorted(self.changed.items())], gone)
        self.written()
        return blocks

    def written(self) -> None:
        """Notes that the state was written."""
        self.changed.clear()
        self._gone, self._stored = [], self.next_seq

    def load(self, blocks: Iterable[bytes]) -> dict[str, int]:
        """Loads blocks on top of the records it has; returns the numbers that were stored with them."""
        state = read_state(blocks)
        for seq in state.gone.seq.tolist():
            if seq in self._by_seq:
                self._remove(self._by_seq[seq])
        for row in state.windows.to_pylist():
            if row["seq"] in self._by_seq:
                self._remove(self._by_seq[row["seq"]])
            self._put(self._load(row["seq"], row["name"], row["cell"]))
        numbers = dict(state.numbers)
        self.next_seq = numbers.pop("next_seq")
        self.written()
        return numbers

    def _blocks(self, numbers: Mapping[str, int], records: list[R], gone: Removals) -> list[bytes]:
        columns: dict[str, Any] = {
            "seq": pa.array([record.seq for record in records], pa.int64()),
            "name": pa.array([record.name for record in records], pa.binary()),
            "cell": pa.array([self._dump(record) for record in records], pa.binary()),
        }
        return write_state(ShardState({**numbers, "next_seq": self.next_seq}, pa.table(columns), gone=gone))

    def _put(self, record: R) -> None:
        self.by_name[record.name] = self._by_seq[record.seq] = record

    def _remove(self, record: R) -> None:
        del self._by_seq[record.seq]
        if self.by_name.get(record.name) is record:
            del self.by_name[record.name]


class RecordShard(Generic[R]):
    """Base of processors whose state is records, the clocks and the output watermark."""

    def __init__(self) -> None:
        self.records = StoredRecords[R](self._dump, self._load)
        self.clocks = Clocks()
        self.watermark = MIN_TIME  # of the output
        self.fractions: set[float] = set()

    def dump(self) -> list[bytes]:
        """Encodes the whole state."""
        blocks = self.part(0, HASHES)
        self.records.written()
        return blocks

    def part(self, low: int, high: int) -> list[bytes]:
        """Encodes the state of records whose hashes are in a range."""
        return self.records.part(self._numbers(), low, high)

    def changes(self) -> list[bytes]:
        """Encodes the state delta since `dump`, `changes` or `load` was last called, to be loaded after those."""
        return self.records.changes(self._numbers())

    def load(self, blocks: list[bytes]) -> None:
        """Loads blocks in the order in which they were written, on top of the state it has."""
        numbers = self.records.load(blocks)
        self.clocks, self.watermark = Clocks(numbers["input"], numbers["now"]), numbers["output"]

    def _numbers(self) -> dict[str, int]:
        return {"input": self.clocks.watermark, "output": self.watermark, "now": self.clocks.now}

    @abstractmethod
    def _dump(self, record: R) -> bytes:
        """Makes a cell of the contents of a record."""

    @abstractmethod
    def _load(self, seq: int, name: bytes, cell: bytes) -> R:
        """Makes a record of its number, name and cell."""


def _hashes(records: list[Any]) -> Any:
    return hash_bytes(pa.array([record.name for record in records], pa.binary())).astype(np.uint64)
