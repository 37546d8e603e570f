"""`headrace storm`: submits topologies, shows their status and commands them.

Each command imports the dialect when it is run: that takes a second, and `headrace --help` needs none of it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headrace.commands.errors import errors_as_messages, fail
from headrace.commands.pack import Archive
from headrace.commands.proxyoptions import Https, ProxyAddresses
from headrace.commands.signals import stopped_by_signals
from headrace.model.errors import HeadraceError
from headrace.model.times import format_instant

if TYPE_CHECKING:
    from headrace.dialects.storm.cluster.control import Control
    from headrace.dialects.storm.cluster.localcluster import LocalCluster

storm = typer.Typer(help="Run Storm topologies.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the topology.", show_default=False)]
Directory = Annotated[Path, typer.Option(envvar="HEADRACE_STORM", help="The directory of the cluster's state.")]
_DIRECTORY = Path("headrace-storm")
_MAX_ERRORS: Final = 1_000


@storm.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A Python file with topology = builder.create().", show_default=False)],
    name: Name,
    directory: Directory = _DIRECTORY,
    master: Annotated[
        str | None,
        typer.Option(envvar="SPARK_MASTER", help="The Spark master; default: this machine.", show_default=False),
    ] = None,
    archive: Archive = None,
) -> None:
    """Run a topology in the cluster of the directory or, if none runs there, in this process until Ctrl-C.

    A stopped topology of the same name continues where it was.
    """
    from headrace.dialects.storm.cluster.controlthread import submit_file
    from headrace.dialects.storm.cluster.localcluster import LocalCluster

    path = str(file.resolve())
    with errors_as_messages(HeadraceError):
        control = _control(directory)
        if control.served:
            control.ask("submit", name=name, file=path)
            print(f"{name} is running in the cluster of {directory}")
            return
        if master is not None:
            os.environ["SPARK_MASTER"] = master  # the session reads it when the first topology needs one
        with stopped_by_signals() as stop, LocalCluster(directory) as cluster:
            submit_file(cluster, name, path)
            print(f"{name} is running; Ctrl-C stops it, and submitting it again continues it", flush=True)
            _wait(cluster, stop)


def _control(directory: Path) -> Control:
    from headrace.dialects.storm.cluster.control import Control

    return Control(directory)


def _wait(cluster: LocalCluster, stop: threading.Event) -> None:
    """Waits for a signal to stop, or until no topology is left; raises an error if all that are left have failed."""
    from headrace.dialects.storm.api.topology import TopologyError
    from headrace.dialects.storm.cluster.control import POLL_SECONDS

    reported: set[str] = set()
    while (names := cluster.names()) and not stop.wait(POLL_SECONDS):
        failures = cluster.failures()
        for name in failures.keys() - reported:
            reported.add(name)
            print(f"{name} has failed: {failures[name]}", file=sys.stderr, flush=True)
        if failures.keys() >= set(names):
            raise TopologyError(f"every topology that is left has failed: {', '.join(names)}")


@storm.command("list")
def list_(directory: Directory = _DIRECTORY) -> None:
    """List the running topologies."""
    with errors_as_messages(HeadraceError):
        for topology in _control(directory).statuses():
            print(f"{topology.name}  {topology.state}  {len(topology.tasks)} tasks  {topology.trees} pending trees")


@storm.command()
def status(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Show the tuples that every task emitted, executed, acked and failed, and its times."""
    with errors_as_messages(HeadraceError):
        print(_control(directory).status(name))


@storm.command()
def activate(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Let the spouts emit again."""
    with errors_as_messages(HeadraceError):
        _control(directory).ask("activate", name=name)


@storm.command()
def deactivate(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Let the spouts emit no more; pending tuples are processed."""
    with errors_as_messages(HeadraceError):
        _control(directory).ask("deactivate", name=name)


@storm.command()
def rebalance(
    name: Name,
    tasks: Annotated[list[str], typer.Argument(help="Bolts and their numbers of tasks: count=4", show_default=False)],
    directory: Directory = _DIRECTORY,
) -> None:
    """Change the numbers of tasks of bolts."""
    wanted: dict[str, int] = {}
    for change in tasks:
        bolt, _, number = change.partition("=")
        if not bolt or not number.isdigit():
            fail(f"write BOLT=TASKS, e.g. count=4, got {change!r}")
        wanted[bolt] = int(number)
    with errors_as_messages(HeadraceError):
        _control(directory).ask("rebalance", name=name, tasks=wanted)


@storm.command()
def kill(
    name: Name,
    directory: Directory = _DIRECTORY,
    wait: Annotated[
        str | None, typer.Option(help="How long to wait for pending tuples, e.g. 10s.", show_default=False)
    ] = None,
) -> None:
    """End a topology once no tuple is pending."""
    with errors_as_messages(HeadraceError):
        _control(directory).ask("kill", name=name, wait=wait)


@storm.command()
def errors(name: Name, directory: Directory = _DIRECTORY) -> None:
    """Show the newest 1,000 errors that components reported, oldest first."""
    with errors_as_messages(HeadraceError):
        for error in _control(directory).errors(name, _MAX_ERRORS):
            print(f"{format_instant(error['time'])}  {error['component']}  task {error['task']}  {error['error']}")


@storm.command()
def ui(
    directory: Directory = _DIRECTORY,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Only loopback works without HEADRACE_TOKENS.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="The port of the server.")] = 8788,
    proxy: ProxyAddresses = None,
    https: Https = False,
) -> None:
    """Serve a web page, an API and metrics of the topologies of a directory, until Ctrl-C.

    A cluster may start and stop there meanwhile. HEADRACE_TOKENS has the tokens of the server.
    """
    # Imported here, because other commands need no server.
    from headrace.server import Proxies, Server, Service, Tokens

    with errors_as_messages(HeadraceError, ValueError, OSError):
        tokens = Tokens.parse(os.environ.get("HEADRACE_TOKENS", ""))
        service, proxies = Service({}, {}, topologies=_control(directory)), Proxies(proxy or (), https)
        server = Server(service, host=host, port=port, tokens=tokens, page=True, proxies=proxies)
    print(f"the topologies of {directory} are at {server.url}; Ctrl-C stops the server", flush=True)
    server.run()
