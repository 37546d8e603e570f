"""State of checkpoints and savepoints for people: read as a DataFrame, queried by key, and changed by functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.shard.slots import shards_of
from headrace.engine.spark.files import Folder
from headrace.engine.spark.session import spark_session
from headrace.engine.state.rewriting import StateChange, rewrite
from headrace.engine.state.staterows import StateRow, StateRows
from headrace.engine.state.storedstate import StoredState, shards_in_cells
from headrace.model.errors import PipelineError
from headrace.model.keys import encode_key

_ANY: Final = object()
_FOUND: Final = pa.schema([("name", pa.string()), ("type", pa.binary())])


def read_state(path: str, grouping: str, *, key: Any = _ANY, spark: SparkSession | None = None) -> DataFrame:
    """Reads the state of a grouping; the door is `engine/savedstate`."""
    state = StoredState.at(spark or spark_session(), path)
    rows = _rows_of(state, grouping)
    if key is _ANY:
        return _frame(state, grouping, rows)
    if not rows.has_keys:
        raise PipelineError(f"the rows of {grouping!r} wait for a join, and are not found by a key; leave key out")
    encoded = encode_key(key)
    by_slot = bool(state.manifest.slots)
    (shard,) = shards_of(pa.array([encoded], pa.binary()), state.shards(grouping), by_slot=by_slot).tolist()
    piece = state.shard(grouping, shard)
    found = [] if piece is None else rows.read(piece, encoded)
    table = _table(found, _unified(_types(found)))
    return state.spark.createDataFrame(table)


def rewrite_state(
    path: str,
    new: str,
    changes: Mapping[str, Callable[[StateRow], StateRow | None]],
    *,
    spark: SparkSession | None = None,
) -> None:
    """Copies a savepoint with changed state; the door is `engine/savedstate`."""
    session = spark or spark_session()
    state = StoredState.at(session, path)
    changed = {label: StateChange(_rows_of(state, label), function) for label, function in changes.items()}
    rewrite(state, Folder(session, new), state.manifest, changed)


def _rows_of(state: StoredState, grouping: str) -> StateRows:
    groupings = state.manifest.groupings
    if grouping not in groupings:
        known = ", ".join(map(repr, groupings)) or "none"
        raise PipelineError(f"{state.folder} has no state of {grouping!r}; it has that of {known}")
    return StateRows(grouping, groupings[grouping].identity)


def _frame(state: StoredState, grouping: str, rows: StateRows) -> DataFrame:
    """Makes the frame of all rows; a first job finds the types of columns."""
    dests = state.dests(grouping)
    cells = state.cells().where(F.col("dest").isin(list(dests)))
    cells = cells.repartition(len(dests), "dest").sortWithinPartitions("dest", "kind", "number")
    found = cells.mapInArrow(_TypesFound(rows), from_arrow_schema(_FOUND)).toArrow().to_pylist()
    types: dict[str, set[pa.DataType]] = {}
    for each in found:
        types.setdefault(each["name"], set()).add(pa.ipc.read_schema(pa.py_buffer(each["type"])).field(0).type)
    schema = _unified(types)
    return cells.mapInArrow(_RowsRead(rows, schema), from_arrow_schema(schema))


@dataclass(frozen=True)
class _TypesFound:
    """Finds the types of columns of shards."""

    rows: StateRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, piece in shards_in_cells(batches):
            names = [
                {"name": name, "type": pa.schema([("type", kind)]).serialize().to_pybytes()}
                for name, kinds in _types(self.rows.read(piece)).items()
                for kind in kinds
            ]
            yield pa.RecordBatch.from_pylist(names, schema=_FOUND)


@dataclass(frozen=True)
class _RowsRead:
    """Reads the rows of shards."""

    rows: StateRows
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, piece in shards_in_cells(batches):
            yield from _table(self.rows.read(piece), self.schema).to_batches(max_chunksize=10_000)


def _types(rows: list[StateRow]) -> dict[str, set[pa.DataType]]:
    """Returns the types of each column's values."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {name: {_type_of(values)} for name, values in columns.items()}


def _type_of(values: list[Any]) -> pa.DataType:
    if all(value is None or isinstance(value, dt.datetime) for value in values) and any(values):
        return pa.timestamp("us", "UTC")
    try:
        kind = pa.array(values, from_pandas=False).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.string()
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_binary)
    inner = kind.value_type if pa.types.is_list(kind) else kind
    return kind if pa.types.is_null(kind) or any(test(inner) for test in plain) else pa.string()


def _unified(types: Mapping[str, set[pa.DataType]]) -> pa.Schema:
    """Returns one type for each column: text where there are several that are not numbers."""
    fields = []
    for name, kinds in types.items():
        known = {kind for kind in kinds if not pa.types.is_null(kind)}
        if len(known) == 1:
            fields.append((name, known.pop()))
        elif known and all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in known):
            fields.append((name, pa.float64()))
        else:
            fields.append((name, pa.string()))
    return pa.schema(fields or [("key", pa.string()), ("value", pa.string())])


def _table(rows: list[StateRow], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_string(field.type):
            values = [value if value is None or isinstance(value, str) else repr(value) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)
