"""State of queries that come and go: what has ended leaves it, so that it is bounded by the queries there are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.aggregation.columnsfn import ColumnsFn
from headrace.engine.columns.cells import encode_cells
from headrace.engine.columns.keycolumns import decode_key_columns, encode_key_columns
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.matchedgroups import MatchedGrouping, MatchedGroupProcessor
from headrace.local.querytable import QueryTable
from headrace.model.algebra import CountFn
from headrace.model.panes import Windowing
from headrace.model.triggers import Always
from headrace.model.windows import GlobalWindows

KEYS = ("a", "b", "c")


def rows_of(numbers: list[int]) -> pa.RecordBatch:
    """Rows of these queries, one for each of the keys."""
    queries, keys = [each for each in numbers for _ in KEYS], list(KEYS) * len(numbers)
    encoded, _ = encode_key_columns([pa.array(queries, pa.int64()), pa.array(keys)], len(queries))
    return pa.record_batch(
        {
            "key": encoded,
            "spelling": pa.nulls(len(queries), pa.binary()),
            "__time": pa.array([0] * len(queries)),
            "value": encode_cells([(1,)] * len(queries)),
        }
    )


def grouping(table: QueryTable) -> MatchedGrouping:
    windowing = Windowing(GlobalWindows(), Always(), accumulation="accumulating")
    fn = ColumnsFn((CountFn(),))
    return MatchedGrouping(
        windowing, fn, RowKind.VALUES, keys=("_query", "k"), aggregates=("n",), queries=str(table.path)
    )


def numbers_in(shard: MatchedGroupProcessor) -> list[int]:
    slots = shard.table.slots()
    keys = decode_key_columns(shard.table.keys.take(slots), pa.nulls(len(slots), pa.binary()), 2)
    assert keys is not None
    return sorted(set(keys[0].to_pylist()))


def test_state_is_bounded_by_the_queries_there_are_though_many_come_and_go(tmp_path: Path) -> None:
    table = QueryTable(tmp_path / "queries")
    made = grouping(table).processor()
    assert isinstance(made, MatchedGroupProcessor)
    alive: list[int] = []
    most, sizes, files = 0, [], []
    for batch in range(100):
        for _ in range(10):
            alive.append(table.add([["x"]], "SELECT", lambda: 0))
        result = made.step(rows_of(alive), Clocks(now=batch))
        while len(alive) > 20:
            table.end(alive.pop(0), lambda: 0)
        if batch % 10 == 0:
            table.compact(done=batch)
        most = max(most, result.held)
        if batch % 33 == 32:
            sizes.append(sum(map(len, made.dump())))
            files.append(table.path.stat().st_size)
    assert table.ended == 980 and len(alive) == 20
    # Those of a batch, whose queries end after it, and a share that is not looked for yet.
    assert most <= (30 + 30) * len(KEYS)
    assert sizes[-1] <= 1.2 * sizes[0] and max(files) < 15_000  # of 1,000 queries, it would be 100,000
    made.step(None, Clocks(now=301))
    assert numbers_in(made) == alive


def test_groups_of_others_stay_and_what_is_gone_is_gone_from_what_is_stored(tmp_path: Path) -> None:
    table = QueryTable(tmp_path / "queries")
    numbers = [table.add([["x"]], "SELECT", lambda: 0) for _ in range(5)]
    shard = grouping(table).processor()
    shard.step(rows_of(numbers))
    blocks = [*shard.dump()]
    shard.changes()
    table.end(numbers[1], lambda: 1)
    table.end(numbers[3], lambda: 1)
    shard.step(rows_of([numbers[0]]))
    assert isinstance(shard, MatchedGroupProcessor) and numbers_in(shard) == [0, 2, 4]
    again = grouping(table).processor()
    again.load([*blocks, *shard.changes()])
    assert isinstance(again, MatchedGroupProcessor) and numbers_in(again) == [0, 2, 4]
    counts = {count for count in again.table.count[again.table.slots()].tolist()}
    assert counts == {1, 2}  # of the first query all three groups got another row
    # A table that was written anew since does not know what has ended: whoever is not in it has.
    table.compact()
    fresh = grouping(table).processor()
    fresh.load(blocks)
    fresh.step(None)
    assert isinstance(fresh, MatchedGroupProcessor) and numbers_in(fresh) == [0, 2, 4]


def test_queries_that_a_replayed_batch_still_needs_outlive_a_compaction(tmp_path: Path) -> None:
    table = QueryTable(tmp_path / "queries")
    for first, end in ((0, 3), (1, 6), (2, None)):
        number = table.add([["x"]], "SELECT", lambda first=first: first)
        if end is not None:
            table.end(number, lambda end=end: end)
    before = {batch: [query.number for query in table.active(batch)] for batch in range(3, 8)}
    table.compact(done=2)  # batch 3 may be run again
    other = QueryTable(table.path)
    other.refresh()
    assert {batch: [query.number for query in other.active(batch)] for batch in range(3, 8)} == before
    assert sorted(other.queries) == [1, 2] and other.ended == table.ended == 2
    assert table.add([["y"]], "SELECT", lambda: 9) == 3
