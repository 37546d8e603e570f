"""Taps of sources: a source is opened once, and its frame has every collection that is read of it, and its clocks.

One collection is plain columns. Where there are several, each is a struct column, null in rows that are no elements of
it. Rows that only a condition dropped still move the watermark of the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.engine.worker.hidden import END, START
from headrace.engine.worker.operators import WindowOperator
from headrace.engine.worker.program import Readers
from headrace.model.columnjoins import Join
from headrace.model.columns import Select, Where
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.windows import CountWindows, FixedWindows, GlobalWindows, WindowFn

_GENERATOR = re.compile(r"\b(\w*explode(_outer)?|inline(_outer)?|stack|json_tuple)\s*\(", re.IGNORECASE)

_WINDOW = re.compile(rf"\b({START}|{END})\b")


@dataclass(eq=False)
class Reading:
    """A collection that enters Python: transforms of its source's columns that Catalyst does, and its readers.

    Its `windows` are those that Python assigns, to whole columns.
    """

    columns: tuple[Node, ...]
    pc: PCollection
    windows: tuple[Node, ...] = ()
    readers: Readers = field(default_factory=Readers)

    def row_producer(self, source: Node) -> Node:
        """Returns the node that gives as many elements as rows enter Python: the last before its windows."""
        return [source, *self.columns][-1]

    def window_operators(self) -> tuple[WindowOperator, ...]:
        """Returns the operators of its windows."""
        return tuple(WindowOperator(node.label, _window_of(node)) for node in self.windows)


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
    return all(_is_window(node) and not _by_key(node) for node in windows)


def reading_of(columns: tuple[Node, ...], pc: PCollection) -> Reading:
    """Makes the reading of a collection: windows that no other transform reads are Python's, if they need no key."""
    at = len(columns)
    while at and _is_window(columns[at - 1]) and not _by_key(columns[at - 1]):
        at -= 1
    return Reading(columns[:at], pc, columns[at:])


def generates_rows(node: Node) -> bool:
    """Returns whether a Select may make several rows of one, as explode does."""
    return isinstance(node.transform, Select) and any(_GENERATOR.search(text) for text in _expressions(node))


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
        if generates_rows(node) or isinstance(node.transform, Join):
            return number
        if _is_window(node) and not isinstance(_window_of(node), FixedWindows | GlobalWindows):
            return number
    return len(columns)


def _window_of(node: Node) -> WindowFn:
    assert isinstance(node.transform, WindowInto)
    return node.transform.windowing.window


def _by_key(node: Node) -> bool:
    window = _window_of(node)
    return window.keyed and not isinstance(window, CountWindows)
