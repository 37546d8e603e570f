"""`headrace doctor DIR`: says what formats a directory has, and whether this version reads them."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace import __version__
from headrace.commands.errors import errors_as_messages
from headrace.model.errors import HeadraceError


def doctor(
    folder: Annotated[str, typer.Argument(help="A directory, e.g. of a system, a log or a checkpoint.")] = ".",
) -> None:
    """Say what a directory holds, in which formats, and whether this version reads it."""
    from headrace.system.storedformats import examine

    with errors_as_messages(HeadraceError, OSError):
        findings = examine(folder)
    if not findings:
        print(f"nothing of Headrace's is in {folder}")
        return
    print(f"headrace {__version__}")
    for finding in findings:
        number = "no number of a format" if finding.format is None else f"format {finding.format}"
        print(f"{finding.path}: {finding.kind}, {number}: {finding.verdict}")
    if not all(finding.readable for finding in findings):
        raise SystemExit(1)
