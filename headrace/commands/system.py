"""`headrace up | batch | query | status | rollback`: a system from the command line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.commands.errors import errors_as_messages, fail
from headrace.commands.signals import stopped_by_signals
from headrace.model.errors import HeadraceError
from headrace.model.times import duration, now
from headrace.server import Tokens
from headrace.server.http.listening import PORT
from headrace.system.client import Running, asking, view_of
from headrace.system.home import Home
from headrace.system.jobs import Job
from headrace.system.lifecycle import Place, compute, look_after, running
from headrace.system.statusdisplay import Shown, job_line, tables, versions
from headrace.system.system import Schedule
from headrace.views.declare.app import App
from headrace.views.errors import ViewError

_POLL: Final = 0.5  # seconds from one question about a job to the next

File = Annotated[Path, typer.Argument(help="A Python file with topics and views.", show_default=False)]
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
        "One with a password had better be in the environment.",
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
    file: File,
    dir: Directory = HERE,
    master: Master = None,
    store: StoreUrl = None,
    log: LogPlace = None,
    host: Annotated[str, typer.Option(help="Where the server listens. Off loopback it needs HEADRACE_TOKENS.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port of the server.")] = PORT,
    batch_every: Annotated[
        str, typer.Option(help='How often each view gets a batch version, e.g. "10 minutes", or never.')
    ] = "10 minutes",
    archive_every: Annotated[str, typer.Option(help="How often topics are archived, or never.")] = "1 minute",
    storm: Annotated[
        Path | None,
        typer.Option(help="The directory of a cluster of Storm topologies to be shown, too.", show_default=False),
    ] = None,
) -> None:
    """Run the topics and views of a file: log, archive, speed layers, batches and server, until Ctrl-C.

    It goes on from where it was when it was last stopped. Tokens of the server are in HEADRACE_TOKENS.
    """
    console = Console(stderr=True)
    with _told(), stopped_by_signals() as stop:
        schedule = Schedule(archive=_interval(archive_every), batch=_interval(batch_every))
        tokens = Tokens.parse(os.environ.get("HEADRACE_TOKENS", ""))
        console.print(f"starting {file}, data in {dir} ...", markup=False, highlight=False)
        place = Place(file, Home(dir), master, store, log, storm)
        with running(place, schedule, host, port, tokens) as (system, server), Shown(console) as shown:
            console.print(
                f"{file} is served at {server.url}; Ctrl-C stops it", markup=False, highlight=False, soft_wrap=True
            )
            look_after(system, server, stop, shown)
            console.print("stopping; run it again to go on from here", markup=False, highlight=False)


def batch(
    file: File,
    view: View,
    dir: Directory = HERE,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Read only what came since the version before.")
    ] = False,
    master: Master = None,
    store: StoreUrl = None,
    log: LogPlace = None,
) -> None:
    """Compute a batch version of a view now, and let it answer: in the process that runs the file, if one does."""
    with _told():
        view_of(App.load(file), view, str(file))
        home = Home(dir)
        holder = home.holder()
        with Console(stderr=True).status("starting ...") as shown:
            if holder is not None and holder.url is not None:
                done = _await(Running(holder.url, os.environ.get("HEADRACE_TOKEN")), view, incremental, shown.update)
            else:
                place = Place(file, home, master, store, log)
                done = _computed(place, view, incremental, shown.update)
    print(job_line(done))
    if done["state"] == "failed":
        raise SystemExit(1)


def query(
    context: typer.Context,
    view: View,
    dir: Directory = HERE,
    store: StoreUrl = None,
    plain: Plain = False,
) -> None:
    """Ask a view: --KEY VALUE, --KEY.prefix TEXT, --from TIME, --to TIME, --top AGGREGATE:N, --by KEYS, --limit N.

    The options are the parameters of GET /views/VIEW.
    """
    with _told():
        found = asking(Home(dir), store=store).query(view, _parameters(context.args))
    if plain:
        print(json.dumps(found))
        return
    _print(_rows(found))
    where = f"version {found['version']}" if found["version"] is not None else "no batch version yet"
    fresh = "" if found["freshness"] is None else f", {found['freshness']:.1f} s old"
    more = "" if found["next"] is None else f"; more with --after {found['next']}"
    rows = "1 row" if len(found["rows"]) == 1 else f"{len(found['rows']):,} rows"
    print(f"{rows}: {where} and the speed layer{fresh}{more}", file=sys.stderr)


def status(dir: Directory = HERE, store: StoreUrl = None, plain: Plain = False) -> None:
    """Show how far topics, views and batches are."""
    with _told():
        found = asking(Home(dir), store=store).status()
    if plain:
        print(json.dumps(found))
        return
    running_at = f"process {found['pid']}, at {found['url']}" if found["pid"] else "not running"
    _print(Text(f"{dir}: {running_at}"), tables(found))
    for name, each in found["views"].items():
        if each["versions"]:
            _print(versions(name, each))


def rollback(
    view: View,
    dir: Directory = HERE,
    to: Annotated[
        int | None, typer.Option("--to", help="The version; the one before if not given.", show_default=False)
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Let an older batch version of a view answer. No event is lost: what came since is in the speed layer."""
    with _told():
        answers = asking(Home(dir), store=store).rollback(view, to)
    print(f"{view}: version {answers} answers")


