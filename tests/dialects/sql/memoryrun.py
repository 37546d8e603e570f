"""Runs planned queries without Spark: groups by the engine's own processors, expressions by DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import sqlglot

import headrace as hr
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.toprows import TopRowsWork
from headrace.engine.worker.columnbundles import PANE_COLUMNS, RETRACTION, ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import WindowOperator
from headrace.model.columns import Aggregate, Select, TopRows, Where
from headrace.model.grouping import may_retract
from headrace.model.keyed import Flatten, WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.schema import row_type
from headrace.model.windows import CountWindows

HIDDEN = (TIME, START, END, RETRACTION)
_RESULTS = {
    "PartialFn": pa.binary(),
    "ApproxDistinctFn": pa.int64(),
    "VarianceOrNoneFn": pa.float64(),
    "CountFn": pa.int64(),
    "CountDistinctFn": pa.int64(),
    "MeanOrNoneFn": pa.float64(),
    "SumFn": pa.int64(),
}


def to_duckdb(text: str, **options: Any) -> str:
    """Spark's SQL as DuckDB's."""
    plain = re.sub(r"timestamp_micros\((\w+)\)", r"make_timestamp(\1)", text)
    return sqlglot.transpile(plain, read="spark", write="duckdb", **options)[0]


@cache
def duckdb_of_tests() -> duckdb.DuckDBPyConnection:
    """A database in memory; to open one for each test takes longer than the test."""
    return duckdb.connect()


@dataclass(frozen=True)
class Change:
    """A row that is added to a table, or taken back."""

    value: Any
    retraction: bool


@dataclass(frozen=True)
class Rows:
    """The rows of a collection in one step, with their hidden columns, and the windows that they are still to get."""

    table: pa.Table
    window: WindowOperator | None = None

    def placed(self) -> Rows:
        if self.window is None:
            return self
        (batch,) = self.table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], self.table.schema)]
        return Rows(pa.Table.from_batches([ColumnBundle(batch, None, window=self.window).placed().rows]))


class MemoryRun:
    """Runs a pipeline step by step: each has rows of its source, and a watermark."""

    def __init__(self, pipeline: hr.Pipeline, source: PCollection, outputs: dict[str, PCollection]) -> None:
        self.source, self.outputs, self.graph = source, outputs, pipeline.graph()
        line = lower(self.graph, shards=1, partitions=1)
        self.works: dict[str, Any] = {each.label: each.work for each in line.exchanges}
        self.senders = {each.rows.label: each.rows for each in line.outputs if hasattr(each, "rows")}
        self.processors: dict[str, Any] = {}
        self.database = duckdb_of_tests()

    def step(self, rows: pa.Table, watermark: int) -> dict[str, list[Change]]:
        """Takes rows of the source, moves the watermark, and returns the changes of each output."""
        rows = rows.append_column(RETRACTION, pa.array([False] * rows.num_rows, pa.bool_()))
        known: dict[PCollection, Rows] = {self.source: Rows(rows)}
        for node in self.graph:
            if len(node.outputs) == 1 and node.outputs[0] not in known and node.inputs:
                known[node.outputs[0]] = self._run(node, [known[each] for each in node.inputs], Clocks(watermark, 0))
        return {name: list(_changes(known[pc].placed().table)) for name, pc in self.outputs.items()}

    def restart(self) -> None:
        """Replaces all processors by new ones, which load their state."""
        for label, processor in self.processors.items():
            blocks = processor.dump()
            self.processors[label] = self.works[label].processor()
            self.processors[label].load(blocks)

    def _run(self, node: Node, inputs: list[Rows], clocks: Clocks) -> Rows:
        match node.transform:
            case Select() as select:
                texts = {**{str(each): str(each) for each in select.columns}, **select.named}
                return self._query(inputs[0], texts, None)
            case Where() as where:
                return self._query(inputs[0], None, where.condition)
            case WindowInto():
                return self._windowed(inputs[0], node.outputs[0])
            case Flatten():
                placed = [each.placed().table for each in inputs]
                return Rows(pa.concat_tables([each.cast(placed[0].schema) for each in placed]))
            case Aggregate() | TopRows():
                return self._exchange(node, inputs[0], clocks)
        raise AssertionError(node)

    def _query(self, rows: Rows, columns: dict[str, str] | None, condition: str | None) -> Rows:
        texts = [condition] if columns is None else list(columns.values())
        if any("__" in str(text) for text in texts):
            rows = rows.placed()
        hidden = [name for name in rows.table.column_names if name in HIDDEN]
        listed = (
            "*" if columns is None else ", ".join([*(f"{text} AS `{name}`" for name, text in columns.items()), *hidden])
        )
        self.database.register("input_rows", rows.table)
        text = f"SELECT {listed} FROM input_rows" + ("" if condition is None else f" WHERE {condition}")
        return replace(rows, table=self.database.execute(to_duckdb(text)).to_arrow_table())

    def _windowed(self, rows: Rows, pc: PCollection) -> Rows:
        table = rows.placed().table
        plain = table.drop_columns([name for name in (START, END) if name in table.column_names])
        window = pc.windowing.window
        if pc.windowing.is_global or isinstance(window, CountWindows):
            return Rows(plain)
        return Rows(plain, WindowOperator("windows", window))

    def _exchange(self, node: Node, rows: Rows, clocks: Clocks) -> Rows:
        names = [name for name in rows.table.column_names if name not in HIDDEN]
        schema = pa.schema([rows.table.schema.field(name) for name in names])
        if node.label not in self.processors:
            if isinstance(self.works[node.label], TopRowsWork):
                self.works[node.label] = self.works[node.label].bind(schema)
                self.senders[node.label] = self.senders[node.label].bind(schema)
            self.processors[node.label] = self.works[node.label].processor()
        sender, work, processor = self.senders[node.label], self.works[node.label], self.processors[node.label]
        sent: list[pa.RecordBatch] = []
        if rows.table.num_rows:
            sent = [*sender.add_columns(self._bundle(node.inputs[0], rows)), *sender.finish()]
        panes = processor.step(pa.concat_batches(sent) if sent else None, clocks).panes
        return Rows(_of_panes(work, panes, _result_schema(node.transform, schema), node.inputs[0]))

    def _bundle(self, pc: PCollection, rows: Rows) -> ColumnBundle:
        retractable = may_retract(self.graph, pc)
        rows = rows.placed() if retractable else rows
        (batch,) = rows.table.combine_chunks().to_batches()
        own = batch.drop_columns([RETRACTION])
        if not retractable:
            return ColumnBundle(own, None, window=rows.window)
        flags = {name: pa.array(np.zeros(batch.num_rows, np.int64)) for name in PANE_COLUMNS}
        panes = pa.record_batch(flags | {RETRACTION: batch.column(RETRACTION)})
        return ColumnBundle(own, None, panes)


def _result_schema(transform: Aggregate | TopRows, schema: pa.Schema) -> pa.Schema:
    if isinstance(transform, TopRows):
        return schema if transform.rank is None else schema.append(pa.field(transform.rank, pa.int32()))
    fields = [schema.field(key) for key in transform.keys]
    for name, each in transform.aggregations.items():
        kind = _RESULTS.get(type(each.fn).__name__)
        fields.append(pa.field(name, schema.field(each.column).type if kind is None else kind))
    return pa.schema(fields)


def _of_panes(work: Any, panes: pa.RecordBatch, schema: pa.Schema, pc: PCollection) -> pa.Table:
    bounds = () if pc.windowing.is_global else (START, END)
    columns: dict[str, list[Any]] = {name: [] for name in (*schema.names, TIME, *bounds, RETRACTION)}
    for _, bundle in work.bundles(panes):
        for part in bundle.parts() if isinstance(bundle, ColumnBundle) else [bundle]:
            for name, values in zip(schema.names, zip(*part.elements, strict=True), strict=True):
                columns[name] += values
            columns[TIME] += part.times.tolist()
            if bounds:
                columns[START] += part.starts.tolist()
                columns[END] += part.ends.tolist()
            columns[RETRACTION] += [part.retraction] * len(part.elements)
    kinds = {TIME: pa.int64(), START: pa.int64(), END: pa.int64(), RETRACTION: pa.bool_()}
    fields = {name: kinds.get(name) or schema.field(name).type for name in columns}
    return pa.table({name: pa.array(values, fields[name]) for name, values in columns.items()})


def _changes(table: pa.Table) -> Iterator[Change]:
    names = [name for name in table.column_names if name not in HIDDEN]
    row = row_type(tuple(names))._make
    taken = table.column(RETRACTION).to_pylist()
    for values, back in zip(zip(*(table.column(name).to_pylist() for name in names), strict=True), taken, strict=True):
        yield Change(row(values), back)
