"""Computes expressions that may fail, in a stream: a row on which one does is no element any more, and says so.

What is wrong with it stands in the column REJECTED, which a program reads and counts (`engine/worker/rejectedrows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from headrace.engine.spark.tryeval import try_eval
from headrace.engine.worker.hidden import LOW, REJECTED, REJECTED_TYPE
from headrace.model.columns import Expressions, Select, Where
from headrace.model.pipeline import Node
from headrace.model.times import MIN_TIME

_LONGEST: Final = 500  # characters of a message
TRIED: Final = "__tried"
"""The column with the values of expressions, as a struct: null where one failed."""


def skips_failures(node: Node) -> bool:
    """Returns whether a node leaves out rows that it fails on."""
    return isinstance(node.transform, Expressions) and node.transform.skips_failures


def with_rejected(data: DataFrame) -> DataFrame:
    """Returns a frame that has the column REJECTED."""
    kind = from_arrow_type(REJECTED_TYPE)
    return data if REJECTED in data.columns else data.withColumn(REJECTED, F.lit(None).cast(kind))


def tried(
    node: Node, expressions: Sequence[Column], data: DataFrame, own: Sequence[Column], elements: Column
) -> DataFrame:
    """Adds the column TRIED to a frame, and REJECTED in elements on which one of the expressions fails.

    `own` are the columns of the elements, and `elements` tells which rows are some.
    """
    data = with_rejected(data)
    values = F.struct(*[each.alias(f"_{number}") for number, each in enumerate(expressions)])
    data = data.withColumn(TRIED, try_eval(data.sparkSession, F.when(elements, values)))
    failed = elements & F.col(TRIED).isNull()
    record = F.to_json(F.struct(*own), {"ignoreNullFields": "false"})
    parts = {"label": F.lit(node.label), "message": F.lit(_text_of(node)), "record": record}
    rejected = F.when(failed, F.struct(*[each.alias(name) for name, each in parts.items()]))
    return data.withColumn(REJECTED, F.coalesce(F.col(REJECTED), rejected))


def _text_of(node: Node) -> str:
    """Returns the expressions of a transform, one of which failed."""
    match node.transform:
        case Where(condition=condition):
            return str(condition)[:_LONGEST]
        case Select(columns=columns, named=named):
            return ", ".join([*map(str, columns), *(f"{each} AS {name}" for name, each in named.items())])[:_LONGEST]
    return node.label


def value(number: int) -> Column:
    """Returns the value of one of the expressions that were tried."""
    return F.col(f"{TRIED}._{number}")


def low_of_rejected() -> Column:
    """Returns the column LOW, by which rows that were rejected are no elements."""
    return F.coalesce(F.col(LOW), F.when(F.col(REJECTED).isNotNull(), MIN_TIME)).alias(LOW)
