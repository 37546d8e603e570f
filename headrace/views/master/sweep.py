"""What is removed from master data: files of steps that did not come to their end, and those replaced long ago."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.views.archive.manifests import Step

if TYPE_CHECKING:
    from headrace.views.master.masterdata import Master

_ROOM: Final = re.compile(r"(step|base)-(\d+)-\w+")
_MANIFEST: Final = re.compile(r"(step|base)-(\d+)\.json")


def sweep(master: Master, steps: list[Step]) -> None:
    """Removes what nobody reads any more. Its caller holds the lock."""
    base = steps[0] if steps and steps[0].replaced is not None else None
    replaced = {} if base is None or base.replaced is None else dict(base.replaced)
    due = {path for path, at in replaced.items() if at + master.grace <= master.clock()}
    needed = {each.path for step in steps for each in step.files} | (replaced.keys() - due)
    rooms = {path.partition("/")[0] for path in needed}
    alone = master.folder.local is not None
    for name in master.data.names():
        # Where there is no lock, a directory of a step to come may be that of another process at work.
        if (found := _ROOM.fullmatch(name)) and name not in rooms and (alone or _past(found, steps, base)):
            master.data.folder(name).delete()
    if base is None or due != replaced.keys():
        return
    # The manifests go last: as long as there are any, there may be files that they name.
    past = [name for name in master.shelf.names() if (found := _MANIFEST.fullmatch(name)) and _before(found, base)]
    if past:
        for path in sorted(due):
            if path.partition("/")[0] in rooms:
                master.data.folder(path).delete()
        for name in past:
            master.shelf.folder(name).delete()


def _before(found: re.Match[str], base: Step) -> bool:
    """Whether a manifest is of what a base stands for."""
    return int(found[2]) < base.number or (found[1] == "step" and int(found[2]) == base.number)


def _past(found: re.Match[str], steps: list[Step], base: Step | None) -> bool:
    """Whether the number of a directory has been decided about."""
    last = steps[-1].number if steps else -1
    return int(found[2]) <= (last if found[1] == "step" else base.number if base is not None else -1)
