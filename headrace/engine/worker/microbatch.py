"""The micro-batch that a task of this process belongs to."""

from __future__ import annotations

_current: int | None = None


def current_batch() -> int | None:
    """Returns the number of the micro-batch; None in a batch."""
    return _current


def set_current_batch(number: int | None) -> None:
    """Notes the number of the micro-batch; called when a task begins. A process runs one task at a time."""
    global _current
    _current = number
