"""Declares tables of data lakes, Delta Lake and Apache Iceberg, as sinks and sources.

The clients that open and commit them are in `headrace.edges`; what reads and writes their rows is in the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.model.badrecords import Bad
from headrace.model.errors import PipelineError
from headrace.model.tables import Mode, TableSink
from headrace.model.tablesources import TableSource
from headrace.model.watermarks import Monotonic, WatermarkPolicy

Catalog = str | Mapping[str, str]
"""A catalog of Iceberg: its name in PyIceberg's configuration, or its properties."""


class WriteLake(TableSink):
    """A sink that writes elements to a table of a data lake: workers write data files, the driver commits them.

    Each micro-batch is one commit, which carries the stream and the number of the batch: one that is repeated after a
    crash finds itself in the table, and is not written again. Files of an attempt that was not committed are no part
    of the table.

    The table is created if it does not exist. Elements have columns; `columns` names the parts of plain tuples.
    "window_start" and "window_end" in `key`, in `columns` or in an existing table are the bounds of the element's
    window.

    `mode` says what an element does, as in `WriteTable`:

    - "append": adds a row. If the pipeline has retractions, a column `sign` is -1 in their rows and 1 in the others
    - "upsert": replaces the rows with its `key`. A retraction that is not replaced deletes the row that is equal to it
    - "retract": adds a row; a retraction deletes one, that with its `key`, or else an equal one

    "upsert" and "retract" write the data files anew in which a row changes. No other writer may change the same rows.
    """


