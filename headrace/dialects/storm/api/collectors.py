"""What the calls of a component leave behind: emitted values as flat lists, rows of anchors and acks, errors.

Nothing is worked out here for a single tuple that can be worked out for a whole batch afterwards.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headrace.dialects.storm.api.tuples import Tuple

UNANCHORED: Final = -1

Streams: TypeAlias = Mapping[str, tuple[str, ...]]
"""The fields of streams."""
DirectTasks: TypeAlias = Mapping[str, frozenset[int]]
"""Of streams that are read by direct grouping, the tasks that may be named."""

MANY_ERRORS: Final = 20
"""So many errors of a task and a batch, or of a spout's turn, are shown; the rest is counted."""


@dataclass(frozen=True)
class ErrorReport:
    """An error of a component's: which task, when (the time of the batch, in microseconds), and what Python said.

    >>> ErrorReport("count", 3, 0, "ValueError: no number", "...").error
    'ValueError: no number'
    """

    component: str
    task: int
    time: int
    error: str
    details: str


class Out:
    """What was emitted to a stream in a batch: values row by row in one list, and for each tuple the row of its anchor.

    In place of a row, UNANCHORED; or -2, -3, ... for the first, second, ... entry of `several`, where there are several
    anchors, or one that came in an earlier batch.
    """

    __slots__ = ("anchors", "component", "fields", "first", "flat", "several", "stream", "tasks", "width")

    def __init__(self, component: str, stream: str, fields: tuple[str, ...]) -> None:
        self.component, self.stream, self.fields, self.width = component, stream, fields, len(fields)
        self.begin(0)

    def begin(self, first: int) -> None:
        """Begins a batch whose tuples have rows from `first` on."""
        self.first = first
        self.flat: list[Any] = []
        self.anchors: list[int] = []
        self.several: list[tuple[Tuple, ...]] = []
        self.tasks: list[int] = []  # of a direct stream

    def anchor(self, anchors: Sequence[Tuple]) -> None:
        """Notes the anchors of a tuple, whatever they are."""
        if not anchors:
            self.anchors.append(UNANCHORED)
            return
        if isinstance(anchors, Tuple) or not all(isinstance(each, Tuple) for each in anchors):
            raise TypeError(f"anchors are a list of tuples, got {anchors!r}; write anchors=[tup]")
        if len(anchors) == 1 and anchors[0].row >= self.first:
            self.anchors.append(anchors[0].row)
            return
        self.several.append(tuple(anchors))
        self.anchors.append(-1 - len(self.several))

    def row(self, place: int) -> list[Any]:
        """The values of a tuple."""
        return self.flat[place * self.width : (place + 1) * self.width]

    def keep(self, places: Sequence[int]) -> None:
        """Forgets all tuples but those in these places."""
        self.flat = [value for place in places for value in self.row(place)]
        self.anchors = [self.anchors[place] for place in places]
        self.tasks = [self.tasks[place] for place in places] if self.tasks else []

    def wrong_width(self, values: Sequence[Any]) -> ValueError:
        """The error for values that do not fit the fields."""
        return ValueError(
            f"the stream {self.stream!r} of {self.component!r} has the fields {list(self.fields)}, got "
            f"{len(values)} values: {values!r}; emit one value for each field"
        )


