"""The directory of a mill: which computations are to run, who runs them, and how far they are; for any process.

    log/                  the streams, as topics
    computations/NAME/    what it is (computation.json), who owns it (owner, lock-TOKEN), its status (status.json)
    checkpoints/NAME/     its state, timers and position

All files are written completely, by a rename. Whoever may write to the directory may add computations, which run code;
only its owner may.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from headrace.dialects.millwheel.api.recordsandtimers import ComputationError
from headrace.dialects.millwheel.api.streamaddress import stream_address
from headrace.dialects.millwheel.graph.computationgraph import counts_topic
from headrace.dialects.millwheel.mill.computationstatus import ComputationStatus
from headrace.engine.checkpoint.streamnames import remove_stream
from headrace.local.atomicfile import replace_file
from headrace.local.filelock import file_lock
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import check_folder, check_tree, make_folder
from headrace.local.processlock import lock_holder
from headrace.log import Log
from headrace.log.fences import Fence

POLL_SECONDS: Final = 0.1
"""The time between two looks at the directory."""

Wanted = Literal["running", "removed", "discarded"]
"""What is to become of a computation; one that is removed can be added again and goes on, unless it is discarded."""


@dataclass(frozen=True)
class Declared:
    """A computation of a mill: the file and class it is made of, or None if a program runs it, and what is wanted."""

    name: str
    source: str | None
    wanted: Wanted = "running"
    start: Literal["earliest", "latest"] = "earliest"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class MillFolder:
    """The directory of a mill.

    >>> import tempfile
    >>> folder = MillFolder(tempfile.mkdtemp())
    >>> folder.declare(Declared("windower", "/code/zeitgeist.py:Windower"))
    >>> [each.name for each in folder.declared()], folder.owner("windower")
    (['windower'], None)
    >>> folder.remove("windower")
    'its position is kept: add it again, and it goes on'
    >>> folder.declared()
    []
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        check_folder(self.directory)
        self.log = str(self.directory / "log")

    def folder(self, name: str) -> Path:
        """Returns the folder of a computation."""
        return self.directory / "computations" / name

    def checkpoint(self, name: str) -> Path:
        """Returns the checkpoint of a computation."""
        return self.directory / "checkpoints" / name

    # What is to run

    def declare(self, declared: Declared) -> None:
        """Adds a computation, or changes what is wanted of it."""
        folder = self.folder(declared.name)
        make_folder(folder)
        replace_file(folder / "computation.json", json.dumps(asdict(declared)).encode())

    def read(self, name: str) -> Declared | None:
        """Returns a computation, also one that was removed; None if there is none of that name."""
        check_tree(self.folder(name))
        try:
            fields = json.loads(read_private(self.folder(name) / "computation.json"))
        except FileNotFoundError:
            return None
        return Declared(**{**fields, "inputs": tuple(fields["inputs"]), "outputs": tuple(fields["outputs"])})

    def declared(self, *wanted: Wanted) -> list[Declared]:
        """Returns the computations of which this is wanted; by default, those that are to run."""
        names = sorted(path.parent.name for path in self.directory.glob("computations/*/computation.json"))
        found = [each for each in map(self.read, names) if each is not None]
        return [each for each in found if each.wanted in (wanted or ("running",))]

    def add(self, declared: Declared) -> str:
        """Adds a computation; returns, in words, whether it begins or goes on."""
        self.check_new(declared.name)
        self.declare(declared)
        goes_on = self.checkpoint(declared.name).exists()
        return "it goes on where it was removed" if goes_on else f"it begins with the {declared.start} records"

    def check_new(self, name: str) -> None:
        """Refuses the name of a computation that is there, and names that are none."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
            raise ComputationError(
                f"the name of a computation is letters, digits, '_' and '-', at most 100, got {name!r}"
            )
        before = self.read(name)
        if before is not None and before.wanted == "running":
            raise ComputationError(
                f"there is a computation {name!r} in {str(self.directory)!r}; remove it first, or give another name"
            )
        if before is not None and before.wanted == "discarded":
            raise ComputationError(f"{name!r} is being discarded; add it again when that is done")

    def remove(self, name: str, *, discard: bool = False) -> str:
        """Removes a computation; returns, in words, what becomes of its position.

        Whoever runs it stops it. With `discard`, its state and position are deleted once nobody runs it.
        """
        before = self.read(name)
        if before is None or (before.wanted != "running" and not (discard and before.wanted == "removed")):
            names = ", ".join(each.name for each in self.declared()) or "none"
            raise ComputationError(f"no computation {name!r} is in {str(self.directory)!r}; there are: {names}")
        self.declare(replace(before, wanted="discarded" if discard else "removed"))
        if discard:
            self.discard_stopped()
            return "its position is discarded: added again, it begins anew"
        return "its position is kept: add it again, and it goes on"

    def discard_stopped(self) -> None:
        """Deletes the computations that are to be discarded and that nobody runs."""
        if not self.declared("discarded"):
            return
        with self._discarding():  # who asked for it and all who run computations come here at once
            for declared in self.declared("discarded"):
                if self.owner(declared.name) is None:
                    self._delete(declared)

    def _discarding(self) -> AbstractContextManager[bool]:
        """Holds the lock under which computations are deleted: what is there stays there."""
        return file_lock(self.directory / "discarding")

    def _delete(self, declared: Declared) -> None:
        log, name = Log(self.log), declared.name
        places = {stream_address(stream, self.log).log for stream in (*declared.inputs, *declared.outputs)}
        remove_stream(self.checkpoint(name), *(Log(each) for each in places if each is not None))
        if counts_topic(name) in log.topics():
            log.delete(counts_topic(name))
        shutil.rmtree(self.folder(name))

    # Who runs it, and how far it is

    def owner(self, name: str) -> int | None:
        """Returns the process that runs a computation; None if none does."""
        place = self.folder(name)
        holder = lock_holder(self.lock(name, Fence.newest(place / "owner", 0))) if place.exists() else None
        return None if holder is None else holder.pid

    def lock(self, name: str, token: int) -> Path:
        """Returns the file that the owner with a token holds a lock of, so that others know that it lives."""
        return self.folder(name) / f"lock-{token}"

    def await_stop(self, name: str, *, patience: float = 60, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Waits until nobody runs a computation; returns whether that came to pass."""
        deadline = time.monotonic() + patience
        while self.owner(name) is not None:
            if time.monotonic() > deadline:
                return False
            sleep(POLL_SECONDS)
        return True

    def publish(self, status: ComputationStatus) -> None:
        """Writes the status of a computation."""
        replace_file(self.folder(status.name) / "status.json", json.dumps(asdict(status)).encode())

    def publish_last(self, name: str, status: Callable[[], ComputationStatus]) -> None:
        """Writes the status of a computation that this process runs no more, unless it has been discarded since."""
        with self._discarding():
            if self.read(name) is not None:
                self.publish(status())

    def published(self, name: str) -> ComputationStatus | None:
        """Returns the status that was written last; None if there is none."""
        try:
            fields: dict[str, Any] = json.loads(read_private(self.folder(name) / "status.json"))
        except FileNotFoundError:
            return None
        return ComputationStatus(**fields)

    def statuses(self) -> list[ComputationStatus]:
        """Returns the status of every computation that is to run, as it was published last."""
        found = []
        for declared in self.declared():
            status = self.published(declared.name) or ComputationStatus(declared.name)
            owner = self.owner(declared.name)
            if owner is None and status.state in ("running", "waiting"):
                status = replace(status, state="waiting", owner=None)
            found.append(status)
        return found
