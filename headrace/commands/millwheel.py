"""`headrace millwheel`: adds computations to a directory, removes them, runs them and shows their status.

Each command imports the dialect when it is run: that takes a second, and `headrace --help` needs none of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.commands.errors import errors_as_messages, fail
from headrace.commands.pack import Archive
from headrace.commands.signals import stopped_by_signals
from headrace.model.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.dialects.millwheel.mill.millfolder import MillFolder

millwheel = typer.Typer(help="Run MillWheel computations.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the computation.", show_default=False)]
Directory = Annotated[
    Path, typer.Option(envvar="HEADRACE_MILLWHEEL", help="The directory of computations and streams.")
]
_DIRECTORY = Path("headrace-millwheel")


def _folder(directory: Path) -> MillFolder:
    from headrace.dialects.millwheel.mill.millfolder import MillFolder

    return MillFolder(directory)


@millwheel.command()
def add(
    source: Annotated[str, typer.Argument(help="FILE.py:CLASS, a mw.Computation.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Its name; default: that of the class.", show_default=False)] = None,
    directory: Directory = _DIRECTORY,
    start: Annotated[Literal["earliest", "latest"], typer.Option(help="With which records it begins.")] = "earliest",
    partitions: Annotated[int, typer.Option(help="Of streams that do not exist yet.")] = 1,
) -> None:
    """Add a computation: a process of `headrace millwheel run` starts it, while the others go on.

    Streams that do not exist yet are created. One that was removed goes on where it was.
    """
    from headrace.dialects.millwheel.graph.computationgraph import create_streams
    from headrace.dialects.millwheel.mill.computationfile import load_computation
    from headrace.dialects.millwheel.mill.millfolder import Declared

    with errors_as_messages(HeadraceError):
        folder, computation = _folder(directory), load_computation(source)
        file, _, kind = source.rpartition(":")
        declared = Declared(
            name or kind,
            f"{Path(file).resolve()}:{kind}",
            "running",
            start,
            tuple(computation.inputs),
            tuple(computation.outputs),
        )
        folder.check_new(declared.name)
        created = create_streams(computation, folder.log, declared.name, partitions=partitions)
        print(f"added {declared.name}: {folder.add(declared)}")
        for stream in created:
            print(f"created the stream {stream}")


@millwheel.command()
def remove(
    name: Name,
    directory: Directory = _DIRECTORY,
    discard: Annotated[bool, typer.Option("--discard", help="Delete its state and its position.")] = False,
) -> None:
    """Remove a computation, while the others go on. Its state and position are kept, unless --discard."""
    with errors_as_messages(HeadraceError):
        folder = _folder(directory)
        what = folder.remove(name, discard=discard)
        if not folder.await_stop(name):
            fail(f"{name} is to stop, but process {folder.owner(name)} still runs it after a minute")
        folder.discard_stopped()
        print(f"removed {name}; {what}")


@millwheel.command("list")
def list_(directory: Directory = _DIRECTORY) -> None:
    """List the computations, and the streams between which they are."""
    with errors_as_messages(HeadraceError):
        folder = _folder(directory)
        for each in folder.declared():
            owner = folder.owner(each.name)
            state = "waiting" if owner is None else f"in process {owner}"
            print(f"{each.name}  {state}  {', '.join(each.inputs)} -> {', '.join(each.outputs) or 'nothing'}")


@millwheel.command()
def status(
    name: Annotated[str | None, typer.Argument(help="A computation; default: all.", show_default=False)] = None,
    directory: Directory = _DIRECTORY,
) -> None:
    """Show low watermarks, lag, keys, timers that wait, the share of late records, and owners."""
    from headrace.dialects.millwheel.mill.computationstatus import table

    with errors_as_messages(HeadraceError):
        statuses = [each for each in _folder(directory).statuses() if name in (None, each.name)]
        if name is not None and not statuses:
            fail(f"there is no computation {name!r} in {directory}; `headrace millwheel list` lists them")
        print(table(statuses))


@millwheel.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Computations; default: all, also later ones.", show_default=False)
    ] = None,
    directory: Directory = _DIRECTORY,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take computations from a process that hangs; its writes are refused.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(envvar="SPARK_MASTER", help="The Spark master; default: this machine.", show_default=False),
    ] = None,
    archive: Archive = None,
) -> None:
    """Run computations in this process until Ctrl-C. Several processes may share the computations of a directory."""
    from headrace.dialects.millwheel.mill.mill import Mill

    if master is not None:
        os.environ["SPARK_MASTER"] = master  # the session reads it when the first computation needs one
    with (
        errors_as_messages(HeadraceError),
        stopped_by_signals() as stop,
        Mill(directory, names=names or None, take_over=take_over) as mill,
    ):
        print(f"running the computations of {directory}; Ctrl-C stops them, and they go on when run again", flush=True)
        mill.follow(stop)
