"""Writes the batches of WriteDelta and WriteIceberg: workers write data files, the driver makes one commit of them.

The commit carries stream, sink and number of the batch. A batch that the table has already is not written again; files
that were written for it, by a driver that died before it could commit, are no part of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyarrow import types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from headrace.edges.lakes import LakeConflict, LakeError, LakeTable, check_columns, plain_schema
from headrace.engine.catalyst.parsing import quoted
from headrace.engine.connectors.lakemerge import ORDER, FileChanges, Merge
from headrace.engine.connectors.laketables import create_table, find_table, written
from headrace.engine.worker.blame import blame
from headrace.engine.worker.hidden import END, PANE_INDEX, SIGN, START, TIME
from headrace.model.errors import PipelineError
from headrace.model.grouping import may_retract
from headrace.model.lakes import WriteLake
from headrace.model.panes import WINDOW_BOUNDS
from headrace.model.pipeline import Node
from headrace.model.tables import SIGN as SIGN_COLUMN

_ATTEMPTS: Final = 10
"""How often a batch is committed if others always commit first."""


class LakeWriter:
    """Writes batches to a table of a data lake.

    Errors of the table or the elements' type are raised before anything runs if they are known then.
    """

    def __init__(self, node: Node) -> None:
        sink, (pc,) = node.transform, node.inputs
        assert isinstance(sink, WriteLake)
        self.node, self.sink, self._pc = node, sink, pc
        self._signed = sink.mode == "append" and may_retract(pc.pipeline.graph(), pc)
        self._writer: str | None = None
        self._layout: dict[str, str] = {}  # columns of the table, and those of elements that they are made of
        with self._refusing():
            self._table = find_table(sink)
            if pc.schema is not None:
                self._check(pa.schema(list(zip(pc.schema.names, pc.schema.types, strict=True))))

    def begin(self, stream: str | None, columns: pa.Schema) -> None:
        """Creates the table if it is missing, before the first batch of a run; elements have these columns.

        A batch run is no stream: it is not repeated.
        """
        self._writer = None if stream is None else f"{stream}/{self.node.label}"
        with self._refusing():
            every = self._check(columns)
            if self._table is None:
                self._table = create_table(self.sink, every)
                self._check(columns)

    def write(self, rows: DataFrame, batch: int, check: Callable[[], None] = lambda: None) -> None:
        """Writes the rows of a batch, unless the table has them; `check` is called before they are committed."""
        with blame(self.node.label):
            if self._written() >= batch:
                rows.write.format("noop").mode("overwrite").save()  # a stream's batch is computed in any case
                return
            changes: FileChanges | None = None
            for _ in range(_ATTEMPTS):
                if changes is None or self.sink.mode != "append":  # which is the same whatever others did
                    changes = self._changes(rows)
                    check()
                if not changes.added and not changes.removed:
                    return
                try:
                    self._known.commit(self._writer, batch, changes.added, changes.removed)
                    return
                except LakeConflict as error:
                    conflict = error
                    if self._written() >= batch:
                        return  # by a process that ran the stream before, and had not ended yet
            raise LakeError(f"{self.sink}: {_ATTEMPTS} attempts to commit came second: {conflict}")

    def _written(self) -> int:
        self._known.refresh()
        return -1 if self._writer is None else self._known.written(self._writer)

    @property
    def _known(self) -> LakeTable:
        assert self._table is not None, "begin has not been called"
        return self._table

    def _changes(self, rows: DataFrame) -> FileChanges:
        """Writes the files of a batch."""
        table, label = self._known, self.node.label
        laid_out = self._laid_out(rows)
        if self.sink.mode == "append":
            return FileChanges(written(label, table.files(), laid_out), [])
        merge = Merge(label, table, list(self._layout), self.sink.key)
        if self.sink.mode == "retract":
            return merge.retract(laid_out)
        return merge.upsert(laid_out, retracts=SIGN in rows.columns)

    def _laid_out(self, rows: DataFrame) -> DataFrame:
        """Returns rows with columns of the table and, if they are merged, what the merge needs to know."""
        computed = {
            WINDOW_BOUNDS[0]: lambda: F.timestamp_micros(F.col(START)),
            WINDOW_BOUNDS[1]: lambda: F.timestamp_micros(F.col(END)),
            SIGN_COLUMN: lambda: F.col(SIGN) if SIGN in rows.columns else F.lit(1),
        }
        columns = []
        for name, own in self._layout.items():
            value = F.col(quoted(own)) if own else computed[name]()
            columns.append(value.cast(from_arrow_type(self._known.columns.field(name).type)).alias(name))
        if self.sink.mode != "append":
            columns.append((F.col(SIGN) if SIGN in rows.columns else F.lit(1)).alias(SIGN))
            order = [name for name in (END, START, PANE_INDEX, TIME) if name in rows.columns]
            columns.append(F.struct(*order).alias(ORDER))
        return rows.select(*columns)

    def _check(self, columns: pa.Schema) -> pa.Schema:
        """Returns the columns of the table's rows. Refuses those that the table does not take."""
        columns = plain_schema(columns)
        names = self.sink.parts or columns.names
        own = dict(zip(names, columns.names, strict=True))
        known = None if self._table is None else self._table.columns
        computed = self.sink.computed_columns(
            self._pc, names, None if known is None else known.names, signed=self._signed
        )
        self._layout = {**own, **dict.fromkeys(computed, "")}
        every = pa.schema(
            [
                *(pa.field(name, columns.field(at).type) for name, at in own.items()),
                *((name, pa.int64() if name == SIGN_COLUMN else pa.timestamp("us", "UTC")) for name in computed),
            ]
        )
        merges = self.sink.mode != "append"
        if merges and (maps := [field.name for field in every if types.is_map(field.type)]):
            raise LakeError(
                f"mode={self.sink.mode!r} compares rows, and maps such as the column {maps[0]!r} cannot be compared; "
                "make a list of its entries with Select"
            )
        if self._table is not None and known is not None:
            self._table.check_writable(merges=merges)
            check_columns(known, every, merges=merges)
        return every

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Makes errors before the first batch errors of the pipeline."""
        try:
            yield
        except (LakeError, PipelineError) as error:
            raise PipelineError(f"{self.node}: {self.sink}: {error}") from None
