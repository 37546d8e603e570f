"""Tables as a database has them: looked at, made, and written to by row, by key, or by what equals a row."""

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
class HeldTable:
    """A table that is there: the types of its columns, which of them must be given, and what tells its rows apart."""

    name: str
    schema: str | None
    types: dict[str, TypeEngine[Any]]
    required: tuple[str, ...]
    unique: tuple[frozenset[str], ...]

    @classmethod
    def find(cls, connection: Connection, table: str) -> HeldTable | None:
        """The table of this name, NAME or SCHEMA.NAME; None if there is none."""
        schema, name = _parts(table)
        inspector = sa.inspect(connection)
        if not inspector.has_table(name, schema=schema):
            return None
        columns = inspector.get_columns(name, schema=schema)
        unique: list[Sequence[Any]] = [
            inspector.get_pk_constraint(name, schema=schema)["constrained_columns"],
            *(each["column_names"] for each in inspector.get_unique_constraints(name, schema=schema)),
            *(each["column_names"] for each in inspector.get_indexes(name, schema=schema) if _tells_apart(each)),
        ]
        return cls(
            name,
            schema,
            types={column["name"]: column["type"] for column in columns},
            required=tuple(
                column["name"] for column in columns if not column["nullable"] and not _fills_itself(column)
            ),
            unique=tuple(frozenset(names) for names in unique if names),
        )

    @classmethod
    def make(cls, connection: Connection, table: str, kinds: Mapping[str, Kind], key: Sequence[str]) -> HeldTable:
        """A new table of this name with these columns."""
        schema, name = _parts(table)
        columns = [sa.Column(each, sql_type(each, kind), primary_key=each in key) for each, kind in kinds.items()]
        sa.Table(name, sa.MetaData(), *columns, schema=schema).create(connection)
        held = cls.find(connection, table)
        assert held is not None
        return held


