"""The tables of a store: its format, views, batch versions and dead letters, and one table of rows for each view."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from headrace.model.errors import other_format
from headrace.model.secrets import redact_url
from headrace.views.declare.layout import Layout
from headrace.views.errors import ViewError

FORMAT: Final = 1
"""The format of these tables and their content. It gets another number when one version would misread the other's."""

STATE: Final = sa.MetaData()

STORE: Final = sa.Table("headrace_store", STATE, sa.Column("format", sa.Integer, nullable=False))

VIEWS: Final = sa.Table(
    "headrace_views",
    STATE,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("layout", sa.Text, nullable=False),
    sa.Column("identity", sa.Text, nullable=False),  # distinguishes it from a view of the same name in another store
    sa.Column("version", sa.BigInteger),  # the one that answers
    sa.Column("newest", sa.BigInteger, nullable=False),  # the last number that a version got
    sa.Column("generation", sa.BigInteger, nullable=False),  # the one that micro-batches go into
    sa.Column("first", sa.BigInteger, nullable=False),  # the oldest generation that is kept
    sa.Column("boundary", sa.Text, nullable=False),  # where `generation` begins
    sa.Column("stream", sa.Text),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("reached", sa.Text),
    sa.Column("watermark", sa.BigInteger),
    sa.Column("updated", sa.BigInteger),
)

VERSIONS: Final = sa.Table(
    "headrace_versions",
    STATE,
    sa.Column("view", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),  # loading, ready, dropped
    sa.Column("base", sa.BigInteger),
    sa.Column("parts", sa.Text, nullable=False),  # its parts, with the number of rows of each
    sa.Column("rows", sa.BigInteger, nullable=False),  # distinct rows: one that is in two parts counts once
    sa.Column("generation", sa.BigInteger, nullable=False),  # the first generation that it does not cover
    sa.Column("boundary", sa.Text, nullable=False),
    sa.Column("made", sa.BigInteger, nullable=False),
)

DEAD_LETTERS: Final = sa.Table(
    "headrace_letters",
    STATE,
    sa.Column("view", sa.Text, primary_key=True),
    sa.Column("position", sa.Text, primary_key=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("met", sa.BigInteger, nullable=False, index=True),
)

_TYPES: Final[dict[type, Any]] = {
    # Compared as bytes, as Python and SQLite compare text; PostgreSQL would use the locale.
    str: sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql"),
    int: sa.BigInteger(),
    bytes: sa.LargeBinary(),
}
_KINDS: Final[dict[str, Any]] = {"bigint": sa.BigInteger(), "double": sa.Double(), "bytes": sa.LargeBinary()}


def make_tables(connection: sa.Connection) -> None:
    """Creates the tables of a store if it has none. Refuses those of another format."""
    tables = sa.inspect(connection)
    if not tables.has_table(VIEWS.name):
        STATE.create_all(connection)
        connection.execute(sa.insert(STORE).values(format=FORMAT))
        return
    stored = connection.scalar(sa.select(STORE.c.format)) if tables.has_table(STORE.name) else None
    if stored != FORMAT:
        remedy = (
            "begin with an empty store (move views.db of the system away, or use --store) and compute the views again"
        )
        raise ViewError(other_format(f"the store {redact_url(connection.engine.url)}", stored, FORMAT, remedy))


def rows_table(layout: Layout) -> sa.Table:
    """Returns the table of a view's rows. A part is the number of a version or the negated number of a generation."""
    columns = [sa.Column("__part", sa.BigInteger, nullable=False)]
    for name, kind in zip(layout.keys, layout.types, strict=True):
        columns.append(sa.Column(name, _TYPES[kind.stored], nullable=False))
    for name in ("__nulls", "__start", "__end"):
        columns.append(sa.Column(name, sa.BigInteger, nullable=False))
    where = [column.name for column in columns]
    for name, stored in zip(layout.aggregations, layout.kinds, strict=True):
        columns.append(sa.Column(name, _KINDS[stored], nullable=stored == "double"))
    return sa.Table(
        f"view_{layout.name}",
        sa.MetaData(),
        *columns,
        sa.PrimaryKeyConstraint(*where),
        sa.Index(f"view_{layout.name}_windows", "__part", "__start"),
        sqlite_with_rowid=False,
    )
