"""Reads the views that a SELECT names, as they are now; in any process, since their tables are in a database."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.pointreads import point_read, table_names
from headrace.dialects.sql.resulttables import ResultTables
from headrace.dialects.sql.sqlstatements import Select
from headrace.model.ddl import ddl_columns


def read_views(catalog: Catalog, tables: ResultTables, statement: Select) -> dict[str, pa.Table]:
    """Reads the views of a SELECT, all as of one moment: those of their rows that it can see."""
    schemas = {name: view_schema(catalog.view(name)) for name in sorted(set(table_names(statement.query)))}
    point = point_read(statement, schemas.__getitem__)
    return tables.read(schemas, {} if point is None else {point.view: point.equal})


def read_point(catalog: Catalog, tables: ResultTables, statement: Select, most: int) -> pa.Table | None:
    """Answers a SELECT of columns of the rows with given values, with at most so many rows; None if it is another."""
    point = point_read(statement, lambda name: view_schema(catalog.view(name)))
    if point is None or point.columns is None:
        return None
    schema = view_schema(catalog.view(point.view))
    limit = most if point.limit is None else min(point.limit, most)
    read = tables.read_point(point.view, schema, point.equal, limit)
    return pa.table([read[column] for column, _ in point.columns], names=[name for _, name in point.columns])


def view_schema(view: View) -> pa.Schema:
    """Returns the columns of a view with their types."""
    return _schema(tuple(view.columns.items()))


@lru_cache
def _schema(columns: tuple[tuple[str, str], ...]) -> pa.Schema:
    return pa.schema([(name, arrow_type(exp.DataType.build(kind, "spark"))) for name, kind in columns])


def arrow_type(kind: exp.DataType) -> pa.DataType:
    """Returns the Arrow type of a type of Spark.

    >>> arrow_type(exp.DataType.build("map<string,array<decimal(10,2)>>", "spark"))
    MapType(map<string, list<item: decimal128(10, 2)>>)
    """
    parts = kind.expressions
    if kind.is_type("array"):
        return pa.list_(arrow_type(parts[0]))
    if kind.is_type("map"):
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    if kind.is_type("struct"):
        return pa.struct([(part.name, arrow_type(part.args["kind"])) for part in parts])
    if kind.is_type("decimal"):
        precision, scale = [int(part.name) for part in parts] or (10, 0)
        return pa.decimal128(precision, scale)
    name = kind.sql("spark").partition("(")[0].lower()
    return ddl_columns(f"x {name}")["x"] or pa.string()
