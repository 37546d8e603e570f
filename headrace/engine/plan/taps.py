"""Taps of sources: a source is opened once, and its frame has every collection that is read of it, and its clocks.

One collection is plain columns. Where there are several, each is a struct column, null in rows that are no elements of
it. Rows that only a condition dropped still move the watermark of the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.engine.plan.translation import operator, step_of
from headrace.engine.worker.program import Readers
from headrace.model.columns import Select
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.windows import CountWindows, FixedWindows, GlobalWindows, SlidingWindows

_GENERATOR = re.compile(r"\b(\w*explode(_outer)?|inline(_outer)?|stack|json_tuple)\s*\(", re.IGNORECASE)


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
    pc = reading.pc if at == len(reading.columns) else reading.columns[at].inputs[0]
    return Reading(reading.columns[:at], pc, readers)


def generates_rows(node: Node) -> bool:
    """Returns whether a Select may make several rows of one, as explode does."""
    select = node.transform
    expressions = (*select.columns, *select.named.values()) if isinstance(select, Select) else ()
    return any(_GENERATOR.search(str(expression)) for expression in expressions)


def _repeating(columns: tuple[Node, ...]) -> int:
    """Returns the first that may repeat rows: windows that are no expression of a row's time, or explode."""
    for number, node in enumerate(columns):
        transform = node.transform
        window = transform.windowing.window if isinstance(transform, WindowInto) else None
        if generates_rows(node) or not isinstance(window, FixedWindows | GlobalWindows | None):
            return number
    return len(columns)


def _by_key(transform: WindowInto) -> bool:
    window = transform.windowing.window
    return window.keyed and not isinstance(window, CountWindows)
