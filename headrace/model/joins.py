"""Interval joins: pairs of elements with the same key whose timestamps are near each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.model.dofn import DoFn, TimestampedValue
from headrace.model.elementwise import ParDo
from headrace.model.errors import PipelineError
from headrace.model.keyed import Flatten, Tag
from headrace.model.pipeline import PCollection, PTransform, pipeline_of
from headrace.model.state import ListState, TimerSpec, ValueState, on_timer
from headrace.model.times import DurationLike, Instant, duration, format_duration

LEFT, RIGHT = 0, 1


class IntervalJoin(PTransform):
    """Joins two collections of pairs by key and time: gives `(key, (left, right))` for each match.

    Two elements match if `left.time + lower <= right.time <= left.time + upper`. The result has the later of the two
    times. An element is stored until the watermark has passed its last possible match by the allowed lateness.

    >>> import headrace as hr
    >>> at = hr.TimestampedValue
    >>> with hr.Pipeline() as p:
    ...     orders = p | "orders" >> hr.Create([at(("amy", "book"), 0), at(("bob", "pen"), 0)])
    ...     payments = p | "payments" >> hr.Create([at(("amy", "7 EUR"), 3600), at(("bob", "1 EUR"), 9000)])
    ...     paid = {"orders": orders, "payments": payments} | hr.IntervalJoin(upper="2 hours") | hr.Collect()
    >>> list(paid)
    [('amy', ('book', '7 EUR'))]
    """

    def __init__(self, lower: DurationLike = 0, upper: DurationLike = 0) -> None:
        self.lower, self.upper = duration(lower), duration(upper)
        if self.lower > self.upper:
            raise PipelineError(
                f"IntervalJoin: lower must not be above upper, got {format_duration(self.lower)} and "
                f"{format_duration(self.upper)}; nothing could ever join"
            )

    def default_label(self) -> str:
        return f"IntervalJoin({format_duration(self.lower)}, {format_duration(self.upper)})"

    def expand(self, inputs: Mapping[str, PCollection] | Sequence[PCollection]) -> Any:
        pipeline_of(inputs, self)
        sides = list(inputs.items()) if isinstance(inputs, Mapping) else [(None, pc) for pc in inputs]
        if len(sides) != 2:
            raise PipelineError(
                f"{self.label or self.default_label()!r}: it joins two collections, got {len(sides)}; write "
                "(left, right) | IntervalJoin(...), and join the result with a third"
            )
        tagged = tuple(
            pc | f"tag {('left', 'right')[number] if name is None else name}" >> Tag(number)
            for number, (name, pc) in enumerate(sides)
        )
        lateness = max(pc.windowing.allowed_lateness for _, pc in sides)
        return tagged | Flatten() | "join" >> ParDo(IntervalJoinFn(self.lower, self.upper, lateness))


class IntervalJoinFn(DoFn):
    """Stores the elements of both sides that may still match, and emits the matches of each new element.

    An element comes as (key, (side, value)).
    """

    left, right = ListState("left"), ListState("right")
    due = ValueState("due")
    over = TimerSpec("over", "event")

    def __init__(self, lower: int, upper: int, lateness: int) -> None:
        self.lower, self.upper, self.lateness = lower, upper, lateness

    def process(
        self,
        element: Any,
        timestamp: Any = DoFn.TimestampParam,
        left: Any = DoFn.StateParam(left),
        right: Any = DoFn.StateParam(right),
        due: Any = DoFn.StateParam(due),
        over: Any = DoFn.TimerParam(over),
    ) -> Iterator[TimestampedValue]:
        key, (side, value) = element
        time = int(timestamp)
        same_side, opposite_side = (left, right) if side == LEFT else (right, left)
        same_side.add((time, value))
        self._wake_at(self._end(side, time), due, over)
        for match_time, match in opposite_side.read():
            pair = (value, match) if side == LEFT else (match, value)
            if self.lower <= (match_time - time if side == LEFT else time - match_time) <= self.upper:
                yield TimestampedValue((key, pair), Instant(max(time, match_time)))

    @on_timer(over)
    def forget(
        self,
        timestamp: Any = DoFn.TimestampParam,
        left: Any = DoFn.StateParam(left),
        right: Any = DoFn.StateParam(right),
        due: Any = DoFn.StateParam(due),
        over: Any = DoFn.TimerParam(over),
    ) -> None:
        due.clear()
        for side, state in ((LEFT, left), (RIGHT, right)):
            elements = state.read()
            state.clear()
            for time, value in elements:
                if self._end(side, time) > int(timestamp):
                    state.add((time, value))
                    self._wake_at(self._end(side, time), due, over)

    def _end(self, side: int, time: int) -> int:
        """Returns the watermark from which on nothing can match an element any more."""
        return time + (self.upper if side == LEFT else -self.lower) + self.lateness + 1

    def _wake_at(self, time: int, due: Any, over: Any) -> None:
        if due.read() is None or time < due.read():
            due.write(time)
            over.set(Instant(time))
