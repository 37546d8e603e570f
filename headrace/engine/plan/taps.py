"""Taps of sources: a source is opened once, and its frame has every collection that is read of it, and its clocks.

One collection is plain columns. Where there are several, each is a struct column, null in rows that are no elements of
it. Rows that only a condition dropped still move the watermark of the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.engine.plan.translation import operator, step_of
from headrace.engine.worker.hidden import END, START
from headrace.engine.worker.program import Readers
from headrace.model.columnjoins import Join
from headrace.model.columns import Select, Where
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.windows import CountWindows, FixedWindows, GlobalWindows, SlidingWindows

_GENERATOR = re.compile(r"\b(\w*explode(_outer)?|inline(_outer)?|stack|json_tuple)\s*\(", re.IGNORECASE)

_WINDOW = re.compile(rf"\b({START}|{END})\b")


@dataclass(eq=False)
class Reading:
    """A collection that enters Python: transforms of its source's columns that Catalyst does, and its readers."""

    columns: tuple[Node, ...]
    pc: PCollection
    readers: Readers = field(default_factory=Readers)

    def row_producer(self, source: Node) -> Node | None:
        """Returns the node that gives as many elements as there are rows: the source, or a transform before windows."""
        nodes = [source, *self.columns]
        while isinstance(window := nodes[-1].transform, WindowInto):
            if isinstance(window.windowing.window, SlidingWindows):  # rows are of a window each
                return None
            nodes.pop()
        return nodes[-1]


@dataclass(eq=False)
class Tap:
    """A source, and the collections that are read of it."""

    name: str
    source: Node
    readings: list[Reading] = field(default_factory=list)
    dead: Readers = field(default_factory=Readers)  # of bad records
    level: ClassVar[int] = 0  # there is no exchange before it

    def names(self) -> tuple[str, ...]:
        """Returns the names of those whose watermarks it sends on."""
        return (self.name,)

    @property
    def sees_all(self) -> bool:
        """Whether all rows of the source come to it: explode has none for those that are no elements."""
        return all(shareable(reading.columns) for reading in self.readings)


def with_windows_last(columns: tuple[Node, ...]) -> tuple[Node, ...]:
    """Returns column transforms in an order in which windows come last, but before those that read their bounds."""
    ordered: list[Node] = []
    for node in columns:
        at = len(ordered)
        if not _is_window(node) and not any(_WINDOW.search(text) for text in _expressions(node)):
            while at and _is_window(ordered[at - 1]):
                at -= 1
        ordered.insert(at, node)
    return tuple(ordered)


def shareable(columns: tuple[Node, ...]) -> bool:
    """Returns whether others can be read of the same frame: no rows are repeated but for windows Python can assign."""
    windows = columns[_repeating(columns) :]
    return all(isinstance(node.transform, WindowInto) and not _by_key(node.transform) for node in windows)


def with_windows_in_python(reading: Reading) -> Reading:
    """Returns the reading with windows that would repeat rows assigned in Python."""
    at = _repeating(reading.columns)
    readers = reading.readers
    for node in reversed(reading.columns[at:]):
        step = step_of(node, operator(node))
        step.readers[None] = readers
        readers = Readers([step])
    pc = reading.pc if at == len(reading.columns) else _with_columns_after(reading.columns[:at], reading.columns[at])
    return Reading(reading.columns[:at], pc, readers)


def generates_rows(node: Node) -> bool:
    """Returns whether a Select may make several rows of one, as explode does."""
    return isinstance(node.transform, Select) and any(_GENERATOR.search(text) for text in _expressions(node))


def _with_columns_after(columns: tuple[Node, ...], window: Node) -> PCollection:
    """Returns a collection that has the columns that these transforms give; if they give none, those of a window."""
    others = [node.outputs[0] for node in columns if not _is_window(node)]
    return others[-1] if others else window.inputs[0]


def _is_window(node: Node) -> bool:
    return isinstance(node.transform, WindowInto)


def _expressions(node: Node) -> list[str]:
    """Returns the text of the expressions of a Select or Where."""
    match node.transform:
        case Where(condition=condition):
            return [str(condition)]
        case Select(columns=columns, named=named):
            return [str(each) for each in (*columns, *named.values())]
    return []


def _repeating(columns: tuple[Node, ...]) -> int:
    """Returns the first that may repeat rows: windows that are no expression of a row's time, explode, or a join."""
    for number, node in enumerate(columns):
        transform = node.transform
        window = transform.windowing.window if isinstance(transform, WindowInto) else None
        repeats = generates_rows(node) or isinstance(transform, Join)
        if repeats or not isinstance(window, FixedWindows | GlobalWindows | None):
            return number
    return len(columns)


def _by_key(transform: WindowInto) -> bool:
    window = transform.windowing.window
    return window.keyed and not isinstance(window, CountWindows)
