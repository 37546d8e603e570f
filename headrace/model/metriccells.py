"""The values of metrics that functions record while they run: cells by transform and name, and how cells merge.

A run collects cells where functions are called, once a task, and merges those that count; `metrics` is what users call.
"""

from __future__ import annotations

import pickle
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Any, Final, Protocol, Self, runtime_checkable

from headrace.model.errors import PipelineError
from headrace.model.pickling import dumps
from headrace.model.times import now


@dataclass(frozen=True, slots=True)
class DistributionResult:
    """The numbers that a distribution was given: how many, their sum, the least and the greatest.

    >>> sizes = DistributionResult(count=3, sum=12, min=2, max=7)
    >>> sizes.mean
    4.0
    """

    count: int
    sum: float
    min: float
    max: float

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return self.sum / self.count


@dataclass(frozen=True, slots=True, order=True)
class GaugeResult:
    """The latest number of a gauge, and when it was set, in microseconds since the epoch."""

    time: int
    value: float


@runtime_checkable
class MergedCell(Protocol):
    """A cell of a dialect's own metrics, which knows itself how two of them merge."""

    def merged(self, other: Self) -> Self: ...


Cell = int | DistributionResult | GaugeResult | MergedCell
"""The value of one metric: that of a counter is an int."""
Cells = dict[tuple[str, str], Cell]
"""The values of metrics by the label of the transform that recorded them, and name."""

_KINDS: Final[dict[type, str]] = {int: "counter", DistributionResult: "distribution", GaugeResult: "gauge"}
_OF_DIALECT: Final = "dialect's"


def merge_cells(into: Cells, more: Mapping[tuple[str, str], Cell]) -> Cells:
    """Adds cells to others: counts and sums add up, of gauges the one that was set last stays. Returns the first.

    >>> merge_cells({("parse", "bad"): 2}, {("parse", "bad"): 1, ("parse", "size"): DistributionResult(1, 5, 5, 5)})
    {('parse', 'bad'): 3, ('parse', 'size'): DistributionResult(count=1, sum=5, min=5, max=5)}
    """
    for place, cell in more.items():
        into[place] = _merged(place, into[place], cell) if place in into else cell
    return into


def _merged(place: tuple[str, str], one: Cell, other: Cell) -> Cell:
    if isinstance(one, DistributionResult) and isinstance(other, DistributionResult):
        least, most = min(one.min, other.min), max(one.max, other.max)
        return DistributionResult(one.count + other.count, one.sum + other.sum, least, most)
    if isinstance(one, GaugeResult) and isinstance(other, GaugeResult):
        return max(one, other)
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, MergedCell) and type(one) is type(other):
        return one.merged(other)
    label, name = place
    kinds = " and a ".join(sorted({_KINDS[type(one)], _KINDS[type(other)]}))
    raise PipelineError(f"metric {name!r} of {label!r} is a {kinds}; a metric is of one kind: use another name")


def dump_cells(cells: Mapping[tuple[str, str], Cell]) -> list[list[Any]]:
    """Returns cells as JSON has them.

    >>> dump_cells({("parse", "bad"): 2, ("parse", "size"): DistributionResult(1, 5, 5, 5)})
    [['parse', 'bad', 'counter', 2], ['parse', 'size', 'distribution', 1, 5, 5, 5]]
    """
    return [[*place, *_dumped(cell)] for place, cell in cells.items()]


def _dumped(cell: Cell) -> list[Any]:
    if isinstance(cell, int):
        return [_KINDS[int], cell]
    if isinstance(cell, DistributionResult | GaugeResult):
        return [_KINDS[type(cell)], *astuple(cell)]
    return [_OF_DIALECT, b64encode(dumps(cell)).decode()]


def load_cells(dumped: Iterable[list[Any]]) -> Cells:
    """Reads what `dump_cells` returned.

    >>> load_cells([["parse", "load", "gauge", 99, 0.5]])
    {('parse', 'load'): GaugeResult(time=99, value=0.5)}
    """
    kinds: dict[str, Callable[..., Cell]] = {kind: type_ for type_, kind in _KINDS.items()}
    kinds[_OF_DIALECT] = lambda text: pickle.loads(b64decode(text))
    return {(label, name): kinds[kind](*numbers) for label, name, kind, *numbers in dumped}


def results_of(cells: Mapping[tuple[str, str], Cell]) -> dict[str, dict[str, Any]]:
    """Returns the values of metrics as `Handle.metrics()` has them: by label and name, of gauges the number.

    >>> results_of({("parse", "bad"): 2, ("parse", "load"): GaugeResult(99, 0.5)})
    {'parse': {'bad': 2, 'load': 0.5}}
    """
    results: dict[str, dict[str, Any]] = {}
    for (label, name), cell in sorted(cells.items(), key=lambda item: item[0]):
        results.setdefault(label, {})[name] = cell.value if isinstance(cell, GaugeResult) else cell
    return results


@dataclass
class Recorder:
    """Takes what functions record, for the transform whose `label` is set: the one whose function is being called."""

    label: str = ""
    cells: Cells = field(default_factory=dict)
    clock: Callable[[], int] = now

    def record(self, name: str, cell: Cell) -> None:
        """Adds a value to the metric of that name of the current transform."""
        place = (self.label, name)
        before = self.cells.get(place)
        self.cells[place] = cell if before is None else _merged(place, before, cell)


_recorders: Final[dict[int | None, Recorder]] = {}
"""The recorder of each thread that calls functions, and at None that of all threads of this process."""


def current_recorder() -> Recorder | None:
    """Returns the recorder of what this thread runs; None if it runs no pipeline's function."""
    if not _recorders:
        return None
    return _recorders.get(threading.get_ident()) or _recorders.get(None)


@contextmanager
def recording(*, all_threads: bool = False) -> Iterator[Recorder]:
    """Records what functions record in this block; with `all_threads`, also in threads that they start.

    A worker runs one task at a time, so the block there is of the whole process; a driver runs several pipelines.
    """
    thread = None if all_threads else threading.get_ident()
    before, recorder = _recorders.pop(thread, None), Recorder()
    _recorders[thread] = recorder
    try:
        yield recorder
    finally:
        if before is None:
            _recorders.pop(thread, None)
        else:
            _recorders[thread] = before
