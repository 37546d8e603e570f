"""Output collectors: store what the calls of a component emit, ack, fail and report.

They store flat lists only: whatever can be computed for a whole batch is computed after the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headrace.dialects.storm.api.failures import ErrorReport
from headrace.dialects.storm.api.tuples import Tuple

UNANCHORED: Final = -1

Streams: TypeAlias = Mapping[str, tuple[str, ...]]
"""The fields of each stream."""
DirectTasks: TypeAlias = Mapping[str, frozenset[int]]
"""The tasks that may be named, for each stream that is read by direct grouping."""

MAX_ERRORS: Final = 20
"""How many errors of a task in a batch, or of a spout in a turn, are reported in full; the rest are counted."""


class StreamOutput:
    """The tuples emitted to one stream in a batch: their values in one flat list, and the row of each one's anchor.

    Instead of a row, an anchor may be UNANCHORED; or -2, -3, ... for the first, second, ... entry of `anchor_lists`,
    where a tuple has several anchors, or one that arrived in an earlier batch.
    """

    __slots__ = ("anchor_lists", "anchors", "component", "fields", "first", "flat", "stream", "tasks", "width")

    def __init__(self, component: str, stream: str, fields: tuple[str, ...]) -> None:
        self.component, self.stream, self.fields, self.width = component, stream, fields, len(fields)
        self.begin(0)

    def begin(self, first: int) -> None:
        """Begins a batch whose tuples have rows from `first` on."""
        self.first = first
        self.flat: list[Any] = []
        self.anchors: list[int] = []
        self.anchor_lists: list[tuple[Tuple, ...]] = []
        self.tasks: list[int] = []  # of a direct stream

    def anchor(self, anchors: Sequence[Tuple]) -> None:
        """Adds the anchors of one emitted tuple."""
        if not anchors:
            self.anchors.append(UNANCHORED)
            return
        if isinstance(anchors, Tuple) or not all(isinstance(anchor, Tuple) for anchor in anchors):
            raise TypeError(f"anchors are a list of tuples, got {anchors!r}; write anchors=[tup]")
        if len(anchors) == 1 and anchors[0].row >= self.first:
            self.anchors.append(anchors[0].row)
            return
        self.anchor_lists.append(tuple(anchors))
        self.anchors.append(-1 - len(self.anchor_lists))

    def anchors_of(self, anchor: int) -> tuple[Tuple, ...]:
        """Returns the anchors that a number below UNANCHORED stands for."""
        return self.anchor_lists[UNANCHORED - 1 - anchor]

    def row(self, place: int) -> list[Any]:
        """Returns the values of one emitted tuple."""
        return self.flat[place * self.width : (place + 1) * self.width]

    def select(self, places: Sequence[int]) -> None:
        """Drops all tuples but those at these places."""
        self.flat = [value for place in places for value in self.row(place)]
        self.anchors = [self.anchors[place] for place in places]
        self.tasks = [self.tasks[place] for place in places] if self.tasks else []

    def wrong_width(self, values: Sequence[Any]) -> ValueError:
        """Returns the error for values that do not fit the fields."""
        return ValueError(
            f"the stream {self.stream!r} of {self.component!r} has the fields {list(self.fields)}, got "
            f"{len(values)} values: {values!r}; emit one value for each field"
        )


class OutputCollector:
    """Everything that the calls of a bolt emitted, acked, failed and reported in a batch.

    `outputs` has the streams of `emit`, `direct_outputs` those of `emit_direct`. Rows of this batch begin with `first`;
    `row` and `current` are of the tuple that is being executed, if the bolt is a basic one.
    """

    __slots__ = (
        "acked",
        "component",
        "current",
        "direct_outputs",
        "direct_tasks",
        "earlier_acked",
        "errors",
        "failed",
        "first",
        "more_errors",
        "now",
        "outputs",
        "row",
        "task",
    )

    def __init__(self, component: str, task: int, streams: Streams, direct_tasks: DirectTasks) -> None:
        self.component, self.task, self.direct_tasks = component, task, direct_tasks
        outputs = {stream: StreamOutput(component, stream, fields) for stream, fields in streams.items()}
        self.direct_outputs = {stream: output for stream, output in outputs.items() if stream in direct_tasks}
        self.outputs = {stream: output for stream, output in outputs.items() if stream not in direct_tasks}
        self.begin(0, 0)

    def begin(self, first: int, now: int) -> None:
        """Begins a batch."""
        self.first, self.now = first, now
        self.row = UNANCHORED
        self.current: Tuple | None = None
        self.acked: list[int] = []
        self.earlier_acked: list[Tuple] = []  # tuples that arrived in an earlier batch
        self.failed: list[Tuple] = []
        self.errors: list[ErrorReport] = []
        self.more_errors = 0
        for output in (*self.outputs.values(), *self.direct_outputs.values()):
            output.begin(first)

    def emit_direct(self, task: int, values: Sequence[Any], anchors: Sequence[Tuple], stream: str) -> None:
        """Adds a tuple for one task."""
        output = self.direct_outputs.get(stream)
        if output is None:
            raise self._no_direct_stream(stream)
        if len(values) != output.width:
            raise output.wrong_width(values)
        if task not in self.direct_tasks[stream]:
            raise _wrong_task(self.component, stream, task, self.direct_tasks[stream])
        output.anchor(anchors)
        output.flat.extend(values)
        output.tasks.append(task)

    def report(self, error: BaseException) -> None:
        """Adds an error; after MAX_ERRORS of one batch it only counts them."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(ErrorReport.of(self.component, self.task, self.now, error))
        else:
            self.more_errors += 1

    def no_stream(self, stream: str) -> ValueError:
        """Returns the error for `emit` to a stream that is not in `outputs`."""
        if stream in self.direct_outputs:
            return ValueError(
                f"the stream {stream!r} of {self.component!r} is read by direct grouping: emit_direct names the task"
            )
        return _undeclared(self.component, stream, [*self.outputs, *self.direct_outputs])

    def _no_direct_stream(self, stream: str) -> ValueError:
        if stream in self.outputs:
            return ValueError(
                f"nobody reads the stream {stream!r} of {self.component!r} by direct grouping: use emit, or subscribe "
                "with direct_grouping"
            )
        return _undeclared(self.component, stream, [*self.outputs, *self.direct_outputs])


