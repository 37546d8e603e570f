"""Declares database tables as sinks. The clients that open and write them are in `headrace.edges`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from headrace.model.errors import PipelineError
from headrace.model.panes import WINDOW_BOUNDS
from headrace.model.pipeline import PCollection
from headrace.model.secrets import redact_url
from headrace.model.sinks import BatchSink, Sink
from headrace.model.times import DurationLike, duration, format_duration
from headrace.model.windows import CountWindows

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

Mode = Literal["append", "upsert", "retract"]

SIGN: Final = "sign"
"""The column that marks rows of an appended table: -1 for retractions, 1 for the others."""

_DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
_SUPPORTED: Final = "'sqlite:///FILE' or 'postgresql://USER:PASSWORD@HOST:PORT/DATABASE'"


class TableSink(Sink):
    """A sink whose elements are rows of a table: what an element does, by which key, and names of a tuple's parts."""

    key: tuple[str, ...]
    mode: Mode
    columns: tuple[str, ...] | None

    def _take_rows(self, key: str | Sequence[str], mode: Mode, columns: Sequence[str] | None) -> None:
        """Takes the options that say how elements become rows."""
        who = type(self).__name__
        self.key = _names(who, "key", (key,) if isinstance(key, str) else key)
        self.columns = None if columns is None else _names(who, "columns", columns)
        if mode not in get_args(Mode):
            raise PipelineError(f"{who}: mode must be 'append', 'upsert' or 'retract', got {mode!r}")
        self.mode = mode
        if mode == "upsert" and not self.key:
            raise PipelineError(f"{who}: mode='upsert' needs a key, the columns that identify a row, e.g. key=['url']")
        if mode == "append" and self.key:
            raise PipelineError(
                f"{who}: mode='append' adds every element, so it has no key, got {list(self.key)}; write "
                "mode='upsert' to replace rows, or leave the key out"
            )
        if self.columns is not None:
            for name in self.key:
                if name not in (*self.columns, *WINDOW_BOUNDS):
                    raise PipelineError(f"{who}: key {name!r} is not among the columns {list(self.columns)}")

    @property
    def parts(self) -> tuple[str, ...] | None:
        """The names of a tuple's parts: `columns` without the bounds of windows."""
        return None if self.columns is None else tuple(name for name in self.columns if name not in WINDOW_BOUNDS)

    def computed_columns(
        self, pc: PCollection, own: Collection[str], table: Collection[str] | None, *, signed: bool
    ) -> list[str]:
        """Returns the columns that elements get beside their own, in a table with these columns, or in a new one.

        These are bounds of windows, where the table is to have them, and the sign, if the table is `signed`.
        """
        timed = not (pc.windowing.is_global or isinstance(pc.windowing.window, CountWindows))
        named = {*self.key, *(self.columns or ())}
        if table is None and {*self.key} & {*WINDOW_BOUNDS} - {*own}:
            named.update(WINDOW_BOUNDS)
        elif table is not None and timed:
            named.update(table)
        bounds = [name for name in WINDOW_BOUNDS if name in named and name not in own]
        if bounds and not timed:
            raise PipelineError(
                f"{', '.join(bounds)} would be bounds of windows, but elements are in {pc.windowing.window!r}, whose "
                "bounds are not times; put WindowInto(FixedWindows(...)) before it"
            )
        if signed and SIGN in own:
            raise PipelineError(f"elements have a column {SIGN!r}, which marks retractions; rename it with Select")
        computed = [*bounds, *([SIGN] if signed else [])]
        if missing := [name for name in self.key if name not in (*own, *computed)]:
            raise PipelineError(
                f"the key {missing[0]!r} is not a column of the elements, which have {', '.join([*own, *computed])}"
            )
        return computed

    def expand(self, inputs: Any) -> Any:
        super().expand(inputs)
        self.check(inputs)

    def check(self, pc: PCollection) -> None:
        """Refuses elements whose columns have no names, or names of their own beside `columns`."""
        schema = pc.schema
        if schema is not None and schema.kind in ("tuple", "value"):
            if self.parts is None:
                raise PipelineError(
                    f"{self}: the elements of {pc.label!r} ({pc.place}) have no column names; give columns=[...] with "
                    f"a name for each of the {len(schema.names)} parts, e.g. columns=['word', 'n']"
                )
            if len(self.parts) != len(schema.names):
                raise PipelineError(
                    f"{self}: columns names {len(self.parts)} parts, {list(self.parts)}, but the elements of "
                    f"{pc.label!r} ({pc.place}) have {len(schema.names)}"
                )
        elif pc.has_columns and self.columns is not None:
            raise PipelineError(
                f"{self}: columns={list(self.columns)} is for plain tuples, but the elements of {pc.label!r} "
                f"({pc.place}) have column names already; leave it out, or rename with Select"
            )


