"""The commands of a system: `headrace up`, `batch`, `query`, `status` and `rollback`.

Each imports what it needs when it is run: a system takes a second to import, and `headrace --help` needs none of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.commands.errors import errors_as_messages, fail
from headrace.commands.pack import Archive
from headrace.commands.proxyoptions import Https, ProxyAddresses
from headrace.commands.signals import stopped_by_signals
from headrace.model.errors import HeadraceError
from headrace.model.times import duration, now

if TYPE_CHECKING:
    from headrace.server.process.childprocess import ServerProcess
    from headrace.system.client import HttpClient
    from headrace.system.jobs import Job
    from headrace.system.lifecycle import Deployment, Supervised
    from headrace.views.jsonencoding import AnswerJson
    from headrace.views.systemstatus import JobStatus

_POLL: Final = 0.5  # seconds between two requests for the status of a job

File = Annotated[Path, typer.Argument(help="A Python file with topics and views.", show_default=False)]
SqlFile = Annotated[
    Path,
    typer.Argument(
        help="A Python file with topics and views, or a file of SQL (.sql) with streams and views.", show_default=False
    ),
]
View = Annotated[str, typer.Argument(help="The view.", show_default=False)]
Directory = Annotated[Path, typer.Option("--dir", envvar="HEADRACE_DIR", help="The directory of the system.")]
Master = Annotated[
    str | None,
    typer.Option(envvar="SPARK_MASTER", help="The Spark master; this machine if not given.", show_default=False),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        envvar="HEADRACE_STORE",
        help="postgresql://USER@HOST/NAME; SQLite in the directory if not given. "
        "Put a URL with a password into the environment.",
        show_default=False,
    ),
]
LogPlace = Annotated[
    str | None,
    typer.Option("--log", help="kafka://HOST:PORT; in the directory if not given.", show_default=False),
]
Plain = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HERE: Final = Path("headrace-data")


def up(
    file: SqlFile,
    dir: Directory = HERE,
    master: Master = None,
    store: StoreUrl = None,
    log: LogPlace = None,
    archive: Archive = None,
    host: Annotated[
        str, typer.Option(help="The address of the server. Other than loopback, it needs HEADRACE_TOKENS.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="The port of the server: 8787 if not given.", show_default=False)
    ] = None,
    proxy: ProxyAddresses = None,
    https: Https = False,
    batch_every: Annotated[
        str, typer.Option(help='The interval of batch versions of each view, e.g. "10 minutes", or never.')
    ] = "10 minutes",
    archive_every: Annotated[
        str, typer.Option(help="The interval at which topics are archived, or never.")
    ] = "1 minute",
    storm: Annotated[
        Path | None,
        typer.Option(
            help="The directory of a cluster of Storm topologies that the page shows, too.", show_default=False
        ),
    ] = None,
    functions: Annotated[
        Path | None,
        typer.Option(help="A file of Python with the functions that a file of SQL calls.", show_default=False),
    ] = None,
) -> None:
    """Run the topics and views of a file: log, archive, speed layers, batches and server, until Ctrl-C.

    Of a file of SQL, it runs the streams and views, and executes statements that `headrace sql` sends meanwhile.
    It continues from where it was last stopped. HEADRACE_TOKENS has the tokens of the server.
    """
    from headrace.server import Proxies, Tokens
    from headrace.server.http.listening import PORT
    from headrace.system.home import Home
    from headrace.system.lifecycle import Deployment, run_system, supervise
    from headrace.system.sqlsystem import run_sql_system
    from headrace.system.statusdisplay import StatusDisplay
    from headrace.system.system import Schedule

    console = Console(stderr=True)
    with _errors_as_messages(), stopped_by_signals() as stop:
        schedule = Schedule(archive=_interval(archive_every), batch=_interval(batch_every))
        tokens = Tokens.parse(os.environ.get("HEADRACE_TOKENS", ""))
        console.print(f"starting {file}, data in {dir} ...", markup=False, highlight=False)
        if functions is not None and file.suffix != ".sql":
            raise HeadraceError(
                f"--functions are those that a file of SQL calls, and {file} is one of Python; omit them"
            )
        deployment = Deployment(file, Home(dir), master, store, log, storm, functions)
        port, proxies = PORT if port is None else port, Proxies(proxy or (), https)
        running: AbstractContextManager[tuple[Supervised, ServerProcess]]
        if file.suffix == ".sql":
            running = run_sql_system(deployment, host, port, tokens, proxies)
        else:
            running = run_system(deployment, schedule, host, port, tokens, proxies)
        with running as (system, server), StatusDisplay(console) as display:
            console.print(
                f"{file} is served at {server.url}; Ctrl-C stops it", markup=False, highlight=False, soft_wrap=True
            )
            supervise(system, server, stop, display)
            console.print("stopping; run the command again to continue from here", markup=False, highlight=False)


def batch(
    file: File,
    view: View,
    dir: Directory = HERE,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Read only the events since the current version.")
    ] = False,
    master: Master = None,
    store: StoreUrl = None,
    log: LogPlace = None,
    archive: Archive = None,
) -> None:
    """Compute a batch version of a view and make it current, in the process that runs the file, if one does."""
    from headrace.system.client import HttpClient, view_of
    from headrace.system.home import Home
    from headrace.system.lifecycle import Deployment
    from headrace.system.statusdisplay import job_line
    from headrace.views.declare.app import App

    with _errors_as_messages():
        view_of(App.load(file), view, str(file))
        home = Home(dir)
        holder = home.holder()
        with Console(stderr=True).status("starting ...") as spinner:
            if holder is not None and holder.url is not None:
                client = HttpClient(holder.url, os.environ.get("HEADRACE_TOKEN"))
                job = _compute_there(client, view, incremental, spinner.update)
            else:
                deployment = Deployment(file, home, master, store, log)
                job = _compute_here(deployment, view, incremental, spinner.update)
    print(job_line(job))
    if job["state"] == "failed":
        raise SystemExit(1)


def query(
    context: typer.Context,
    view: View,
    dir: Directory = HERE,
    store: StoreUrl = None,
    plain: Plain = False,
) -> None:
    """Query a view: --KEY VALUE, --KEY.prefix TEXT, --from TIME, --to TIME, --top AGGREGATE:N, --by KEYS, --limit N.

    The options are the parameters of GET /views/VIEW.
    """
    from headrace.system.client import client_of
    from headrace.system.home import Home

    with _errors_as_messages():
        answer = client_of(Home(dir), store=store).query(view, _parameters(context.args))
    if plain:
        print(json.dumps(answer))
        return
    _print(_row_table(answer))
    version = f"version {answer['version']}" if answer["version"] is not None else "no batch version yet"
    age = "" if answer["freshness"] is None else f", {answer['freshness']:.1f} s old"
    more = "" if answer["next"] is None else f"; more with --after {answer['next']}"
    rows = "1 row" if len(answer["rows"]) == 1 else f"{len(answer['rows']):,} rows"
    print(f"{rows}: {version} and the speed layer{age}{more}", file=sys.stderr)


def status(dir: Directory = HERE, store: StoreUrl = None, plain: Plain = False) -> None:
    """Show the status of topics, views and batch jobs."""
    from headrace.system.client import client_of
    from headrace.system.home import Home
    from headrace.system.statusdisplay import status_tables, version_table

    with _errors_as_messages():
        status = client_of(Home(dir), store=store).status()
    if plain:
        print(json.dumps(status))
        return
    running_at = f"process {status['pid']}, at {status['url']}" if status["pid"] else "not running"
    _print(Text(f"{dir}: {running_at}"), status_tables(status))
    for name, each in status["views"].items():
        if each["versions"]:
            _print(version_table(name, each["versions"]))


def rollback(
    view: View,
    dir: Directory = HERE,
    to: Annotated[
        int | None,
        typer.Option("--to", help="The number of the version; the one before if not given.", show_default=False),
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Make an older batch version of a view current. No event is lost: later ones are in the speed layer."""
    from headrace.system.client import client_of
    from headrace.system.home import Home

    with _errors_as_messages():
        current = client_of(Home(dir), store=store).rollback(view, to)
    print(f"{view}: version {current} is current")