class Collected:
    """What the calls of a bolt left behind in a batch. `outs` are its streams, `direct` those that are read directly.

    Rows of tuples of this batch begin with `first`; `row` and `current` are of the tuple that is being worked on.
    """

    __slots__ = (
        "acked",
        "component",
        "current",
        "direct",
        "errors",
        "failed",
        "first",
        "held_acked",
        "more_errors",
        "named",
        "now",
        "outs",
        "row",
        "task",
    )

    def __init__(self, component: str, task: int, streams: Streams, direct: DirectTasks) -> None:
        self.component, self.task, self.named = component, task, direct
        outs = {stream: Out(component, stream, fields) for stream, fields in streams.items()}
        self.direct = {stream: out for stream, out in outs.items() if stream in direct}
        self.outs = {stream: out for stream, out in outs.items() if stream not in direct}
        self.begin(0, 0)

    def begin(self, first: int, now: int) -> None:
        """Begins a batch."""
        self.first, self.now = first, now
        self.row = UNANCHORED
        self.current: tuple[Tuple, ...] = ()
        self.acked: list[int] = []
        self.held_acked: list[Tuple] = []
        self.failed: list[Tuple] = []
        self.errors: list[ErrorReport] = []
        self.more_errors = 0
        for out in (*self.outs.values(), *self.direct.values()):
            out.begin(first)

    def emit_direct(self, task: int, values: Sequence[Any], anchors: Sequence[Tuple], stream: str) -> None:
        """A tuple for one task."""
        out = self.direct.get(stream)
        if out is None:
            raise self._no_direct_stream(stream)
        if len(values) != out.width:
            raise out.wrong_width(values)
        if task not in self.named[stream]:
            raise _wrong_task(self.component, stream, task, self.named[stream])
        out.anchor(anchors)
        out.flat.extend(values)
        out.tasks.append(task)

    def report(self, error: BaseException) -> None:
        """Notes an error; of a great many in one batch only the first."""
        if len(self.errors) < MANY_ERRORS:
            self.errors.append(error_report(self.component, self.task, self.now, error))
        else:
            self.more_errors += 1

    def no_stream(self, stream: str) -> ValueError:
        """Why nothing can be emitted to a stream that is not in `outs`."""
        if stream in self.direct:
            return ValueError(
                f"the stream {stream!r} of {self.component!r} is read by direct grouping: emit_direct names the task"
            )
        return _undeclared(self.component, stream, [*self.outs, *self.direct])

    def _no_direct_stream(self, stream: str) -> ValueError:
        if stream in self.outs:
            return ValueError(
                f"nobody reads the stream {stream!r} of {self.component!r} by direct grouping: use emit, or subscribe "
                "with direct_grouping"
            )
        return _undeclared(self.component, stream, [*self.outs, *self.direct])


@dataclass(frozen=True)
class Emitted:
    """A tuple that a spout emitted; `task` if it was emitted to one task only.

    >>> Emitted("default", ("hello",), message_id=7).values
    ('hello',)
    """

    stream: str
    values: tuple[Any, ...]
    message_id: Any = None
    task: int | None = None


class SpoutCollected:
    """What the calls of a spout left behind since it was last taken.

    >>> collected = SpoutCollected("words", 0, {"default": ("word",)}, {})
    >>> collected.emit("default", ["hello"], 1)
    >>> collected.take()
    [Emitted(stream='default', values=('hello',), message_id=1, task=None)]
    >>> collected.take()
    []
    """

    def __init__(self, component: str, task: int, streams: Streams, direct: DirectTasks) -> None:
        self._component, self._task, self._streams, self._direct = component, task, dict(streams), direct
        self._emitted: list[Emitted] = []
        self.now = 0
        self.errors: list[ErrorReport] = []
        self.more_errors = 0

    def emit(self, stream: str, values: Sequence[Any], message_id: Any, task: int | None = None) -> None:
        """Notes a tuple."""
        fields = self._streams.get(stream)
        if fields is None:
            raise _undeclared(self._component, stream, list(self._streams))
        if len(values) != len(fields):
            raise Out(self._component, stream, fields).wrong_width(values)
        if (task is not None) != (stream in self._direct):
            way = "emit_direct, which names the task" if stream in self._direct else "emit"
            raise ValueError(f"to the stream {stream!r} of {self._component!r} one emits with {way}")
        if task is not None and task not in self._direct[stream]:
            raise _wrong_task(self._component, stream, task, self._direct[stream])
        self._emitted.append(Emitted(stream, tuple(values), message_id, task))

    def report(self, error: BaseException) -> None:
        """Notes an error; of a great many at once only the first."""
        if len(self.errors) < MANY_ERRORS:
            self.errors.append(error_report(self._component, self._task, self.now, error))
        else:
            self.more_errors += 1

    def take(self) -> list[Emitted]:
        """What was emitted since the last time, in order."""
        emitted, self._emitted = self._emitted, []
        return emitted


def error_report(component: str, task: int, now: int, error: BaseException) -> ErrorReport:
    """An error as it is shown: without the values of variables, which may be secret."""
    details = "".join(traceback.format_exception(error))
    return ErrorReport(component, task, now, f"{type(error).__name__}: {error}", details)


def _wrong_task(component: str, stream: str, task: int, named: frozenset[int]) -> ValueError:
    return ValueError(
        f"the task {task!r} does not read the stream {stream!r} of {component!r} by direct grouping; these do: "
        f"{', '.join(map(str, sorted(named)))} (see context.tasks)"
    )


def _undeclared(component: str, stream: str, streams: Sequence[str]) -> ValueError:
    return ValueError(
        f"{component!r} declares no stream {stream!r}, only {', '.join(map(repr, streams)) or 'none'}; declare its "
        "fields, e.g. fields = ['word'] or streams = {'errors': ['line']}"
    )
