"""The `headrace` command: its subcommands, of which `run`, `verify` and `version` are here.

`headrace init` is in `commands/init`, `headrace warmup` in `commands/warmup`, `headrace pack` in `commands/pack`,
`headrace topic` in `commands/topic`, `headrace sql` in `commands/sqlshell`, `headrace savepoint` and `rescale` in
`commands/savepoint`, `headrace doctor` in `commands/doctor`;
`headrace up`, `batch`, `query`, `status` and `rollback` are in `commands/system`.

`headrace run FILE` runs a script that builds pipelines, or prints their stages with --explain. The script runs as it
would under `python FILE`, except for how its pipelines run and how their errors are printed.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated, Final

import typer

from headrace import HeadraceError, __version__, written
from headrace.commands.doctor import doctor
from headrace.commands.errors import errors_as_messages, fail
from headrace.commands.init import init
from headrace.commands.millwheel import millwheel
from headrace.commands.pack import Archive, pack
from headrace.commands.progressbar import watch
from headrace.commands.savepoint import rescale, savepoint
from headrace.commands.sqlshell import sql
from headrace.commands.storm import storm
from headrace.commands.system import add_commands
from headrace.commands.topic import topic
from headrace.commands.warmup import warmup
from headrace.engine.handle import Handle, Metrics, Status
from headrace.engine.settings import Settings, using
from headrace.model.pipeline import Graph

Started = Callable[[Graph, Handle], None]
_INTERRUPTED: Final = 130  # the exit status after Ctrl-C, as shells have it
_FAREWELL: Final = 2.5  # seconds: a page that is open asks once a second, and so does its server

main = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
main.add_typer(topic, name="topic")
main.add_typer(storm, name="storm")
main.add_typer(millwheel, name="millwheel")
main.add_typer(savepoint, name="savepoint")
main.command()(init)
main.command()(warmup)
main.command()(pack)
main.command()(sql)
main.command()(rescale)
main.command()(doctor)
add_commands(main)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@main.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The Dataflow model on Spark: run pipelines, or see how they would run."""


@main.command()
def version() -> None:
    """Print the version."""
    print(f"headrace {__version__}")


@main.command()
def verify(
    path: Annotated[str, typer.Argument(help="A directory that a sink of files wrote.", show_default=False)],
) -> None:
    """Check that the files in a directory of output are those that were written."""
    try:
        output = written(path)
    except FileNotFoundError as error:
        fail(str(error))
    if wrong := output.verify():
        print(*wrong, sep="\n")
        raise SystemExit(1)
    batches = f"{len(output.batches):,} {'batch' if len(output.batches) == 1 else 'batches'}"
    print(f"{output.rows:,} rows in {batches}, {len(output.files):,} files: as they were written")


@main.command(context_settings={"ignore_unknown_options": True})
def run(
    file: Annotated[Path, typer.Argument(help="A Python script that builds and runs pipelines.", show_default=False)],
    args: Annotated[
        list[str] | None,
        typer.Argument(
            help="Arguments for the script. Put -- before arguments that are options of this command, too.",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the stages of each pipeline instead of running it.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            envvar="SPARK_MASTER",
            help="The Spark master, e.g. local[4] or spark://host:7077. All cores of this machine if not given.",
            show_default=False,
        ),
    ] = None,
    py_files: Annotated[
        list[str] | None,
        typer.Option(
            help="A module (.py), an archive (.zip) or the directory of a package that functions need on a cluster's "
            "workers; several with commas, or by repeating the option.",
            show_default=False,
        ),
    ] = None,
    archive: Archive = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Serve a web page and metrics of the pipelines as long as they run.")
    ] = False,
    ui_host: Annotated[
        str, typer.Option(help="The address of the page. Other than loopback, it needs HEADRACE_TOKENS.")
    ] = "127.0.0.1",
    ui_port: Annotated[
        int | None,
        typer.Option(help="The port of the page: 8787, or a free one if it is taken.", show_default=False),
    ] = None,
    ui_proxy: Annotated[
        list[str] | None,
        typer.Option(
            envvar="HEADRACE_PROXIES",
            help="The address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-For are believed.",
            show_default=False,
        ),
    ] = None,
    ui_https: Annotated[
        bool,
        typer.Option("--ui-https", help="Browsers reach the page by https alone: a proxy with TLS is in front of it."),
    ] = False,
) -> None:
    """Run the pipelines of a script.

    With --explain, a script continues after each pipeline without its results; where it needs one, it ends.
    """
    if not file.is_file():
        fail(f"there is no file {str(file)!r}; pass the path of a Python script")
    if master:
        os.environ["SPARK_MASTER"] = master
    files = tuple(each for option in py_files or [] for each in option.split(","))
    if not ui or explain:
        _run(file, args or [], explain=explain, py_files=files)
        return
    with _page(file, ui_host, ui_port, ui_proxy or [], https=ui_https) as started:
        _run(file, args or [], py_files=files, started=started)


