"""The tuples that arrived at a task in a batch: their rows, and their ids and roots as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.tuples import Ids, Origin
from headrace.dialects.storm.task.router import MORE, ROOT, Header, roots_of
from headrace.dialects.storm.task.tuplecolumns import decode_column
from headrace.dialects.storm.task.tupleids import tuple_ids


@dataclass(frozen=True)
class Incoming:
    """Tuples by source, in an order that does not depend on the order in which batches arrived.

    Rows are numbered from `first` on. `ids`, `roots` and `more` (further roots, by row) are those of all rows.
    `received` has the number of tuples of each component and stream.

    >>> header = Header("words", 0, 0, "default")
    >>> batch = pa.record_batch({"word": ["a", "b"]}).replace_schema_metadata(header.metadata())
    >>> incoming = Incoming.of([batch], first=0)
    >>> [(origin.source, list(rows)) for origin, rows in incoming.sources], incoming.received
    ([('words', [('a',), ('b',)])], {'words default': 2})
    """

    first: int
    count: int
    sources: list[tuple[Origin, Iterable[tuple[Any, ...]]]]
    ids: Ids
    roots: Ids
    more: dict[int, tuple[int, ...]]
    received: dict[str, int]

    def common_origin(self) -> Origin:
        """Makes an origin for all rows, which knows their trees and not their values."""
        return Origin("", "", -1, (), first=self.first, ids=self.ids, roots=self.roots, more=self.more)

    @staticmethod
    def of(batches: Iterable[pa.RecordBatch], first: int) -> Incoming:
        """Reads batches that were sent to a task; the first row gets the number `first`."""
        ordered = sorted(((Header.of(batch), batch) for batch in batches), key=lambda pair: pair[0])
        row = first
        sources: list[tuple[Origin, Iterable[tuple[Any, ...]]]] = []
        ids, roots = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
        more: dict[int, tuple[int, ...]] = {}
        received: dict[str, int] = {}
        for header, batch in ordered:
            fields = [field for field in batch.schema if field.name not in (ROOT, MORE)]
            values = [decode_column(field, batch.column(field.name)) for field in fields]
            origin = Origin(header.source, header.stream, header.task, tuple(f.name for f in fields), first=row)
            if header.ids is not None:
                origin.ids, origin.roots = tuple_ids(*header.ids, batch.num_rows), roots_of(batch)
                origin.more = _further_roots(batch, row)
                more |= origin.more
                ids.append(origin.ids)
                roots.append(origin.roots)
            sources.append((origin, zip(*values, strict=True)))
            row += batch.num_rows
            stream = f"{header.source} {header.stream}"  # no component's id has a space
            received[stream] = received.get(stream, 0) + batch.num_rows
        return Incoming(first, row - first, sources, np.concatenate(ids), np.concatenate(roots), more, received)


def _further_roots(batch: pa.RecordBatch, first: int) -> dict[int, tuple[int, ...]]:
    if MORE not in batch.schema.names:
        return {}
    further = batch.column(MORE).to_pylist()
    return {row: tuple(roots) for row, roots in enumerate(further, first) if roots}
