"""Settings of a running topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.model.times import DurationLike, duration

_GUARANTEES = ("at_least_once", "at_most_once", "effectively_once")


@dataclass(frozen=True)
class Config:
    """The settings of a topology. Durations are stored in microseconds.

    - message_timeout: a tree that is not complete after this time has failed
    - max_spout_pending: how many tracked tuples of a spout task may be pending at once
    - guarantee: "at_least_once"; "at_most_once": nothing is tracked; "effectively_once": each batch takes effect once,
      whatever fails, because state and the place in the source are saved together
    - max_retries: how often a tuple is replayed before it becomes a dead letter
    - tick: how often a bolt gets a tick tuple, unless it was set with a `tick`
    - max_task_parallelism: the maximum number of tasks of a component

    >>> Config(message_timeout="30s", max_spout_pending=1000).message_timeout
    30000000
    """

    message_timeout: DurationLike = "30s"
    max_spout_pending: int = 1000
    guarantee: Literal["at_least_once", "at_most_once", "effectively_once"] = "at_least_once"
    max_retries: int = 3
    tick: DurationLike | None = None
    max_task_parallelism: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message_timeout", positive_duration("message_timeout", self.message_timeout))
        if self.tick is not None:
            object.__setattr__(self, "tick", positive_duration("tick", self.tick))
        if self.guarantee not in _GUARANTEES:
            raise ValueError(f"guarantee is one of {', '.join(_GUARANTEES)}, got {self.guarantee!r}")
        _check_at_least("max_spout_pending", self.max_spout_pending, 1)
        _check_at_least("max_retries", self.max_retries, 0)
        if self.max_task_parallelism is not None:
            _check_at_least("max_task_parallelism", self.max_task_parallelism, 1)

    @property
    def acking(self) -> bool:
        """Whether trees are tracked."""
        return self.guarantee != "at_most_once"


def positive_duration(name: str, length: DurationLike) -> int:
    """Converts a duration to microseconds, and refuses one that is not longer than 0.

    >>> positive_duration("tick", "0s")
    Traceback (most recent call last):
        ...
    ValueError: tick must be longer than 0, got '0s'; write e.g. '5s'
    """
    microseconds = duration(length)
    if microseconds <= 0:
        raise ValueError(f"{name} must be longer than 0, got {length!r}; write e.g. '5s'")
    return microseconds


def _check_at_least(name: str, number: int, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ValueError(f"{name} is a whole number of at least {least}, got {number!r}")
