"""Opens tables of Apache Iceberg, by the package `pyiceberg`, which is an optional dependency.

The last batch of a writer is a property of the table, set by the commit that adds the batch: snapshots, which have it,
too, expire. PyIceberg tries again by itself when another commit was first, without a look at what that was; here it
must not, since that commit may have been the same batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from headrace.edges.lakes import LakeConflict, LakeError, conformed, error_text, plain_schema
from headrace.model.errors import PipelineError
from headrace.model.lakes import Catalog

_FILE: Final = 256 << 20
"""Bytes in memory of which a file is made."""
_BATCH: Final = "headrace.batch."
"""How the names of properties begin that have the last batch of a writer."""
_RETRIES: Final = "commit.retry.num-retries"


class IcebergLakeTable:
    """A table of Iceberg.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    >>> table = IcebergLakeTable.create("shop.sales", catalog, pa.schema({"n": pa.int64()}))
    >>> added = list(table.files().write(iter([pa.record_batch({"n": [1, 2]})])))
    >>> table.commit("stream/sink", 7, added, [])
    >>> table.written("stream/sink"), [table.files().read(file, ["n"]) is not None for file in table.data_files()]
    (7, [True])
    """

    def __init__(self, table: Any, options: Mapping[str, str], snapshot: int | None = None) -> None:
        self._table, self._options, self._snapshot = table, options, snapshot

    @classmethod
    def find(cls, name: str, catalog: Catalog, snapshot: int | None = None) -> IcebergLakeTable | None:
        """Opens a table, as it is now or was in a snapshot; None if there is none."""
        opened, options = _opened(catalog)
        with _explained(name, options):
            if not opened.table_exists(name):
                return None
            table = opened.load_table(name)
            if snapshot is not None and table.snapshot_by_id(snapshot) is None:
                raise LakeError(f"it has no snapshot {snapshot}; see its history for those that have not expired")
            return cls(table, options, snapshot)

    @classmethod
    def create(cls, name: str, catalog: Catalog, columns: pa.Schema) -> IcebergLakeTable:
        """Creates a table, unless another was quicker."""
        opened, options = _opened(catalog)
        with _explained(name, options):
            opened.create_namespace_if_not_exists(name.rpartition(".")[0])
            return cls(opened.create_table_if_not_exists(name, columns), options)

    @property
    def columns(self) -> pa.Schema:
        return plain_schema(self._table.schema().as_arrow())

    def check_writable(self, *, merges: bool) -> None:
        written = self._table.properties.get("write.format.default", "parquet")
        if written.lower() != "parquet":
            raise LakeError(f"the table has write.format.default={written!r}; Headrace writes Parquet")

    def refresh(self) -> None:
        with self._explained():
            self._table.refresh()

    def written(self, writer: str) -> int:
        return int(self._table.properties.get(_BATCH + writer, -1))

    def data_files(self) -> list[bytes]:
        with self._explained():
            return [pickle.dumps(task) for task in self._table.scan(snapshot_id=self._snapshot).plan_files()]

    def files(self) -> IcebergFiles:
        table = self._table
        return IcebergFiles(table.metadata.model_dump_json(), dict(table.io.properties), self.columns)

    def commit(self, writer: str | None, batch: int, added: Sequence[bytes], removed: Sequence[bytes]) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        notes: dict[str, str] = {}
        if writer is not None:
            stream, _, sink = writer.partition("/")
            notes = {"headrace.stream": stream, "headrace.sink": sink, "headrace.batch": str(batch)}
        self._table.metadata.properties[_RETRIES] = "0"  # of this copy: the catalog has its own
        try:
            with self._explained():
                transaction = self._table.transaction()
                update = transaction.update_snapshot(snapshot_properties=notes)
                with update.overwrite() if removed else update.fast_append() as files:
                    for task in removed:
                        files.delete_data_file(pickle.loads(task).file)
                    for file in added:
                        files.append_data_file(pickle.loads(file))
                if writer is not None:
                    transaction.set_properties({_BATCH + writer: str(batch)})
                transaction.commit_transaction()
        except LakeError as error:
            if isinstance(error.__cause__, CommitFailedException | ValidationException):
                raise LakeConflict(str(error)) from None
            raise

    def _explained(self) -> Any:
        return _explained(".".join(self._table.name()), self._options)


@dataclass(frozen=True)
class IcebergFiles:
    """Writes and reads the data files of a table, which is known by its metadata."""

    metadata: str
    properties: dict[str, str]
    columns: pa.Schema

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        for rows in _tables(conformed(batch, self.columns) for batch in batches if batch.num_rows):
            for file in _dataframe_to_data_files(self._table_metadata, rows, self._io):
                yield pickle.dumps(file)

    def read(self, file: bytes, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        metadata = self._table_metadata
        scan = ArrowScan(metadata, self._io, metadata.schema().select(*columns), AlwaysTrue())
        wanted = pa.schema([self.columns.field(name) for name in columns])
        for batch in scan.to_record_batches([pickle.loads(file)]):
            yield conformed(batch, wanted)

    @cached_property
    def _table_metadata(self) -> Any:
        from pyiceberg.table.metadata import TableMetadataUtil

        return TableMetadataUtil.parse_raw(self.metadata)

    @cached_property
    def _io(self) -> Any:
        from pyiceberg.io import load_file_io

        return load_file_io(self.properties, self._table_metadata.location)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields rows in portions of which files are made."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _FILE:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _opened(catalog: Catalog) -> tuple[Any, Mapping[str, str]]:
    """Opens a catalog; returns its properties, too."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise PipelineError("tables of Iceberg need a client; install it: pip install 'headrace[lakes]'") from None
    named = {"name": catalog} if isinstance(catalog, str) else dict(catalog)
    with _explained("of the catalog", named):
        opened = load_catalog(**named)
    return opened, {**opened.properties}


@contextmanager
def _explained(name: str, options: Mapping[str, str]) -> Iterator[None]:
    """Names the table in errors of the library."""
    try:
        yield
    except LakeError as error:
        raise LakeError(f"the table {name}: {error}") from error.__cause__
    except Exception as error:  # the library's errors have no class in common
        raise LakeError(f"the table {name}: {error_text(error, options)}") from error
