"""Serializes Arrow data to bytes, for cells and rows in flight."""

from __future__ import annotations

import pyarrow as pa


def arrow_bytes(
    data: pa.RecordBatch | pa.Table,
    metadata: dict[bytes, str] | None = None,
    options: pa.ipc.IpcWriteOptions | None = None,
) -> bytes:
    """Serializes the data as an Arrow stream, whose schema carries the metadata.

    >>> reader = pa.ipc.open_stream(arrow_bytes(pa.record_batch({"x": [1, 2]}), {b"kind": "numbers"}))
    >>> reader.schema.metadata, reader.read_all().to_pydict()
    ({b'kind': b'numbers'}, {'x': [1, 2]})
    """
    data = data if metadata is None else data.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema, options=options) as writer:
        writer.write(data)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
