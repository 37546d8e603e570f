"""Writes elements as lines of text, for sinks of text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BufferedOutput, Bundle
from headrace.model.pipeline import PCollection
from headrace.model.sinks import WriteFiles, WriteText

TEXT_SCHEMA = pa.schema([("value", pa.string())])


@dataclass
class ToText(BufferedOutput):
    """Writes each element as one line."""

    label: str
    line_of: Callable[[Any], str]

    def schema(self) -> pa.Schema:
        return TEXT_SCHEMA

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            lines = pa.array(map(self.line_of, elements), pa.string())
        return pa.record_batch([lines], schema=TEXT_SCHEMA)


def text_of(label: str, sink: WriteFiles, pc: PCollection) -> ToText | None:
    """Makes the output that writes elements as lines; None where Spark writes their columns as they are."""
    if isinstance(sink, WriteText):
        return None if pc.element_type is str else ToText(label, str)
    return None if pc.has_columns else ToText(label, json.dumps)
