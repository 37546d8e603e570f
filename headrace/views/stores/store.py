"""A store of views: what the speed layer adds, what batch versions replace, and the answers of both.

Micro-batches go into the current *generation*. A *cut* begins a new one, at a boundary of offsets; a batch *version*
covers all events before its boundary. An answer is the version that is pointed to and every generation since its
boundary. So each event counts once, whichever version that is: a swap and a rollback are one update of one row.
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
from headrace.views.stores.deadletters import Letters
from headrace.views.stores.parts import Parts
from headrace.views.stores.reading import rows_for
from headrace.views.stores.storetables import VERSIONS, VIEWS, make_tables, rows_table
from headrace.views.stores.versions import Build, Cut, Version

Clock = Callable[[], int]


class Store:
    """The views of a database. `clock` tells the time in microseconds.

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
        self.letters = Letters(self.database, clock)

    def view(self, layout: Layout) -> StoredView:
        """The view with this layout; made, if it is not there. One that is there must have the same."""
        view = StoredView(self.database, layout, self.clock)
        view.create()
        return view

    def names(self) -> list[str]:
        """The names of all views."""
        with self.database.reading() as connection:
            return list(connection.scalars(sa.select(VIEWS.c.name).order_by(VIEWS.c.name)))

    def close(self) -> None:
        """Gives back all connections."""
        self.database.close()


@dataclass(frozen=True)
class State:
    """What is known of a view at one moment."""

    version: int | None
    parts: tuple[int, ...]  # of which the version is made
    boundary: Offsets  # of the version
    covered: int  # the first generation that the version does not cover
    generation: int
    first: int
    newest: int
    cut: Offsets  # where the generation begins
    progress: Progress

    @property
    def generations(self) -> range:
        """Those that complete the version."""
        return range(self.covered, self.generation + 1)


