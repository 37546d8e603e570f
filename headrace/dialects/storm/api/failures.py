"""Failures that a user of a topology sees: errors of components, and tuples that were given up."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ErrorReport:
    """An error of a component: the task, the time of the batch in microseconds, the error and its traceback.

    >>> ErrorReport("count", 3, 0, "ValueError: no number", "...").error
    'ValueError: no number'
    """

    component: str
    task: int
    time: int
    error: str
    details: str

    @staticmethod
    def of(component: str, task: int, time: int, error: BaseException) -> ErrorReport:
        """Describes an error, without the values of variables: they may be secret."""
        details = "".join(traceback.format_exception(error))
        return ErrorReport(component, task, time, f"{type(error).__name__}: {error}", details)


@dataclass(frozen=True)
class DeadLetter:
    """A tuple that was given up: it failed after its last replay, or could not be written to the log.

    >>> DeadLetter("clicks", 0, ("x",), 7, attempts=4, why="failed").values
    ('x',)
    """

    component: str
    task: int
    values: tuple[Any, ...]
    message_id: Any
    attempts: int
    why: str
    stream: str = "default"