@dataclass(frozen=True)
class Target:
    """A table as rows of some columns go into it. Rows of a `key` are one."""

    held: HeldTable
    table: sa.Table
    key: tuple[str, ...]
    dialect: str

    @classmethod
    def of(cls, held: HeldTable, kinds: Mapping[str, Kind], key: tuple[str, ...], dialect: str) -> Target:
        """Refuses columns that the table does not have or take."""
        if missing := [name for name in kinds if name not in held.types]:
            raise DatabaseError(
                f"the table {held.name!r} has no column {missing[0]!r}, which elements have; its columns are "
                f"{', '.join(held.types)}: add it to the table, or leave it out with Select"
            )
        if needed := [name for name in held.required if name not in kinds]:
            raise DatabaseError(
                f"the column {needed[0]!r} of the table {held.name!r} must have a value, and elements have none; their "
                f"columns are {', '.join(kinds)}"
            )
        columns = [sa.Column(name, bound_type(name, kind, held.types[name], dialect)) for name, kind in kinds.items()]
        return cls(held, sa.Table(held.name, sa.MetaData(), *columns, schema=held.schema), key, dialect)

    @property
    def names(self) -> list[str]:
        return list(self.table.columns.keys())

    def keys(self, rows: Sequence[Row]) -> list[Row]:
        """The key of each row."""
        at = [self.names.index(name) for name in self.key]
        keys = [tuple([row[i] for i in at]) for row in rows]
        for key in keys:
            if None in key:
                name = self.key[key.index(None)]
                raise DatabaseError(
                    f"the key {name!r} is None in {dict(zip(self.key, key, strict=True))}: no row has that"
                )
        return keys

    def insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Adds rows."""
        self._execute(connection, self._inserted, rows)

    def upsert(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Puts rows, one a key, in the place of those that have their keys."""

        def statement(given: Given) -> Any:
            insert = self._inserted(given)
            rest = {name: insert.excluded[name] for name in self.names if name not in self.key}
            if not rest:
                return insert.on_conflict_do_nothing(index_elements=self.key)
            return insert.on_conflict_do_update(index_elements=self.key, set_=rest)

        self._execute(connection, statement, rows)

    def delete_equal(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Deletes those of these rows that are there as they are."""
        self._execute(connection, lambda given: sa.delete(self.table).where(*self._same(given, self.names)), rows)

    def take(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Takes rows away: those of their keys or, without a key, one that is equal to each. All must be there."""
        before = connection.begin_nested()
        if self._taken(connection, rows) == len(rows):
            before.commit()
            return
        before.rollback()
        for row in rows:
            if not self._taken(connection, [row]):
                raise DatabaseError(
                    f"a retraction takes back {dict(zip(self.names, row, strict=True))}, which is not in the table "
                    f"{self.held.name!r}: was it changed by others, or begun by another run?"
                )

    def _taken(self, connection: Connection, rows: Sequence[Row]) -> int:
        if self.key:
            return self._execute(
                connection, lambda given: sa.delete(self.table).where(*self._same(given, self.key)), rows
            )
        # Of equal rows one must go, and not all: so they are taken one by one.
        row_id: sa.ColumnElement[Any] = sa.literal_column(_ROW_ID[self.dialect])
        given = Given.as_parameters(self.table)
        equal = sa.select(row_id).select_from(self.table).where(*self._same(given, self.names)).limit(1)
        delete = sa.delete(self.table).where(row_id == equal.scalar_subquery())
        return sum(connection.execute(delete, each).rowcount for each in given.parameters(rows))

    def _inserted(self, given: Given) -> Any:
        insert = _INSERT[self.dialect](self.table)
        if given.chunked:
            return insert.from_select(self.names, sa.select(*given.columns.values()))
        return insert.values(given.columns)

    def _same(self, given: Given, names: Sequence[str]) -> list[sa.ColumnElement[bool]]:
        """The conditions for a row of the table to have the given values; those of keys are never null."""
        conditions = []
        for name in names:
            column, value = self.table.columns[name], given.columns[name]
            if self.dialect == "postgresql":  # where a column may have rounded what went into it
                value = sa.cast(value, self.held.types[name])
            conditions.append(column == value if name in self.key else column.is_not_distinct_from(value))
        return conditions

    def _execute(self, connection: Connection, statement: Callable[[Given], Any], rows: Sequence[Row]) -> int:
        """Executes a statement over rows, and gives the number of rows it changed."""
        if not rows:
            return 0
        if self.dialect == "sqlite":
            given = Given.as_parameters(self.table)
            return connection.execute(statement(given), given.parameters(rows)).rowcount
        given = Given.as_arrays(self.table)
        made = statement(given)
        chunks = [rows[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK)]
        return sum(connection.execute(made, given.arrays(chunk)).rowcount for chunk in chunks)


@dataclass(frozen=True)
class Given:
    """The values of rows as a statement names them: the parameters of one row, or the columns of many in arrays.

    A statement for each row costs PostgreSQL three times as much as one with arrays for all; SQLite has no arrays.
    """

    columns: dict[str, sa.ColumnElement[Any]]
    chunked: bool

    @classmethod
    def as_parameters(cls, table: sa.Table) -> Given:
        return cls(
            {each.name: sa.bindparam(f"value_{n}", type_=each.type) for n, each in enumerate(table.columns)}, False
        )

    @classmethod
    def as_arrays(cls, table: sa.Table) -> Given:
        arrays = [sa.bindparam(f"value_{n}", type_=postgresql.ARRAY(c.type)) for n, c in enumerate(table.columns)]
        rows = sa.func.unnest(*arrays).table_valued(*table.columns.keys(), name="given").render_derived()
        return cls({name: rows.columns[name] for name in [each.name for each in table.columns]}, True)

    def parameters(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        names = [f"value_{number}" for number in range(len(self.columns))]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def arrays(self, rows: Sequence[Row]) -> dict[str, list[Any]]:
        return {f"value_{number}": list(column) for number, column in enumerate(zip(*rows, strict=True))}


def _parts(table: str) -> tuple[str | None, str]:
    schema, _, name = table.rpartition(".")
    return schema or None, name


def _tells_apart(index: Any) -> bool:
    """Whether an index is unique over columns, and not over expressions or some of the rows."""
    partial = any(option.endswith("_where") for option in index.get("dialect_options", {}))
    return index["unique"] and not partial and None not in index["column_names"]


def _fills_itself(column: Any) -> bool:
    return column.get("default") is not None or bool(column.get("identity")) or bool(column.get("computed"))
