"""Inspects and creates tables, and inserts, upserts and deletes rows in bulk, in PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.types import TypeEngine

from headrace.edges.columntypes import Kind, bound_type, sql_type
from headrace.edges.databases import DatabaseError

Row = tuple[Any, ...]

_INSERT: Final[dict[str, Callable[[sa.Table], Any]]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_CHUNK: Final = 20_000  # rows in one statement
_ROW_ID: Final = {"postgresql": "ctid", "sqlite": "rowid"}


@dataclass(frozen=True)
class DatabaseTable:
    """A table in a database: the types of its columns, which of them need a value, and its unique keys."""

    name: str
    schema: str | None
    types: dict[str, TypeEngine[Any]]
    required: tuple[str, ...]
    unique: tuple[frozenset[str], ...]

    @classmethod
    def find(cls, connection: Connection, table: str) -> DatabaseTable | None:
        """Returns the table of this name, NAME or SCHEMA.NAME; None if it does not exist."""
        schema, name = split_name(table)
        inspector = sa.inspect(connection)
        if not inspector.has_table(name, schema=schema):
            return None
        columns = inspector.get_columns(name, schema=schema)
        unique: list[Sequence[Any]] = [
            inspector.get_pk_constraint(name, schema=schema)["constrained_columns"],
            *(constraint["column_names"] for constraint in inspector.get_unique_constraints(name, schema=schema)),
            *(index["column_names"] for index in inspector.get_indexes(name, schema=schema) if _is_unique(index)),
        ]
        return cls(
            name,
            schema,
            types={column["name"]: column["type"] for column in columns},
            required=tuple(column["name"] for column in columns if not column["nullable"] and not _has_default(column)),
            unique=tuple(frozenset(names) for names in unique if names),
        )

    @classmethod
    def create(cls, connection: Connection, table: str, kinds: Mapping[str, Kind], key: Sequence[str]) -> DatabaseTable:
        """Creates a table of this name with these columns."""
        schema, name = split_name(table)
        columns = [
            sa.Column(column, sql_type(column, kind), primary_key=column in key) for column, kind in kinds.items()
        ]
        sa.Table(name, sa.MetaData(), *columns, schema=schema).create(connection)
        created = cls.find(connection, table)
        assert created is not None
        return created


@dataclass(frozen=True)
class TableTarget:
    """Writes rows of certain columns to a table. Rows with the same `key` are the same row."""

    target: DatabaseTable
    table: sa.Table
    key: tuple[str, ...]
    dialect: str

    @classmethod
    def of(cls, target: DatabaseTable, kinds: Mapping[str, Kind], key: tuple[str, ...], dialect: str) -> TableTarget:
        """Returns the writer of these columns. Refuses columns that the table does not have, or of other types."""
        if missing := [name for name in kinds if name not in target.types]:
            raise DatabaseError(
                f"the table {target.name!r} has no column {missing[0]!r}, which elements have; its columns are "
                f"{', '.join(target.types)}: add it to the table, or leave it out with Select"
            )
        if needed := [name for name in target.required if name not in kinds]:
            raise DatabaseError(
                f"the column {needed[0]!r} of the table {target.name!r} needs a value, but elements have none; their "
                f"columns are {', '.join(kinds)}"
            )
        columns = [sa.Column(name, bound_type(name, kind, target.types[name], dialect)) for name, kind in kinds.items()]
        return cls(target, sa.Table(target.name, sa.MetaData(), *columns, schema=target.schema), key, dialect)

    @property
    def names(self) -> list[str]:
        return list(self.table.columns.keys())

    def keys(self, rows: Sequence[Row]) -> list[Row]:
        """Returns the key of each row. Refuses a None where the table needs a value."""
        at = [self.names.index(name) for name in self.key]
        keys = [tuple([row[i] for i in at]) for row in rows]
        for key in keys:
            if None in key:
                missing = [name for name, value in zip(self.key, key, strict=True) if value is None]
                if needed := [name for name in missing if name in self.target.required]:
                    raise DatabaseError(
                        f"the key {needed[0]!r} is None in {dict(zip(self.key, key, strict=True))}; a key must have a "
                        "value, unless the table has a unique index in place of a primary key"
                    )
        return keys

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Inserts rows."""
        self._execute(connection, self._insertion, rows)

    def upsert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Inserts rows, one for each key, or updates those that have their keys."""

        def statement(values: BoundValues) -> Any:
            insert = self._insertion(values)
            rest = {name: insert.excluded[name] for name in self.names if name not in self.key}
            if not rest:
                return insert.on_conflict_do_nothing(index_elements=self.key)
            return insert.on_conflict_do_update(index_elements=self.key, set_=rest)

        # To an index, no null equals another.
        nulls = [row for row, key in zip(rows, self.keys(rows), strict=True) if None in key]
        self._execute(connection, lambda values: sa.delete(self.table).where(*self._equal(values, self.key)), nulls)
        self.insert(connection, nulls)
        whole = [row for row, key in zip(rows, self.keys(rows), strict=True) if None not in key] if nulls else rows
        self._execute(connection, statement, whole)

    def delete_equal(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Deletes those of these rows that the table has with equal values."""
        self._execute(connection, lambda values: sa.delete(self.table).where(*self._equal(values, self.names)), rows)

    def newest(self, connection: Connection, name: str) -> Any:
        """Returns the greatest value of a column; None if there is none."""
        return connection.execute(sa.select(sa.func.max(self.table.columns[name]))).scalar()

    def delete_until(self, connection: Connection, name: str, value: Any) -> None:
        """Deletes the rows in which a column is not greater than a value."""
        connection.execute(sa.delete(self.table).where(self.table.columns[name] <= value))

    def delete(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Deletes the rows with these keys or, without a key, one equal row for each. Refuses if one is missing."""
        attempt = connection.begin_nested()
        if self._deleted(connection, rows) == len(rows):
            attempt.commit()
            return
        attempt.rollback()
        for row in rows:  # to name the one that is missing
            if not self._deleted(connection, [row]):
                raise DatabaseError(
                    f"a retraction takes back {dict(zip(self.names, row, strict=True))}, which is not in the table "
                    f"{self.target.name!r}; check whether others changed the table, or another run filled it"
                )

    def _deleted(self, connection: Connection, rows: Sequence[Row]) -> int:
        if self.key:
            return self._execute(
                connection, lambda values: sa.delete(self.table).where(*self._equal(values, self.key)), rows
            )
        # One of several equal rows must go, and not all of them, so they are deleted one by one.
        row_id: sa.ColumnElement[Any] = sa.literal_column(_ROW_ID[self.dialect])
        values = BoundValues.as_parameters(self.table)
        equal = sa.select(row_id).select_from(self.table).where(*self._equal(values, self.names)).limit(1)
        delete = sa.delete(self.table).where(row_id == equal.scalar_subquery())
        return sum(connection.execute(delete, row).rowcount for row in values.parameters(rows))

    def _insertion(self, values: BoundValues) -> Any:
        insert = _INSERT[self.dialect](self.table)
        if values.chunked:
            return insert.from_select(self.names, sa.select(*values.columns.values()))
        return insert.values(values.columns)

    def _equal(self, values: BoundValues, names: Sequence[str]) -> list[sa.ColumnElement[bool]]:
        """Returns the conditions for a row of the table to have these values."""
        conditions = []
        for name in names:
            column, value = self.table.columns[name], values.columns[name]
            if self.dialect == "postgresql":  # where a column may have rounded the value
                value = sa.cast(value, self.target.types[name])
            never_null = name in self.key and name in self.target.required
            conditions.append(column == value if never_null else column.is_not_distinct_from(value))
        return conditions

    def _execute(self, connection: Connection, statement: Callable[[BoundValues], Any], rows: Sequence[Row]) -> int:
        """Executes a statement for all rows, and returns the number of rows it changed."""
        if not rows:
            return 0
        if self.dialect == "sqlite":
            values = BoundValues.as_parameters(self.table)
            return connection.execute(statement(values), values.parameters(rows)).rowcount
        values = BoundValues.as_arrays(self.table)
        bulk = statement(values)
        chunks = [rows[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK)]
        return sum(connection.execute(bulk, values.arrays(chunk)).rowcount for chunk in chunks)


@dataclass(frozen=True)
class BoundValues:
    """The values of rows as a statement refers to them: parameters of one row, or columns of many rows in arrays.

    One statement with arrays costs PostgreSQL a third of a statement for each row; SQLite has no arrays.
    """

    columns: dict[str, sa.ColumnElement[Any]]
    chunked: bool

    @classmethod
    def as_parameters(cls, table: sa.Table) -> BoundValues:
        return cls({c.name: sa.bindparam(f"value_{n}", type_=c.type) for n, c in enumerate(table.columns)}, False)

    @classmethod
    def as_arrays(cls, table: sa.Table) -> BoundValues:
        arrays = [sa.bindparam(f"value_{n}", type_=postgresql.ARRAY(c.type)) for n, c in enumerate(table.columns)]
        rows = sa.func.unnest(*arrays).table_valued(*table.columns.keys(), name="new_rows").render_derived()
        return cls({column.name: rows.columns[column.name] for column in table.columns}, True)

    def parameters(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        names = [f"value_{number}" for number in range(len(self.columns))]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def arrays(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        return {f"value_{number}": list(column) for number, column in enumerate(zip(*rows, strict=True))}


def split_name(table: str) -> tuple[str | None, str]:
    """Splits the name of a table, NAME or SCHEMA.NAME, into schema and name."""
    schema, _, name = table.rpartition(".")
    return schema or None, name


def _is_unique(index: Any) -> bool:
    """Tells whether an index is unique over columns of all rows, and not over expressions or some of the rows."""
    partial = any(option.endswith("_where") for option in index.get("dialect_options", {}))
    return index["unique"] and not partial and None not in index["column_names"]


def _has_default(column: Any) -> bool:
    return column.get("default") is not None or bool(column.get("identity")) or bool(column.get("computed"))
