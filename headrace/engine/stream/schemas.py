"""Columns of a stream's collections that only Spark knows: those of a source, and of transforms of it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.engine.catalyst import relational
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.columnjoins import Join
from headrace.model.columns import Aggregate, Columnwise, TopRows
from headrace.model.pipeline import Graph, Node, PCollection


class CollectionColumns:
    """The columns of collections of Rows."""

    def __init__(self, spark: SparkSession, graph: Graph, table_of: Callable[[Node], DataFrame | None]) -> None:
        self.spark, self.graph, self._table_of = spark, graph, table_of
        self._frames: dict[int, DataFrame] = {}

    def opened(self, source: Node, open: Callable[[Node], DataFrame]) -> DataFrame:
        """Returns the frame of a source, which is opened once."""
        pc = source.outputs[0]
        if id(pc) not in self._frames:
            self._frames[id(pc)] = open(source)
        return self._frames[id(pc)]

    def forget(self) -> None:
        """Forgets all frames: sources are to be opened in another way."""
        self._frames.clear()

    def note(self, pc: PCollection, data: DataFrame) -> None:
        """Notes the frame of a collection."""
        self._frames[id(pc)] = data

    def of(self, pc: PCollection) -> pa.Schema:
        """Returns the columns of a collection."""
        if id(pc) in self._frames:
            return to_arrow_schema(self._frames[id(pc)].drop(*relational.HIDDEN).schema, timezone="UTC")
        if pc.schema is not None:
            return pa.schema(list(zip(pc.schema.names, pc.schema.types, strict=True)))
        node = self.graph.producer(pc)
        if isinstance(join := node.transform, Join) and not join.with_table(node.inputs[1]):
            return join.schema(*map(self.of, node.inputs))
        return self._transformed(node) if isinstance(node.transform, Columnwise) else self.of(node.inputs[0])

    def known(self, pc: PCollection) -> pa.Schema | None:
        """Returns the columns of a collection; None if its elements are Python objects."""
        return self.of(pc) if pc.has_columns else None

    def check_aggregates(self) -> None:
        """Refuses aggregations of columns that do not exist, and orders by such columns."""
        for node in self.graph:
            if isinstance(node.transform, Aggregate | TopRows):
                self._transformed(node)

    def _transformed(self, node: Node) -> pa.Schema:
        """Returns the columns that a batch of no rows would have."""
        hidden = [(name, pa.int64()) for name in (TIME, START, END)]
        columns = pa.schema([*self.of(node.inputs[0]), *hidden])
        nothing = self.spark.createDataFrame([], from_arrow_schema(columns))
        schema = relational.apply(node, nothing, self._table_of(node)).drop(*relational.HIDDEN).schema
        return to_arrow_schema(schema, timezone="UTC")
