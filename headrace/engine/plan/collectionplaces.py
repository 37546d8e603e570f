"""The places of a graph's collections in the line of a stream: in columns, in Python, or in both.

A collection enters Python when it is first read there: at the tap of its source, or behind a segment of columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.engine.plan.columnsegments import segment
from headrace.engine.plan.line import Exchange, Line, Origins
from headrace.engine.plan.taps import Tap, reading_of, shareable, with_windows_last
from headrace.engine.shard.wire import Station
from headrace.engine.worker.program import Readers
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.windows import FixedWindows, GlobalWindows


@dataclass(frozen=True)
class ColumnChain:
    """Column transforms that Catalyst does, since a source was opened or a collection was in Python last."""

    start: Node | PCollection
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True)
class PythonPlace:
    """The place of a collection in Python: who reads its elements, their origins, and their station."""

    readers: Readers
    origins: Origins
    station: Station


@dataclass
class CollectionPlace:
    """The place of a collection: in columns, in Python, or in both. Dead letters are in neither until read."""

    columns: ColumnChain | None = None
    python: PythonPlace | None = None
    dead_letters_of: Node | None = None


class CollectionPlaces:
    """Notes the places of collections, and adds taps and segments to the line where collections enter Python."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._by_id: dict[int, CollectionPlace] = {}

    def add_source(self, node: Node) -> None:
        """Notes the collections of a source: its elements, which are columns, and perhaps dead letters."""
        pc, *letters = node.outputs
        self._by_id[id(pc)] = CollectionPlace(ColumnChain(node))
        self._by_id |= {id(dead): CollectionPlace(dead_letters_of=node) for dead in letters}

    def add_columns(self, node: Node) -> bool:
        """Notes that Catalyst does a node on the columns of its input; False if it cannot go on with those."""
        chain = self._chain(node)
        if chain is not None:
            self._by_id[id(node.outputs[0])] = CollectionPlace(replace(chain, nodes=(*chain.nodes, node)))
        return chain is not None

    def begin_columns(self, node: Node) -> None:
        """Notes that Catalyst does a node on columns that Python lays out for it."""
        self.enter(node.inputs[0])
        self._by_id[id(node.outputs[0])] = CollectionPlace(ColumnChain(node.inputs[0], (node,)))

    def in_columns(self, pc: PCollection) -> bool:
        """Returns whether a collection is columns where it enters Python."""
        return pc.has_columns and self._by_id[id(pc)].columns is not None

    def add(self, pc: PCollection, place: PythonPlace) -> None:
        """Notes the place of a collection that a function or an exchange gives."""
        self._by_id[id(pc)] = CollectionPlace(python=place)

    def enter(self, pc: PCollection) -> PythonPlace:
        """Returns the place of a collection in Python, which it enters here if it has not yet."""
        place = self._by_id[id(pc)]
        if place.python is None and place.dead_letters_of is not None:
            tap = self.tap(place.dead_letters_of, ())
            place.python = PythonPlace(tap.dead, (tap,), (0, 0))
        elif place.python is None:
            assert place.columns is not None, pc
            start, nodes = place.columns.start, place.columns.nodes
            if isinstance(start, Node):
                nodes = with_windows_last(nodes)
                tap, reading = self.tap(start, nodes), reading_of(nodes, pc)
                tap.readings.append(reading)
                place.python = PythonPlace(reading.readers, (tap,), (0, 0))
            else:
                place.python = self._segment(start, nodes)
        return place.python

    def _origins(self, pc: PCollection) -> Origins:
        """Returns the origins of a collection, as far as they are exchanges, or taps that it reads already."""
        place = self._by_id[id(pc)]
        if place.python is not None:
            return place.python.origins
        chain = place.columns
        return () if chain is None or isinstance(chain.start, Node) else self._origins(chain.start)

    def may_retract(self, pc: PCollection) -> bool:
        """Returns whether some elements of a collection take earlier ones back."""
        return any(isinstance(origin, Exchange) and origin.work.retracts for origin in self._origins(pc))

    def tap(self, source: Node, columns: tuple[Node, ...]) -> Tap:
        """Returns the tap that a source's columns can be read from; there is one, unless they repeat its rows."""
        taps = [tap for tap in self.line.taps if tap.source is source]
        for tap in taps:
            if all(map(shareable, [columns, *(reading.columns for reading in tap.readings)])):
                return tap
        tap = Tap(f"{source.label} ({len(taps) + 1})" if taps else source.label, source)
        self.line.taps.append(tap)
        return tap

    def _chain(self, node: Node) -> ColumnChain | None:
        """Returns the columns of what a node reads, if Catalyst can go on with them."""
        pc = node.inputs[0]  # a join's other input is a table
        chain = self._by_id[id(pc)].columns
        if chain is None or not pc.has_columns:
            return None
        # Other windows may be several of one row, which would repeat the rows that pass beside it.
        windows = node.transform.windowing.window if isinstance(node.transform, WindowInto) else None
        if isinstance(chain.start, Node) or windows is None or isinstance(windows, FixedWindows | GlobalWindows):
            return chain
        return None

    def _segment(self, start: PCollection, nodes: tuple[Node, ...]) -> PythonPlace:
        before = self.enter(start)
        level, hop = before.station
        made = segment(len(self.line.segments), (level, hop + 1), nodes)
        self.line.segments.append(made)
        self.line.add_output(before.readers, made.output)
        return PythonPlace(made.readers, before.origins, made.station)


def all_origins(places: Iterable[PythonPlace]) -> Origins:
    """Returns the origins of several collections, each once."""
    return tuple({id(origin): origin for place in places for origin in place.origins}.values())
