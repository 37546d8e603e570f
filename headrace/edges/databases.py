"""Databases: how they are opened, what their failures say, and how far each stream has been written to one."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from headrace.model.errors import HeadraceError, PipelineError
from headrace.model.secrets import redact_text, redact_url

_BATCHES = sa.Table(
    "headrace_batches",
    sa.MetaData(),
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("sink", sa.Text, primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
)
_MAKING_TABLES = 7_241_523_305_918_214_001  # any number that all of us, and nobody else, lock in PostgreSQL
_LOCK_TIMEOUT = 30.0  # seconds to wait for SQLite's one writer


class DatabaseError(HeadraceError, RuntimeError):
    """A database refused what a sink wanted."""


def open_database(url: URL) -> Engine:
    """An engine that has reached its database."""
    waits = {"timeout": _LOCK_TIMEOUT} if url.get_backend_name() == "sqlite" and "timeout" not in url.query else {}
    try:
        # Parameters are elements: they have no place in messages. A connection that died while idle is made anew.
        engine = sa.create_engine(url, hide_parameters=True, pool_pre_ping=True, connect_args=waits)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"{redact_url(url)} needs the Python package {error.name!r}, which is not installed: "
            "pip install 'headrace[postgresql]'"
        ) from None
    except ImportError as error:  # psycopg is there, and the library of PostgreSQL is not
        raise PipelineError(
            f"{redact_url(url)}: {reason(error, url)}; pip install 'headrace[postgresql]' brings it along"
        ) from None
    if engine.dialect.name == "postgresql":
        sa.event.listen(engine, "connect", _in_utc)
    try:
        with engine.connect():
            return engine
    except SQLAlchemyError as error:
        engine.dispose()
        raise PipelineError(f"cannot open the database {redact_url(url)}: {reason(error, url)}{_remedy(url)}") from None


def reason(error: Exception, url: URL) -> str:
    """What the database says, in one line and without the password."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(str(said).split())
    if text == "database is locked":
        text = (
            "database is locked: another process has been writing to it for too long; add ?timeout=SECONDS to the URL"
        )
    return redact_text(text, url)


def making_tables(connection: Connection) -> None:
    """To be said before tables are looked for and made: others that make the same one wait."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING_TABLES)))
    elif not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Progress:
    """How far a sink of a stream has been written: its last batch, which a table in the database remembers.

    It moves in the transaction that writes the batch, so a batch that comes again finds it was written. The row is
    locked meanwhile, so two runs of one stream write one after the other.
    """

    def __init__(self, connection: Connection, stream: str, sink: str) -> None:
        self._of = sa.and_(_BATCHES.c.stream == stream, _BATCHES.c.sink == sink)
        if not sa.inspect(connection).has_table(_BATCHES.name):
            _BATCHES.create(connection)
        if connection.execute(sa.select(_BATCHES).where(self._of)).first() is None:
            connection.execute(sa.insert(_BATCHES).values(stream=stream, sink=sink, batch=-1))

    def advance(self, connection: Connection, batch_id: int) -> bool:
        """Whether the batch is new; it counts as written when the transaction is committed."""
        moved = sa.update(_BATCHES).where(self._of, _BATCHES.c.batch < batch_id).values(batch=batch_id)
        return connection.execute(moved).rowcount == 1


def _in_utc(connection: object, record: object) -> None:
    """Columns without a time zone then get times in UTC, wherever the server is."""
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute("SET TIME ZONE 'UTC'")
    connection.commit()  # type: ignore[attr-defined]


def _remedy(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return f"; does the folder of {url.database!r} exist, and may this process write to it?"
    return "; is the server running there, and are user, password and database right?"
