"""Reads tables and queries of databases as Arrow batches, in ranges of a column that can be read at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.types import NullType, TypeEngine

from headrace.edges.columntypes import column_kind, sql_type
from headrace.edges.databases import DatabaseError, error_text, open_database, set_patience
from headrace.edges.tablestatements import DatabaseTable, split_name
from headrace.model.knowncolumns import nearest_name, no_column

_ROWS: Final = 20_000  # rows of a batch
_PATIENCE: Final = 3_600.0  # seconds for a statement: users' queries may take long
_VIEW: Final = "headrace_query"
"""The name of a temporary view that tells the types of a query's columns; it is dropped at once."""
_SPLIT: Final = (int, float, Decimal, date, datetime)
"""Values that a range can be divided by."""

ScanColumns = tuple[tuple[str, TypeEngine[Any], pa.DataType], ...]
"""Columns by name, with their types in SQL and in Arrow."""


@dataclass(frozen=True)
class TableScan:
    """A scan of a table or query, in ranges of `partition_column` between `splits`, as of a `snapshot` if there is one.

    Ranges are open at both ends: rows that come meanwhile are read by one partition. Nulls are in the first.
    """

    url: URL
    table: str | None
    query: str | None
    columns: ScanColumns
    partition_column: str | None = None
    splits: tuple[Any, ...] = ()
    snapshot: str | None = None

    @property
    def partitions(self) -> int:
        return len(self.splits) + 1

    def schema(self) -> pa.Schema:
        return pa.schema([(name, arrow) for name, _, arrow in self.columns])

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Reads one of the ranges."""
        with _connected(self.url) as connection:
            if self.snapshot is not None:
                connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{self.snapshot}'")
            rows = connection.execution_options(yield_per=_ROWS).execute(self._select(partition))
            for part in rows.partitions():
                yield _batch(part, self.schema())

    def _select(self, partition: int) -> sa.Select[Any]:
        source = _source(self.table, self.query, self.columns)
        select = sa.select(*map(_selected, source.columns))
        if self.partition_column is None:
            return select
        column = source.columns[self.partition_column]
        if partition > 0:
            select = select.where(column >= self.splits[partition - 1])
        if partition < len(self.splits):
            below = column < self.splits[partition]
            select = select.where(below if partition else sa.or_(below, column.is_(None)))
        return select


def table_scan(
    url: URL,
    table: str | None,
    query: str | None,
    *,
    wanted: pa.Schema | None = None,
    partition_column: str | None = None,
    partitions: int = 1,
) -> TableScan:
    """Makes the scan of a table or query, in at most so many partitions. `wanted` are the columns, if not all are.

    >>> import sqlite3, tempfile
    >>> file = tempfile.mkdtemp() + "/a.db"
    >>> with sqlite3.connect(file) as database:
    ...     _ = database.execute("CREATE TABLE t (n INTEGER, city TEXT)")
    ...     _ = database.execute("INSERT INTO t VALUES (1, 'Rome'), (2, 'Oslo')")
    >>> scan = table_scan(sa.make_url(f"sqlite:///{file}"), "t", None, partition_column="n", partitions=2)
    >>> scan.splits, [[batch.to_pylist() for batch in scan.read(each)] for each in (0, 1)]
    ((2,), [[[{'n': 1, 'city': 'Rome'}]], [[{'n': 2, 'city': 'Oslo'}]]])
    """
    with _connected(url) as connection:
        columns = _columns(connection, table, query, wanted)
        scan = TableScan(url, table, query, columns, partition_column)
        if partition_column is None:
            return scan
        known = {name: type for name, type, _ in columns}
        if partition_column not in known:
            raise DatabaseError(no_column(partition_column, known))
        column = _source(table, query, columns).columns[partition_column]
        low, high = connection.execute(sa.select(sa.func.min(column), sa.func.max(column))).one()
        return replace(scan, splits=_splits(partition_column, low, high, partitions))


@contextmanager
def one_snapshot(scan: TableScan) -> Iterator[TableScan]:
    """Gives the scan as of one instant, for as long as it is open, where the database can: PostgreSQL."""
    if scan.url.get_backend_name() != "postgresql":
        yield scan
        return
    with _connected(scan.url) as connection:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield replace(scan, snapshot=connection.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())


@contextmanager
def _connected(url: URL) -> Iterator[Connection]:
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            set_patience(connection, _PATIENCE)
            yield connection
    except SQLAlchemyError as error:
        raise DatabaseError(error_text(error, url)) from None
    finally:
        engine.dispose()


def _source(table: str | None, query: str | None, columns: ScanColumns) -> sa.FromClause:
    named = [sa.Column(name, type) for name, type, _ in columns]
    if table is not None:
        schema, name = split_name(table)
        return sa.Table(name, sa.MetaData(), *named, schema=schema)
    # A colon begins a parameter in SQLAlchemy, and there are none.
    return sa.text(str(query).replace(":", r"\:")).columns(*named).subquery("q")


def _selected(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Returns a column as it is read: what is text in a collection but not in the database, as the latter writes it."""
    return sa.cast(column, sa.Text).label(column.name) if isinstance(column.type, sa.JSON | sa.Uuid) else column


