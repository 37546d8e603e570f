"""Cells of a shard's state in Spark's state store: deltas, and parts that replace them range by range.

Every batch writes a delta, which is what has changed. Now and then it also writes a part, which is the whole state in a
range of hashes. The next part is the next range, round and round, so that no batch writes much more than it touched.
The state is the parts, and the deltas since the oldest part, read in the order in which they were written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.shard.work import Processor, SlicedProcessor
from headrace.engine.worker.bundles import BLOCK_SCHEMA

STAMP: Final = StructType(
    [
        StructField("token", BinaryType()),
        StructField("deltas", LongType()),
        StructField("bytes", LongType()),
        StructField("parts", StringType()),
    ]
)
"""The stamp as a state variable of its own, as it is in checkpoints of earlier formats."""
CELL_KEY: Final = StructType([StructField("kind", LongType()), StructField("number", LongType())])
CELL: Final = StructType([StructField("cell", BinaryType())])

DELTA, PART, STAMP_KIND = 0, 1, 2  # kinds of cells

_WORTH: Final = 1_000_000
"""Bytes of deltas after which it is worth writing a part."""
_MANY: Final = 32
"""Deltas after which it is worth writing a part, however small they are: each is loaded by itself."""
_LARGE: Final = 8_000_000
"""Bytes of a cell beyond which another is begun."""


StoredStamp: TypeAlias = tuple[bytes, int, int, str]
"""A stamp as it is stored: token, deltas, bytes, and parts as JSON."""


@dataclass(frozen=True)
class StatePart:
    """A part: the state in a range of hashes up to `high`, after so many deltas of so many bytes in all.

    `first`, `cells`, `bytes`: the number of its first cell, how many cells it has, and its size. Its range begins where
    that of the part before ends.
    """

    high: int = HASHES
    deltas: int = 0
    deltas_bytes: int = 0
    first: int = 0
    cells: int = 0
    bytes: int = 0


@dataclass
class StateStamp:
    """Summary of what is stored of a shard: the number of deltas ever written, their bytes, the parts, oldest first.

    Every attempt to write a state has a `token` of its own: a failed attempt may have left a copy in a worker.
    """

    token: bytes = b""
    deltas: int = 0
    bytes: int = 0
    parts: list[StatePart] = field(default_factory=lambda: [StatePart()])  # an empty shard has one empty part

    def stored(self) -> StoredStamp:
        """Returns the stamp as it is stored."""
        return self.token, self.deltas, self.bytes, json.dumps([astuple(part) for part in self.parts])

    def due(self, *, sliced: bool) -> tuple[int, int] | None:
        """Returns the range of hashes of which to write a part now, if any.

        Parts of twice as many bytes as the deltas keep what is stored below twice the size of the state.
        """
        last = self.parts[-1]
        fresh = self.bytes - last.deltas_bytes
        if fresh < _WORTH and self.deltas - last.deltas < _MANY:
            return None
        if not sliced:
            return (0, HASHES) if fresh >= last.bytes else None
        low = last.high % HASHES
        stored = self.bytes - self.parts[0].deltas_bytes + sum(part.bytes for part in self.parts)
        return low, min(low + HASHES * 2 * max(fresh, _WORTH) // stored, HASHES)

    def written(self, high: int, cells: int, bytes_: int) -> list[StatePart]:
        """Notes that a part up to `high` was written; returns the parts that it replaces."""
        last = self.parts[-1]
        low, over = last.high % HASHES, []
        while self.parts and low < self.parts[0].high <= high:
            over.append(self.parts.pop(0))
        self.parts.append(StatePart(high, self.deltas, self.bytes, last.first + last.cells, cells, bytes_))
        return over


class MapState(Protocol):
    """The methods of Spark's map state that are used here."""

    def getValue(self, key: tuple[int, int]) -> Any: ...

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None: ...

    def removeKey(self, key: tuple[int, int]) -> None: ...

    def clear(self) -> None: ...


class StampState(Protocol):
    """The methods of Spark's value state that are used here."""

    def get(self) -> Any: ...

    def update(self, newValue: StoredStamp) -> None: ...

    def clear(self) -> None: ...


class StampCell:
    """The stamp as one of the cells: for each state variable Spark makes encoders anew, in every task."""

    def __init__(self, cells: MapState) -> None:
        self._cells = cells

    def get(self) -> StoredStamp | None:
        stored = self._cells.getValue((STAMP_KIND, 0))
        if stored is None:
            return None
        token, deltas, size, parts = json.loads(bytes(stored[0]))
        return bytes.fromhex(token), deltas, size, parts

    def update(self, newValue: StoredStamp) -> None:
        self._cells.updateValue((STAMP_KIND, 0), (stamp_cell(newValue),))

    def clear(self) -> None:
        self._cells.removeKey((STAMP_KIND, 0))


