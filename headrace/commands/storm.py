"""`headrace storm`: submits topologies, and commands those that run in a directory."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.commands.errors import errors_as_messages, fail
from headrace.commands.signals import stopped_by_signals
from headrace.dialects.storm.api.topology import TopologyError
from headrace.dialects.storm.cluster.control import POLL_SECONDS, Control
from headrace.dialects.storm.cluster.controlthread import submit_file
from headrace.dialects.storm.cluster.localcluster import LocalCluster
from headrace.model.times import format_instant

storm = typer.Typer(help="Run Storm topologies.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the topology.", show_default=False)]
Directory = Annotated[
    Path, typer.Option(envvar="HEADRACE_STORM", help="Where the cluster keeps what it needs to go on.")
]
_DIRECTORY = Path("headrace-storm")
_MOST_ERRORS: Final = 1_000


@storm.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A Python file with topology = builder.create().", show_default=False)],
    name: Name,
    directory: Directory = _DIRECTORY,
    master: Annotated[
        str | None,
        typer.Option(envvar="SPARK_MASTER", help="The Spark master; this machine if not given.", show_default=False),
    ] = None,
) -> None:
    """Run a topology: in the cluster of the directory or, if none runs there, here, until Ctrl-C.

    A topology of the same name that was stopped goes on where it was.
    """
    control = Control(directory)
    path = str(file.resolve())
    with errors_as_messages(TopologyError):
        if control.served:
            control.ask("submit", name=name, file=path)
            print(f"{name} runs in the cluster of {directory}")
            return
        if master is not None:
            os.environ["SPARK_MASTER"] = master  # where the session looks, whichever topology needs it first
        with stopped_by_signals() as stop, LocalCluster(directory) as cluster:
            submit_file(cluster, name, path)
            print(f"{name} runs; Ctrl-C stops it, and it goes on when it is submitted again", flush=True)
            _attend(cluster, stop)


def _attend(cluster: LocalCluster, stop: threading.Event) -> None:
    """Waits until told to stop, or no topology is left, or none that has not failed; that is an error, then."""
    told: set[str] = set()
    while (names := cluster.names()) and not stop.wait(POLL_SECONDS):
        failures = cluster.failures()
        for name in failures.keys() - told:
            told.add(name)
            print(f"{name} has failed: {failures[name]}", file=sys.stderr, flush=True)
        if failures.keys() >= set(names):
            raise TopologyError(f"every topology that is left has failed: {', '.join(names)}")


@storm.command("list")
def list_(directory: Directory = _DIRECTORY) -> None:
    """List the topologies that run."""
    with errors_as_messages(TopologyError):
        for each in Control(directory).statuses():
            print(f"{each.name}  {each.state}  {len(each.tasks)} tasks  {each.trees} trees under way")


@storm.command()
def status(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Show every task: what it emitted, executed, acked and failed, and how long that takes."""
    with errors_as_messages(TopologyError):
        print(Control(directory).status(name))


@storm.command()
def activate(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Let the spouts emit again."""
    with errors_as_messages(TopologyError):
        Control(directory).ask("activate", name=name)


@storm.command()
def deactivate(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Let the spouts emit no more; what is under way goes on."""
    with errors_as_messages(TopologyError):
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
    with errors_as_messages(TopologyError):
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
    with errors_as_messages(TopologyError):
        Control(directory).ask("kill", name=name, wait=wait)


@storm.command()
def errors(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Show the errors that components reported, the newest 1,000 of them, oldest first."""
    with errors_as_messages(TopologyError):
        for each in Control(directory).errors(name, _MOST_ERRORS):
            print(f"{format_instant(each['time'])}  {each['component']}  task {each['task']}  {each['error']}")


@storm.command()
def ui(
    directory: Directory = _DIRECTORY,
    host: Annotated[str, typer.Option(help="Where the server listens. Off loopback it needs HEADRACE_TOKENS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port of the server.")] = 8788,
) -> None:
    """Serve a web page, an API and metrics of the topologies of a directory, until Ctrl-C.

    Whether a cluster runs there may change meanwhile. Tokens of the server are in HEADRACE_TOKENS.
    """
    # Here, since other commands need no server.
    from headrace.server import Server, Service, Tokens

    with errors_as_messages(ValueError, OSError):
        tokens = Tokens.parse(os.environ.get("HEADRACE_TOKENS", ""))
        server = Server(Service({}, {}, topologies=Control(directory)), host=host, port=port, tokens=tokens, page=True)
    print(f"the topologies of {directory} are at {server.url}; Ctrl-C stops it", flush=True)
    server.run()
