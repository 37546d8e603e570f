"""Decodes records of Kafka whose schemas are in a registry, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.edges.registryvalues import RegistryDecoder
from headrace.engine.catalyst.parsing import FLAW, RAW
from headrace.engine.worker.blame import blame
from headrace.model.pipeline import Node
from headrace.model.topics import ReadTopic

_FLAW_TYPE = pa.struct([("reason", pa.string()), ("message", pa.string())])


@dataclass(frozen=True)
class DecodedRecords:
    """Adds the columns of records, and FLAW, to batches with the column RAW; callable by mapInArrow."""

    label: str
    decoder: RegistryDecoder

    @classmethod
    def of(cls, node: Node, columns: pa.Schema) -> DecodedRecords:
        """Returns how the records of a source are decoded."""
        source = node.transform
        assert isinstance(source, ReadTopic) and source.registry is not None and source.format is not None
        return cls(
            node.label, RegistryDecoder(str(node), source.registry, source.format, columns, source.reader_schema)
        )

    def frame(self, data: DataFrame) -> DataFrame:
        """Returns the frame with what is added. Any column may be null, since those of bad records are."""
        columns = [column.with_nullable(True) for column in self.decoder.columns]
        added = from_arrow_schema(pa.schema([*columns, (FLAW, _FLAW_TYPE)]))
        return data.mapInArrow(self, StructType([*data.schema, *added]))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with blame(self.label):
                columns, flaws = self.decoder.decode(batch.column(RAW).to_pylist())
            wrong = [None if flaw is None else dict(zip(("reason", "message"), flaw, strict=True)) for flaw in flaws]
            names = [*batch.schema.names, *self.decoder.columns.names, FLAW]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns, pa.array(wrong, _FLAW_TYPE)], names=names)
