"""Opens databases, explains their errors, and records up to which batch a stream has been written."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from headrace.model.errors import HeadraceError, PipelineError
from headrace.model.secrets import redact_text, redact_url

_BATCHES = sa.Table(
    "headrace_batches",
    sa.MetaData(),
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("sink", sa.Text, primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
)
_CREATION_LOCK = 7_241_523_305_918_214_001  # a number that Headrace, and nobody else, locks in PostgreSQL
_LOCK_TIMEOUT = 30.0  # seconds to wait for SQLite's one writer
_POSTGRESQL: Final = {
    "connect_timeout": 10,  # seconds for all of it: to connect, and to be admitted
    "keepalives_idle": 30,  # seconds; a machine that is gone is missed after twice that
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}
"""How long to wait for a server that does not answer; the URL may say otherwise."""
_LONGEST: Final = 500  # characters of a server's message


class DatabaseError(HeadraceError, RuntimeError):
    """A database refused what a sink wanted."""


def open_database(url: URL) -> Engine:
    """Returns an engine that has connected to its database once."""
    waits: dict[str, Any] = {"timeout": _LOCK_TIMEOUT} if url.get_backend_name() == "sqlite" else _POSTGRESQL
    waits = {name: value for name, value in waits.items() if name not in url.query}
    try:
        # Parameters are elements, which do not belong in messages. A connection that died while idle is replaced.
        engine = sa.create_engine(url, hide_parameters=True, pool_pre_ping=True, connect_args=waits)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"{redact_url(url)} needs the Python package {error.name!r}, which is not installed: "
            "pip install 'headrace[postgresql]'"
        ) from None
    except ImportError as error:  # psycopg is installed, but PostgreSQL's library libpq is not
        raise PipelineError(
            f"{redact_url(url)}: {error_text(error, url)}; pip install 'headrace[postgresql]' installs it"
        ) from None
    if engine.dialect.name == "postgresql":
        sa.event.listen(engine, "do_connect", _connect)
        sa.event.listen(engine, "connect", _in_utc)
        sa.event.listen(engine, "checkin", _reset_patience)
    try:
        with engine.connect():
            return engine
    except Exception as error:  # whatever a server that is none makes the driver do
        engine.dispose()
        raise PipelineError(
            f"cannot open the database {redact_url(url)}: {error_text(error, url)}{_remedy(url)}"
        ) from None


def set_patience(connection: Connection, seconds: float) -> None:
    """Allows the statements of a connection so many seconds each, until it is given back; by default they have 30."""
    if connection.dialect.name == "postgresql":
        driver: Any = connection.connection.driver_connection
        driver.patience = seconds


def error_text(error: Exception, url: URL) -> str:
    """Returns the message of a database's error, in one line and without the password."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = " ".join(redact_text(str(cause), url).split()) or type(cause).__name__
    if text == "database is locked":
        text = (
            "database is locked: another process has been writing to it for too long; add ?timeout=SECONDS to the URL"
        )
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def lock_table_creation(connection: Connection) -> None:
    """Locks the creation of tables until the end of the transaction, so that two writers do not create the same one."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
    elif not connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class BatchProgress:
    """The number of the last batch that a sink of a stream has written, in a table of the database.

    It advances in the transaction that writes the batch, so a repeated batch is recognised. Its row is locked until
    then, so two runs of one stream write one after the other.
    """

    def __init__(self, connection: Connection, stream: str, sink: str) -> None:
        self._row = sa.and_(_BATCHES.c.stream == stream, _BATCHES.c.sink == sink)
        if not sa.inspect(connection).has_table(_BATCHES.name):
            _BATCHES.create(connection)
        if connection.execute(sa.select(_BATCHES).where(self._row)).first() is None:
            connection.execute(sa.insert(_BATCHES).values(stream=stream, sink=sink, batch=-1))

    def advance(self, connection: Connection, batch_id: int) -> bool:
        """Tells whether the batch is new; it counts as written once the transaction is committed."""
        update = sa.update(_BATCHES).where(self._row, _BATCHES.c.batch < batch_id).values(batch=batch_id)
        return connection.execute(update).rowcount == 1


def _connect(dialect: object, record: object, arguments: Any, options: Any) -> object:
    """Connects with a limit for every statement."""
    from headrace.edges.boundedconnection import BoundedConnection  # psycopg is optional

    return BoundedConnection.connect(*arguments, **options)


def _reset_patience(connection: Any, record: object) -> None:
    if connection is not None:  # it was not closed meanwhile
        vars(connection).pop("patience", None)


def _in_utc(connection: object, record: object) -> None:
    """Sets the time zone of a connection, so that columns without one store times in UTC, wherever the server is."""
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute("SET TIME ZONE 'UTC'")
    connection.commit()  # type: ignore[attr-defined]


def _remedy(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return f"; does the folder of {url.database!r} exist, and may this process write to it?"
    return "; is the server running there, and are user, password and database right?"
