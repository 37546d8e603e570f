"""Epochs of inputs: each micro-batch is one, or the event times of elements say in which epoch they are.

An epoch of event time is a second: epoch 3 has the elements of 00:00:03 of 1970, to the microsecond before the next.
So a watermark that reaches second 3 closes the epochs 0 to 2.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from headrace.model.errors import PipelineError
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND

Epochs: TypeAlias = Literal["batch", "time"]
BATCH: Final = "batch"
TIME: Final = "time"


def checked_epochs(epochs: str) -> Epochs:
    """Returns what says which epoch an element is in, if it is known."""
    if epochs not in (BATCH, TIME):
        raise PipelineError(
            f"epochs must be 'batch', where a micro-batch is an epoch, or 'time', where the event time of an element "
            f"is its epoch, in seconds, and the watermark closes epochs; got {epochs!r}"
        )
    return epochs  # type: ignore[return-value]


def epoch_of(time: int) -> int:
    """Returns the epoch of an event time in microseconds.

    >>> epoch_of(3_000_000), epoch_of(3_999_999)
    (3, 3)
    """
    if time < 0:
        what = "none" if time == MIN_TIME else f"{time // SECOND} s"
        raise PipelineError(
            f"an epoch is an event time in whole seconds from 0 on, and an element has {what}; give elements epochs by "
            "naiad.Producer or hr.WithTimestamps, or say epochs='batch'"
        )
    return time // SECOND


def open_epoch(watermark: int) -> int | None:
    """Returns the first epoch that a watermark leaves open, None if it leaves none.

    >>> open_epoch(3_000_000), open_epoch(MIN_TIME), open_epoch(MAX_TIME)
    (3, 0, None)
    """
    return None if watermark >= MAX_TIME else max(watermark, 0) // SECOND
