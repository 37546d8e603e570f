"""Checks the columns that transforms read, by name and type, where they are known before the run. No Spark."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.model.aggregationtypes import wrong_type
from headrace.model.columnjoins import Join
from headrace.model.columns import Aggregate, Select, TopRows, Where
from headrace.model.ddl import ddl_columns
from headrace.model.errors import PipelineError
from headrace.model.knowncolumns import VALUES, columns_of, nearest_name, no_column
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sortorder import is_sortable
from headrace.model.sources import Create, FileSource, ReadRows
from headrace.model.sqlnames import column_of, columns_read
from headrace.model.tablesources import TableSource
from headrace.model.topics import ReadTopic

Columns = Mapping[str, pa.DataType | None]


def check_columns(graph: Graph) -> Graph:
    """Returns the graph if each column that a transform reads is there, and of a type that its aggregation takes.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> sales = p | hr.Create([("tea", 3)]) | hr.Select(item="_1", price="_2")
    >>> _ = sales | "by item" >> hr.GroupBy("itme").aggregate(n=hr.count())
    >>> check_columns(p.graph())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: 'by item' (...): there is no column 'itme', did you mean 'item'? There are \
item, price
    """
    declared: dict[int, Columns | None] = {}

    def known(pc: PCollection) -> Columns | None:
        if id(pc) not in declared:
            declared[id(pc)] = _declared(graph, pc)
        return declared[id(pc)]

    for node in graph:
        if isinstance(node.transform, Select | Where | Aggregate | TopRows):
            columns = columns_of(graph, node.inputs[0], known)
            if columns is not None:
                _check(node, columns)
        elif isinstance(node.transform, Join):
            left, right = (columns_of(graph, pc, known) for pc in node.inputs)
            if left is not None and right is not None:
                _check_join(node, node.transform, left, right)
        elif not node.inputs:
            known(node.outputs[0])  # a schema that cannot be read is refused
    return graph


def known_columns(graph: Graph, pc: PCollection) -> Columns | None:
    """Returns the columns of a collection that are known before the run; None if they are not."""
    return columns_of(graph, pc, lambda each: _declared(graph, each))


def _check_join(node: Node, join: Join, left: Columns, right: Columns) -> None:
    try:
        join.columns(list(left), list(right))
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None


def _check(node: Node, columns: Columns) -> None:
    match node.transform:
        case Aggregate(aggregations=aggregations) as aggregate:
            for name in aggregate.reads():
                if name not in columns:
                    raise PipelineError(f"{node}: {no_column(name, columns)}")
            for aggregation in aggregations.values():
                if reason := wrong_type(aggregation, columns):
                    raise PipelineError(f"{node}: {reason}")
        case TopRows() as top:
            check_top(node, top, columns)
        case Select(columns=selected, named=named):
            _check_names(node, (*selected, *named.values()), columns)
        case Where(condition=condition):
            _check_names(node, (condition,), columns)


def check_top(node: Node, top: TopRows, columns: Columns) -> None:
    """Refuses columns that do not exist, or that have no order."""
    for name in top.reads():
        if name not in columns:
            raise PipelineError(f"{node}: {no_column(name, columns)}")
    for order in top.by:
        kind = columns[order.column]
        if kind is not None and not is_sortable(kind):
            raise PipelineError(
                f"{node}: {order.column!r} is a {kind}, which has no order; take a part of it with Select first"
            )
    try:
        top.columns(list(columns))
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None


def _check_names(node: Node, expressions: tuple[Any, ...], columns: Columns) -> None:
    found = {name.lower() for name in columns} | VALUES  # Spark does not distinguish case
    for expression in expressions:
        alone = column_of(expression)
        for name in columns_read(expression):
            missing = name.lower() not in found and not name.startswith("__")
            # Within an expression it may be something else that only Spark knows, unless there is one much like it.
            if missing and (name == alone or nearest_name(name, columns) is not None):
                raise PipelineError(f"{node}: {no_column(name, columns)}")


def _declared(graph: Graph, pc: PCollection) -> Columns | None:
    """Returns the columns that the type of a collection or its source declares; None if neither does."""
    if pc.schema is not None:
        return dict(zip(pc.schema.names, pc.schema.types, strict=True))
    node = graph.producer(pc)
    source = node.transform
    if pc is not node.outputs[0] or not isinstance(source, ReadRows | TableSource | ReadTopic | Create):
        return None
    ddl = source.schema
    if isinstance(source, Create) and source.table is not None:
        ddl = source.table.schema
    if isinstance(ddl, pa.Schema):
        return dict(zip(ddl.names, ddl.types, strict=True))
    if isinstance(source, ReadTopic) and ddl is None and source.values not in (None, "json", "bytes"):
        ddl = source.values
    if not isinstance(ddl, str):
        return None
    try:
        columns = ddl_columns(ddl)
    except PipelineError as error:
        raise PipelineError(f"{node}: schema={ddl!r}: {error}") from None
    return None if isinstance(source, FileSource) and any(map(_may_be_partitioned, source.paths)) else columns


def _may_be_partitioned(path: str) -> bool:
    """Returns whether names of directories below a path may add columns, as in `data/day=2026-01-31/`."""
    if "://" in path:
        return True
    folders = [folder for folder in glob.glob(path) if os.path.isdir(folder)]
    return any(entry.is_dir() and "=" in entry.name for folder in folders for entry in os.scandir(folder))