def _columns(connection: Connection, table: str | None, query: str | None, wanted: pa.Schema | None) -> ScanColumns:
    if wanted is not None:
        return tuple(
            (field.name, sql_type(field.name, column_kind(field.name, field.type)), field.type) for field in wanted
        )
    if table is not None:
        found = DatabaseTable.find(connection, table)
        if found is None:
            raise DatabaseError(_no_table(connection, table))
        types = found.types
    else:
        types = _query_types(connection, str(query))
    dynamic = [name for name, type in types.items() if _is_dynamic(type, connection)]
    observed = _observed_types(connection, _source(table, query, _untyped(types)), dynamic) if dynamic else {}
    return tuple(
        (name, NullType(), observed[name]) if name in observed else (name, type, _arrow_type(name, type))
        for name, type in types.items()
    )


def _no_table(connection: Connection, table: str) -> str:
    schema, name = split_name(table)
    nearest = nearest_name(name, sa.inspect(connection).get_table_names(schema=schema))
    hint = "; tables" if nearest is None else f", did you mean {nearest!r}? Tables"
    return f"there is no table {table!r}{hint} of another schema are written SCHEMA.TABLE"


def _untyped(types: dict[str, TypeEngine[Any]]) -> ScanColumns:
    return tuple((name, NullType(), pa.null()) for name in types)


def _query_types(connection: Connection, query: str) -> dict[str, TypeEngine[Any]]:
    """Returns the types of a query's columns, as the database has them for a view of it."""
    with connection.begin_nested():
        escaped = query.replace("%", "%%") if connection.dialect.name == "postgresql" else query
        connection.exec_driver_sql(f"CREATE TEMPORARY VIEW {_VIEW} AS {escaped}")
        try:
            return {column["name"]: column["type"] for column in sa.inspect(connection).get_columns(_VIEW)}
        finally:
            connection.exec_driver_sql(f"DROP VIEW {_VIEW}")


def _is_dynamic(type: TypeEngine[Any], connection: Connection) -> bool:
    """Returns whether only the values say of which type they are: in SQLite, of expressions and of odd types."""
    numeric = isinstance(type, sa.Numeric) and not isinstance(type, sa.Float)
    return connection.dialect.name == "sqlite" and (isinstance(type, NullType) or numeric)


def _observed_types(connection: Connection, source: sa.FromClause, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Returns the types of the values that columns of SQLite have."""
    types = {}
    for name in names:
        kinds = set(connection.execute(sa.select(sa.func.typeof(source.columns[name])).distinct()).scalars()) - {"null"}
        if kinds == {"integer", "real"}:
            kinds = {"real"}
        if len(kinds) > 1:
            raise DatabaseError(
                f"the column {name!r} has values of several types ({', '.join(sorted(kinds))}); CAST it in query=..., "
                "or give a schema=..."
            )
        types[name] = _OBSERVED[kinds.pop() if kinds else "text"]
    return types


def _arrow_type(name: str, type: TypeEngine[Any]) -> pa.DataType:
    if isinstance(type, sa.Numeric) and not isinstance(type, sa.Float):
        return pa.decimal128(
            type.precision or 38, (18 if type.precision is None else 0) if type.scale is None else type.scale
        )
    if isinstance(type, sa.ARRAY):
        return pa.list_(_arrow_type(name, type.item_type))
    for kinds, arrow in _ARROW_TYPES.items():
        if isinstance(type, kinds):
            return arrow
    raise DatabaseError(
        f"the column {name!r} is {type}, which no column of a collection can be; read it as text: "
        f"query='SELECT ..., CAST({name} AS TEXT) AS {name} FROM ...'"
    )


def _batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    columns = [_array(field, values) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
    return pa.record_batch(columns, schema=schema)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DatabaseError(
            f"the column {field.name!r} is read as {field.type}, but not all of its values are that: {error}; CAST it "
            "in query=..., or give a schema=..."
        ) from None


def _splits(name: str, low: Any, high: Any, partitions: int) -> tuple[Any, ...]:
    """Divides the range from `low` to `high`.

    >>> _splits("n", 1, 10, 3), _splits("n", 5, 5, 3), _splits("n", None, None, 3)
    ((4, 7), (), ())
    """
    if low is None or low == high or partitions == 1:
        return ()
    if not isinstance(low, _SPLIT) or isinstance(low, bool):
        raise DatabaseError(
            f"the column {name!r} has values such as {low!r}, which cannot be divided into ranges; give a "
            "partition_column of numbers, dates or timestamps"
        )
    if isinstance(low, int) and isinstance(high, int):
        at = [low + (high + 1 - low) * part // partitions for part in range(1, partitions)]
    else:
        at = [low + (high - low) / partitions * part for part in range(1, partitions)]
    return tuple(sorted(value for value in set(at) if low < value <= high))


_ARROW_TYPES: Final[dict[tuple[type[TypeEngine[Any]], ...], pa.DataType]] = {
    (sa.Boolean,): pa.bool_(),
    (sa.Integer,): pa.int64(),
    (sa.Float,): pa.float64(),
    (sa.String, sa.Uuid, sa.JSON): pa.string(),
    (sa.LargeBinary,): pa.binary(),
    (sa.DateTime,): pa.timestamp("us", tz="UTC"),
    (sa.Date,): pa.date32(),
}
_OBSERVED: Final = {"integer": pa.int64(), "real": pa.float64(), "text": pa.string(), "blob": pa.binary()}
