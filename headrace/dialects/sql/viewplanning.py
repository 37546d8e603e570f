"""Plans a view or transform before it is created: its columns, their types, its key, and the pass that computes it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.dialects.sql.catalog import View
from headrace.dialects.sql.passes import SessionPlace, pass_name, plan_pass, plan_types, spark_schema
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import CreateQuery
from headrace.model.errors import PipelineError


def plan_view(where: SessionPlace, statement: CreateQuery, *, shared: bool = False) -> tuple[View, pa.Schema]:
    """Plans a view, or with `shared` its shape; returns it and the types of its columns."""
    from pyspark.sql.pandas.types import to_arrow_schema

    where.functions.register(where.spark)
    planned = plan_types(where, statement, shared=shared)
    if not where.catalog.sources_of(statement) & {*where.catalog.streams}:
        raise SqlError("a view reads a stream; a table alone does not change")
    try:
        schema = spark_schema(planned.collection)
    except PipelineError as error:
        reason = str(error).splitlines()[0].partition("): ")[2] or str(error)
        raise SqlError(f"Spark refuses the query: {reason}") from None
    changes = planned.collection.windowing.accumulation != "discarding"
    if statement.into is not None and (planned.retracts or (planned.key is not None and changes)):
        raise SqlError("rows of a stream do not change, as these groups do; add EMIT AFTER WATERMARK, or make a view")
    types = {field.name: field.dataType.simpleString() for field in schema}
    hidden = {name: types.pop(name) for name in planned.hidden}
    shape = statement.name if shared else None
    combinations = dict(planned.combinations)
    view = View(statement, types, planned.key, "", shape, hidden=hidden, combinations=combinations)
    alone = plan_pass(where, [view], "latest")
    try:
        alone.explain(stream=True)
    except PipelineError as error:
        raise SqlError(f"this query cannot be continuous: {error}") from None
    view = replace(view, computed_by=pass_name(where.catalog, statement, alone.snapshot()))
    return view, to_arrow_schema(schema, timezone="UTC")
