"""The command `headrace sql`: executes statements of continuous SQL, from a prompt, a file, a pipe or an option.

Of a system that runs, its server executes them; otherwise a session in this process does.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, Protocol, runtime_checkable

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from headrace.commands.errors import errors_as_messages
from headrace.model.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.dialects.sql.sqlsession import Result
    from headrace.dialects.sql.sqlstatements import Statement
    from headrace.dialects.sql.viewchanges import Change

_WORDS: Final = (
    *("CREATE", "STREAM", "CONTINUOUS", "VIEW", "DROP", "SHOW", "STREAMS", "VIEWS", "DESCRIBE", "INSERT", "INTO"),
    *("VALUES", "SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "TUMBLE", "HOP", "SESSION", "TABLE", "DESCRIPTOR"),
    *("COPY", "INTERVAL", "WATERMARK", "EMIT", "AFTER", "DELAY", "COUNT", "PERCENTILE", "WITH", "LATENESS", "EXPLAIN"),
)
_HELP: Final = r"""\d        the streams and views
\d NAME   the columns of one
\q        leave
Statements end with a semicolon."""


def sql(
    file: Annotated[Path | None, typer.Argument(help="A file of statements; without it, a prompt.")] = None,
    directory: Annotated[
        str, typer.Option("--home", help="The directory of streams and views.", show_default=True)
    ] = "headrace-sql",
    command: Annotated[
        list[str] | None, typer.Option("--command", "-c", help="Statements to execute; may be repeated.")
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="Where views have their tables, e.g. postgresql://USER:PASSWORD@HOST/NAME.")
    ] = None,
    trigger: Annotated[str | None, typer.Option(help="The time between micro-batches, e.g. '1 second'.")] = None,
    url: Annotated[
        str | None,
        typer.Option(help="The address of a system that runs; that of the directory, if one does.", show_default=False),
    ] = None,
    functions: Annotated[
        Path | None, typer.Option(help="A file of Python with the functions that queries call.", show_default=False)
    ] = None,
) -> None:
    """Execute continuous SQL: streams, and views that are always up to date.

    HEADRACE_TOKEN has the token for a system that runs and wants one.
    """
    from headrace.dialects.sql.sqlstatements import parse_statements

    with errors_as_messages(HeadraceError, OSError):
        texts = [*([] if file is None else [file.read_text("utf-8")]), *(command or ())]
        stdin = None
        if not sys.stdin.isatty():
            if texts:
                stdin = sys.stdin.buffer  # which COPY ... FROM STDIN reads
            else:
                texts.append(sys.stdin.read())
        parsed = [statement for text in texts for statement in parse_statements(text)]
        with _executor(directory, database, trigger, url, functions) as executor:
            console = Console()
            for statement in parsed:
                show(executor.run(statement, wait=True, stdin=stdin), console)
            if not texts:
                _prompt(executor, console)


@runtime_checkable
class Stoppable(Protocol):
    """Changes of a session in this process, which are logged until they are stopped."""

    def stop(self) -> None:
        """Ends the log."""


class Executor(Protocol):
    """An executor of statements: a session, or a client of a system that runs one."""

    def execute(self, text: str) -> list[Result]:
        """Executes statements."""

    def run(self, statement: Statement, *, wait: bool = False, stdin: BinaryIO | None = None) -> Result:
        """Executes a statement; with `wait`, a SELECT has all that was inserted before. COPY may read `stdin`."""

    def names(self) -> list[str]:
        """Returns the names of streams, views and columns."""


@contextmanager
def _executor(
    directory: str, database: str | None, trigger: str | None, url: str | None, functions: Path | None
) -> Iterator[Executor]:
    """Opens the session of a directory, or connects to the system that runs there, or at a URL."""
    from headrace.dialects.sql.sqlerrors import SqlError
    from headrace.system.home import Home

    holder = Home(Path(directory)).holder() if url is None else None
    url = url or (None if holder is None else holder.url)
    if url is not None and functions is not None:
        raise SqlError(f"the system at {url} has functions of its own, those that `headrace up --functions` gave it")
    if url is not None:
        from headrace.system.client import HttpClient
        from headrace.system.sqlclient import SqlClient

        yield SqlClient(HttpClient(url.rstrip("/"), os.environ.get("HEADRACE_TOKEN")))
        return
    from headrace.dialects.sql.sqlfunctions import load_functions
    from headrace.dialects.sql.sqlsession import SqlSession

    loaded = [] if functions is None else load_functions(functions)
    with SqlSession(directory, database=database, trigger=trigger, functions=loaded) as session:
        yield session


def show(result: Result, console: Console) -> None:
    """Prints the result of a statement; changes until Ctrl-C."""
    if result.changes is not None:
        _follow(result.changes, console)
    elif result.table is None:
        console.print(result.message, markup=False, highlight=False)
    else:
        console.print(as_table(result.table))


def _follow(changes: Iterable[Change], console: Console) -> None:
    """Prints the rows that come, after +, and those that go, after -."""
    with suppress(KeyboardInterrupt):
        for change in changes:
            for sign, row in (("-", change.old), ("+", change.new)):
                if row is not None:
                    values = ", ".join(f"{name}={value}" for name, value in row.items())
                    console.print(f"{sign} {values}", markup=False, highlight=False, soft_wrap=True)
    if isinstance(changes, Stoppable):
        changes.stop()


def as_table(rows: pa.Table) -> Table:
    """Returns rows as a table for the terminal; numbers are to the right."""
    table = Table(show_edge=False, pad_edge=False)
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if number else "left")
    for row in rows.to_pylist():
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    return table


def _prompt(session: Executor, console: Console) -> None:
    _use_history(session)
    console.print(r"Statements end with ; and \? is help.", markup=False, highlight=False)
    for text in _statements():
        try:
            for result in _answers(session, text):
                show(result, console)
        except (HeadraceError, OSError) as error:
            console.print(str(error), markup=False, highlight=False, style="red")


def _answers(session: Executor, text: str) -> list[Result]:
    from headrace.dialects.sql.sqlsession import Result

    word, _, name = text.strip().rstrip(";").strip().partition(" ")
    if word == r"\d":
        return session.execute(f"DESCRIBE {name}" if name.strip() else "SHOW STREAMS; SHOW VIEWS")
    return [Result(_HELP)] if word == r"\?" else session.execute(text)


def _statements() -> Iterator[str]:
    r"""Reads statements from the prompt until its end or \q."""
    text = ""
    while True:
        try:
            text += input("... " if text else "sql> ") + "\n"
        except EOFError:
            return
        except KeyboardInterrupt:
            text = ""
            print()
            continue
        if text.strip() == r"\q":
            return
        if text.startswith("\\") or text.rstrip().endswith(";"):
            yield text
            text = ""
        elif not text.strip():
            text = ""


def _use_history(session: Executor) -> None:
    """Lets the prompt remember lines, and complete words and names with the tab key."""
    try:
        import readline
    except ImportError:  # a Python without it has a plain prompt
        return
    file = Path.home() / ".headrace_sql_history"
    with suppress(OSError):
        readline.read_history_file(file)
    atexit.register(_write_history, file)

    def complete(begun: str, number: int) -> str | None:
        found = [each for each in dict.fromkeys((*session.names(), *_WORDS)) if each.lower().startswith(begun.lower())]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _write_history(file: Path) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(file)
