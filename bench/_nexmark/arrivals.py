"""Nexmark's events as files, by batches, and what ends them: a few events that are a day later.

Files are made once, and linked into the folder of each form that is measured. Streams read so many a batch, in the
order of their times, so a batch is the same for all, and is there when the one before it is done. The last ones move
the watermark beyond all windows; their ids are negative, and they are all in one window, which nobody sees the end of.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from examples.nexmark.events import AUCTION, BID, EPOCH, PERSON, STEP, Events

FILES = 2
"""Files of a kind in a batch, one per core."""
SCHEMAS = {"person": PERSON, "auction": AUCTION, "bid": BID}
TICKS = 3
_DAY = 86_400_000_000
_SHARES = {"person": 1, "auction": 3, "bid": 46}


class Arrivals:
    """Seeded batches of these kinds, with about so many rows of all kinds each."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], rows: int, batches: int) -> None:
        self.folder, self.kinds = folder, kinds
        self.span = rows * EPOCH // sum(_SHARES[kind] for kind in kinds) // EPOCH * EPOCH
        """Events of a batch."""
        events = Events(seed=15)
        makers = {"person": events.persons, "auction": events.auctions, "bid": events.bids}
        for kind in kinds:
            for batch in range(batches):
                table = makers[kind](batch * self.span, (batch + 1) * self.span)
                self._write(kind, f"batch-{batch}", table)
            for tick in range(TICKS):
                self._write(kind, f"tick-{tick}", _tick(kind, batches * self.span * STEP + _DAY + tick))

    def _write(self, kind: str, name: str, table: pa.Table) -> None:
        folder = self.folder / kind / name
        folder.mkdir(parents=True)
        step = -(-table.num_rows // FILES)
        for part in range(FILES):
            if not part or step * part < table.num_rows:
                pq.write_table(table.slice(step * part, step), folder / f"{part}.parquet")

    def rows_of(self, kinds: tuple[str, ...]) -> int:
        """The rows of these kinds in a batch."""
        return self.span // EPOCH * sum(_SHARES[kind] for kind in kinds)

    def files(self, kind: str, batches: int) -> str:
        """The files of the first batches of a kind, as a glob."""
        return f"{self.folder}/{kind}/batch-[{''.join(map(str, range(batches)))}]/*.parquet"

    def folders(self, kinds: tuple[str, ...], batches: int) -> dict[str, str]:
        """Folders of the rows of the first batches, by kind: row by row in turns in two files, by time.

        A system that reads a file after the other in each of two tasks then gets events in order.
        """
        name = f"first-{batches}"
        for kind in kinds:
            if not (folder := self.folder / kind / name).exists():
                folder.mkdir()
                found = [self.folder / kind / f"batch-{batch}" for batch in range(batches)]
                table = pa.concat_tables([pq.read_table(file) for each in found for file in sorted(each.iterdir())])
                for part in range(FILES):
                    rows = np.arange(part, table.num_rows, FILES)
                    pq.write_table(table.take(rows), folder / f"{part}.parquet", row_group_size=100_000)
        return {kind: str(self.folder / kind / name) for kind in kinds}

    def arrive(self, name: str, target: Path) -> None:
        """Links a batch, or what ends them, into folders by kind, in each as a whole."""
        for kind in self.kinds:
            made = target / f".{kind}-{name}"
            made.mkdir(parents=True)
            for file in (self.folder / kind / name).iterdir():
                os.link(file, made / file.name)
            (target / kind).mkdir(exist_ok=True)
            made.rename(target / kind / name)


def _tick(kind: str, at: int) -> pa.Table:
    """An event of nobody, so many microseconds after the first."""
    first = Events().persons(0, 1).column("date_time").cast(pa.int64())[0].as_py()
    plain = {"int64": -1, "string": "", "timestamp[us, tz=UTC]": first + at}
    row = {field.name: [plain[str(field.type)]] for field in SCHEMAS[kind]}
    if kind == "auction":
        row |= {"id": [-2], "seller": [-3], "expires": [first + at + _DAY]}
    return pa.table(row, schema=SCHEMAS[kind])