class WriteDelta(WriteLake):
    """Writes elements to a table of Delta Lake, each micro-batch in one commit, and once even after a crash.

    `path` is the directory of the table, or its address in an object store, "s3://bucket/table"; `storage_options` are
    those of the package `deltalake`, e.g. {"AWS_REGION": "eu-west-1"}. It needs `pip install 'headrace[lakes]'`.

    `mode` is "append", "upsert" or "retract", as in `WriteTable`: elements add rows, replace the rows of their `key`,
    or delete rows if they are retractions. `columns` names the parts of plain tuples.

    >>> import headrace as hr, tempfile
    >>> from deltalake import DeltaTable
    >>> folder = tempfile.mkdtemp() + "/counts"
    >>> with hr.Pipeline() as p:
    ...     counts = p | hr.Create([("a", 2), ("b", 1)])
    ...     counts | hr.WriteDelta(folder, columns=["word", "n"], key="word", mode="upsert")
    >>> sorted(DeltaTable(folder).to_pyarrow_table().to_pylist(), key=str)
    [{'word': 'a', 'n': 2}, {'word': 'b', 'n': 1}]
    """

    def __init__(
        self,
        path: str,
        *,
        key: str | Sequence[str] = (),
        mode: Mode = "append",
        columns: Sequence[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.path, self.storage_options = _path("WriteDelta", path), _texts("WriteDelta", storage_options)
        self._take_rows(key, mode, columns)

    def __str__(self) -> str:
        return f"WriteDelta({self.path!r}{_key(self)}, mode={self.mode!r})"


class WriteIceberg(WriteLake):
    """Writes elements to a table of Apache Iceberg, each micro-batch in one commit, and once even after a crash.

    `table` is its name in the catalog, "shop.sales"; a namespace that does not exist is created. `catalog` is the name
    of a catalog in PyIceberg's configuration, or its properties, to which "name" may be added. It needs
    `pip install 'headrace[lakes]'`.

    `mode` is "append", "upsert" or "retract", as in `WriteTable`: elements add rows, replace the rows of their `key`,
    or delete rows if they are retractions. `columns` names the parts of plain tuples.

    >>> import headrace as hr, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([("a", 2), ("b", 1)]) | hr.WriteIceberg("shop.counts", catalog=catalog, columns=["word", "n"])
    >>> from pyiceberg.catalog import load_catalog
    >>> sorted(load_catalog(**catalog).load_table("shop.counts").scan().to_arrow().to_pylist(), key=str)
    [{'word': 'a', 'n': 2}, {'word': 'b', 'n': 1}]
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: Catalog,
        key: str | Sequence[str] = (),
        mode: Mode = "append",
        columns: Sequence[str] | None = None,
    ) -> None:
        self.table, self.catalog = _table("WriteIceberg", table), _catalog("WriteIceberg", catalog)
        self._take_rows(key, mode, columns)

    def __str__(self) -> str:
        return f"WriteIceberg({self.table!r}{_key(self)}, mode={self.mode!r})"


class LakeSource(TableSource):
    """A source of the rows of a data lake's table, as of one version of it."""


class ReadDelta(LakeSource):
    """Reads the rows of a table of Delta Lake: as they are now, or as they were in a `version`.

    `path` and `storage_options` are those of `WriteDelta`; `schema`, `event_time`, `watermark` and `bad` those of
    `ReadTable`. Workers read the data files. A stream reads the table when it first starts, and stores what it read in
    its checkpoint.

    >>> import headrace as hr, pyarrow as pa, tempfile
    >>> from deltalake import write_deltalake
    >>> write_deltalake(folder := tempfile.mkdtemp() + "/sales", pa.table({"city": ["Rome", "Oslo"], "n": [1, 2]}))
    >>> with hr.Pipeline() as p:
    ...     sales = p | hr.ReadDelta(folder) | hr.Where("n > 1") | hr.Collect()
    >>> list(sales)
    [Row(city='Oslo', n=2)]
    """

    def __init__(
        self,
        path: str,
        *,
        version: int | None = None,
        schema: Any = None,
        event_time: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        self.path, self.storage_options = _path("ReadDelta", path), _texts("ReadDelta", storage_options)
        self.version = _number("ReadDelta", "version", version)
        super().__init__(path, None, schema, event_time, None, None, watermark, bad)

    def __str__(self) -> str:
        return f"ReadDelta({self.path!r}{'' if self.version is None else f', version={self.version}'})"


class ReadIceberg(LakeSource):
    """Reads the rows of a table of Apache Iceberg: as they are now, or as they were in a `snapshot`.

    `table` and `catalog` are those of `WriteIceberg`; `schema`, `event_time`, `watermark` and `bad` those of
    `ReadTable`. Workers read the data files. A stream reads the table when it first starts, and stores what it read in
    its checkpoint.

    >>> import headrace as hr, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    >>> with hr.Pipeline() as p:
    ...     p | hr.Create([("a", 2)]) | hr.WriteIceberg("shop.counts", catalog=catalog, columns=["word", "n"])
    >>> with hr.Pipeline() as p:
    ...     counts = p | hr.ReadIceberg("shop.counts", catalog=catalog) | hr.Collect()
    >>> list(counts)
    [Row(word='a', n=2)]
    """

    def __init__(
        self,
        table: str,
        *,
        catalog: Catalog,
        snapshot: int | None = None,
        schema: Any = None,
        event_time: str | None = None,
        watermark: WatermarkPolicy = Monotonic(),
        bad: Bad = "dead_letters",
    ) -> None:
        self.catalog = _catalog("ReadIceberg", catalog)
        self.snapshot = _number("ReadIceberg", "snapshot", snapshot)
        super().__init__(_table("ReadIceberg", table), None, schema, event_time, None, None, watermark, bad)

    def __str__(self) -> str:
        return f"ReadIceberg({self.table!r}{'' if self.snapshot is None else f', snapshot={self.snapshot}'})"


def _key(sink: WriteLake) -> str:
    return f", key={list(sink.key)!r}" if sink.key else ""


def _path(who: str, path: Any) -> str:
    if not isinstance(path, str) or not path:
        raise PipelineError(f"{who} takes the path of a table's directory, or its address in a store, got {path!r}")
    if path.startswith(("s3a://", "s3n://")):
        raise PipelineError(
            f"{who}: {path!r} is how Hadoop writes the address; write {'s3' + path[3:]!r}, and access to the store as "
            "storage_options={...}"
        )
    return path


def _table(who: str, table: Any) -> str:
    if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
        raise PipelineError(f"{who} takes the name of a table with its namespace, such as 'shop.sales', got {table!r}")
    return table


def _catalog(who: str, catalog: Any) -> Catalog:
    if isinstance(catalog, str) and catalog:
        return catalog
    if not isinstance(catalog, Mapping) or not catalog:
        raise PipelineError(
            f"{who}: catalog is the name of one in PyIceberg's configuration, or its properties, such as "
            "{'type': 'sql', 'uri': 'sqlite:///catalog.db', 'warehouse': 'file:///data/lake'}, got "
            f"{type(catalog).__name__}"
        )
    return _texts(who, catalog)


def _texts(who: str, options: Any) -> dict[str, str]:
    """Returns options as a dict. Their values may be secrets, so no message has them."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(text, str) for pair in options.items() for text in pair):
        raise PipelineError(f"{who}: options of a store or catalog are texts by name, such as {{'AWS_REGION': 'eu'}}")
    return dict(options)


def _number(who: str, option: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise PipelineError(f"{who}: {option} is a number, got {value!r}")
    return value
