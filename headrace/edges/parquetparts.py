"""Writes Parquet files with the columns, types and notes that Spark's writer gives them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from headrace.edges.outputs import WrittenFile, measured
from headrace.edges.parquetfiles import is_plain

_ROW_GROUP: Final = 64 << 20
"""Bytes in memory of which a row group is made."""


def is_writable(kind: pa.DataType) -> bool:
    """Tells whether columns of this type are written: plain ones, and lists of them.

    >>> is_writable(pa.list_(pa.timestamp("us", "UTC"))), is_writable(pa.struct([("n", pa.int64())]))
    (True, False)
    """
    return is_writable(kind.value_type) if types.is_list(kind) else is_plain(kind)


class ParquetPart:
    """A file that is being written. `notes` are its key-value metadata; `int96`: times have 96 bits.

    >>> import tempfile
    >>> part = ParquetPart(Path(tempfile.mkdtemp()) / "part", pa.schema([("n", pa.int64())]), {"by": "a test"})
    >>> part.write(pa.record_batch({"n": [1, 2]}))
    >>> part.close().name, part.rows, pq.read_table(part.path).to_pydict()
    ('part', 2, {'n': [1, 2]})
    """

    def __init__(self, path: Path, schema: pa.Schema, notes: Mapping[str, str], *, int96: bool = False) -> None:
        self.path, self.rows = path, 0
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        # Decimals are numbers where they fit into 64 bits, and the schema of Arrow is no part of the file, as Spark's.
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="snappy",
            use_deprecated_int96_timestamps=int96,
            store_schema=False,
            store_decimal_as_integer=True,
        )
        self._writer.add_key_value_metadata(dict(notes))

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows, which are written once they make a row group."""
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._bytes >= _ROW_GROUP:
            self._flush()

    def close(self) -> WrittenFile:
        """Completes the file; returns its name, size and checksum."""
        self._flush()
        self._writer.close()
        return measured(self.path)

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._bytes = [], 0
