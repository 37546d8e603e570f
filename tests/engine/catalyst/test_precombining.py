"""Values that are combined before the shuffle: no row is lost, and accumulators merge to those of all values."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.catalyst.precombining import Combining
from headrace.model.algebra import CollectFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.safebytes import decode
from headrace.model.sketches import SecondMomentFn
from tests.scale import examples

KEYS = st.tuples(
    st.sampled_from(["a", "b", None]), st.sampled_from([0.5, -0.0, float("nan"), None]), st.none() | st.just([1])
)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 3) | st.none()), max_size=12)
SCHEMA = pa.schema(
    [("text", pa.string()), ("number", pa.float64()), ("list", pa.list_(pa.int64())), ("value", pa.int64())]
)


def batch(rows: list[Any]) -> pa.RecordBatch:
    columns = list(zip(*((*keys, value) for keys, value in rows), strict=True)) or [()] * len(SCHEMA)
    return pa.record_batch(
        [pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@examples(200)
@given(st.lists(ROWS, max_size=4), st.integers(0, 3), st.integers(1, 3))
def test_rows_pass_and_accumulators_merge(batches: list[list[Any]], keys: int, most: int) -> None:
    names, fns = ("text", "number", "list")[:keys], (CollectFn(), PartialFn(SecondMomentFn()))
    combining = Combining(names, fns, ("value", "value"), most)
    found = list(combining(map(batch, batches)))
    rows = [row for each in found for row in each.to_pylist()]
    plain = [{name: row[name] for name in SCHEMA.names} for row in rows]
    assert sorted(map(repr, plain)) == sorted(repr(row) for each in batches for row in batch(each).to_pylist())

    accumulators: dict[Any, list[list[bytes]]] = defaultdict(lambda: [[], []])
    wanted: dict[Any, list[int]] = defaultdict(list)
    for row in rows:
        group = repr([row[name] for name in names])
        assert (row["__accumulator0"] is None) == (row["__accumulator1"] is None)
        if row["__accumulator0"] is not None:
            accumulators[group][0].append(row["__accumulator0"])
            accumulators[group][1].append(row["__accumulator1"])
        wanted[group] += [] if row["value"] is None else [row["value"]]
    assert accumulators.keys() == wanted.keys()
    for group, values in wanted.items():
        for fn, parts in zip((CollectFn(), SecondMomentFn()), accumulators[group], strict=True):
            merged: Any = fn.finish(reduce(fn.merge, [fn.load(decode(part)) for part in parts]))
            exact: Any = fn.finish(fn.add_all(fn.zero(), values))
            assert (sorted(merged) == sorted(exact)) if isinstance(merged, list) else merged == exact


def test_a_task_has_one_accumulator_of_a_group_that_it_meets_again() -> None:
    combining = Combining(("text",), (CollectFn(),), ("value",))
    found = list(combining(batch([(("a", None, None), number)] * 3) for number in range(100)))
    cells = [cell for each in found for cell in each["__accumulator0"].to_pylist() if cell is not None]
    assert len(cells) == 1 and len(decode(cells[0])) == 300