@dataclass(frozen=True)
class SpoutTuple:
    """A tuple that a spout emitted; `task` if it was emitted to one task only.

    >>> SpoutTuple("default", ("hello",), message_id=7).values
    ('hello',)
    """

    stream: str
    values: tuple[Any, ...]
    message_id: Any = None
    task: int | None = None


class SpoutOutputCollector:
    """Everything that the calls of a spout emitted and reported since `take` was called last.

    >>> collector = SpoutOutputCollector("words", 0, {"default": ("word",)}, {})
    >>> collector.emit("default", ["hello"], 1)
    >>> collector.take()
    [SpoutTuple(stream='default', values=('hello',), message_id=1, task=None)]
    >>> collector.take()
    []
    """

    def __init__(self, component: str, task: int, streams: Streams, direct_tasks: DirectTasks) -> None:
        self._component, self._task = component, task
        self._streams, self._direct_tasks = dict(streams), direct_tasks
        self._tuples: list[SpoutTuple] = []
        self.now = 0
        self.errors: list[ErrorReport] = []
        self.more_errors = 0

    def emit(self, stream: str, values: Sequence[Any], message_id: Any, task: int | None = None) -> None:
        """Adds a tuple."""
        fields = self._streams.get(stream)
        if fields is None:
            raise _undeclared(self._component, stream, list(self._streams))
        if len(values) != len(fields):
            raise StreamOutput(self._component, stream, fields).wrong_width(values)
        if (task is not None) != (stream in self._direct_tasks):
            method = "emit_direct, which names the task" if stream in self._direct_tasks else "emit"
            raise ValueError(f"to the stream {stream!r} of {self._component!r} one emits with {method}")
        if task is not None and task not in self._direct_tasks[stream]:
            raise _wrong_task(self._component, stream, task, self._direct_tasks[stream])
        self._tuples.append(SpoutTuple(stream, tuple(values), message_id, task))

    def report(self, error: BaseException) -> None:
        """Adds an error; after MAX_ERRORS it only counts them."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(ErrorReport.of(self._component, self._task, self.now, error))
        else:
            self.more_errors += 1

    def take(self) -> list[SpoutTuple]:
        """Returns the tuples emitted since the last call, in order."""
        tuples, self._tuples = self._tuples, []
        return tuples


def _wrong_task(component: str, stream: str, task: int, readers: frozenset[int]) -> ValueError:
    return ValueError(
        f"the task {task!r} does not read the stream {stream!r} of {component!r} by direct grouping; these do: "
        f"{', '.join(map(str, sorted(readers)))} (see context.tasks)"
    )


def _undeclared(component: str, stream: str, streams: Sequence[str]) -> ValueError:
    return ValueError(
        f"{component!r} declares no stream {stream!r}, only {', '.join(map(repr, streams)) or 'none'}; declare its "
        "fields, e.g. fields = ['word'] or streams = {'errors': ['line']}"
    )
