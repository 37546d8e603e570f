"""Opens tables of Delta Lake, by the package `deltalake`, which is an optional dependency."""

from __future__ import annotations

import json
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from headrace.edges.lakes import LakeConflict, LakeError, conformed, error_text, plain_schema
from headrace.model.errors import PipelineError
from headrace.model.times import now

_ROW_GROUP: Final = 64 << 20
"""Bytes in memory of which a row group is made."""
_LONGEST_BOUND: Final = 32
"""Characters of a text that is noted as the least or greatest of a file."""
_FEATURES: Final = {"appendOnly", "invariants", "timestampNtz", "domainMetadata", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of tables that ask nothing of whoever adds files of rows."""
_RULES: Final = ("delta.invariants", "delta.generationExpression", "delta.identity.start")
"""Notes of columns whose values a writer has to check or to make."""


class AddedFile(NamedTuple):
    """A file that a worker wrote: its name in the table's directory, size, time in milliseconds, and statistics."""

    path: str
    size: int
    time: int
    stats: str


class DataFile(NamedTuple):
    """A file of the table: its path in the table's directory, and the values of partition columns."""

    path: str
    partition: dict[str, Any]


class DeltaLakeTable:
    """A table of Delta Lake.

    >>> import tempfile
    >>> table = DeltaLakeTable.create(tempfile.mkdtemp() + "/t", {}, pa.schema({"n": pa.int64()}))
    >>> added = list(table.files().write(iter([pa.record_batch({"n": [1, 2]})])))
    >>> table.commit("stream/sink", 7, added, [])
    >>> table.written("stream/sink"), [table.files().read(file, ["n"]) is not None for file in table.data_files()]
    (7, [True])
    """

    def __init__(self, table: Any, options: Mapping[str, str]) -> None:
        self._table, self._options = table, dict(options)

    @classmethod
    def find(cls, path: str, options: Mapping[str, str], version: int | None = None) -> DeltaLakeTable | None:
        """Opens a table, as it is now or was in a version; None if there is none."""
        deltalake = _library()
        with _explained(path, options):
            if not deltalake.DeltaTable.is_deltatable(_located(path), dict(options)):
                return None
            return cls(deltalake.DeltaTable(_located(path), version, dict(options)), options)

    @classmethod
    def create(cls, path: str, options: Mapping[str, str], columns: pa.Schema) -> DeltaLakeTable:
        """Creates a table, unless another was quicker."""
        deltalake = _library()
        with _explained(path, options):
            schema = deltalake.Schema.from_arrow(columns)
            table = deltalake.DeltaTable.create(_located(path), schema, mode="ignore", storage_options=dict(options))
            return cls(table, options)

    @property
    def columns(self) -> pa.Schema:
        return plain_schema(pa.schema(self._table.schema().to_arrow()))

    def check_writable(self, *, merges: bool) -> None:
        metadata, protocol = self._table.metadata(), self._table.protocol()
        if metadata.partition_columns:
            raise LakeError(
                f"the table is partitioned by {', '.join(metadata.partition_columns)}, and Headrace writes tables of "
                "Delta Lake that are not; write to another table, or to one of Iceberg, which may be"
            )
        unknown = {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _FEATURES
        if "changeDataFeed" in unknown and not merges:
            unknown.discard("changeDataFeed")
        rules = [name for name in metadata.configuration if name.startswith("delta.constraints.")]
        rules += [note for field in self._table.schema().fields for note in _RULES if note in field.metadata]
        if metadata.configuration.get("delta.enableChangeDataFeed") == "true" and merges:
            rules.append("delta.enableChangeDataFeed")
        if unknown or rules:
            raise LakeError(
                f"the table asks more of a writer than files of rows: {', '.join(sorted({*unknown, *rules}))}; write "
                "to a table without it"
            )

    def refresh(self) -> None:
        with self._explained():
            self._table.update_incremental()

    def written(self, writer: str) -> int:
        number = self._table.transaction_version(writer)
        return -1 if number is None else int(number)

    def data_files(self) -> list[bytes]:
        import pyarrow.dataset as ds

        with self._explained():
            fragments = list(self._table.to_pyarrow_dataset().get_fragments())
        # The expression of a fragment also says what statistics do: that a column has only nulls, for instance.
        names = {*self._table.metadata().partition_columns}
        keys = (
            [ds.get_partition_keys(each.partition_expression) for each in fragments] if names else [{}] * len(fragments)
        )
        return [
            pickle.dumps(DataFile(each.path, {name: value for name, value in values.items() if name in names}))
            for each, values in zip(fragments, keys, strict=True)
        ]

    def files(self) -> DeltaFiles:
        return DeltaFiles(self._table.table_uri, self._options, self.columns)

    def commit(self, writer: str | None, batch: int, added: Sequence[bytes], removed: Sequence[bytes]) -> None:
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

        files = [AddedFile(*pickle.loads(each)) for each in added]
        gone = [DataFile(*pickle.loads(each)) for each in removed]
        sizes = self._sizes() if gone else {}
        actions = [
            *(AddAction(each.path, each.size, {}, each.time, True, each.stats) for each in files),
            *(RemoveAction(each.path, True, now() // 1000, sizes[each.path], {}) for each in gone),
        ]
        properties = CommitProperties(
            app_transactions=[] if writer is None else [Transaction(writer, batch)],
            custom_metadata={"headrace": "a batch run" if writer is None else f"batch {batch} of {writer}"},
        )
        try:
            with self._explained():
                self._table.create_write_transaction(
                    actions, "append", self._table.schema(), commit_properties=properties
                )
        except LakeError as error:
            if isinstance(error.__cause__, CommitFailedError):
                raise LakeConflict(str(error)) from None
            raise
        self.refresh()

    def _sizes(self) -> dict[str, int]:
        """Returns the sizes of the table's files, by path."""
        actions = pa.table(self._table.get_add_actions())
        return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))

    def _explained(self) -> Any:
        return _explained(self._table.table_uri, self._options)


@dataclass(frozen=True)
class DeltaFiles:
    """Writes and reads the data files of a table."""

    uri: str
    options: dict[str, str]
    columns: pa.Schema

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        rows = (conformed(batch, self.columns) for batch in batches if batch.num_rows)
        if (first := next(rows, None)) is None:
            return
        path = f"part-{uuid.uuid4().hex}.snappy.parquet"
        waiting, size = [first], first.nbytes
        with (
            self._file_system.open_output_stream(path) as file,
            pq.ParquetWriter(file, self.columns, compression="snappy") as writer,
        ):
            for batch in rows:
                if size >= _ROW_GROUP:
                    writer.write_table(pa.Table.from_batches(waiting))
                    waiting, size = [], 0
                waiting.append(batch)
                size += batch.nbytes
            writer.write_table(pa.Table.from_batches(waiting))
        info = self._file_system.get_file_info(path)
        with self._file_system.open_input_file(path) as file:
            stats = json.dumps(statistics(pq.read_metadata(file)))
        yield pickle.dumps(tuple(AddedFile(path, info.size, info.mtime_ns // 1_000_000, stats)))

    def read(self, file: bytes, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        path, partition = pickle.loads(file)
        wanted = pa.schema([self.columns.field(name) for name in columns])
        with self._file_system.open_input_file(path) as opened, pq.ParquetFile(opened) as parquet:
            stored = [name for name in columns if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(columns=stored):
                for name in columns:
                    if name in partition:
                        values = pa.repeat(pa.scalar(partition[name], wanted.field(name).type), batch.num_rows)
                        batch = batch.append_column(name, values)
                yield conformed(batch, wanted)

    @cached_property
    def _file_system(self) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_file_system"}


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Returns the statistics of a file, as the log of a table has them: rows, and bounds of numbers and short texts.

    >>> pq.write_table(pa.table({"n": [1, 2], "x": ["a", None]}), file := pa.BufferOutputStream())
    >>> statistics(pq.read_metadata(pa.BufferReader(file.getvalue())))["minValues"]
    {'n': 1, 'x': 'a'}
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    schema = metadata.schema.to_arrow_schema()
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        parts = [metadata.row_group(each).column(number).statistics for each in range(metadata.num_row_groups)]
        if name not in schema.names or not all(part is not None and part.has_null_count for part in parts):
            continue  # a part of a nested column
        nulls[name] = sum(part.null_count for part in parts)
        bounded = [part for part in parts if part.has_min_max]
        kind = schema.field(name).type
        if len(bounded) < len(parts) or not (types.is_signed_integer(kind) or types.is_string(kind)):
            continue
        bounds = min(part.min for part in parts), max(part.max for part in parts)
        if types.is_signed_integer(kind) or max(map(len, bounds)) <= _LONGEST_BOUND:
            least[name], greatest[name] = bounds
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _library() -> Any:
    try:
        import deltalake
    except ImportError:
        raise PipelineError("tables of Delta Lake need a client; install it: pip install 'headrace[lakes]'") from None
    return deltalake


def _located(path: str) -> str:
    """Makes a relative path absolute: workers may be elsewhere."""
    return path if "://" in path else os.path.abspath(path)


@contextmanager
def _explained(path: str, options: Mapping[str, str]) -> Iterator[None]:
    """Names the table in errors of the library."""
    try:
        yield
    except Exception as error:  # the library's errors have no class in common
        raise LakeError(f"the table {path}: {error_text(error, options)}") from error
