"""Joins frames by columns: all rows of two batches, or the rows of a stream with a table that stays the same.

In a stream, rows pass that are no elements: reports of clocks, rows that were dropped, rows in flight. They join with
nothing and stay as they are. The table is broadcast, so that rows keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, NumericType

from headrace.engine.catalyst.parsing import quoted
from headrace.engine.worker.hidden import END, LOW, START, TIME
from headrace.model.columnjoins import AsOfJoin, Join
from headrace.model.errors import PipelineError
from headrace.model.sortorder import is_sortable
from headrace.model.times import MIN_TIME

_RIGHT: Final = "__right_"
"""The beginning of the names that columns of the right have until the result is made."""
_HAS_LEFT, _HAS_RIGHT = "__has_left", "__has_right"
"""Whether a row was made of a left and of a right one; null if not."""


def join_batches(join: Join, left: DataFrame, right: DataFrame, own: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Joins all rows of two frames of elements. `own` and `others` are the columns of their elements."""
    names = _checked(join, left, right, own, others)
    if isinstance(join, AsOfJoin):
        return _join_as_of(join, left, right, own, others)
    condition = _same_keys(join)
    if START in left.columns and START in right.columns:
        condition &= (_column(START) == _column(_RIGHT + START)) & (_column(END) == _column(_RIGHT + END))
    if join.within is not None:
        condition &= _near(join.within)
    how = "full_outer" if join.how == "outer" else join.how
    rows = left.withColumn(_HAS_LEFT, F.lit(True)).join(_renamed(right, right.columns), condition, how)
    hidden = [name for name in left.columns if name not in own]
    return rows.select(*_result(join, names, own), *(_of_either(join, name, right.columns) for name in hidden))


def _join_as_of(
    join: AsOfJoin, left: DataFrame, right: DataFrame, own: Sequence[str], others: Sequence[str]
) -> DataFrame:
    """Joins all rows of a frame with the latest of another: rows of both, by key and time, each sees those before."""
    names = join.columns(own, others)
    ours, theirs = zip(*join.pairs, strict=True)
    ties = [name for name in others if _has_order(right.schema[name].dataType)]

    def side(data: DataFrame, keys: Sequence[str], columns: Sequence[str], is_left: bool) -> DataFrame:
        """Returns rows of one side, with what they are ordered by; the version of a left row is null."""
        rows = F.struct(*map(_column, columns))
        none = F.lit(None)
        return data.select(
            *(_column(name).alias(f"__key{number}") for number, name in enumerate(keys)),
            F.coalesce(_column(TIME), F.lit(MIN_TIME)).alias("__at"),
            F.lit(is_left).alias(_HAS_LEFT),
            *((none if is_left else _column(name)).alias(f"__tie{number}") for number, name in enumerate(ties)),
            (rows if is_left else none).alias("__left"),
            (none if is_left else rows).alias("__version"),
        )

    both = side(left, ours, left.columns, True).unionByName(
        side(right.dropna(subset=[quoted(name) for name in theirs]), theirs, others, False)
    )
    order = (F.col("__at"), F.col(_HAS_LEFT), *(F.asc_nulls_first(f"__tie{number}") for number in range(len(ties))))
    before = Window.partitionBy(*(f"__key{number}" for number in range(len(ours)))).orderBy(*order)
    versions = F.last("__version", ignorenulls=True).over(before.rowsBetween(Window.unboundedPreceding, 0))
    rows = both.withColumn("__version", versions).where(_HAS_LEFT)
    if not join.keeps_left:
        rows = rows.where(F.col("__version").isNotNull())
    hidden = [name for name in left.columns if name not in own]
    return rows.select(
        *(F.col("__left" if name in own else "__version").getField(name).alias(name) for name in names),
        *(F.col("__left").getField(name).alias(name) for name in hidden),
    )


def _has_order(kind: DataType) -> bool:
    try:
        return is_sortable(to_arrow_type(kind, timezone="UTC"))
    except PySparkTypeError:  # a type that Arrow does not have
        return False