def add_commands(main: typer.Typer) -> None:
    """Adds the commands to those of `headrace`."""
    for command in (up, batch, status, rollback):
        main.command()(command)
    main.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(query)


@contextmanager
def _told() -> Iterator[None]:
    """Tells what is wrong in a line, and ends."""
    try:
        with errors_as_messages(HeadraceError, ValueError, OSError):
            yield
    except KeyboardInterrupt:
        fail("interrupted; nothing is lost: ask for it again", code=130)


def _computed(place: Place, view: str, incremental: bool, show: Any) -> dict[str, Any]:
    def shown(job: Job | None) -> None:
        show("reading what has come since the last run ..." if job is None else job_line(job.told(now())))

    return compute(place, view, incremental=incremental, show=shown).told(now())


def _await(system: Running, view: str, incremental: bool, show: Any) -> dict[str, Any]:
    """The job of a running system, when it is done."""
    job = system.compute(view, incremental=incremental)
    while job["state"] in ("waiting", "running"):
        time.sleep(_POLL)
        jobs = {each["id"]: each for each in system.status()["jobs"]}
        if job["id"] not in jobs:
            raise ViewError(
                f"{job['view']}: the batch version is not known any more; `headrace status` tells if it came"
            )
        job = jobs[job["id"]]
        show(job_line(job))
    return job


def _interval(text: str) -> int | None:
    if text == "never":
        return None
    found = duration(text)
    if found <= 0:
        raise ValueError(f"an interval is more than nothing, e.g. '10 minutes', or never; got {text!r}")
    return found


def _parameters(args: list[str]) -> list[tuple[str, str]]:
    """Options as the parameters of a question.

    >>> _parameters(["--url", "foo.com/blog", "--from=2026-01-31"])
    [('url', 'foo.com/blog'), ('from', '2026-01-31')]
    """
    found = []
    rest = iter(args)
    for each in rest:
        name, sign, value = each.removeprefix("--").partition("=")
        if not each.startswith("--") or not name:
            raise ValueError(f"a question is options such as --url foo.com/blog --top hits:10, got {each!r}")
        if not sign and (value := next(rest, None)) is None:  # type: ignore[assignment]
            raise ValueError(f"the option --{name} needs a value")
        found.append((name, value))
    return found


def _rows(found: dict[str, Any]) -> Table:
    first = found["rows"][0] if found["rows"] else {"key": {}, "values": {}}
    table = Table(*first["key"], "from", "to", *first["values"], box=None)
    for row in found["rows"]:
        cells = [*row["key"].values(), row["window"]["start"], row["window"]["end"], *row["values"].values()]
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in cells))
    return table


def _print(*shown: Any) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for each in shown:
        console.print(each)
