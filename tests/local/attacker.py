"""Another user of this machine, who tries what he may: tests run as root become him for a while."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

NOBODY: Final = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def as_nobody(work: Callable[[], Any]) -> Any:
    """Runs a function in a process of the user nobody; returns what it returned, or raises what it raised."""
    ours, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(ours)
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            result = True, work()
        except BaseException as error:
            result = False, error
        with os.fdopen(theirs, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        done, value = pickle.load(pipe)  # from the process above
    os.waitpid(pid, 0)
    if not done:
        raise value
    return value


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A directory that others can enter and read, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-attacked-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