class StoredView:
    """One view of a store. Any number of processes may use it; those that write wait for each other."""

    def __init__(self, database: Database, layout: Layout, clock: Clock) -> None:
        self.database, self.layout, self.clock = database, layout, clock
        self.parts = Parts(database, layout)
        self._here = VIEWS.c.name == layout.name
        versions = sa.and_(VERSIONS.c.view == VIEWS.c.name, VERSIONS.c.number == VIEWS.c.version)
        shown = [VIEWS.c[name] for name in ("version", "generation", "first", "newest", "boundary")]
        shown += [VIEWS.c[name] for name in ("stream", "batch", "reached", "watermark", "updated")]
        found = sa.select(VERSIONS.c.parts, VERSIONS.c.boundary, VERSIONS.c.generation, *shown).select_from(VIEWS)
        # Every answer begins with it: compiled once, with the view's name, which is a plain word.
        whole = found.outerjoin(VERSIONS, versions).where(self._here)
        self._state = str(whole.compile(database.engine, compile_kwargs={"literal_binds": True}))

    def create(self) -> None:
        """Makes the view's tables, if they are not there."""
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
                "merge; give the new one another name"
            )

    def identity(self) -> str:
        """What tells this view from those of the same name in other stores: each begins without any event."""
        with self.database.reading() as connection:
            return str(connection.scalar(sa.select(VIEWS.c.identity).where(self._here)))

    def add(self, batch: MicroBatch, partials: Iterable[Partial]) -> bool:
        """Merges what a micro-batch says into the current generation, once. Returns False if it was there already."""
        found = list(partials)
        if found and reaches(batch.since, batch.until):
            raise ViewError(f"micro-batch {batch.number} has {len(found)} rows, but its offsets say of no event")
        with self.database.writing() as connection:
            state = self.lock(connection)
            if not state.progress.takes(batch):
                return False
            self.parts.merge(connection, -state.generation, found)
            taken = {"stream": batch.stream, "batch": batch.number, "reached": dump_offsets(batch.until)}
            self.update(connection, taken | {"watermark": batch.watermark, "updated": self.clock()})
        return True

    def cut(self) -> Cut:
        """Ends the current generation: a version may be built of all events before. Returns where that is."""
        with self.database.writing() as connection:
            state = self.lock(connection)
            reached = state.progress.reached
            if reached is None or reached == state.cut:  # nothing came since the last cut, which is as good
                return Cut(state.generation, dict(state.cut))
            self.update(connection, {"generation": state.generation + 1, "boundary": dump_offsets(reached)})
            return Cut(state.generation + 1, reached)

    def build(self, cut: Cut, *, base: int | None = None) -> Build:
        """A version to be loaded and published: of all events before the cut, or of those since the version `base`.

        One is built at a time: another that was not published, perhaps because of a crash, is discarded."""
        return Build(self, cut, base)

    def versions(self) -> list[Version]:
        """The versions one can point to, oldest first."""
        with self.database.reading() as connection:
            current = self.state(cursor_of(connection)).version
            ready = sa.select(VERSIONS).where(VERSIONS.c.view == self.layout.name, VERSIONS.c.state == "ready")
            found = connection.execute(ready.order_by(VERSIONS.c.number)).all()
        return [
            Version(
                each.number,
                load_offsets(each.boundary),
                each.base,
                each.rows,
                each.made,
                each.number == current,
            )
            for each in found
        ]

    def rollback(self, version: int | None = None) -> int:
        """Answers come from that version from now on, or from the one before the current. Returns which."""
        with self.database.writing() as connection:
            state = self.lock(connection)
            mine = (VERSIONS.c.view == self.layout.name, VERSIONS.c.state == "ready")
            ready = list(connection.scalars(sa.select(VERSIONS.c.number).where(*mine).order_by(VERSIONS.c.number)))
            earlier = [each for each in ready if state.version is not None and each < state.version]
            wanted = (earlier[-1] if earlier else None) if version is None else version
            if wanted not in ready:
                asked = "an older version" if version is None else f"version {version}"
                raise ViewError(f"view {self.layout.name!r} has not kept {asked}; there are {ready or 'none'}")
            self.update(connection, {"version": wanted})
        assert wanted is not None
        return wanted

    def sweep(self) -> None:
        """Deletes what no answer needs any more: versions that were dropped, generations before all kept ones."""
        mine = VERSIONS.c.view == self.layout.name
        with self.database.reading() as connection:
            first = self.state(cursor_of(connection)).first
            known = connection.execute(sa.select(VERSIONS).where(mine)).all()
        # What none of them is made of now, none will be: a version is made of parts of another and of its own.
        needed = {part for each in known if each.state != "dropped" for part in load_offsets(each.parts)}
        self.parts.remove(1 - first, -1)
        for number in (each.number for each in known if each.state == "dropped" and each.number not in needed):
            self.parts.remove(number, number)
            with self.database.writing() as connection:
                connection.execute(sa.delete(VERSIONS).where(mine, VERSIONS.c.number == number))

    def answer(self, query: Query) -> Answer:
        """The rows that the query means, merged, with where they come from."""
        with self.database.snapshot() as cursor:
            state = self.state(cursor)
            rows, following = rows_for(cursor, self.parts, self._live(state, query), query)
        return Answer(rows, self._provenance(state), following)

    def pages(self, query: Query) -> Iterator[Answer]:
        """The answer and the pages after it, all of one moment."""
        with self.database.snapshot() as cursor:
            state = self.state(cursor)
            live = self._live(state, query)
            while True:
                rows, following = rows_for(cursor, self.parts, live, query)
                yield Answer(rows, self._provenance(state), following)
                if following is None:
                    return
                query = replace(query, after=following)

    def provenance(self) -> Provenance:
        """Where an answer would come from now."""
        with self.database.snapshot() as cursor:
            return self._provenance(self.state(cursor))

    def progress(self) -> Progress:
        """How far the speed layer is."""
        with self.database.snapshot() as cursor:
            return self.state(cursor).progress

    def state(self, cursor: Any) -> State:
        """What is known of the view in the transaction of a cursor."""
        cursor.execute(self._state)
        return _state(cursor.fetchone())

    def lock(self, connection: sa.Connection) -> State:
        """The same, and nobody else changes it until the transaction ends."""
        connection.execute(sa.select(VIEWS.c.name).where(self._here).with_for_update())
        return self.state(cursor_of(connection))

    def update(self, connection: sa.Connection, values: dict[str, Any]) -> None:
        """Changes what is known of the view."""
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


@lru_cache(1024)  # every answer has the same, until the next micro-batch
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
