"""Removes files from master data: those of interrupted steps, and those that were replaced long ago."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.views.archive.manifests import ArchiveStep

if TYPE_CHECKING:
    from headrace.views.master.masterdata import Master

_FOLDER: Final = re.compile(r"(step|base)-(\d+)-\w+")
_MANIFEST: Final = re.compile(r"(step|base)-(\d+)\.json")


def sweep(master: Master, steps: list[ArchiveStep]) -> None:
    """Removes what nobody reads any more. The caller holds the writer's lock."""
    base = steps[0] if steps and steps[0].replaced is not None else None
    replaced = {} if base is None or base.replaced is None else dict(base.replaced)
    due = {path for path, at in replaced.items() if at + master.grace <= master.clock()}
    needed = {file.path for step in steps for file in step.files} | (replaced.keys() - due)
    folders = {path.partition("/")[0] for path in needed}
    locked = master.folder.local is not None
    for name in master.data.names():
        # Where there is no lock, a directory with the number of the next step may be that of another process at work.
        if (match := _FOLDER.fullmatch(name)) and name not in folders and (locked or _is_past(match, steps, base)):
            master.data.folder(name).delete()
    if base is None or due != replaced.keys():
        return
    # The manifests are deleted last: while one exists, files that it names may exist.
    past = [name for name in master.manifests.names() if (match := _MANIFEST.fullmatch(name)) and _before(match, base)]
    if past:
        for path in sorted(due):
            if path.partition("/")[0] in folders:
                master.data.folder(path).delete()
        for name in past:
            master.manifests.folder(name).delete()


def _before(match: re.Match[str], base: ArchiveStep) -> bool:
    """Returns whether a manifest is of a step that a base stands for."""
    return int(match[2]) < base.number or (match[1] == "step" and int(match[2]) == base.number)


def _is_past(match: re.Match[str], steps: list[ArchiveStep], base: ArchiveStep | None) -> bool:
    """Returns whether the step or base with the number of a directory exists already."""
    last = steps[-1].number if steps else -1
    return int(match[2]) <= (last if match[1] == "step" else base.number if base is not None else -1)
