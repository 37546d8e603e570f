"""The handle of a running pipeline, and its status.

Batches and streams each implement the protocol; this module imports neither Spark nor them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from headrace.engine.shard.reports import WaitingWindow
from headrace.model.badrecords import BadRecords
from headrace.model.htmltables import html_text
from headrace.model.metriccells import Cells, results_of
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, format_duration, format_instant

HISTORY: Final = 24 * 3600 * SECOND
"""From this lag on, in microseconds, a stream is not said to be behind, but to read history."""
_UPDATE: Final = 1.0  # seconds from one update in a notebook to the next

State = Literal["running", "done", "failed", "stopped"]
Metrics = dict[str, dict[str, Any]]
"""The metrics of a run by the label of a transform, and name: the engine's own are ints."""


@dataclass
class Status:
    """Status of a run: its state, the current sink, the tasks of the current Spark job, bad records by source.

    `recorded` has the metrics of functions, by transform and name.
    """

    state: State = "running"
    stage: str = ""
    tasks_done: int = 0
    tasks: int = 0
    bad: dict[str, BadRecords] = field(default_factory=dict)
    recorded: Cells = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The status as one line."""
        return self.stage

    def __str__(self) -> str:
        tasks = f"{self.tasks_done:,} of {self.tasks:,} tasks" if self.tasks and self.state == "running" else ""
        now = ", ".join(filter(None, [self.state, self.stage if self.state == "running" else "", tasks]))
        return "\n".join([now, *(f"{label} had {records}" for label, records in self.bad.items())])


def with_results(counts: Mapping[str, Mapping[str, int]], cells: Cells) -> Metrics:
    """Returns the engine's own counts with the metrics that functions recorded.

    >>> with_results({"parse": {"in": 3}}, {("parse", "bad"): 1})
    {'parse': {'in': 3, 'bad': 1}}
    """
    metrics = {label: dict(own) for label, own in counts.items()}
    for label, results in results_of(dict(cells)).items():
        metrics.setdefault(label, {}).update(results)
    return metrics


class Handle(Protocol):
    """A running pipeline: `wait()` for its end, `stop()` it, ask for its `status()` and `metrics()`.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> _ = p | hr.Create([1, 2, 3]) | "large" >> hr.Filter(lambda n: n > 1) | hr.Collect()
    >>> handle: hr.Handle = p.run()
    >>> handle.wait().state
    'done'
    >>> handle.metrics()["large"]
    {'in': 3, 'out': 2}
    """

    def wait(self, timeout: float | None = None) -> Status:
        """Waits for the end, or for `timeout` seconds; raises the error that the pipeline failed with."""
        ...

    def stop(self, *, drain: bool = False) -> None:
        """Stops the pipeline; with `drain`, once it has worked through what it has read."""
        ...

    def status(self) -> Status:
        """Returns how far the pipeline is."""
        ...

    def metrics(self) -> Metrics:
        """Returns, by the label of a transform, elements in and out, bad records by reason, and its own metrics.

        Its own are those that its functions recorded by `hr.metrics`: ints, numbers, and `DistributionResult`s.
        """
        ...

    def savepoint(self, path: str) -> None:
        """Copies the checkpoint of a stream to the directory `path`; a batch has none and refuses."""
        ...


@dataclass(frozen=True)
class SourceStatus:
    """Status of a source: its watermark and the rows of the last batch; None where it is not known.

    For a topic also the offsets it has been read to, by partition, and how many records follow them.
    """

    watermark: int | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    offsets: dict[int, int] | None = None
    lag: int | None = None


@dataclass(frozen=True)
class ExchangeStatus:
    """Status of a grouping.

    - watermark: of its input; output_watermark: of its output
    - lag: how far, in microseconds, its input's watermark is behind the clock; None at the ends of time
    - held: how many windows have state; late, refused: elements that came too late, or to finished triggers, ever
    - waiting: the earliest window with elements that it has not fired yet, and why
    - counts: for tasks, the counters of each, by its number
    """

    watermark: int = MIN_TIME
    output_watermark: int = MIN_TIME
    lag: int | None = None
    held: int = 0
    late: int = 0
    refused: int = 0
    waiting: WaitingWindow | None = None
    counts: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(repr=False)
class StreamStatus(Status):
    """Status of a stream: its micro-batches, how long the last one took, its sources and its groupings.

    `notes` say how the pipeline differs from the one of its checkpoint. It prints as a table.

    >>> print(StreamStatus("running", batches=3, batch_seconds=0.41, exchanges={
    ...     "sums": ExchangeStatus(60 * SECOND, 59 * SECOND, 2 * SECOND, 1, waiting=WaitingWindow("'amy'",
    ...         "12:00 to 12:01", "waits for the watermark to pass 12:01, which is at 12:00:58", 61 * SECOND))}))
    running, 3 batches, the last in 0.41 s
    grouping  watermark             output                lag  held  late  refused
    sums      1970-01-01T00:01:00Z  1970-01-01T00:00:59Z  2 s     1     0        0
    sums has not fired 12:00 to 12:01 of 'amy': waits for the watermark to pass 12:01, which is at 12:00:58
    """

    batches: int = 0
    batch_seconds: float | None = None
    sources: dict[str, SourceStatus] = field(default_factory=dict)
    exchanges: dict[str, ExchangeStatus] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The status as one line."""
        windows = sum(grouping.held for grouping in self.exchanges.values())
        lags = [(grouping.lag, grouping.watermark) for grouping in self.exchanges.values() if grouping.lag is not None]
        rates = [source.rows_per_second for source in self.sources.values() if source.rows_per_second is not None]
        parts = [_count(self.batches, "batch", "batches")]
        parts += [f"{self.batch_seconds:.2f} s"] if self.batch_seconds is not None else []
        parts += [f"{sum(rates):,.0f} rows/s"] if rates else []
        parts += [_count(windows, "window held", "windows held")] if self.exchanges else []
        parts += [_behind(*max(lags))] if lags else []
        parts += [records.line(label) for label, records in self.bad.items()]
        return " · ".join(parts)

    def __str__(self) -> str:
        took = "" if self.batch_seconds is None else f", the last in {self.batch_seconds:.2f} s"
        lines = [f"{self.state}, {_count(self.batches, 'batch', 'batches')}{took}"]
        if self.sources:
            rows = [
                [label, _instant(source.watermark), _number(source.rows), _number(source.rows_per_second)]
                for label, source in self.sources.items()
            ]
            lines += _table(["source", "watermark", "rows", "rows/s"], rows, right=2)
            lines += [_position(label, source) for label, source in self.sources.items() if source.offsets is not None]
        if self.exchanges:
            rows = [
                [
                    label,
                    _instant(grouping.watermark),
                    _instant(grouping.output_watermark),
                    "history" if _is_history(grouping.lag) else _rough(grouping.lag),
                    *map(_number, (grouping.held, grouping.late, grouping.refused)),
                ]
                for label, grouping in self.exchanges.items()
            ]
            lines += _table(["grouping", "watermark", "output", "lag", "held", "late", "refused"], rows, right=4)
        for label, grouping in self.exchanges.items():
            if grouping.waiting is not None:
                lines.append(
                    f"{label} has not fired {grouping.waiting.window} of {grouping.waiting.key}: {grouping.waiting.why}"
                )
        lines += [f"{label} had {records}" for label, records in self.bad.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__


class LiveDisplay:
    """Shows the status of a handle at a prompt, and in a notebook, where it is kept up to date while the run lasts."""

    def status(self) -> Status:
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> Status:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.status()}>"

    def _repr_html_(self) -> str:
        return html_text(str(self.status()))

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display  # a notebook has it

        shown = display(HTML(self._repr_html_()), display_id=True)
        thread = threading.Thread(target=self._keep_shown, args=(lambda html: shown.update(HTML(html)),), daemon=True)
        thread.start()

    def _keep_shown(self, update: Callable[[str], None]) -> None:
        """Updates what is shown every second, and a last time at the end."""
        state: State = "running"
        while state == "running":
            try:
                state = self.wait(_UPDATE).state
            except Exception:  # it failed, as its status says; whoever waits for it gets the error
                state = "failed"
            update(self._repr_html_())