def join_table(
    join: Join,
    rows: DataFrame,
    table: DataFrame,
    own: Sequence[str],
    *,
    elements: Column,
    marking: bool,
) -> DataFrame:
    """Joins the rows of a stream that are `elements`, with the columns `own`, with a table.

    Elements that match nothing and do not stay are dropped or, with `marking`, stay as rows that are no elements.
    """
    names = _checked(join, rows, table, own, table.columns)
    joined = rows.join(F.broadcast(_renamed(table, table.columns)), elements & _same_keys(join), "left")
    rest = {name: _column(name) for name in rows.columns if name not in own}
    columns = _result(join, names, own)
    if not join.keeps_left:
        dropped = elements & F.col(_HAS_RIGHT).isNull()
        if not marking:
            joined = joined.where(~dropped)
        else:
            rest[LOW] = F.when(dropped, MIN_TIME).otherwise(F.col(LOW))
            # What follows sees nulls, and not the values of a row that is no element.
            columns = [F.when(~dropped, column).alias(name) for column, name in zip(columns, names, strict=True)]
    return joined.select(*columns, *(column.alias(name) for name, column in rest.items()))


def _checked(join: Join, left: DataFrame, right: DataFrame, own: Sequence[str], others: Sequence[str]) -> list[str]:
    """Returns the names of the result's columns; refuses keys that could not be equal."""
    names = join.columns(own, others)
    for ours, theirs in join.pairs:
        kind, other = left.schema[ours].dataType, right.schema[theirs].dataType
        if not _comparable(kind, other):
            raise PipelineError(
                f"{ours!r} on the left is a {kind.simpleString()}, and {theirs!r} on the right a "
                f"{other.simpleString()}, which are never the same; convert one first, e.g. "
                f"Select({ours}='cast({ours} as {other.simpleString()})')"
            )
    return names


def _comparable(kind: DataType, other: DataType) -> bool:
    return type(kind) is type(other) or (isinstance(kind, NumericType) and isinstance(other, NumericType))


def _same_keys(join: Join) -> Column:
    """Returns whether the keys of two rows are the same; a null is not the same as anything."""
    return reduce(Column.__and__, (_column(ours) == _column(_RIGHT + theirs) for ours, theirs in join.pairs))


def _near(within: tuple[int, int]) -> Column:
    """Returns whether the time of a right row is that of the left one, by so much later, from and to."""
    ours, theirs = (F.coalesce(_column(name), F.lit(MIN_TIME)) for name in (TIME, _RIGHT + TIME))
    return (ours + F.lit(within[0]) <= theirs) & (theirs <= ours + F.lit(within[1]))


def _renamed(right: DataFrame, names: Sequence[str]) -> DataFrame:
    renamed = [_column(name).alias(_RIGHT + name) for name in names]
    return right.select(*renamed, F.lit(True).alias(_HAS_RIGHT))


def _result(join: Join, names: Sequence[str], own: Sequence[str]) -> list[Column]:
    """Returns the columns of the result: those of the left, and those of the right that are not joined on."""
    theirs = dict(join.pairs)
    columns = []
    for name in names:
        column = _column(name if name in own else _RIGHT + name)
        if name in theirs and name in own and join.keeps_right:
            column = F.coalesce(column, _column(_RIGHT + theirs[name]))
        columns.append(column.alias(name))
    return columns


def _of_either(join: Join, name: str, others: Sequence[str]) -> Column:
    """Returns a hidden column of the left row or, where there is none, of the right one; of times, the later one."""
    if join.within is not None and name == TIME:
        return F.greatest(_column(TIME), _column(_RIGHT + TIME)).alias(TIME)  # a null is less than any time
    if not join.keeps_right:
        return _column(name)
    of_right = _column(_RIGHT + name) if name in others else F.lit(None)
    return F.when(F.col(_HAS_LEFT).isNotNull(), _column(name)).otherwise(of_right).alias(name)


def _column(name: str) -> Column:
    return F.col(quoted(name))
