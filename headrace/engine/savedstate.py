"""State of checkpoints and savepoints for people: the door to `engine/state`, which needs Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ANY: Final = object()


def read_state(path: str, grouping: str, *, key: Any = _ANY, spark: SparkSession | None = None) -> DataFrame:
    """Reads the state of a grouping or stateful DoFn, by its label, from a checkpoint or savepoint, as a DataFrame.

    The columns are `key`, `window_start`, `window_end` (null in the global window), and of a grouping `elements`, how
    many there are, and `value`: a list, or an accumulator as it is stored. Of a stateful DoFn there is a column for
    each state, and one named `timer_...` for each timer. Of a join, it is the rows that wait, with their `side`. What
    is of several types is text. With `key`, only the shard that has the key is read.

    The stream must not be running, unless the path is that of a savepoint.

    >>> import tempfile
    >>> import headrace as hr
    >>> checkpoint = tempfile.mkdtemp() + "/checkpoint"
    >>> p = hr.Pipeline()
    >>> words = p | "words" >> hr.TestStream().add(["to", "be", "or", "not", "to", "be"])
    >>> every = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always(), accumulation="accumulating")
    >>> counts = words | every | "count" >> hr.Count.per_element() | hr.Collect()
    >>> status = p.run(stream=True, checkpoint=checkpoint).wait()
    >>> frame = hr.read_state(checkpoint, "count/count")
    >>> sorted((row.key, row.value) for row in frame.collect())
    [('be', 2), ('not', 1), ('or', 1), ('to', 2)]
    >>> hr.read_state(checkpoint, "count/count", key="to").select("key", "value").collect()
    [Row(key='to', value=2)]
    """
    from headrace.engine.state import statequeries

    return statequeries.read_state(path, grouping, spark=spark, **({} if key is _ANY else {"key": key}))


def rewrite_state(
    path: str,
    new: str,
    changes: Mapping[str, Callable[[dict[str, Any]], dict[str, Any] | None]],
    *,
    spark: SparkSession | None = None,
) -> None:
    """Copies a savepoint to a new one, with the state of groupings, by label, changed by functions.

    A function gets each row as a dict, with the columns that `read_state` has, and returns it with other values or
    another key, or None to drop it. `run(savepoint=new, checkpoint=...)` goes on from there.

    >>> import tempfile
    >>> import headrace as hr
    >>> folder = tempfile.mkdtemp()
    >>> p = hr.Pipeline()
    >>> words = p | "words" >> hr.TestStream().add(["to", "be", "or", "not", "to", "be"])
    >>> every = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always(), accumulation="accumulating")
    >>> counts = words | every | "count" >> hr.Count.per_element() | hr.Collect()
    >>> status = p.run(stream=True, checkpoint=folder + "/checkpoint").wait()
    >>> def forget_or(row):
    ...     return None if row["key"] == "or" else row | {"value": row["value"] + 10}
    >>> hr.rewrite_state(folder + "/checkpoint", folder + "/mended", {"count/count": forget_or})
    >>> sorted((row.key, row.value) for row in hr.read_state(folder + "/mended", "count/count").collect())
    [('be', 12), ('not', 11), ('to', 12)]
    """
    from headrace.engine.state import statequeries

    statequeries.rewrite_state(path, new, changes, spark=spark)
