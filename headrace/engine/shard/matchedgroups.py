"""Groups of queries that come and go: when a query has ended, its groups leave the state of the shard.

A group is a query's if the first of its keys is the query's number. Which queries there are, the table of queries says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.keycolumns import decode_key_columns
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import ShardProcessor, StepResult
from headrace.engine.shard.work import ColumnGrouping
from headrace.local.querytable import QueryTable

_SHARE: Final = 16  # groups are looked through when so small a share of the queries has ended since

_tables: dict[str, QueryTable] = {}  # of this process, which may work for many micro-batches


class MatchedGroupProcessor(ShardProcessor):
    """A shard of groups of the queries in a table.

    What a query that has ended would still emit, nobody reads; so it does not matter when exactly its groups go.
    """

    def __init__(self, queries: str, *grouping: Any) -> None:
        super().__init__(*grouping)
        self._queries = queries
        self._ended: int | None = None  # how many queries had ended when groups were last looked through

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        result = super().step(rows, clocks)
        table = _tables.setdefault(self._queries, QueryTable(Path(self._queries)))
        table.refresh()
        if self._ended is None or table.ended - self._ended > len(table.queries) // _SHARE:
            self._ended = table.ended
            self._remove(np.array([query.number for query in table.active(None)], np.int64))
        return replace(result, held=self.table.held)

    def _remove(self, live: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Removes the groups of other queries than these."""
        slots = self.table.slots()
        if not len(slots):
            return
        keys = self.table.keys.take(slots)
        decoded = decode_key_columns(keys, pa.nulls(len(keys), pa.binary()), 1)
        assert decoded is not None, "a query has a number"
        self.table.close(slots[~np.isin(np.asarray(decoded[0]), live)])


@dataclass(frozen=True)
class MatchedGrouping(ColumnGrouping):
    """Groups rows by columns, the first of which is the number of a query in a table."""

    queries: str = field(kw_only=True)

    def processor(self, shard: int = 0) -> ShardProcessor:
        return MatchedGroupProcessor(self.queries, self.windowing, self.fn, self.rows)
