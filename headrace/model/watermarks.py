"""Watermark policies: what the event times of a source say about how far it has come. What is meant only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from headrace.model.errors import PipelineError
from headrace.model.times import DAY, DurationLike, Int64Array, duration, format_duration

_SKEW: Final = timedelta(days=1)  # as text it would take long to read, whenever this is imported


@dataclass(frozen=True, init=False, repr=False)
class WatermarkPolicy:
    """How a source's watermark follows from event times: by partition, and their minimum is the source's.

    - max_skew: an element further ahead of processing time has a wrong clock: it is counted and moves no watermark
    - idle_after: a partition that brought nothing for so long, in processing time, is not waited for until it does;
      if that is all of them, the watermark stays where it is

    The fields hold microseconds.

    A policy of your own is a subclass with the method `low_watermark`. Here, what comes in a micro-batch is never
    older than what came in the one before:

    >>> import headrace as hr, numpy as np
    >>> class BatchByBatch(hr.WatermarkPolicy):
    ...     def low_watermark(self, times):
    ...         return int(times.min())
    >>> policy = BatchByBatch(idle_after="1 minute")
    >>> policy, policy.low_watermark(np.array([7, 5, 9]))
    (BatchByBatch(idle_after='1 min'), 5)
    """

    max_skew: int = field(init=False)
    idle_after: int | None = field(init=False)

    def __init__(self, *, max_skew: DurationLike = _SKEW, idle_after: DurationLike | None = None) -> None:
        object.__setattr__(self, "max_skew", self._checked("max_skew", max_skew))
        waits = None if idle_after is None else self._checked("idle_after", idle_after)
        if waits == 0:
            raise ValueError(
                f"{type(self).__name__}: idle_after must be longer than no time, or nothing is ever waited for; "
                "give a duration such as '1 minute', or None to wait for ever"
            )
        object.__setattr__(self, "idle_after", waits)

    def low_watermark(self, times: Int64Array) -> int:
        """How far a partition has come, in microseconds, that brought elements of these times in a micro-batch.

        There is at least one, and they are in the order in which they were read. The answer must depend on nothing
        else, or a replay differs. A watermark never goes back: one that is lower than before changes nothing. Where
        several tasks read of one partition, each asks for what it read, and the latest answer counts.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method low_watermark(times)")

    def _checked(self, name: str, given: DurationLike) -> int:
        us = duration(given)
        if us < 0:
            raise ValueError(
                f"{type(self).__name__}: {name} must not be negative, got {format_duration(us)}; "
                "give a duration such as '10 seconds'"
            )
        return us

    def _first(self) -> list[str]:
        """What a repr says before the durations that all have."""
        return []

    def __repr__(self) -> str:
        parts = self._first()
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

    def low_watermark(self, times: Int64Array) -> int:
        return int(times.max())


@dataclass(frozen=True, init=False, repr=False)
class BoundedDisorder(WatermarkPolicy):
    """Elements of a partition come at most `disorder` behind its latest: the watermark trails that one by as much.

    >>> import headrace as hr
    >>> hr.BoundedDisorder("10 seconds", max_skew="1 hour")
    BoundedDisorder('10 s', max_skew='1 h')
    """

    disorder: int = field(init=False)

    def __init__(
        self, disorder: DurationLike, *, max_skew: DurationLike = _SKEW, idle_after: DurationLike | None = None
    ) -> None:
        super().__init__(max_skew=max_skew, idle_after=idle_after)
        object.__setattr__(self, "disorder", self._checked("disorder", disorder))

    def low_watermark(self, times: Int64Array) -> int:
        return int(times.max()) - self.disorder

    def _first(self) -> list[str]:
        return [repr(format_duration(self.disorder))]


@dataclass(frozen=True, init=False, repr=False)
class Percentile(WatermarkPolicy):
    """A guess that learns: the watermark trails the latest element by the delay that a fraction q did not exceed.

    The delay of an element is how far it is behind the latest of its partition that came before it, and nothing if it
    is itself the latest. All elements of the partition count, from the first. So about 1 - q of them come behind the
    watermark, as long as delays stay as they were: these are late, and counted as any.

    >>> import headrace as hr
    >>> hr.Percentile(0.99, idle_after="1 minute")
    Percentile(0.99, idle_after='1 min')
    """

    q: float = field(init=False)

    def __init__(self, q: float, *, max_skew: DurationLike = _SKEW, idle_after: DurationLike | None = None) -> None:
        super().__init__(max_skew=max_skew, idle_after=idle_after)
        if isinstance(q, bool) or not isinstance(q, int | float) or not 0 < q <= 1:
            raise ValueError(
                f"Percentile: q is the fraction of elements that shall not be late, above 0 and at most 1, got {q!r}; "
                "give for instance 0.99"
            )
        object.__setattr__(self, "q", float(q))

    def _first(self) -> list[str]:
        return [repr(self.q)]


@dataclass(frozen=True, init=False, repr=False)
class Punctuated(WatermarkPolicy):
    """The producer tells: where `column` is not null, it is the watermark of the row's partition.

    It holds a timestamp, ISO 8601 text or seconds, as the column of the event time does: of what comes after the row,
    nothing is older. A row with a punctuation is an element as any.

    >>> import headrace as hr
    >>> hr.Punctuated("complete_to")
    Punctuated('complete_to')
    """

    column: str = field(init=False)

    def __init__(self, column: str, *, max_skew: DurationLike = _SKEW, idle_after: DurationLike | None = None) -> None:
        super().__init__(max_skew=max_skew, idle_after=idle_after)
        if not isinstance(column, str) or not column:
            raise ValueError(f"Punctuated takes the name of a column, got {column!r}")
        object.__setattr__(self, "column", column)

    def low_watermark(self, times: Int64Array) -> int:
        """By the punctuations, not by the times of elements."""
        return int(times.max())

    def _first(self) -> list[str]:
        return [repr(self.column)]


def checked_policy(source: str, policy: Any) -> WatermarkPolicy:
    """The policy of a source; refuses what is none."""
    if not isinstance(policy, WatermarkPolicy):
        raise PipelineError(
            f"{source}: watermark must be a policy, got {policy!r}; write for instance "
            "watermark=hr.BoundedDisorder('10 seconds')"
        )
    if type(policy).low_watermark is WatermarkPolicy.low_watermark and not isinstance(policy, Percentile):
        raise PipelineError(
            f"{source}: {type(policy).__name__} does not say how far a partition has come; give it the method "
            "low_watermark(self, times)"
        )
    return policy
