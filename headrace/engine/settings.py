"""What a program around a script, such as the command line, changes about how its pipelines are run.

Scripts know nothing of it: they say `p.run()` or leave a `with` block, in whatever thread, and so the settings are of
the process. What a pipeline itself says (`Pipeline(master=...)`) is no setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.handle import Handle, Status


@dataclass(frozen=True)
class Settings:
    """`instead` gets each plan as text, in place of running it; `watch` does the waiting if no time limit is given."""

    instead: Callable[[str], Handle] | None = None
    watch: Callable[[Handle], Status] | None = None


_current = Settings()


def current() -> Settings:
    """The settings in force.

    >>> current()
    Settings(instead=None, watch=None)
    """
    return _current


@contextmanager
def using(settings: Settings) -> Iterator[None]:
    """Puts settings in force for a while.

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
