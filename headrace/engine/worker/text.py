"""Writes elements as lines of text, for sinks of text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.engine.worker.addedcolumns import AddedColumns
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BufferedOutput, Bundle
from headrace.model.panes import OP
from headrace.model.pipeline import PCollection
from headrace.model.sinks import WriteFiles, WriteText

TEXT_SCHEMA = pa.schema([("value", pa.string())])


@dataclass
class ToText(BufferedOutput):
    """Writes each element as one line."""

    label: str
    line_of: Callable[[Any], str]
    placed_line_of: Callable[[Any, dict[str, Any]], str]  # of an element and the columns that are added to it
    added: AddedColumns | None = None

    def schema(self) -> pa.Schema:
        return TEXT_SCHEMA

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            lines = pa.array(self._lines(elements, bundle), pa.string())
        return pa.record_batch([lines], schema=TEXT_SCHEMA)

    def _lines(self, elements: Iterator[Any], bundle: Bundle) -> Iterator[str]:
        if self.added is None:
            return map(self.line_of, elements)
        names = self.added.names
        places = (dict(zip(names, values, strict=True)) for values in self.added.texts(bundle))
        return map(self.placed_line_of, elements, places)


def text_of(label: str, sink: WriteFiles, pc: PCollection, added: AddedColumns | None) -> ToText | None:
    """Makes the output that writes elements as lines; None where Spark writes their columns as they are."""
    if isinstance(sink, WriteText):
        return None if pc.element_type is str and added is None else ToText(label, str, _placed_text, added)
    return None if pc.has_columns else ToText(label, json.dumps, _placed_json, added)


def _placed_text(element: Any, place: dict[str, Any]) -> str:
    return "\t".join(map(str, (*place.values(), element)))


def _placed_json(element: Any, place: dict[str, Any]) -> str:
    own = element if isinstance(element, dict) else {"value": element}
    if OP in place and OP in own:
        raise ValueError(f"it has a field {OP!r}, which marks retractions in files; rename it")
    return json.dumps({**own, **{name: value for name, value in place.items() if name not in own}})