class WriteTable(BatchSink, TableSink):
    """Writes elements to a database table, each micro-batch in one transaction, and once even after a crash.

    `url` is an SQLAlchemy URL of SQLite or PostgreSQL: "sqlite:///counts.db", "postgresql://user:password@host/db".
    The table is created if it does not exist. Elements are Rows, NamedTuples, dataclasses or dicts, whose names are
    those of the columns; `columns` names the parts of plain tuples. "window_start" and "window_end" in `key`, in
    `columns` or in an existing table are the bounds of the element's window.

    `mode` says what an element does:

    - "append": adds a row. If the pipeline has retractions, a column `sign` is -1 in their rows and 1 in the others
    - "upsert": replaces the row with its `key`. A retraction that is not replaced deletes the row
    - "retract": adds a row; a retraction deletes one, that with its `key`, or else an equal one

    `ttl` is how long rows stay after the time in `ttl_column`: behind a grouping until the watermark has come so far,
    otherwise until the column has had a value that is so much later. Rows go in the transaction of a micro-batch.

    >>> import headrace as hr, sqlite3, tempfile
    >>> file = tempfile.mkdtemp() + "/counts.db"
    >>> with hr.Pipeline() as p:
    ...     counts = p | hr.Create(["a", "b", "a"]) | hr.Count.per_element()
    ...     counts | hr.WriteTable(f"sqlite:///{file}", "counts", columns=["word", "n"], key=["word"], mode="upsert")
    >>> sqlite3.connect(file).execute("SELECT word, n FROM counts ORDER BY word").fetchall()
    [('a', 2), ('b', 1)]
    """

    def __init__(
        self,
        url: str | URL,
        table: str,
        *,
        key: str | Sequence[str] = (),
        mode: Mode = "append",
        columns: Sequence[str] | None = None,
        ttl: DurationLike | None = None,
        ttl_column: str | None = None,
    ) -> None:
        self.url = database_url("WriteTable", url)
        if not isinstance(table, str) or not table:
            raise PipelineError(f"WriteTable takes the name of a table, got {table!r}")
        self.table = table
        self._take_rows(key, mode, columns)
        if (ttl is None) != (ttl_column is None):
            raise PipelineError("WriteTable: ttl and ttl_column go together, e.g. ttl='7 days', ttl_column='at'")
        self.ttl = None if ttl is None else duration(ttl)
        if self.ttl is not None and self.ttl <= 0:
            raise PipelineError(f"WriteTable: ttl must be positive, got {ttl!r}; give a duration such as '7 days'")
        self.ttl_column = ttl_column

    def __str__(self) -> str:
        key = f", key={list(self.key)!r}" if self.key else ""
        ttl = "" if self.ttl is None else f", ttl={format_duration(self.ttl)!r}, ttl_column={self.ttl_column!r}"
        return f"WriteTable({redact_url(self.url)!r}, {self.table!r}{key}, mode={self.mode!r}{ttl})"


def database_url(who: str, text: Any) -> URL:
    """Parses the URL of a database; the result hides its password when it is printed."""
    from sqlalchemy.engine import make_url  # not needed by pipelines that have no tables

    try:
        url = make_url(text)
        driver = _DRIVERS.get(url.drivername)
    except Exception:  # whose text may contain parts of the password
        raise PipelineError(
            f"{who}: this is not the URL of a database, such as {_SUPPORTED}; the characters @ : / % in a "
            "password are written %40 %3A %2F %25"
        ) from None
    if driver is None:
        raise PipelineError(f"{who} has to do with {_SUPPORTED}, got a URL of {url.drivername!r}")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise PipelineError(f"{who}: a SQLite database in memory is of one process only; give a file: 'sqlite:///FILE'")
    if "password" in url.query:
        url = url.set(password=str(url.query["password"])).difference_update_query(["password"])
    return url.set(drivername=driver)


def _names(who: str, option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise PipelineError(f"{who}: {option} must be a list of column names, got {value!r}")
    names = tuple(value)
    if len({*names}) < len(names):
        raise PipelineError(f"{who}: {option} has a name twice: {list(names)}; give each once")
    return names