def stamp_cell(stamp: StoredStamp) -> bytes:
    """Encodes a stamp, as a state variable of its own has it, as a cell."""
    token, *others = stamp
    return json.dumps([token.hex(), *others]).encode()


class StateCells:
    """Reads and writes the cells of the shard that Spark is processing; its stamp is one of them, or `stamp` has it."""

    def __init__(self, cells: MapState, stamp: StampState | None = None) -> None:
        self._cells = cells
        self._stamp = StampCell(cells) if stamp is None else stamp

    def stamp(self) -> StateStamp | None:
        """Returns the stamp in the store; None if the shard is new."""
        stored = self._stamp.get()
        if stored is None:
            return None
        token, deltas, size, parts = stored
        return StateStamp(bytes(token), deltas, size, [StatePart(*part) for part in json.loads(parts)])

    def whole(self, stamp: StateStamp) -> Iterator[bytes]:
        """Yields all cells, in the order in which they were written."""
        done = stamp.parts[0].deltas
        for part in stamp.parts:
            yield from (self._get(DELTA, number) for number in range(done, part.deltas))
            yield from (self._get(PART, number) for number in range(part.first, part.first + part.cells))
            done = part.deltas
        yield from (self._get(DELTA, number) for number in range(done, stamp.deltas))

    def since(self, stamp: StateStamp, earlier: StateStamp) -> list[bytes] | None:
        """Returns the deltas since an earlier stamp; None if they were removed, or the stamp is of a failed attempt."""
        if not stamp.parts[0].deltas <= earlier.deltas < stamp.deltas:
            return None
        first = self._get(DELTA, earlier.deltas)
        if unpack(first)[0]["after"] != earlier.token.hex():
            return None
        return [first, *(self._get(DELTA, number) for number in range(earlier.deltas + 1, stamp.deltas))]

    def write(self, stamp: StateStamp, header: dict[str, Any], processor: Processor) -> StateStamp:
        """Writes the delta since `stamp`, and a part if it is due; returns the new stamp."""
        after = StateStamp(os.urandom(8), stamp.deltas, stamp.bytes, list(stamp.parts))
        header = {**header, "after": stamp.token.hex()}
        for cell in _packed(header, processor.changes()):
            self._put(DELTA, after.deltas, cell)
            after.deltas += 1
            after.bytes += len(cell)
        if (due := after.due(sliced=isinstance(processor, SlicedProcessor))) is not None:
            blocks = processor.part(*due) if isinstance(processor, SlicedProcessor) else processor.dump()
            self._write_part(after, due[1], list(_packed(header, blocks)))
        self._stamp.update(after.stored())
        return after

    def put_back(self, kind: int, number: int, cell: bytes) -> None:
        """Writes a cell as it was stored before; the stamp is one of them."""
        self._put(kind, number, cell)

    def clear(self) -> None:
        """Removes all cells."""
        self._stamp.clear()
        self._cells.clear()

    def _write_part(self, stamp: StateStamp, high: int, cells: list[bytes]) -> None:
        oldest = stamp.parts[0].deltas
        over = stamp.written(high, len(cells), sum(map(len, cells)))
        for number, cell in enumerate(cells, stamp.parts[-1].first):
            self._put(PART, number, cell)
        for part in over:
            for number in range(part.first, part.first + part.cells):
                self._cells.removeKey((PART, number))
        for number in range(oldest, stamp.parts[0].deltas):
            self._cells.removeKey((DELTA, number))

    def _get(self, kind: int, number: int) -> bytes:
        value = self._cells.getValue((kind, number))
        if value is None:
            raise LookupError(
                f"the state store has lost a cell of kind {kind}, number {number}, that its stamp names; go on from an "
                "earlier copy of the checkpoint"
            )
        return bytes(value[0])

    def _put(self, kind: int, number: int, cell: bytes) -> None:
        self._cells.updateValue((kind, number), (cell,))


def whole_state(header: dict[str, Any], blocks: list[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yields all cells of a shard that has this state and no deltas: kind, number and contents."""
    cells = list(_packed({**header, "after": ""}, blocks))
    yield from ((PART, number, cell) for number, cell in enumerate(cells))
    stamp = StateStamp(os.urandom(8), parts=[StatePart(cells=len(cells), bytes=sum(map(len, cells)))])
    yield STAMP_KIND, 0, stamp_cell(stamp.stored())


def _packed(header: dict[str, Any], blocks: list[bytes]) -> Iterator[bytes]:
    """Packs blocks into cells of a size that Spark can send to the store."""
    batch: list[bytes] = []
    for block in blocks:
        if batch and sum(map(len, batch)) + len(block) > _LARGE:
            yield _cell(header, batch)
            batch = []
        batch.append(block)
    yield _cell(header, batch)


def _cell(header: dict[str, Any], blocks: list[bytes]) -> bytes:
    return pack(header, pa.record_batch([pa.array(blocks, pa.binary())], schema=BLOCK_SCHEMA))