def add_commands(main: typer.Typer) -> None:
    """Adds the commands to those of `headrace`."""
    for command in (up, batch, status, rollback):
        main.command()(command)
    main.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(query)


@contextmanager
def _errors_as_messages() -> Iterator[None]:
    """Prints the errors of a system as one line and exits."""
    try:
        with errors_as_messages(HeadraceError, ValueError, OSError):
            yield
    except KeyboardInterrupt:
        fail("interrupted; nothing is lost: run the command again", code=130)


def _compute_here(deployment: Deployment, view: str, incremental: bool, show: Callable[[str], None]) -> JobStatus:
    """Computes a version in this process; returns the job when it has ended."""
    from headrace.system.lifecycle import compute_version
    from headrace.system.statusdisplay import job_line

    def show_job(job: Job | None) -> None:
        show("reading the events since the last run ..." if job is None else job_line(job.to_json(now())))

    return compute_version(deployment, view, incremental=incremental, show=show_job).to_json(now())


def _compute_there(client: HttpClient, view: str, incremental: bool, show: Callable[[str], None]) -> JobStatus:
    """Has a running system compute a version; returns the job when it has ended."""
    from headrace.system.statusdisplay import job_line
    from headrace.views.errors import ViewError

    job = client.compute(view, incremental=incremental)
    while job["state"] in ("waiting", "running"):
        time.sleep(_POLL)
        jobs = {each["id"]: each for each in client.status()["jobs"]}
        if job["id"] not in jobs:
            raise ViewError(
                f"{job['view']}: the job is not known any more; see with `headrace status` whether it has ended"
            )
        job = jobs[job["id"]]
        show(job_line(job))
    return job


def _interval(text: str) -> int | None:
    if text == "never":
        return None
    interval = duration(text)
    if interval <= 0:
        raise ValueError(f"an interval must be positive, e.g. '10 minutes', or never; got {text!r}")
    return interval


def _parameters(args: list[str]) -> list[tuple[str, str]]:
    """Parses options as the parameters of a query.

    >>> _parameters(["--url", "foo.com/blog", "--from=2026-01-31"])
    [('url', 'foo.com/blog'), ('from', '2026-01-31')]
    """
    parameters = []
    rest = iter(args)
    for arg in rest:
        name, sign, value = arg.removeprefix("--").partition("=")
        if not arg.startswith("--") or not name:
            raise ValueError(f"a query has options such as --url foo.com/blog --top hits:10, got {arg!r}")
        if not sign and (value := next(rest, None)) is None:  # type: ignore[assignment]
            raise ValueError(f"the option --{name} needs a value")
        parameters.append((name, value))
    return parameters


def _row_table(answer: AnswerJson) -> Table:
    first = answer["rows"][0] if answer["rows"] else None
    keys, values = (first["key"], first["values"]) if first else ({}, {})
    table = Table(*keys, "from", "to", *values, box=None)
    for row in answer["rows"]:
        cells = [*row["key"].values(), row["window"]["start"], row["window"]["end"], *row["values"].values()]
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in cells))
    return table


def _print(*renderables: RenderableType) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for renderable in renderables:
        console.print(renderable)
