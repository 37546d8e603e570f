"""The tables of a store: one of all views, one of their batch versions, and of each view one with its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from headrace.views.layout import Layout

STATE: Final = sa.MetaData()

VIEWS: Final = sa.Table(
    "headrace_views",
    STATE,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("layout", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger),  # the one that answers
    sa.Column("newest", sa.BigInteger, nullable=False),  # the last number that a version was given
    sa.Column("generation", sa.BigInteger, nullable=False),  # the one that takes micro-batches
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
    sa.Column("generation", sa.BigInteger, nullable=False),  # the first that it does not cover
    sa.Column("boundary", sa.Text, nullable=False),
    sa.Column("rows", sa.BigInteger),
    sa.Column("made", sa.BigInteger, nullable=False),
)

_KEY_TYPES: Final[dict[str, Any]] = {
    # As bytes, which is how Python and SQLite compare text; PostgreSQL would ask the locale.
    "string": sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql"),
    "bigint": sa.BigInteger(),
    "boolean": sa.Boolean(),
    "date": sa.Date(),
    "timestamp": sa.BigInteger(),
    "binary": sa.LargeBinary(),
}
_KINDS: Final[dict[str, Any]] = {"bigint": sa.BigInteger(), "double": sa.Double(), "bytes": sa.LargeBinary()}


@dataclass(frozen=True)
class Rows:
    """The table of a view's rows. Each belongs to a part: a version by its number, a generation by its negative one."""

    table: sa.Table
    part: sa.Column[int]
    place: tuple[sa.Column[Any], ...]
    nulls: sa.Column[int]
    start: sa.Column[int]
    accumulators: tuple[sa.Column[Any], ...]

    @property
    def columns(self) -> tuple[sa.Column[Any], ...]:
        """The columns of a row's place and accumulators."""
        return (*self.place, *self.accumulators)


def rows_of(layout: Layout) -> Rows:
    """The table for this layout."""
    part = sa.Column("__part", sa.BigInteger, nullable=False)
    keys = [
        sa.Column(name, _KEY_TYPES[kind.name], nullable=False)
        for name, kind in zip(layout.keys, layout.types, strict=True)
    ]
    nulls, start, end = (sa.Column(f"__{name}", sa.BigInteger, nullable=False) for name in ("nulls", "start", "end"))
    accumulators = [
        sa.Column(name, _KINDS[kind], nullable=kind == "double")
        for name, kind in zip(layout.aggregations, layout.kinds, strict=True)
    ]
    place = (*keys, nulls, start, end)
    table = sa.Table(
        f"view_{layout.name}",
        sa.MetaData(),
        part,
        *place,
        *accumulators,
        sa.PrimaryKeyConstraint(part, *place),
        sa.Index(f"view_{layout.name}_windows", part, start),
        sqlite_with_rowid=False,
    )
    return Rows(table, part, place, nulls, start, tuple(accumulators))
