"""`headrace storm`: submits topologies, and commands those that run in a directory."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from headrace.dialects.storm.cluster import LocalCluster
from headrace.dialects.storm.control import Control
from headrace.dialects.storm.control import submit as submitted
from headrace.dialects.storm.topology import TopologyError
from headrace.model.times import format_instant
from headrace.telling import fail, told

storm = typer.Typer(help="Run Storm topologies.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the topology.", show_default=False)]
Directory = Annotated[
    Path, typer.Option(envvar="HEADRACE_STORM", help="Where the cluster keeps what it needs to go on.")
]
_DIRECTORY = Path("headrace-storm")


@storm.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A Python file with topology = builder.create().", show_default=False)],
    name: Name,
    directory: Directory = _DIRECTORY,
) -> None:
    """Run a topology: in the cluster of the directory or, if none runs there, here, until Ctrl-C.

    A topology of the same name that was stopped goes on where it was.
    """
    control = Control(directory)
    path = str(file.resolve())
    with told(TopologyError):
        if control.served:
            control.ask("submit", name=name, file=path)
            print(f"{name} runs in the cluster of {directory}")
            return
        stop = threading.Event()
        before = [signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)]
        try:
            with LocalCluster(directory) as cluster:
                submitted(cluster, name, path)
                print(f"{name} runs; Ctrl-C stops it, and it goes on when it is submitted again", flush=True)
                control.serve(cluster, until=stop)
        finally:
            for each, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
                signal.signal(each, handler)


@storm.command("list")
def list_(directory: Directory = _DIRECTORY) -> None:
    """List the topologies that run."""
    with told(TopologyError):
        rows = Control(directory).ask("list")
        for each in rows:
            print(f"{each['name']}  {each['state']}  {each['tasks']} tasks  {each['trees']} trees under way")


@storm.command()
def status(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Show every task: what it emitted, executed, acked and failed, and how long that takes."""
    with told(TopologyError):
        print(Control(directory).ask("status", name=name))


@storm.command()
def activate(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Let the spouts emit again."""
    with told(TopologyError):
        Control(directory).ask("activate", name=name)


@storm.command()
def deactivate(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Let the spouts emit no more; what is under way goes on."""
    with told(TopologyError):
        Control(directory).ask("deactivate", name=name)


@storm.command()
def rebalance(
    name: Name,
    tasks: Annotated[list[str], typer.Argument(help="Bolts and their numbers of tasks: count=4", show_default=False)],
    directory: Directory = _DIRECTORY,
) -> None:
    """Go on with other numbers of tasks."""
    wanted: dict[str, int] = {}
    for each in tasks:
        bolt, _, number = each.partition("=")
        if not bolt or not number.isdigit():
            fail(f"say BOLT=TASKS, e.g. count=4, got {each!r}")
        wanted[bolt] = int(number)
    with told(TopologyError):
        Control(directory).ask("rebalance", name=name, tasks=wanted)


@storm.command()
def kill(
    name: Name,
    directory: Directory = _DIRECTORY,
    wait: Annotated[
        str | None, typer.Option(help="How long to wait for what is under way, e.g. 10s.", show_default=False)
    ] = None,
) -> None:
    """End a topology once what is under way is done."""
    with told(TopologyError):
        Control(directory).ask("kill", name=name, wait=wait)


@storm.command()
def errors(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Show the errors that components reported, oldest first."""
    with told(TopologyError):
        for each in Control(directory).ask("errors", name=name):
            print(f"{format_instant(each['time'])}  {each['component']}  task {each['task']}  {each['error']}")
