"""The database of a store, and its transactions: readers see one snapshot and block nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from headrace.edges.databases import lock_table_creation, open_database, set_patience
from headrace.local.privatefile import private_opener
from headrace.local.privatefolder import UntrustedPath, check_folder, check_status
from headrace.model.secrets import redact_url
from headrace.views.errors import ViewError

_DRIVERS: Final = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}
_PATIENCE: Final = 3_600.0  # seconds for a statement on many rows, such as copying a part
_IDLE_READERS: Final = 4  # connections that readers keep, of the fifteen that the pool has for all


class Database:
    """A database by its SQLAlchemy URL, e.g. "sqlite:///views.db" or "postgresql://user@host/name".

    >>> Database("mysql://host/name")
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: a store is sqlite:///FILE or postgresql://USER@HOST/NAME, got mysql://host/name
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except sa.exc.ArgumentError:
            raise ViewError("a store is sqlite:///FILE or postgresql://USER@HOST/NAME, got no URL at all") from None
        backend = parsed.get_backend_name()
        if backend not in _DRIVERS or (backend == "sqlite" and not parsed.database):
            raise ViewError(f"a store is sqlite:///FILE or postgresql://USER@HOST/NAME, got {redact_url(parsed)}")
        if backend == "sqlite":
            _make_private(parsed)
        self.backend = backend
        self.engine = open_database(parsed.set(drivername=_DRIVERS[backend]))
        self._readers = self.engine.execution_options(reads=True)
        self._idle: list[tuple[sa.PoolProxiedConnection, Any]] = []
        if backend == "sqlite":
            sa.event.listen(self.engine, "connect", _configure)
            sa.event.listen(self.engine, "begin", _begin)
            self.engine.dispose()  # closes the connection that was opened before
        else:
            self._readers = self._readers.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @contextmanager
    def reading(self, *, patient: bool = False) -> Iterator[sa.Connection]:
        """Opens a transaction that sees one snapshot of the store, whatever is written meanwhile.

        Its statements have 30 seconds each, so that those who ask over HTTP do not wait for ever; an hour if `patient`.
        """
        with self._readers.begin() as connection:
            if patient:
                set_patience(connection, _PATIENCE)
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        """Opens a reading transaction and yields a cursor of the driver, which is faster: for answers."""
        if self.backend != "sqlite":
            with self.reading() as connection:
                yield cursor_of(connection)
            return
        # Some connections stay open: to get one from the pool takes longer than most queries.
        try:
            pooled, cursor = self._idle.pop()
        except IndexError:
            pooled = self.engine.raw_connection()
            cursor = pooled.cursor()
        try:
            cursor.execute("BEGIN")
            yield cursor
            cursor.execute("COMMIT")
        except BaseException:
            pooled.close()  # the pool rolls back
            raise
        if len(self._idle) < _IDLE_READERS:
            self._idle.append((pooled, cursor))
        else:
            pooled.close()

    @contextmanager
    def writing(self, *, patient: bool = True) -> Iterator[sa.Connection]:
        """Opens a writing transaction, which is committed at the end of the block or rolled back."""
        with self.engine.begin() as connection:
            if patient:
                set_patience(connection, _PATIENCE)
            yield connection

    @contextmanager
    def defining(self) -> Iterator[sa.Connection]:
        """Opens a transaction that creates tables; processes that start at once take turns."""
        with self.writing() as connection:
            lock_table_creation(connection)
            yield connection

    def analyze(self, table: str) -> None:
        """Updates PostgreSQL's statistics of a table; without them it may choose the wrong index."""
        if self.backend == "postgresql":
            with self.writing() as connection:
                connection.exec_driver_sql(f"ANALYZE {table}")

    def close(self) -> None:
        """Closes all connections."""
        while self._idle:
            self._idle.pop()[0].close()
        self.engine.dispose()


def _make_private(url: sa.URL) -> None:
    """Makes the file of an SQLite database for this user only; the files beside it get its mode."""
    if url.database is None or ":memory:" in url.database or url.query.get("mode") == "memory":
        return
    path = Path(url.database.removeprefix("file:"))
    check_folder(path.parent)
    path = path.resolve()  # it may be a link
    check_folder(path.parent)
    for companion in path.parent.glob(f"{path.name}-*"):  # its log and journal, which SQLite reads
        check_status(companion, companion.lstat())
    try:
        open(path, "ab", opener=private_opener).close()
    except UntrustedPath:
        raise
    except OSError:
        return  # SQLite says what is wrong


def cursor_of(connection: sa.Connection) -> Any:
    """Returns a cursor of the driver in the connection's transaction, for statements that must be fast."""
    driver: Any = connection.connection.driver_connection
    return driver.cursor()


def _configure(connection: Any, record: object) -> None:
    connection.isolation_level = None  # or the driver begins transactions by itself
    cursor = connection.cursor()
    # FULL: a micro-batch that the stream counts as written must survive a power cut.
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    # A writer that began as a reader would fail, not wait, when another writer was faster.
    reads = connection.get_execution_options().get("reads")
    cursor_of(connection).execute("BEGIN" if reads else "BEGIN IMMEDIATE")
