"""Tests how batches are merged into tables of data lakes, against a list of rows, in both formats."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.lakes import LakeError
from headrace.engine.connectors.lakemerge import ORDER, Merge
from headrace.engine.worker.hidden import SIGN
from tests.edges.laking import Lake
from tests.scale import examples, only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[str | None, int, int, int]
"""A change: key, value, sign, and its order among the elements of a batch."""

COLUMNS = pa.schema({"key": pa.string(), "value": pa.int64()})
BOTH = ("delta", pytest.param("iceberg", marks=only_full("the merge does not know the format")))
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "it's", None]), st.integers(0, 2), st.sampled_from([1, 1, -1]), st.integers(0, 3)
    ),
    max_size=8,
)


def upserted(table: Counter[Any], batch: list[Change]) -> Counter[Any]:
    """What a table has after an upsert: the definition."""
    net: Counter[Any] = Counter()
    for key, value, sign, _ in batch:
        net[key, value] += sign
    last: dict[Any, tuple[int, int]] = {}
    for key, value, sign, order in batch:
        if net[key, value] > 0 and sign > 0:
            # Of two that are equally late, the smaller one: arrival does not decide, since it differs between runs.
            last[key] = max(last.get(key, (-1, 0)), (order, -value))
    rows = Counter({row: n for row, n in table.items() if row[0] not in last})
    for row, n in net.items():
        if n < 0 and row[0] not in last:
            rows.pop(row, None)
    return rows + Counter((key, -value) for key, (_, value) in last.items())


def retracted(table: Counter[Any], batch: list[Change], *, by_key: bool) -> Counter[Any] | None:
    """What a table has after a batch with retractions; None if one of these has no row to take."""
    net: Counter[Any] = Counter()
    for key, value, sign, _ in batch:
        net[key, value] += sign
    rows = Counter(table)
    for row, n in net.items():
        for _ in range(-n):
            found = [each for each in sorted(rows, key=str) if each == row or (by_key and each[0] == row[0])]
            if not found:
                return None
            rows[found[0]] -= 1
            rows += Counter()
    return rows + Counter({row: n for row, n in net.items() if n > 0})


@pytest.mark.slow("several Spark jobs for each batch of an example")
@pytest.mark.parametrize("format", BOTH)
@given(batches=st.lists(CHANGES, min_size=1, max_size=3))
@examples(10, deadline=None)
def test_upserts_give_what_the_definition_gives(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, format: str, batches: list[list[Change]]
) -> None:
    lake = Lake(format, tmp_path_factory.mktemp("lake"))
    expected: Counter[Any] = Counter()
    lake.create(COLUMNS)
    for number, batch in enumerate(batches):
        expected = upserted(expected, batch)
        commit(spark, lake, batch, number, "upsert", ("key",))
        assert lake.rows() == expected


@pytest.mark.slow("several Spark jobs for each batch of an example")
@pytest.mark.parametrize("format", BOTH)
@given(batches=st.lists(CHANGES, min_size=1, max_size=3), by_key=st.booleans())
@examples(10, deadline=None)
def test_retractions_give_what_the_definition_gives(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    format: str,
    batches: list[list[Change]],
    by_key: bool,
) -> None:
    lake = Lake(format, tmp_path_factory.mktemp("lake"))
    expected: Counter[Any] = Counter()
    lake.create(COLUMNS)
    for number, batch in enumerate(batches):
        after = retracted(expected, batch, by_key=by_key)
        if after is None:
            with pytest.raises(LakeError, match="a retraction takes back"):
                commit(spark, lake, batch, number, "retract", ("key",) if by_key else ())
            continue
        commit(spark, lake, batch, number, "retract", ("key",) if by_key else ())
        if by_key:  # which of several rows of a key goes is not said
            assert Counter(key for key, _ in lake.rows().elements()) == Counter(key for key, _ in after.elements())
            after = lake.rows()
        expected = after
        assert lake.rows() == expected


def commit(
    spark: SparkSession,
    lake: Lake,
    batch: list[Change],
    number: int,
    mode: Literal["upsert", "retract"],
    key: tuple[str, ...],
) -> None:
    keys, values, signs, orders = zip(*batch, strict=True) if batch else ((), (), (), ())
    rows = pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.int64()),
            SIGN: pa.array(signs, pa.int64()),
            ORDER: pa.StructArray.from_arrays([pa.array(orders, pa.int64())], ["at"]),
        }
    )
    table = lake.find()
    merge, frame = Merge("out", table, COLUMNS.names, key), spark.createDataFrame(rows)
    changes = merge.upsert(frame, retracts=True) if mode == "upsert" else merge.retract(frame)
    if changes.added or changes.removed:
        table.commit("s/out", number, changes.added, changes.removed)


def test_only_files_with_rows_that_change_are_written_anew(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path / "lake")
    lake.create(COLUMNS)
    for number, key in enumerate("abc"):
        commit(spark, lake, [(key, 1, 1, 0)], number, "upsert", ("key",))
    before = {*lake.library().file_uris()}
    commit(spark, lake, [("b", 2, 1, 0), ("d", 1, 1, 0)], 3, "upsert", ("key",))
    assert len(before & {*lake.library().file_uris()}) == 2
    assert lake.rows() == Counter([("a", 1), ("b", 2), ("c", 1), ("d", 1)])
