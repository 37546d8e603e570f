"""Decodes records of Kafka whose schemas are in a registry, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.edges.registryvalues import Flaw, RegistryDecoder
from headrace.engine.catalyst.parsing import FLAW, RAW
from headrace.engine.worker.blame import blame
from headrace.model.pipeline import Node
from headrace.model.topics import ReadTopic

RAW_KEY: Final = "__raw_key"
"""The column of keys that Python decodes."""
_FLAW_TYPE: Final = pa.struct([("reason", pa.string()), ("message", pa.string())])


@dataclass(frozen=True)
class DecodedRecords:
    """Adds the columns of records, and FLAW, to batches with RAW and RAW_KEY; callable by mapInArrow."""

    label: str
    decoder: RegistryDecoder
    key_decoder: RegistryDecoder | None = None

    @classmethod
    def of(cls, node: Node, columns: pa.Schema) -> DecodedRecords:
        """Returns how the records of a source are decoded."""
        source, who = node.transform, str(node)
        assert isinstance(source, ReadTopic) and source.registry is not None and source.format is not None
        values = pa.schema([column for column in columns if column.name != source.key])
        decoder = RegistryDecoder(who, source.registry, source.format, values, source.reader_schema)
        if source.key is None or source.key_format is None:
            return cls(node.label, decoder)
        key = pa.schema([columns.field(source.key)])
        return cls(node.label, decoder, RegistryDecoder(who, source.registry, source.key_format, key, part="key"))

    @property
    def columns(self) -> pa.Schema:
        """The columns that are added. Any may be null, since those of bad records are."""
        keys = [] if self.key_decoder is None else self.key_decoder.columns
        columns = [column.with_nullable(True) for column in (*keys, *self.decoder.columns)]
        return pa.schema([*columns, (FLAW, _FLAW_TYPE)])

    def frame(self, data: DataFrame) -> DataFrame:
        """Returns the frame with what is added."""
        return data.mapInArrow(self, StructType([*data.schema, *from_arrow_schema(self.columns)]))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys: list[pa.Array] = []
            with blame(self.label):
                columns, flaws = self.decoder.decode(batch.column(RAW).to_pylist())
                if self.key_decoder is not None:
                    keys, wrong_keys = self.key_decoder.decode(batch.column(RAW_KEY).to_pylist())
                    flaws = [flaw or _of_key(wrong) for flaw, wrong in zip(flaws, wrong_keys, strict=True)]
            wrong = [None if flaw is None else dict(zip(("reason", "message"), flaw, strict=True)) for flaw in flaws]
            arrays = [*batch.columns, *keys, *columns, pa.array(wrong, _FLAW_TYPE)]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *self.columns.names])


def _of_key(flaw: Flaw | None) -> Flaw | None:
    return None if flaw is None else (flaw[0], f"of its key: {flaw[1]}")
