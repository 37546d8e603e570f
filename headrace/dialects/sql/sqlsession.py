"""A session: executes statements of continuous SQL, and runs what computes the views."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import pyarrow as pa

from headrace.dialects.sql import sqlstatements as sql
from headrace.dialects.sql.catalog import Catalog, Created, View, is_same
from headrace.dialects.sql.combinedselect import select_views
from headrace.dialects.sql.copyfiles import copy_rows
from headrace.dialects.sql.failedrows import FailedRows
from headrace.dialects.sql.insertedvalues import insert_rows
from headrace.dialects.sql.passes import (
    SessionPlace,
    ddl_of,
    levels_of,
    own_pass,
    plan_pass,
    stream_ends,
    topic_of,
)
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.shapes import Shape, shape_of
from headrace.dialects.sql.sharedviews import SharedViews
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlfunctions import SqlFunction, SqlFunctions
from headrace.dialects.sql.ttl import expiring_column, ttl_of
from headrace.dialects.sql.viewchanges import Change, Subscription
from headrace.dialects.sql.viewplanning import plan_view
from headrace.dialects.sql.viewreads import read_point, view_schema
from headrace.engine.checkpoint.streamnames import remove_stream
from headrace.engine.handle import Handle, Status, StreamStatus
from headrace.local.privatefolder import make_folder
from headrace.local.processlock import LockHolder, exclusive
from headrace.log.topics import Log, Topic
from headrace.model.knowncolumns import no_column
from headrace.model.times import duration
from headrace.views.adhoc.duckdbengine import AdHoc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.engine.stream.handle import StreamHandle


__all__ = ["Result", "SqlSession"]

_LOOK: Final = 0.05  # seconds from one look at a pass to the next, as nothing tells how far it is


@dataclass(frozen=True)
class Result:
    """The result of a statement: what happened, the rows it asked for, or the changes that it follows."""

    message: str = ""
    table: pa.Table | None = None
    changes: Iterable[Change] | None = None


class SqlSession:
    """Executes statements about the streams and views of a directory.

    What they created goes on when the directory is opened again. `database` is where views have their tables, an
    SQLAlchemy URL; by default a SQLite file in the directory. `trigger` is the time between micro-batches. `functions`
    are those that queries may call, made with `sql_function`.

    >>> import headrace as hr, tempfile
    >>> with hr.SqlSession(tempfile.mkdtemp()) as session:
    ...     results = session.execute("CREATE STREAM hits (url text); INSERT INTO hits VALUES ('/'), ('/blog')")
    >>> for result in results:
    ...     print(result.message)
    created the stream hits
    inserted 2
    """

    def __init__(
        self,
        directory: str,
        *,
        database: str | None = None,
        spark: SparkSession | None = None,
        trigger: str | None = None,
        functions: Iterable[SqlFunction] = (),
    ) -> None:
        self._folder, self._trigger = Path(directory), trigger
        make_folder(self._folder)
        self._lock, self._stack, self._following = threading.RLock(), ExitStack(), ExitStack()
        self._stack.enter_context(exclusive(self._folder / "lock", self._in_use))
        url = database or f"sqlite:///{self._folder / 'views.db'}"
        catalog, registered = Catalog(self._folder / "catalog.json"), SqlFunctions.of(functions)
        self._where = SessionPlace(catalog, str(self._folder / "log"), url, spark, registered)
        self._tables, self._adhoc = ResultTables(url), AdHoc()
        self._running: dict[str, StreamHandle] = {}
        self._waiting: dict[str, None] | None = None  # passes that are started at the end of a block
        self._began: dict[str, dict[str, dict[int, int]]] = {}  # where passes began that this session made
        self._failed = FailedRows()
        self._shared = SharedViews(self.catalog, self._tables, self._passes)
        for table in list(self.catalog.unfinished):
            self._drop_table(table)
        passes = self.catalog.passes()
        for folder in self._passes.glob("*"):
            if folder.name not in passes:  # its last view was dropped, and then the process died
                remove_stream(folder, Log(self._where.log))
        for name, views in passes.items():
            if not views[0].paused:
                self._start(name)

    @property
    def _passes(self) -> Path:
        """The directory of the checkpoints of passes."""
        return self._folder / "passes"

    @property
    def catalog(self) -> Catalog:
        """The streams and views there are."""
        return self._where.catalog

    @property
    def functions(self) -> SqlFunctions:
        """The functions that queries may call."""
        return self._where.functions

    def names(self) -> list[str]:
        """Returns the names of streams, views and functions, and those of the columns of streams."""
        columns = [each for stream in self.catalog.streams.values() for each in stream.columns]
        return [*self.catalog.streams, *self.catalog.views, *columns, *self.functions.by_name]

    def passes(self) -> dict[str, Handle]:
        """Returns the streams of the engine that compute the views, by name; also while a statement is executed."""
        return {**self._running}

    def declare(self, text: str) -> list[Result]:
        """Executes CREATE statements; what is there already with the same definition goes on.

        That of another definition is refused, and so are other statements: a file that is run at every start would
        insert its rows every time. However many views are new, a pass is started once.
        """
        statements = sql.parse_statements(text)
        with self._lock, self._starting_once():
            return [self._declare(statement) for statement in statements]

    def execute(self, text: str) -> list[Result]:
        """Executes statements, one after the other; what those before a failing one did stays done."""
        return [self.run(statement) for statement in sql.parse_statements(text)]

    def run(
        self, statement: sql.Statement, *, wait: bool = False, files: bool = True, stdin: BinaryIO | None = None
    ) -> Result:
        """Executes a statement. With `wait`, a SELECT waits until views have all rows that were inserted before.

        COPY reads files if `files`, and `stdin`, if it is given, as the standard input.
        """
        if wait and isinstance(statement, sql.Select):
            self.catch_up()
        if isinstance(statement, sql.Copy):
            return self._copy(statement, files, stdin)  # others may execute statements meanwhile
        with self._lock:
            return self._do(statement)

    def catch_up(self, seconds: float | None = None) -> None:
        """Waits until the views have all rows that are in the streams of this log now, or for so many `seconds`.

        Raises if a view cannot go on, or has not caught up in time.
        """
        with self._lock:
            ends = {name: stream_ends(self._where.log, stream) for name, stream in self.catalog.streams.items()}
            running = dict(self._running)
        deadline = None if seconds is None else time.monotonic() + seconds
        for name, handle in running.items():
            status: Status = handle.status()
            while not self._has_read(name, status, ends):
                if status.state != "running":
                    raise SqlError(f"{name} has ended: {status}")
                if deadline is not None and time.monotonic() > deadline:
                    raise SqlError(f"{name} has not caught up within {seconds:g} seconds; it is {status}")
                status = handle.wait(_LOOK)  # which raises what it failed with

    def _has_read(self, name: str, status: Status, ends: Mapping[str, Mapping[int, int]]) -> bool:
        assert isinstance(status, StreamStatus)
        began = self._began.get(name, {})
        for stream, source in status.sources.items():
            offsets = {**began.get(stream, {}), **(source.offsets or {})}
            if any(offsets.get(partition, 0) < end for partition, end in ends.get(stream, {}).items()):
                return False
        return True

    def subscribe(self, view: str, *, snapshot: bool = True) -> Subscription:
        """Follows the changes of a view: its rows now, unless without `snapshot`, and then each committed change."""
        followed = self.catalog.view(view)
        following = self._tables.subscribe(view, view_schema(followed), followed.part, snapshot=snapshot)
        self._following.callback(following.stop)
        return following

    def restart(self, name: str) -> None:
        """Lets a pass that has failed go on."""
        with self._lock:
            if name in self._running:
                self._restart(name)

    def close(self) -> None:
        """Stops what computes the views; it continues when the directory is opened again."""
        with self._lock:
            for handle in self._running.values():
                handle.stop()
            self._running.clear()
            self._following.close()
            self._tables.close()
            self._adhoc.close()
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _in_use(self, holder: LockHolder) -> SqlError:
        return SqlError(f"{self._folder} is in use by {holder}; a directory has one session at a time")

    def _declare(self, statement: sql.Statement) -> Result:
        position = len(statement.text) - len(statement.text.lstrip())
        if not isinstance(statement, Created):
            reason = (
                "a file that is run at every start has CREATE statements alone; `headrace sql FILE` executes others"
            )
            raise SqlError(reason, statement.text, position)
        name = statement.name
        there = self.catalog.definition(name)
        if there is None:
            return self.run(statement)
        if not is_same(there, statement):
            kind = "stream" if name in self.catalog.streams else "table" if name in self.catalog.tables else "view"
            kind = "transform" if name in self.catalog.transforms else kind
            raise SqlError(
                f"{name} is there with another definition; drop it (`headrace sql --home {self._folder} -c "
                f"'DROP {kind.upper()} {name}'`), by which its rows go, or give the new one another name",
                statement.text,
                position,
            )
        return Result(f"{name} goes on")

    @singledispatchmethod
    def _do(self, statement: Any) -> Result:
        raise SqlError(f"{type(statement).__name__.upper()} is not supported yet")

    @_do.register
    def _create_stream(self, statement: sql.CreateStream) -> Result:
        if statement.if_not_exists and statement.name in self.catalog.streams:
            return Result(f"there is a stream {statement.name} already")
        self.catalog.check_free(statement.name)
        topic = topic_of(statement)
        if "://" not in topic:
            log, ddl = Log(self._where.log), ddl_of(statement.columns)
            if topic in log.topics():
                if log.topic(topic).settings.values != ddl:
                    raise SqlError(f"the topic {topic!r} exists with other columns: {log.topic(topic).settings.values}")
            else:
                retention = statement.options.get("retention")
                age = None if retention is None else duration(str(retention))
                log.create(topic, partitions=int(statement.options.get("partitions", 1)), values=ddl, keep_age=age)
        self.catalog.add_stream(statement)
        return Result(f"created the stream {statement.name}")

    @_do.register
    def _create_table(self, statement: sql.CreateTable) -> Result:
        if statement.if_not_exists and statement.name in self.catalog.tables:
            return Result(f"there is a table {statement.name} already")
        self.catalog.check_free(statement.name)
        self.catalog.add_table(statement)
        return Result(f"created the table {statement.name}")

    @_do.register
    def _create_query(self, statement: sql.CreateQuery) -> Result:
        if statement.if_not_exists and statement.name in self._names(statement.kind):
            return Result(f"there is a {statement.kind} {statement.name} already")
        self.catalog.check_free(statement.name)
        ttl = ttl_of(statement)
        self.catalog.check_readable(statement)
        if statement.kind == "transform":
            return self._create_transform(statement)
        if (shape := self._shape_of(statement)) is not None:
            self._create_shared(statement, shape)
            return Result(f"created the view {statement.name}")
        view, columns = plan_view(self._where, statement)
        self._tables.check_free(view.name)
        ttl_column = None if ttl is None else expiring_column(ttl, columns)
        self.catalog.begin(view.name)
        self._tables.create(view.stored, columns, view.key, ttl_column)
        if view.part is not None:
            self._tables.create_views({view.name: ([*view.columns], view.part)})
        self.catalog.add_view(view)
        try:
            self._restart(view.computed_by)
        except BaseException:
            self._remove(view.name)
            raise
        return Result(f"created the view {view.name}")

    def _shape_of(self, statement: sql.CreateQuery) -> Shape | None:
        """Returns the shape of a view, if it has one that others can share."""
        shape = shape_of(statement, self.catalog.streams)
        nests = shape is not None and self.functions.nests(shape.query, statement.text)
        return None if nests else shape

    def _create_transform(self, statement: sql.CreateQuery) -> Result:
        stream = self.catalog.stream(str(statement.into))
        self.catalog.check_no_circle(statement)
        transform, _ = plan_view(self._where, statement)
        expected = {name: kind.lower() for name, kind in stream.columns.items()}
        if transform.columns != expected:
            found, wanted = (ddl_of(each) for each in (transform.columns, expected))
            raise SqlError(f"{stream.name} has the columns {wanted}, and the query gives {found}; name and CAST them")
        self.catalog.add_transform(transform)
        try:
            self._restart(transform.computed_by)
        except BaseException:
            self._restart(self.catalog.drop_transform(transform.name).computed_by)
            raise
        return Result(f"created the transform {transform.name}")

    def _create_shared(self, statement: sql.CreateQuery, shape: Shape) -> None:
        """Adds a query to those of its shape; the first of them makes the shape, which its pass begins to compute."""
        known = shape.name in self.catalog.shapes
        self._tables.check_free(statement.name)
        if not known:
            stored, columns = plan_view(self._where, replace(statement, name=shape.name), shared=True)
            self.catalog.begin(shape.name)
            self._tables.create(shape.name, columns, stored.key)
            self.catalog.add_shape(stored)
        try:
            view = self._shared.add(statement, shape)
        except BaseException:
            if not known:
                self.catalog.drop_shape(shape.name)
                self._drop_shape(shape.name)
            raise
        if not known:
            try:
                self._restart(view.computed_by)
            except BaseException:
                self._remove(view.name)
                raise

    @_do.register
    def _drop(self, statement: sql.Drop) -> Result:
        if statement.if_exists and statement.name not in self._names(statement.kind):
            return Result(f"there is no {statement.kind} {statement.name}")
        if statement.kind == "stream":
            self.catalog.drop_stream(statement.name)
        elif statement.kind == "table":
            self.catalog.drop_table(statement.name)
        elif statement.kind == "view":
            self._remove(statement.name)
        else:
            self._restart(self.catalog.drop_transform(statement.name).computed_by)
        return Result(f"dropped the {statement.kind} {statement.name}")

    @_do.register
    def _show(self, statement: sql.Show) -> Result:
        columns: dict[str, Any] = {statement.kind: pa.array(self._names(statement.kind), pa.string())}
        if statement.kind == "view":
            columns["state"] = ["paused" if view.paused else "running" for view in self.catalog.views.values()]
        if (
            computed := {"view": self.catalog.views, "transform": self.catalog.transforms}.get(statement.kind)
        ) is not None:
            columns["failed_rows"] = self._failed.counts(computed.values())
        return Result(table=pa.table(columns))

    def _names(self, kind: sql.Kind) -> list[str]:
        """Returns the names of all streams, tables, views or transforms."""
        catalog = self.catalog
        names: dict[str, Mapping[str, object]] = {"stream": catalog.streams, "table": catalog.tables}
        return list({**names, "view": catalog.views, "transform": catalog.transforms}[kind])

    @_do.register
    def _set_running(self, statement: sql.SetRunning) -> Result:
        view = self.catalog.view(statement.view)
        if view.paused != statement.running:
            return Result(f"the view {view.name} is {'running' if statement.running else 'paused'} already")
        if not statement.running:
            self._pause(view)
            return Result(f"paused the view {view.name}")
        self.catalog.add_view(replace(view, paused=False))
        self._start(view.computed_by)
        return Result(f"resumed the view {view.name}")

    def _pause(self, view: View) -> None:
        """Stops computing a view. If others share its pass, it gets a copy of the checkpoint, where it can go on."""
        name, own = view.computed_by, own_pass(view)
        handle = self._running.pop(name)
        if own == name:
            handle.stop()
            self._failed.ended(name)
            self.catalog.add_view(replace(view, paused=True))
            return
        try:
            # Between batches: the copy is another stream, of which the table would take a batch that it has already.
            handle.halt()
            handle.savepoint(str(self._passes / own))
            paused = replace(view, computed_by=own, paused=True)
            self.catalog.add_view(paused) if view.shape is None else self._shared.separate(paused)
        finally:
            self._failed.ended(name)
            self._restart(name)

    @_do.register
    def _describe(self, statement: sql.Describe) -> Result:
        name, catalog = statement.name, self.catalog
        declared = catalog.streams.get(name) or catalog.tables.get(name) or catalog.transforms.get(name)
        columns: Mapping[str, str] = (declared or catalog.view(name)).columns
        return Result(table=pa.table({"column": list(columns), "type": [each.lower() for each in columns.values()]}))

    def _appended(self, statement: sql.Insert | sql.Copy) -> tuple[sql.CreateStream, Topic]:
        """Returns the stream that rows are appended to, and its topic."""
        stream = self.catalog.stream(statement.stream)
        if "://" in topic_of(stream):
            kind = type(statement).__name__.upper()
            raise SqlError(f"{kind} is for streams of this log, and {stream.name} is {topic_of(stream)}")
        for name in statement.columns or ():
            if name not in stream.columns:
                raise SqlError(no_column(name, stream.columns))
        return stream, Log(self._where.log).topic(topic_of(stream))

    def _copy(self, statement: sql.Copy, files: bool, stdin: BinaryIO | None) -> Result:
        with self._lock:
            _, topic = self._appended(statement)
        if statement.file is not None and not files:
            raise SqlError("COPY reads no files here; send the rows by INSERT, or run it in `headrace sql`")
        return Result(f"copied {copy_rows(statement, topic, stdin)}")

    @_do.register
    def _insert(self, statement: sql.Insert) -> Result:
        stream, topic = self._appended(statement)
        insert_rows(statement, stream, topic)
        return Result(f"inserted {len(statement.rows)}")

    @_do.register
    def _select(self, statement: sql.Select) -> Result:
        point = read_point(self.catalog, self._tables, statement, self._adhoc.limits.rows)
        if point is not None:
            return Result(table=point)
        text, tables = select_views(self.catalog, self._tables, statement, self._adhoc.query)
        return Result(table=self._adhoc.query(text, tables).table)

    @_do.register
    def _subscribe(self, statement: sql.Subscribe) -> Result:
        return Result(changes=self.subscribe(statement.view))

    @_do.register
    def _explain(self, statement: sql.Explain) -> Result:
        text = statement.text.replace("EXPLAIN", "       ", 1)
        query = sql.CreateQuery(text, "explained", "view", statement.query, {}, False)
        if (shape := self._shape_of(query)) is None:
            view, _ = plan_view(self._where, query)
            shared = ""
        else:
            known = self.catalog.shapes.get(shape.name)
            view = known or plan_view(self._where, replace(query, name=shape.name), shared=True)[0]
            shared = f"{self._shared.describe(shape)}\n"
        sharing = [each for each in self.catalog.passes().get(view.computed_by, []) if each is not view]
        pipeline = plan_pass(self._where, [*sharing, view], "latest")
        return Result(shared + pipeline.explain(stream=True))

    def _remove(self, name: str) -> None:
        view = self.catalog.drop_view(name)
        self._failed.forget(name)
        if view.shape is None:
            self._restart(view.computed_by)
            self._drop_table(name)
        elif view.computed_by != (computed_by := self.catalog.shapes[view.shape].computed_by):  # it was paused
            self._restart(view.computed_by)
            if self._shared.remove_alone(view):
                self._restart(computed_by)
                self._drop_shape(view.shape)
        elif self._shared.remove(view):
            self._restart(view.computed_by)
            self._drop_shape(view.shape)

    def _drop_shape(self, name: str) -> None:
        """Removes what is left of a shape that the catalog and its pass have no more."""
        self.catalog.remove_queries(name)
        self._drop_table(name)

    def _drop_table(self, name: str) -> None:
        self._tables.drop(name)
        self.catalog.finish(name)

    @contextmanager
    def _starting_once(self) -> Iterator[None]:
        """Lets passes go on with new views at the end of the block, once; what cannot is removed again."""
        before = {*self.catalog.views, *self.catalog.transforms}
        self._waiting = {}
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            with ExitStack() as rest:  # those behind one that cannot start are started all the same
                for name in reversed(waiting):
                    rest.callback(self._restart_or_undo, name, before)

    def _restart_or_undo(self, name: str, before: set[str]) -> None:
        """Lets a pass go on, without the views that were not there before if it cannot with them."""
        try:
            self._restart(name)
        except BaseException:
            self._running.pop(name, None)
            self._undo(name, before)
            raise

    def _undo(self, name: str, before: set[str]) -> None:
        """Removes the views and transforms of a pass that were not there before: all, and then it goes on."""
        new = [*self.catalog.views.values(), *self.catalog.transforms.values()]
        self._waiting = {}  # with some of them it could start as little as with all
        try:
            for view in reversed([each for each in new if each.computed_by == name and each.name not in before]):
                if view.statement.into is None:
                    self._remove(view.name)
                else:
                    self._restart(self.catalog.drop_transform(view.name).computed_by)
        finally:
            waiting, self._waiting = self._waiting, None
            for each in waiting:
                self._restart(each)

    def _restart(self, name: str) -> None:
        """Lets a pass go on with the views that it has now; one without views is over."""
        if self._waiting is not None:
            self._waiting[name] = None
            return
        if (handle := self._running.pop(name, None)) is not None:
            handle.stop()
            self._failed.ended(name)
        if name in self.catalog.passes():
            self._start(name)
        else:
            remove_stream(self._passes / name, Log(self._where.log))

    def _start(self, name: str) -> None:
        from headrace.engine.checkpoint.checkpoint import groupings_of
        from headrace.engine.spark.files import Folder
        from headrace.engine.spark.session import spark_session
        from headrace.engine.stream.handle import StreamHandle

        views, checkpoint = self.catalog.passes()[name], self._passes / name
        start = str(views[0].statement.options.get("from", "latest"))
        if start == "latest" and not checkpoint.exists():
            streams = self.catalog.streams
            self._began[name] = {each: stream_ends(self._where.log, stream) for each, stream in streams.items()}
        pipeline = plan_pass(self._where, views, start)
        spark = self._where.spark or spark_session()
        self.functions.register(spark)
        before = groupings_of(Folder(spark, str(checkpoint)))
        labels = {node.label for node in pipeline.snapshot()}
        handle = pipeline.run(
            checkpoint=str(checkpoint),
            forget=[label for label in before if label not in labels],  # only views that were dropped had them
            levels=levels_of(name) or None,
            trigger=self._trigger,
        )
        assert isinstance(handle, StreamHandle)
        self._running[name] = handle
        self._failed.started(name, handle, pipeline.snapshot(), views)