def _run(
    file: Path,
    args: list[str],
    *,
    explain: bool = False,
    py_files: tuple[str, ...] = (),
    started: Started | None = None,
) -> None:
    """Runs a script, or prints its plans; what it fails with is printed and ends the process."""
    printer = PlanPrinter()
    shown = watch if sys.stderr.isatty() else None
    running = Settings(watch=shown, py_files=py_files, started=started)
    settings = Settings(instead=printer.show) if explain else running
    try:
        with using(settings):
            _run_script(file, args)
    except HeadraceError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted", code=_INTERRUPTED)
    except Exception as error:
        if not printer.plans:
            traceback.print_exception(error.with_traceback(_from_script(error.__traceback__, file)))
            raise SystemExit(1) from None
        print(
            f"\nThe script ends here, since pipelines have no results with --explain: {type(error).__name__}: {error}",
            file=sys.stderr,
        )


@contextmanager
def _page(file: Path, host: str, port: int | None, proxies: list[str], *, https: bool) -> Iterator[Started]:
    """Serves the page of a script; yields what is called with each pipeline that starts.

    When the script is over, the page is still served: on a terminal until Ctrl-C, otherwise long enough that those who
    look at it see the end.
    """
    from headrace.server import Proxies, Tokens  # which other scripts need not wait for
    from headrace.system.runs import serve_runs

    with ExitStack() as stack:
        with errors_as_messages(HeadraceError, ValueError, OSError):
            tokens = Tokens.parse(os.environ.get("HEADRACE_TOKENS", ""))
            runs, url = stack.enter_context(
                serve_runs(host=host, port=port, tokens=tokens, proxies=Proxies(proxies, https))
            )
        print(f"the pipelines of {file} are at {url}", file=sys.stderr, flush=True)
        interrupted = False
        try:
            yield runs.add
        except SystemExit as ended:
            interrupted = ended.code == _INTERRUPTED
            raise
        finally:
            runs.end()
            if not interrupted:
                _linger(url)


def _linger(url: str) -> None:
    """Waits while those who look at the page may want to go on."""
    with suppress(KeyboardInterrupt):
        if sys.stderr.isatty():
            print(f"{url} is served until Ctrl-C", file=sys.stderr)
            threading.Event().wait()
        else:
            time.sleep(_FAREWELL)


class PlanPrinter:
    """Prints plans in place of running them."""

    def __init__(self) -> None:
        self.plans = 0

    def show(self, plan: str) -> Handle:
        if self.plans:
            print()
        print(plan)
        self.plans += 1
        return NotRunHandle()


class NotRunHandle:
    """The handle of a pipeline whose plan was printed only: it is stopped."""

    def wait(self, timeout: float | None = None) -> Status:
        return self.status()

    def stop(self, *, drain: bool = False) -> None:
        pass

    def status(self) -> Status:
        return Status("stopped")

    def metrics(self) -> Metrics:
        return {}

    def savepoint(self, path: str) -> None:
        pass


def _run_script(file: Path, args: list[str]) -> None:
    """Runs a script in this process as `python FILE ARGS` does."""
    before = sys.argv, sys.path
    sys.argv, sys.path = [str(file), *args], [str(file.resolve().parent), *sys.path]
    try:
        runpy.run_path(str(file), run_name="__main__")
    finally:
        sys.argv, sys.path = before


def _from_script(trace: TracebackType | None, file: Path) -> TracebackType | None:
    """Returns the traceback from the script's frame on; None if it has none, as after a syntax error."""
    while trace is not None and trace.tb_frame.f_code.co_filename != str(file):
        trace = trace.tb_next
    return trace
