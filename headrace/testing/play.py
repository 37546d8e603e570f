"""`play`: runs a script of inputs and clock moves on the engine's shard processor, without Spark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.processor import ShardProcessor
from headrace.engine.worker.columnbundles import TIMINGS
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.algebra import combine_fn
from headrace.model.keys import decode_keys, encode_keys
from headrace.model.panes import Accumulation, Closing, Pane, TimestampCombiner, Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, DurationLike, instant
from headrace.model.triggers import DefaultTrigger, Trigger
from headrace.model.windows import CountWindows, WindowFn


def play(
    *,
    window: WindowFn,
    trigger: Trigger = DefaultTrigger(),
    accumulation: Accumulation = "discarding",
    allowed_lateness: DurationLike = 0,
    timestamp_combiner: TimestampCombiner = "end_of_window",
    closing: Closing = "non_empty",
    combine: Any = None,
    script: Iterable[tuple[str, Any]],
) -> list[list[Pane]]:
    """Plays a script and returns the panes of each of its steps, ordered by window and then by arrival.

    A step is `("input", elements)`, one bundle; `("watermark", t)`, which moves the input watermark to `t`; or
    `("clock", t)`, which moves processing time, at first 0, to `t`. An element is a number, which is also its timestamp
    and whose key is None, or `(key, value, timestamp)`. Times are seconds, or anything that `instant` accepts; math.inf
    is the end of time. A clock does not go back.

    Windows and timestamps of the panes are in seconds, bounds of CountWindows are ordinals. The last instant of a
    window, the timestamp by "end_of_window", is a microsecond before its end: 9.999999 for a window that ends at 10. A
    pane's values are in order of arrival, those of merged windows one window after the other; with `combine`, there is
    one value, the result.

    - Triggers are tested once per bundle for the windows that it changed, and when a time that they wait for has come:
      the end of the window, a processing time, a percentile.
    - A pane is early until the watermark has passed the end of its window. The first pane after that is on time, unless
      all elements of the window came after its end; any other is late, also if it merges windows that were on time.
    - If the trigger fires, the on-time pane is emitted even if no element has arrived since the pane before: without
      values if discarding, with the same values if accumulating. An early or late pane without new elements is not.
    - A window closes when the watermark passes its end plus the allowed lateness. It then emits the elements that no
      pane has had, whatever the trigger says; with closing="always" it emits a last pane in any case. Later elements
      are dropped; whether an element of a session is late depends on its own time and gap, even if it would join a
      session that is still open.
    - Elements that arrive after the trigger of their window has finished are dropped. In sessions, and other windows
      that merge, they are not: a session whose trigger has finished is over, and what arrives later, late or not,
      begins a session of its own, even if the two overlap.
    - A merged window is a new window, whose panes are numbered from 0, unless it has the bounds of one of its parts. So
      is one that grew.
    - Its trigger goes on from what it had counted in the parts, with one exception. If the new end is beyond the
      watermark, `AfterWatermark` is active again: `early`, then once on time; `late` forgets what it had counted.
      `AfterEach` goes back to a trigger that has to wait for the watermark again. Behind the watermark, `late` goes on,
      unless the on-time pane of one of the parts is still to come.
    - Elements behind the watermark do not count for a pane's "earliest" or "latest" timestamp; if all are behind it,
      that is the window's last instant. In the modes that accumulate, it covers all elements up to the on-time pane.
    - The watermark of a percentile is estimated: processing time less the delay of that part of the elements so far.

    >>> from headrace.model.triggers import AfterCount, AfterWatermark
    >>> from headrace.model.windows import FixedWindows
    >>> steps = play(
    ...     window=FixedWindows(10), trigger=AfterWatermark(early=AfterCount(2)), accumulation="accumulating",
    ...     script=[("input", [1, 2]), ("input", [3]), ("watermark", 25)],
    ... )
    >>> [[(pane.window, pane.values, pane.timing) for pane in panes] for panes in steps]
    [[((0, 10), [1, 2], 'early')], [], [((0, 10), [1, 2, 3], 'on_time')]]
    """
    windowing = Windowing(window, trigger, accumulation, allowed_lateness, timestamp_combiner, closing)
    fn = None if combine is None else combine_fn(combine)
    processor = ShardProcessor(windowing, fn)
    processor.step(None, Clocks(now=0))
    delays = Delays()
    steps = []
    for number, (action, argument) in enumerate(script, 1):
        rows, clocks = None, Clocks()
        if action == "input":
            rows = _rows([_element(number, element) for element in argument], window)
            delays.observe(np.asarray(rows.column(TIME)), now=processor.clocks.now)
        elif action == "watermark":
            clocks = Clocks(watermark=_instant(argument))
        elif action == "clock":
            clocks = Clocks(now=_instant(argument))
        else:
            raise ValueError(
                f"play: step {number} must be 'input', 'watermark' or 'clock', got {action!r}; "
                "write for instance ('watermark', 25)"
            )
        now = max(clocks.now, processor.clocks.now)
        clocks = Clocks(clocks.watermark, clocks.now, delays.watermarks(processor.program.fractions, now=now))
        steps.append(_panes(processor.step(rows, clocks).panes, windowing, combined=fn is not None))
    return steps


def _element(number: int, element: Any) -> tuple[Any, Any, int]:
    if isinstance(element, int | float) and not isinstance(element, bool):
        return None, element, instant(element)
    if isinstance(element, tuple) and len(element) == 3:
        key, value, time = element
        return key, value, instant(time)
    raise TypeError(
        f"play: an element of step {number} must be a number or (key, value, timestamp), got {element!r}; "
        f"write e.g. (None, {element!r}, 7)"
    )


def _rows(elements: Sequence[tuple[Any, Any, int]], window: WindowFn) -> pa.RecordBatch:
    """Converts a bundle to rows, one for each window of each element."""
    keys, values = [key for key, _, _ in elements], [value for _, value, _ in elements]
    times = np.array([time for _, _, time in elements], np.int64)
    columns: dict[str, Any] = {}
    if not isinstance(window, CountWindows):  # there the processor numbers the elements itself
        index, columns[START], columns[END] = window.assign(times, keys)
        keys, values, times = [keys[i] for i in index.tolist()], [values[i] for i in index.tolist()], times[index]
    encoded, spelling = encode_keys(keys)
    columns |= {KEY: encoded, SPELLING: pa.nulls(len(keys), pa.binary()) if spelling is None else spelling}
    return pa.record_batch(columns | {TIME: times, VALUE: encode_cells(values)})


def _panes(panes: pa.RecordBatch, windowing: Windowing, *, combined: bool) -> list[Pane]:
    keys = decode_keys(panes.column(KEY), panes.column(SPELLING))
    values = decode_cells(panes.column(VALUE))
    bound = _same if isinstance(windowing.window, CountWindows) else _seconds
    names = ("timing", "index", "on_time_index", "is_first", "is_last", "retraction")
    infos = zip(*(panes.column(name).to_pylist() for name in (START, END, TIME, *names)), strict=True)
    return [
        Pane(
            key,
            (bound(start), bound(end)),
            [value] if combined else value,
            _seconds(time),
            TIMINGS[timing],
            *info,
        )
        for key, value, (start, end, time, timing, *info) in zip(keys, values, infos, strict=True)
    ]


def _instant(time: Any) -> int:
    return MAX_TIME if time == math.inf else instant(time)


def _seconds(us: int) -> float:
    if not MIN_TIME < us < MAX_TIME - 1:  # the last instant of the global window is infinite, too
        return math.inf if us > 0 else -math.inf
    return us // SECOND if us % SECOND == 0 else us / SECOND


def _same(ordinal: int) -> float:
    return ordinal
