"""Transforms of collections with columns: Select, Where and GroupBy(...).aggregate(...).

Expressions are SQL text or Spark Columns; the model only passes them on. The aggregations are in `agg`.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.model.agg import Aggregation
from headrace.model.errors import PipelineError
from headrace.model.lateoutput import LateOutput
from headrace.model.pipeline import PCollection, Primitive
from headrace.model.schema import ROWS

EVENT_TIME: Final = "timestamp_micros(__time)"
"""SQL text for an element's event time, for Select and Where."""
WINDOW_START: Final = "timestamp_micros(__start)"
"""SQL text for the start of an element's window."""
WINDOW_END: Final = "timestamp_micros(__end)"
"""SQL text for the end of an element's window."""


class Columnwise(Primitive):
    """A primitive over columns: its input and its output have a schema."""

    output_type: object = ROWS


class Select(Columnwise):
    """Selects columns by name, and computes new ones from expressions: SQL text or Spark Columns.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     named = p | hr.Create([("a", 2)]) | hr.Select(word="_1", twice="_2 * 2") | hr.Collect()
    >>> list(named)
    [Row(word='a', twice=4)]
    """

    def __init__(self, *columns: Any, **named: Any) -> None:
        if not columns and not named:
            raise PipelineError("Select needs at least one column, e.g. Select('user', day='date(ts)')")
        self.columns, self.named = columns, named

    def default_label(self) -> str:
        return f"Select({', '.join([*map(str, self.columns), *self.named])})"


class Where(Columnwise):
    """Filters rows by a condition: SQL text or a Spark Column.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     large = p | hr.Create([("a", 2), ("b", 5)]) | hr.Where("_2 > 3") | hr.Collect()
    >>> list(large)
    [('b', 5)]
    """

    output_type: object = None

    def __init__(self, condition: Any) -> None:
        self.condition = condition

    def default_label(self) -> str:
        return f"Where({self.condition})"

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return inputs[0].element_type


class Aggregate(LateOutput, Columnwise):
    """Computes one row per group and window, with the keys and the aggregates; made by `GroupBy(...).aggregate`."""

    def __init__(self, keys: tuple[str, ...], aggregations: dict[str, Aggregation]) -> None:
        self.keys, self.aggregations = keys, aggregations

    def reads(self) -> tuple[str, ...]:
        """Returns the names of the columns that it reads."""
        return *self.keys, *(name for each in self.aggregations.values() for name in each.columns)

    def default_label(self) -> str:
        return f"GroupBy({', '.join(self.keys)})"


class GroupBy:
    """Groups rows by columns, to aggregate each group: `GroupBy("user").aggregate(n=hr.count())`.

    Without columns, all rows are one group.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     pairs = p | hr.Create([("a", 2), ("a", 4)])
    ...     stats = pairs | hr.GroupBy("_1").aggregate(n=hr.count(), total=hr.sum("_2")) | hr.Collect()
    >>> list(stats)
    [Row(_1='a', n=2, total=6)]
    """

    def __init__(self, *keys: str) -> None:
        for key in keys:
            if not isinstance(key, str):
                raise PipelineError(
                    f"GroupBy takes names of columns, got {key!r}; compute it first with Select(name=...)"
                )
        self.keys = keys

    def aggregate(self, **aggregations: Aggregation) -> Aggregate:
        """Returns the transform that computes these aggregations for each group and window."""
        if not aggregations:
            raise PipelineError("aggregate needs at least one aggregation, e.g. aggregate(n=hr.count())")
        for name, aggregation in aggregations.items():
            if not isinstance(aggregation, Aggregation):
                raise PipelineError(
                    f"aggregate: {name}={aggregation!r} is not an aggregation; use hr.agg.count(), hr.agg.sum('x'), ..."
                )
            if name in self.keys:
                raise PipelineError(f"aggregate: {name!r} is already the name of a key; choose another")
        return Aggregate(self.keys, aggregations)
