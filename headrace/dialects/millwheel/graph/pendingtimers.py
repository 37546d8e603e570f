"""The timers of a key, of which there may be many, on one timer of a DoFn.

The DoFn's timer is set to the earliest. A key that waits for one timer without a tag, which is the usual case, has no
more than that; the timers of others are a list in a state, in the order of their times.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

from headrace.model.times import MAX_TIME, Instant

Pending = list[tuple[int, str]]
"""All timers of a key by one clock: times and tags, the earliest first."""


def add_timer(timer: Any, many: Any, time: Instant, tag: str) -> bool:
    """Sets a timer of the current key, by the handles of the DoFn's timer and state; returns whether it is new."""
    first, pending = timer.read(), many.read()
    if time > MAX_TIME:
        time = Instant(MAX_TIME)
    if pending is None:
        if not tag:
            if first is None:
                timer.set(time)
                return True
            if first == time:
                return False
        pending = [] if first is None else [(int(first), "")]
    elif (time, tag) in pending:
        return False
    insort(pending, (int(time), tag))
    many.write(pending)
    if first is None or time < first:
        timer.set(time)
    return True


def next_tag(timer: Any, many: Any) -> str:
    """Returns the tag of the timer that the DoFn's timer fires for, the first of the key, and sets it to the next."""
    pending: Pending | None = many.read()
    if pending is None:
        return ""
    (_, tag), *left = pending
    if not left or (len(left) == 1 and not left[0][1]):
        many.clear()
    else:
        many.write(left)
    if left:
        timer.set(Instant(left[0][0]))
    return tag
