"""A store of views: the speed layer adds to it, batch versions replace parts of it, and answers merge both.

Micro-batches go into the current *generation*. A *cut* begins a new one, at a boundary of offsets; a batch *version*
covers all events before its boundary. An answer merges the current version and every generation since its boundary. So
each event counts once, whichever version is current: a swap and a rollback are one update of one row.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from headrace.model.times import now
from headrace.views.declare.layout import Layout, Partial
from headrace.views.errors import ViewError
from headrace.views.offsets import MicroBatch, Offsets, Progress, dump_offsets, load_offsets, reaches
from headrace.views.query.queries import Answer, Provenance, Query
from headrace.views.stores.database import Database, cursor_of
from headrace.views.stores.deadletters import DeadLetters
from headrace.views.stores.parts import Parts
from headrace.views.stores.reading import answer_rows, stored_length
from headrace.views.stores.storetables import VERSIONS, VIEWS, make_tables, rows_table
from headrace.views.stores.versions import Build, Cut, Version

Clock = Callable[[], int]


class Store:
    """The views of a database. `clock` returns the time in microseconds.

    >>> import headrace as hr, tempfile
    >>> store = Store(f"sqlite:///{tempfile.mkdtemp()}/views.db")
    >>> hits = store.view(Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()}))
    >>> hits.add(MicroBatch("s", 0, since={}, until={0: 3}), [Partial(("foo.com",), 0, 60, (3,))])
    True
    >>> hits.answer(Query(key={"url": "foo.com"})).rows[0].values
    {'n': 3}
    """

    def __init__(self, url: str, *, clock: Clock = now) -> None:
        self.database, self.clock = Database(url), clock
        try:
            with self.database.defining() as connection:
                make_tables(connection)
        except ViewError:
            self.database.close()
            raise
        self.dead_letters = DeadLetters(self.database, clock)

    def view(self, layout: Layout) -> StoredView:
        """Returns the view with this layout, and creates it if it does not exist. Refuses one with another layout."""
        view = StoredView(self.database, layout, self.clock)
        view.create()
        return view

    def names(self) -> list[str]:
        """Returns the names of all views."""
        with self.database.reading() as connection:
            return list(connection.scalars(sa.select(VIEWS.c.name).order_by(VIEWS.c.name)))

    def close(self) -> None:
        """Closes all connections."""
        self.database.close()


@dataclass(frozen=True)
class State:
    """The state of a view in one transaction: its current version, its generations and its progress."""

    version: int | None
    parts: tuple[int, ...]  # of the version
    boundary: Offsets  # of the version
    covered: int  # the first generation that the version does not cover
    generation: int
    first: int
    newest: int
    cut: Offsets  # where the generation begins
    progress: Progress

    @property
    def generations(self) -> range:
        """The generations that complete the version."""
        return range(self.covered, self.generation + 1)


class StoredView:
    """One view of a store. Any number of processes may use it; those that write wait for each other."""

    def __init__(self, database: Database, layout: Layout, clock: Clock) -> None:
        self.database, self.layout, self.clock = database, layout, clock
        self.parts = Parts(database, layout)
        self._here = VIEWS.c.name == layout.name
        versions = sa.and_(VERSIONS.c.view == VIEWS.c.name, VERSIONS.c.number == VIEWS.c.version)
        columns = [VIEWS.c[name] for name in ("version", "generation", "first", "newest", "boundary")]
        columns += [VIEWS.c[name] for name in ("stream", "batch", "reached", "watermark", "updated")]
        select = sa.select(VERSIONS.c.parts, VERSIONS.c.boundary, VERSIONS.c.generation, *columns).select_from(VIEWS)
        # Every answer begins with it: compiled once, with the view's name, which is a plain word.
        joined = select.outerjoin(VERSIONS, versions).where(self._here)
        self._state = str(joined.compile(database.engine, compile_kwargs={"literal_binds": True}))

    def create(self) -> None:
        """Creates the view's tables if they do not exist."""
        fingerprint = self.layout.fingerprint()
        with self.database.defining() as connection:
            rows_table(self.layout).create(connection, checkfirst=True)
            known = connection.scalar(sa.select(VIEWS.c.layout).where(self._here))
            if known is None:
                new = {"name": self.layout.name, "layout": fingerprint, "generation": 1, "first": 1, "newest": 0}
                new["identity"] = uuid.uuid4().hex
                connection.execute(sa.insert(VIEWS).values(new | {"batch": -1, "boundary": dump_offsets({})}))
        if known not in (None, fingerprint):
            raise ViewError(
                f"view {self.layout.name!r} is stored as {known} and declared as {fingerprint}, and the two do not "
                "merge; choose another name for the new one"
            )

    def identity(self) -> str:
        """Returns the id that distinguishes this view from those of the same name in other stores."""
        with self.database.reading() as connection:
            return str(connection.scalar(sa.select(VIEWS.c.identity).where(self._here)))

    def add(self, batch: MicroBatch, partials: Iterable[Partial]) -> bool:
        """Merges a micro-batch into the current generation, once. Returns False if it was added before."""
        rows = list(partials)
        if rows and reaches(batch.since, batch.until):
            raise ViewError(f"micro-batch {batch.number} has {len(rows)} rows, but its offsets have no event")
        with self.database.writing() as connection:
            state = self.lock(connection)
            if not state.progress.accepts(batch):
                return False
            self.parts.merge(connection, -state.generation, rows)
            progress = {"stream": batch.stream, "batch": batch.number, "reached": dump_offsets(batch.until)}
            self.update(connection, progress | {"watermark": batch.watermark, "updated": self.clock()})
        return True

    def cut(self) -> Cut:
        """Ends the current generation and returns the cut: a version may be built of all events before it."""
        with self.database.writing() as connection:
            state = self.lock(connection)
            reached = state.progress.reached
            if reached is None or reached == state.cut:  # nothing came since the last cut, which is as good
                return Cut(state.generation, dict(state.cut))
            self.update(connection, {"generation": state.generation + 1, "boundary": dump_offsets(reached)})
            return Cut(state.generation + 1, reached)

    def build(self, cut: Cut, *, base: int | None = None) -> Build:
        """Begins a version of all events before the cut, or of those since the version `base`.

        One is built at a time: another that was not published, perhaps because of a crash, is discarded.
        """
        return Build(self, cut, base)

    def versions(self) -> list[Version]:
        """Returns the published versions that are kept, oldest first."""
        with self.database.reading() as connection:
            current = self.state(cursor_of(connection)).version
            ready = sa.select(VERSIONS).where(VERSIONS.c.view == self.layout.name, VERSIONS.c.state == "ready")
            rows = connection.execute(ready.order_by(VERSIONS.c.number)).all()
        return [
            Version(row.number, load_offsets(row.boundary), row.base, row.rows, row.made, row.number == current)
            for row in rows
        ]

    def rollback(self, version: int | None = None) -> int:
        """Makes a version current, by default the one before the current; returns its number."""
        with self.database.writing(patient=False) as connection:
            state = self.lock(connection)
            is_ready = (VERSIONS.c.view == self.layout.name, VERSIONS.c.state == "ready")
            ready = list(connection.scalars(sa.select(VERSIONS.c.number).where(*is_ready).order_by(VERSIONS.c.number)))
            earlier = [number for number in ready if state.version is not None and number < state.version]
            wanted = (earlier[-1] if earlier else None) if version is None else version
            if wanted not in ready:
                missing = "older version" if version is None else f"version {version}"
                raise ViewError(f"view {self.layout.name!r} has no {missing}; there are {ready or 'none'}")
            self.update(connection, {"version": wanted})
        assert wanted is not None
        return wanted

    def sweep(self) -> None:
        """Deletes rows that no answer needs any more: dropped versions, and generations before the first kept one."""
        of_view = VERSIONS.c.view == self.layout.name
        with self.database.reading() as connection:
            first = self.state(cursor_of(connection)).first
            versions = connection.execute(sa.select(VERSIONS).where(of_view)).all()
        # A part that no version has now, none will have: a version has parts of another and its own.
        needed = {part for version in versions if version.state != "dropped" for part in load_offsets(version.parts)}
        dropped = [version.number for version in versions if version.state == "dropped"]
        self.parts.remove(1 - first, -1)
        for number in (number for number in dropped if number not in needed):
            self.parts.remove(number, number)
            with self.database.writing() as connection:
                connection.execute(sa.delete(VERSIONS).where(of_view, VERSIONS.c.number == number))

    def answer(self, query: Query) -> Answer:
        """Answers a query: the merged rows, and their origin."""
        with self.database.snapshot() as cursor:
            state = self.state(cursor)
            rows, following = answer_rows(cursor, self.parts, self._live(state, query), query)
        return Answer(rows, self._provenance(state), following)

    def small_answer(self, query: Query, most: int) -> Answer | None:
        """Answers a query for some rows of a key; None if their accumulators have more bytes than this in the store."""
        with self.database.snapshot() as cursor:
            state = self.state(cursor)
            live = self._live(state, query)
            if stored_length(cursor, self.parts, live, query) > most:
                return None
            rows, following = answer_rows(cursor, self.parts, live, query)
        return Answer(rows, self._provenance(state), following)

    def pages(self, query: Query) -> Iterator[Answer]:
        """Yields the answer to a query and the pages after it, all of one snapshot."""
        with self.database.snapshot() as cursor:
            state = self.state(cursor)
            live = self._live(state, query)
            while True:
                rows, following = answer_rows(cursor, self.parts, live, query)
                yield Answer(rows, self._provenance(state), following)
                if following is None:
                    return
                query = replace(query, after=following)

    def provenance(self) -> Provenance:
        """Returns the origin that an answer would have now."""
        with self.database.snapshot() as cursor:
            return self._provenance(self.state(cursor))

    def progress(self) -> Progress:
        """Returns the progress of the speed layer."""
        with self.database.snapshot() as cursor:
            return self.state(cursor).progress

    def state(self, cursor: Any) -> State:
        """Reads the state of the view in the transaction of a cursor."""
        cursor.execute(self._state)
        return _state(cursor.fetchone())

    def lock(self, connection: sa.Connection) -> State:
        """Reads the state of the view and locks it until the transaction ends."""
        connection.execute(sa.select(VIEWS.c.name).where(self._here).with_for_update())
        return self.state(cursor_of(connection))

    def update(self, connection: sa.Connection, values: dict[str, Any]) -> None:
        """Updates columns of the view."""
        connection.execute(sa.update(VIEWS).where(self._here).values(values))

    def _live(self, state: State, query: Query) -> list[int]:
        version = [] if query.layer == "speed" else state.parts
        speed = [] if query.layer == "batch" else [-generation for generation in state.generations]
        return [*version, *speed]

    def _provenance(self, state: State) -> Provenance:
        progress = state.progress
        return Provenance(
            version=state.version,
            boundary=dict(state.boundary),
            generations=state.generations,
            batch=progress.number,
            reached=dict(progress.reached or {}),
            watermark=progress.watermark,
            updated=progress.updated,
            freshness=None if progress.updated is None else self.clock() - progress.updated,
        )


@lru_cache(1024)  # all answers between two micro-batches have the same
def _state(row: tuple[Any, ...]) -> State:
    parts, boundary, covered, version, generation, first, newest, cut, *progress = row
    stream, batch, reached, watermark, updated = progress
    return State(
        version=version,
        parts=() if parts is None else tuple(load_offsets(parts)),
        boundary={} if boundary is None else load_offsets(boundary),
        covered=1 if covered is None else covered,
        generation=generation,
        first=first,
        newest=newest,
        cut=load_offsets(cut),
        progress=Progress(stream, batch, None if reached is None else load_offsets(reached), watermark, updated),
    )