def _position(label: str, source: SourceStatus) -> str:
    at = ", ".join(f"{partition}/{offset}" for partition, offset in (source.offsets or {}).items())
    return f"{label} has read to {at}: {_count(source.lag or 0, 'record', 'records')} behind"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int) -> list[str]:
    """Formats rows as aligned columns, the last `right` of them to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    left = len(heads) - right
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _instant(time: int | None) -> str:
    return "?" if time is None else format_instant(time if abs(time) >= MAX_TIME else time // 1000 * 1000)


def _is_history(lag: int | None) -> bool:
    """Returns whether a watermark that is so far behind the clock is that of old data, and not of a slow stream."""
    return lag is not None and lag >= HISTORY


def _behind(lag: int, watermark: int) -> str:
    """Says how far a stream is.

    >>> _behind(3 * SECOND, 0), _behind(400 * HISTORY, 1767225600 * SECOND)
    ('3 s behind', 'at 2026-01-01, reading history')
    """
    return f"at {_instant(watermark)[:10]}, reading history" if _is_history(lag) else f"{_rough(lag)} behind"


def _rough(duration: int | None) -> str:
    """Formats a duration: a few seconds to the tenth, more to the second."""
    if duration is None:
        return "-"
    unit = SECOND // 10 if abs(duration) < 10 * SECOND else SECOND
    return format_duration(duration // unit * unit)


def _number(number: float | None) -> str:
    return "?" if number is None else f"{number:,.0f}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
