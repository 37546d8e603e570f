"""Taps: a source is opened once, and its frame holds, beside the clocks, every collection that is read of it.

One collection is plain columns. Where there are several, each is a struct column, null in rows that are no elements of
it. Rows that only a condition dropped still tell how far the source has come.
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
    """A collection that enters Python: transforms of its source's columns that Catalyst does, and who reads it."""

    columns: tuple[Node, ...]
    pc: PCollection
    readers: Readers = field(default_factory=Readers)

    def given_by(self, source: Node) -> Node | None:
        """What gives as many elements as there are rows: its source, or a transform of the columns, before windows."""
        nodes = [source, *self.columns]
        while isinstance(window := nodes[-1].transform, WindowInto):
            if isinstance(window.windowing.window, SlidingWindows):  # rows are of a window each
                return None
            nodes.pop()
        return nodes[-1]


@dataclass(eq=False)
class Tap:
    """Where elements enter: a source, and all that is read of it."""

    name: str
    source: Node
    readings: list[Reading] = field(default_factory=list)
    dead: Readers = field(default_factory=Readers)  # of bad records
    level: ClassVar[int] = 0  # there is no exchange before it

    def names(self) -> tuple[str, ...]:
        """Those whose watermarks it sends on."""
        return (self.name,)

    @property
    def sees_all(self) -> bool:
        """Whether all rows of the source come to it: explode has none for those that are no elements."""
        return all(shareable(reading.columns) for reading in self.readings)


def shareable(columns: tuple[Node, ...]) -> bool:
    """Whether others can be read beside it: Catalyst repeats no rows, or only for windows that Python can assign."""
    windows = columns[_repeating(columns) :]
    return all(isinstance(node.transform, WindowInto) and not _by_key(node.transform) for node in windows)


def separated(reading: Reading) -> Reading:
    """The reading, but windows that would repeat rows are assigned in Python."""
    at = _repeating(reading.columns)
    readers = reading.readers
    for node in reversed(reading.columns[at:]):
        step = step_of(node, operator(node))
        step.readers[None] = readers
        readers = Readers([step])
    pc = reading.pc if at == len(reading.columns) else reading.columns[at].inputs[0]
    return Reading(reading.columns[:at], pc, readers)


def generates_rows(node: Node) -> bool:
    """Whether a Select may make several rows of one, as explode does."""
    select = node.transform
    expressions = (*select.columns, *select.named.values()) if isinstance(select, Select) else ()
    return any(_GENERATOR.search(str(each)) for each in expressions)


def _repeating(columns: tuple[Node, ...]) -> int:
    """The first that may make several rows of one: windows that are no plain expression of a row's time, or explode."""
    for number, node in enumerate(columns):
        transform = node.transform
        window = transform.windowing.window if isinstance(transform, WindowInto) else None
        if generates_rows(node) or not isinstance(window, FixedWindows | GlobalWindows | None):
            return number
    return len(columns)


def _by_key(transform: WindowInto) -> bool:
    window = transform.windowing.window
    return window.keyed and not isinstance(window, CountWindows)
