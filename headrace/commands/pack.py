"""`headrace pack`: makes an archive of this environment's packages for the executors of a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.commands.errors import errors_as_messages

_VARIABLE: Final = "HEADRACE_ARCHIVE"  # which the session reads when it is made, in whichever way


def _use(archive: str | None) -> str | None:
    if archive is not None:
        os.environ[_VARIABLE] = archive
    return archive


Archive = Annotated[
    str | None,
    typer.Option(
        envvar=_VARIABLE,
        callback=_use,
        help="An archive of `headrace pack` with the packages for the executors of a cluster.",
        show_default=False,
    ),
]
"""The option of commands that take a master."""


def pack(
    archive: Annotated[Path, typer.Argument(help="The archive to write, a .tar.gz.")] = Path("environment.tar.gz"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="A package, e.g. 'headrace[kafka]', that is packed with what it requires; all of this environment if "
            "none is named. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Pack the packages of this environment for the executors of a cluster, which then need nothing but Python.

    Pass the archive with --archive to the command that runs the pipeline. pyspark is left out: executors have that of
    the cluster's Spark.
    """
    from packaging.requirements import InvalidRequirement

    from headrace.engine.spark import environmentarchive
    from headrace.model.errors import HeadraceError

    with errors_as_messages(HeadraceError, InvalidRequirement, OSError):
        made = environmentarchive.pack(archive, only or ())
    size = archive.stat().st_size / 1e6
    python = environmentarchive.python_name()
    print(f"{archive}: {len(made.packages)} packages, {made.files:,} files, {size:,.0f} MB, for {python}")
