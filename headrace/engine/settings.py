"""Settings by which a program that runs a script, such as the command line, changes how its pipelines run.

The script does not know of them: it calls `p.run()` or leaves a `with` block, in any thread, so they are settings of
the process. What a pipeline sets itself (`Pipeline(master=...)`) is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.handle import Handle, Status
    from headrace.model.pipeline import Graph


@dataclass(frozen=True)
class Settings:
    """`instead` is called with each plan as text, which then is not run; `watch` waits where no time limit is given.

    `py_files` are modules, archives and packages that workers can import. `started` is called with each graph that
    runs, and its handle.
    """

    instead: Callable[[str], Handle] | None = None
    watch: Callable[[Handle], Status] | None = None
    py_files: tuple[str, ...] = ()
    started: Callable[[Graph, Handle], None] | None = None


_current = Settings()


def current() -> Settings:
    """Returns the settings in force.

    >>> current()
    Settings(instead=None, watch=None, py_files=(), started=None)
    """
    return _current


@contextmanager
def using(settings: Settings) -> Iterator[None]:
    """Puts settings in force for the length of a block.

    >>> with using(Settings(watch=print)):
    ...     current().watch is print
    True
    """
    global _current
    before, _current = _current, settings
    try:
        yield
    finally:
        _current = before
