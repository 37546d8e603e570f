"""Watermark policies: what the event times of a source say about how far it has come. What is meant only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from headrace.model.times import DAY, DurationLike, duration, format_duration


@dataclass(frozen=True, init=False, repr=False)
class WatermarkPolicy:
    """How a source's watermark follows from event times: by partition, and their minimum is the source's.

    - disorder: how far behind the latest element of a partition an element may still come
    - max_skew: an element further ahead of processing time has a wrong clock: it is counted and moves no watermark
    - idle_after: a partition that brought nothing for so long, in processing time, is not waited for until it does;
      if that is all of them, the watermark stays where it is

    The fields hold microseconds.
    """

    disorder: int = field(init=False)
    max_skew: int = field(init=False)
    idle_after: int | None = field(init=False)

    def __init__(self, disorder: DurationLike, max_skew: DurationLike, idle_after: DurationLike | None) -> None:
        object.__setattr__(self, "disorder", self._checked("disorder", disorder))
        object.__setattr__(self, "max_skew", self._checked("max_skew", max_skew))
        waits = None if idle_after is None else self._checked("idle_after", idle_after)
        if waits == 0:
            raise ValueError(
                f"{type(self).__name__}: idle_after must be longer than no time, or nothing is ever waited for; "
                "give a duration such as '1 minute', or None to wait for ever"
            )
        object.__setattr__(self, "idle_after", waits)

    def _checked(self, name: str, given: DurationLike) -> int:
        us = duration(given)
        if us < 0:
            raise ValueError(
                f"{type(self).__name__}: {name} must not be negative, got {format_duration(us)}; "
                "give a duration such as '10 seconds'"
            )
        return us

    def __repr__(self) -> str:
        parts = [repr(format_duration(self.disorder))] if isinstance(self, BoundedDisorder) else []
        if self.max_skew != DAY:
            parts.append(f"max_skew={format_duration(self.max_skew)!r}")
        if self.idle_after is not None:
            parts.append(f"idle_after={format_duration(self.idle_after)!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class Monotonic(WatermarkPolicy):
    """Event times do not go back within a partition: its watermark is the latest it brought.

    >>> import headrace as hr
    >>> hr.Monotonic(idle_after="1 minute")
    Monotonic(idle_after='1 min')
    """

    def __init__(self, *, max_skew: DurationLike = timedelta(days=1), idle_after: DurationLike | None = None) -> None:
        super().__init__(0, max_skew, idle_after)


class BoundedDisorder(WatermarkPolicy):
    """Elements of a partition come at most `disorder` behind its latest: the watermark trails that one by as much.

    >>> import headrace as hr
    >>> hr.BoundedDisorder("10 seconds", max_skew="1 hour")
    BoundedDisorder('10 s', max_skew='1 h')
    """

    def __init__(
        self,
        disorder: DurationLike,
        *,
        max_skew: DurationLike = timedelta(days=1),
        idle_after: DurationLike | None = None,
    ) -> None:
        super().__init__(disorder, max_skew, idle_after)
