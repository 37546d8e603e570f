"""Batch versions of a view: loaded in many steps while the current one answers, checked, and published in one step.

A version with a base has the parts of its base and one of its own for the events since: nothing is copied. Parts that
are not much larger than the new one are merged into it, so that a version has few, each much smaller than the one
before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import sqlalchemy as sa

from headrace.views.declare.layout import Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import Offsets, dump_offsets, load_offsets
from headrace.views.stores import arrowcolumns
from headrace.views.stores.storetables import VERSIONS

if TYPE_CHECKING:
    from headrace.views.stores.store import StoredView

KEEP_VERSIONS: Final = 3
"""The number of versions that are kept for rollbacks."""
_GROWTH: Final = 4  # a part stays apart from one that is at least so many times smaller
_SMALL: Final = 20_000  # rows of a part that is always merged: that is quicker than to read it with every query


@dataclass(frozen=True)
class Cut:
    """The beginning of a generation: a version of all events before is completed by the generations from it on."""

    generation: int
    boundary: Offsets


@dataclass(frozen=True)
class Version:
    """A batch version: the offsets it covers, the version it is based on, its rows, and whether it is current."""

    number: int
    boundary: Offsets
    base: int | None
    rows: int
    made: int
    current: bool


class Build:
    """A version that is being loaded. Nobody sees it before `publish`; leaving its block without that discards it.

    >>> import headrace as hr, tempfile
    >>> from headrace.views.declare.layout import Layout
    >>> from headrace.views.stores import Store
    >>> hits = Store(f"sqlite:///{tempfile.mkdtemp()}/views.db").view(
    ...     Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()}))
    >>> with hits.build(hits.cut()) as version:
    ...     version.load([Partial(("foo.com",), 0, 60, (3,))])
    ...     version.publish()
    >>> [(version.number, version.rows, version.current) for version in hits.versions()]
    [(1, 1, True)]
    """

    def __init__(self, view: StoredView, cut: Cut, base: int | None) -> None:
        self._view, self._name, self._rows = view, view.layout.name, 0
        self.base, self.published = base, False
        with view.database.writing() as connection:
            state = view.lock(connection)
            if cut.generation < state.first:
                raise ViewError(
                    f"view {self._name!r}: the generations since {dict(cut.boundary)} are deleted; make a new cut"
                )
            versions = sa.select(VERSIONS).where(VERSIONS.c.view == self._name)
            below = None if base is None else connection.execute(versions.where(VERSIONS.c.number == base)).first()
            if base is not None and (below is None or below.state != "ready" or below.generation > cut.generation):
                raise ViewError(f"view {self._name!r} has no version {base} from before the cut; compute it in full")
            loading = sa.and_(VERSIONS.c.view == self._name, VERSIONS.c.state == "loading")
            connection.execute(sa.update(VERSIONS).where(loading).values(state="dropped"))
            self.number = state.newest + 1
            view.update(connection, {"newest": self.number})
            new = {"view": self._name, "number": self.number, "state": "loading", "base": base, "made": view.clock()}
            new |= {"generation": cut.generation, "boundary": dump_offsets(cut.boundary)}
            self._below = {} if below is None else load_offsets(below.parts)
            self._rows_below = 0 if below is None else below.rows
            new |= {"parts": dump_offsets(self._below), "rows": self._rows_below}
            connection.execute(sa.insert(VERSIONS).values(new))
        self._this = sa.and_(VERSIONS.c.view == self._name, VERSIONS.c.number == self.number)
        view.sweep()

    def load(self, partials: Iterable[Partial]) -> None:
        """Adds the partial aggregates of all events, or of those since the base; each key and window once."""
        rows = arrowcolumns.rows_of_partials(self._view.layout, list(partials))
        self._rows += self._view.parts.fill(self.number, rows, self._guard)

    def load_columns(self, batch: pa.RecordBatch) -> None:
        """Adds partial aggregates as the columns that the pipeline of a view's partials returns."""
        rows = arrowcolumns.rows_of_columns(self._view.layout, batch)
        self._rows += self._view.parts.fill(self.number, rows, self._guard)

    def publish(self, *, keep: int = KEEP_VERSIONS) -> None:
        """Checks the version, makes it current, and drops all but the newest `keep` versions."""
        view = self._view
        view.database.analyze(view.parts.statements.table)
        rows = self._rows_below + (
            view.parts.count_exclusive(self.number, list(self._below)) if self._below else self._rows
        )
        self._compact()
        with view.database.writing() as connection:
            view.lock(connection)
            self._guard(connection)
            if (stored := view.parts.count(connection, self.number)) != self._rows:
                raise ViewError(
                    f"view {self._name!r}: version {self.number} has {stored} rows, but {self._rows} were loaded; "
                    "build it again"
                )
            parts = dump_offsets(self._below | ({self.number: stored} if stored else {}))
            connection.execute(sa.update(VERSIONS).where(self._this).values(state="ready", parts=parts, rows=rows))
            view.update(connection, {"version": self.number})
            self._drop(connection, keep)
        self.published = True
        view.sweep()

    def discard(self) -> None:
        """Drops the version."""
        with self._view.database.writing() as connection:
            self._view.lock(connection)
            loading = sa.and_(self._this, VERSIONS.c.state == "loading")
            connection.execute(sa.update(VERSIONS).where(loading).values(state="dropped"))
        self._view.sweep()

    def _compact(self) -> None:
        """Merges the parts of the base that are not much larger into the part of this version."""
        while self._below:
            last = max(self._below)
            if self._below[last] > max(_SMALL, _GROWTH * self._rows):
                return
            self._rows += self._view.parts.absorb(last, self.number, self._guard)
            del self._below[last]

    def _guard(self, connection: sa.Connection) -> None:
        # Locked, so that a version that is discarded can be deleted for good.
        state = sa.select(VERSIONS.c.state).where(self._this).with_for_update(read=True)
        if connection.scalar(state) != "loading":
            raise ViewError(f"view {self._name!r}: version {self.number} was discarded meanwhile; build it again")

    def _drop(self, connection: sa.Connection, keep: int) -> None:
        """Marks old versions as dropped, and with them the generations that complete none of the others."""
        of_view = VERSIONS.c.view == self._name
        ready = sa.select(VERSIONS.c.number).where(of_view, VERSIONS.c.state == "ready")
        old = list(connection.scalars(ready.order_by(VERSIONS.c.number.desc())))[max(keep, 1) :]
        connection.execute(sa.update(VERSIONS).where(of_view, VERSIONS.c.number.in_(old)).values(state="dropped"))
        first = sa.select(sa.func.min(VERSIONS.c.generation)).where(of_view, VERSIONS.c.state != "dropped")
        self._view.update(connection, {"first": connection.execute(first).scalar_one()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.published:
            self.discard()
