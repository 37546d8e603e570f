"""Watermark policies: declare how a source's watermark follows from the event times of its elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from headrace.model.errors import PipelineError
from headrace.model.times import DAY, MIN_TIME, DurationLike, Int64Array, duration, format_duration

_SKEW: Final = timedelta(days=1)  # text would take long to parse, at every import


@dataclass(frozen=True, init=False, repr=False)
class WatermarkPolicy:
    """Computes a watermark for each partition of a source from event times; their minimum is the source's watermark.

    - max_skew: an element further ahead of processing time than this has a wrong clock; it is counted and does not
      move the watermark
    - idle_after: after so much processing time without elements a partition is idle, and is not waited for until it
      has elements again; if all partitions are idle, the watermark does not move

    The fields are in microseconds.

    For a policy of your own, subclass it and override `low_watermark`. Here, no element is older than those of the
    micro-batch before:

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
        idle_us = None if idle_after is None else self._checked("idle_after", idle_after)
        if idle_us == 0:
            raise ValueError(
                f"{type(self).__name__}: idle_after must be positive, or no partition is ever waited for; "
                "give a duration such as '1 minute', or None to wait for ever"
            )
        object.__setattr__(self, "idle_after", idle_us)

    def low_watermark(self, times: Int64Array) -> int:
        """Returns a partition's watermark, in microseconds, after elements of these times in a micro-batch.

        There is at least one time, and they are in the order in which they were read. The result must depend on nothing
        else, or a replay differs. A watermark never goes back: a result lower than before changes nothing. If several
        tasks read from one partition, each calls this for the elements it read, and the highest result counts.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method low_watermark(times)")

    def _checked(self, name: str, value: DurationLike) -> int:
        us = duration(value)
        if us < 0:
            raise ValueError(
                f"{type(self).__name__}: {name} must not be negative, got {format_duration(us)}; "
                "give a duration such as '10 seconds'"
            )
        return us

    def _first(self) -> list[str]:
        """Returns the arguments that a repr has before those of every policy."""
        return []

    def __repr__(self) -> str:
        parts = self._first()
        if self.max_skew != DAY:
            parts.append(f"max_skew={format_duration(self.max_skew)!r}")
        if self.idle_after is not None:
            parts.append(f"idle_after={format_duration(self.idle_after)!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class Monotonic(WatermarkPolicy):
    """A policy for partitions in order of event time: the watermark is the latest event time of the partition.

    >>> import headrace as hr
    >>> hr.Monotonic(idle_after="1 minute")
    Monotonic(idle_after='1 min')
    """

    def low_watermark(self, times: Int64Array) -> int:
        return int(times.max())


@dataclass(frozen=True, init=False, repr=False)
class BoundedDisorder(WatermarkPolicy):
    """A policy for bounded disorder: the watermark is the partition's latest event time less `disorder`.

    Elements that come more than `disorder` behind the latest one are late.

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
    """A policy that learns: the watermark is the latest event time less the delay that a fraction q does not exceed.

    The delay of an element is how far it is behind the latest element of its partition so far, and 0 if it is the
    latest itself. All elements of the partition count, from the first on. So about 1 - q of them come behind the
    watermark as long as delays do not change: these are late, and counted like any late element.

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
    """A policy for watermarks that the producer sends: a `column` of the rows, in which most rows have null.

    Elsewhere it is the watermark of the row's partition: a timestamp, ISO 8601 text or seconds, like the column of the
    event time. No later row of the partition is older. A row with a watermark is an element like any other.

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
        """Returns the latest watermark of the column, not of the elements' times."""
        return int(times.max())

    def _first(self) -> list[str]:
        return [repr(self.column)]


@dataclass(frozen=True, init=False, repr=False)
class WrittenWatermark(WatermarkPolicy):
    """A policy for topics whose writers say how far they are, as `WriteTopic(..., watermarks=True)` does.

    `ReadTopic(..., watermark="stream")` is the same as this policy. The topic's watermark is the least of all writers
    in all partitions; with `idle_after`, writers that say nothing for so long are not waited for. As long as no writer
    has said anything, the watermark does not move.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> p | hr.ReadTopic("minutes", log="/data/log", watermark=hr.WrittenWatermark(idle_after="1 minute"))
    <PCollection of the topic's values from 'ReadTopic', unbounded>
    """

    def __init__(self, *, idle_after: DurationLike | None = None) -> None:
        super().__init__(idle_after=idle_after)

    def low_watermark(self, times: Int64Array) -> int:
        """Returns the beginning of time: elements do not move the watermark."""
        return MIN_TIME


def checked_policy(source: str, policy: Any) -> WatermarkPolicy:
    """Returns the policy of a source if it is valid, else raises."""
    if not isinstance(policy, WatermarkPolicy):
        raise PipelineError(
            f"{source}: watermark must be a policy, got {policy!r}; write for instance "
            "watermark=hr.BoundedDisorder('10 seconds')"
        )
    if type(policy).low_watermark is WatermarkPolicy.low_watermark and not isinstance(policy, Percentile):
        raise PipelineError(
            f"{source}: the policy {type(policy).__name__} does not compute a watermark; give it the method "
            "low_watermark(self, times)"
        )
    return policy
