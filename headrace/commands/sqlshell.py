"""The command `headrace sql`: executes statements of continuous SQL, from a prompt, a file, a pipe or an option."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from headrace.commands.errors import errors_as_messages
from headrace.model.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.dialects.sql.sqlsession import Result, SqlSession

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
) -> None:
    """Execute continuous SQL: streams, and views that are always up to date."""
    from headrace.dialects.sql.sqlsession import SqlSession
    from headrace.dialects.sql.sqlstatements import parse_statements

    with errors_as_messages(HeadraceError, OSError):
        texts = list(command or ())
        if file is not None:
            texts.append(file.read_text("utf-8"))
        stdin = None
        if not sys.stdin.isatty():
            if texts:
                stdin = sys.stdin.buffer  # which COPY ... FROM STDIN reads
            else:
                texts.append(sys.stdin.read())
        with SqlSession(directory, database=database, trigger=trigger) as session:
            console = Console()
            for text in texts:
                for statement in parse_statements(text):
                    show(session.run(statement, wait=True, stdin=stdin), console)
            if not texts:
                _prompt(session, console)


def show(result: Result, console: Console) -> None:
    """Prints the result of a statement."""
    if result.table is None:
        console.print(result.message, markup=False, highlight=False)
    else:
        console.print(as_table(result.table))


def as_table(rows: pa.Table) -> Table:
    """Returns rows as a table for the terminal; numbers are to the right."""
    table = Table(show_edge=False, pad_edge=False)
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if number else "left")
    for row in rows.to_pylist():
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    return table


def _prompt(session: SqlSession, console: Console) -> None:
    _use_history(session)
    console.print(r"Statements end with ; and \? is help.", markup=False, highlight=False)
    for text in _statements():
        try:
            for result in _answers(session, text):
                show(result, console)
        except (HeadraceError, OSError) as error:
            console.print(str(error), markup=False, highlight=False, style="red")


def _answers(session: SqlSession, text: str) -> list[Result]:
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


def _use_history(session: SqlSession) -> None:
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
        catalog = session.catalog
        columns = [each for stream in catalog.streams.values() for each in stream.columns]
        words = [*catalog.streams, *catalog.views, *columns, *_WORDS]
        found = [each for each in dict.fromkeys(words) if each.lower().startswith(begun.lower())]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _write_history(file: Path) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(file)
