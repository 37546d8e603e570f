"""Lists of objects as rows of Arrow batches: a name, and a pickle of the whole list."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from headrace.model.pickling import dumps

_LISTS: Final = pa.schema([("name", pa.string()), ("objects", pa.binary())])


def pack_list(name: str, objects: list[Any]) -> pa.RecordBatch:
    """Packs a list as a batch of one row.

    >>> list(unpack_lists(pack_list("edges", [((1, 2), 1)])))
    [('edges', [((1, 2), 1)])]
    """
    return pa.record_batch([[name], [dumps(objects)]], schema=_LISTS)


def unpack_lists(batch: pa.RecordBatch) -> Iterator[tuple[str, list[Any]]]:
    """Unpacks what `pack_list` packed, also where such batches were put together: names and lists."""
    for name, objects in zip(batch.column("name").to_pylist(), batch.column("objects").to_pylist(), strict=True):
        yield name, pickle.loads(objects)
