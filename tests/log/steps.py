"""Steps of a process: each call that changes a file or takes a lock; and a process that kills itself at one of them.

It dies by SIGKILL, like one that is killed from outside, but in the midst of a write, or between a write and the rename
that follows it.
"""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SEGMENT = re.compile(r"\d{20}(?=\.)")


@dataclass
class Steps:
    """Counts steps; at the `nth` of the kind `fatal`, tells so and dies."""

    tell: Callable[[str], None]
    fatal: str | None = None
    nth: int = 1
    passed: Counter[str] = field(default_factory=Counter)

    def __call__(self, step: str) -> None:
        if self.due(step):
            self.die(step)

    def due(self, step: str) -> bool:
        self.passed[step] += 1
        return step == self.fatal and self.passed[step] == self.nth

    def die(self, step: str) -> None:
        self.tell(step)
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """From now on, files are opened, written, renamed and removed in steps. There is no way back."""
        opened, flock = io.open, fcntl.flock
        fsync, rename, unlink, truncate = os.fsync, os.rename, os.unlink, os.truncate

        def open_in_steps(path: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            file = opened(path, mode, *args, **named)
            if mode[0] in "wx":
                self(f"{called(path)} created")
            return Written(file, called(path), self) if mode != "rb" and mode != "r" else file

        def flock_in_steps(file: Any, operation: int) -> None:
            flock(file, operation)
            self(f"{called(_path_of(file.fileno()))} locked")

        def fsync_in_steps(descriptor: int) -> None:
            self(f"before fsync of {called(_path_of(descriptor))}")
            fsync(descriptor)

        def rename_in_steps(source: Any, target: Any) -> None:
            self(f"before rename to {called(target)}")
            rename(source, target)

        def unlink_in_steps(path: Any) -> None:
            self(f"before removal of {called(path)}")
            unlink(path)

        def truncate_in_steps(path: Any, length: int) -> None:
            self(f"before {called(path)} is cut")
            truncate(path, length)

        io.open = builtins.open = open_in_steps  # pathlib has its own
        fcntl.flock = flock_in_steps
        os.fsync, os.rename, os.unlink, os.truncate = (
            fsync_in_steps,
            rename_in_steps,
            unlink_in_steps,
            truncate_in_steps,
        )


class Written:
    """A file whose writes are steps: who dies in one has written half of it."""

    def __init__(self, file: Any, name: str, steps: Steps) -> None:
        self._file, self._name, self._steps = file, name, steps

    def write(self, data: Any) -> int:
        step = f"{self._name} half written"
        if self._steps.due(step):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            self._steps.die(step)
        return self._file.write(data)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()


def called(path: Any) -> str:
    """What a file of a log is called, whatever its number.

    >>> called("topics/visits/0/00000000000000000042.index"), called("groups/g/visits/lock")
    ('*.index', 'group/lock')
    """
    path = Path(path)
    if path.parent.name == "members":
        return "group/members/*"
    if path.name.isdecimal():
        return "partition"
    if "groups" in path.parts and path.is_dir():
        return "group"
    name = _SEGMENT.sub("*", path.name)
    return f"group/{name}" if "groups" in path.parts else name


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")
