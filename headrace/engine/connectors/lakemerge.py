"""Merges the elements of a batch into the rows of a data lake's table: rows are replaced by key, or taken back.

The net effect of a batch is computed first, as for tables of databases: an element and its retraction cancel. Then the
table's rows are joined with it, which gives the rows to delete, by file and position; files that have any are written
anew without them, and what is added goes to new files. All of this is done by workers; the driver gets names of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.edges.lakes import LakeError, LakeFiles, LakeTable
from headrace.engine.catalyst.parsing import quoted
from headrace.engine.connectors.laketables import (
    FILE,
    POSITION,
    REWRITTEN,
    FileRewriter,
    file_frame,
    rows_of,
    written,
)
from headrace.engine.spark.persistence import persisted
from headrace.engine.worker.hidden import SIGN

ORDER: Final = "__order"
"""In rows of a batch: by which of several elements of one key the last is found."""
_NET: Final = "__net"
_WANTED: Final = "__wanted"
_RANK: Final = "__rank"
_POSITIONS: Final = "__positions"


@dataclass(frozen=True)
class FileChanges:
    """The files that a batch adds to a table, and those that it removes."""

    added: list[bytes]
    removed: list[bytes]


@dataclass(frozen=True)
class Merge:
    """A merge into a table, as it is now: `key` is what tells rows apart, and `names` are all columns of elements."""

    label: str
    table: LakeTable
    names: Sequence[str]
    key: Sequence[str]

    def upsert(self, rows: DataFrame, *, retracts: bool) -> FileChanges:
        """Replaces the rows that have the keys of elements; deletes those that are taken back and not replaced.

        Of several elements of a key, the last one counts, by ORDER.
        """
        net = self._net(rows)
        with persisted(net):
            ranked = Window.partitionBy(*self._columns(self.key)).orderBy(
                F.col(ORDER).desc(), *self._columns(self.names)
            )
            added = net.where(F.col(_NET) > 0).withColumn(_RANK, F.row_number().over(ranked)).where(F.col(_RANK) == 1)
            files = self.table.data_files()
            deleted = [self._matching(files, added, self.key)]
            if retracts:
                removed = net.where(F.col(_NET) < 0)
                gone = _renamed(added, self.key)
                removed = removed.join(gone, self._same(removed, gone, self.key), "left_anti")
                deleted.append(self._matching(files, removed, self.names))
            new, old, _ = self._rewritten(files, reduce(DataFrame.union, deleted))
            return FileChanges(new + self._written(added), old)

    def retract(self, rows: DataFrame) -> FileChanges:
        """Adds the rows of elements; for each that is taken back it deletes one, which must be there."""
        net, on = self._net(rows), self.key or self.names
        with persisted(net):
            added = net.where(F.col(_NET) > 0).withColumn(_RANK, F.explode(F.sequence(F.lit(1), F.col(_NET))))
            wanted = (
                net.where(F.col(_NET) < 0).groupBy(*self._columns(on)).agg((-F.sum(_NET)).cast("long").alias(_WANTED))
            )
            files = self.table.data_files()
            found = self._found(files, wanted, on)
            number = wanted.agg(F.sum(_WANTED)).first()
            assert number is not None
            new, old, count = self._rewritten(files, found.select(FILE, POSITION))
            if count < (number[0] or 0):
                raise self._missing(wanted, found, on)
            return FileChanges(new + self._written(added), old)

    def _net(self, rows: DataFrame) -> DataFrame:
        """Returns how many of each row a batch adds; a negative number, if it removes them."""
        last = F.max(F.when(F.col(SIGN) > 0, F.col(ORDER))).alias(ORDER)
        net = rows.groupBy(*self._columns(self.names)).agg(F.sum(SIGN).cast("int").alias(_NET), last)
        return net.where(F.col(_NET) != 0)

    def _matching(self, files: list[bytes], rows: DataFrame, on: Sequence[str]) -> DataFrame:
        """Returns the places of the table's rows that are equal to any of these in some columns."""
        target, wanted = self._target(rows, files, on), _renamed(rows, on)
        return target.join(wanted, self._same(target, wanted, on), "left_semi").select(FILE, POSITION)

    def _found(self, files: list[bytes], wanted: DataFrame, on: Sequence[str]) -> DataFrame:
        """Returns the places of as many of the table's equal rows as are wanted, with their columns."""
        target, other = self._target(wanted, files, on), _renamed(wanted, on, _WANTED)
        matching = target.join(other, self._same(target, other, on))
        first = Window.partitionBy(*self._columns(on)).orderBy(FILE, POSITION)
        return matching.withColumn(_RANK, F.row_number().over(first)).where(F.col(_RANK) <= F.col(_WANTED))

    def _target(self, rows: DataFrame, files: list[bytes], on: Sequence[str]) -> DataFrame:
        columns = pa.schema([self.table.columns.field(name) for name in on])
        return rows_of(rows.sparkSession, self.label, self._access, files, columns)

    def _rewritten(self, files: list[bytes], deleted: DataFrame) -> tuple[list[bytes], list[bytes], int]:
        """Writes the files anew in which rows are deleted; returns new files, old ones, and how many rows went."""
        if not files:
            return [], [], 0
        places = deleted.groupBy(FILE).agg(F.collect_list(POSITION).alias(_POSITIONS))
        rewriter = FileRewriter(self.label, self._access, tuple(self.table.columns.names), _POSITIONS)
        named = places.join(file_frame(deleted.sparkSession, files), FILE)
        rows = named.mapInArrow(rewriter, from_arrow_schema(REWRITTEN)).collect()
        new = [bytes(row.new) for row in rows if row.new is not None]
        return new, [files[number] for number in sorted({row[FILE] for row in rows})], sum(row.deleted for row in rows)

    def _written(self, added: DataFrame) -> list[bytes]:
        return written(self.label, self._access, added.select(*self._columns(self.names)))

    def _missing(self, wanted: DataFrame, found: DataFrame, on: Sequence[str]) -> LakeError:
        """Returns an error that names a row which is taken back and not there."""
        counts = _renamed(found.groupBy(*self._columns(on)).agg(F.count(F.lit(1)).alias(_NET)), on, _NET)
        joined = wanted.join(counts, self._same(wanted, counts, on), "left")
        row = joined.where(F.coalesce(_NET, F.lit(0)) < F.col(_WANTED)).select(*self._columns(on)).first()
        assert row is not None
        return LakeError(
            f"a retraction takes back {dict(zip(on, row, strict=True))}, which is not in the table; check whether "
            "others changed the table, or another run filled it"
        )

    @property
    def _access(self) -> LakeFiles:
        return self.table.files()

    def _columns(self, names: Sequence[str]) -> list[Column]:
        return [F.col(quoted(name)) for name in names]

    def _same(self, left: DataFrame, renamed: DataFrame, on: Sequence[str]) -> Column:
        """Returns the condition for a row and a renamed one to be equal in some columns; nulls are equal, too."""
        pairs = [left[quoted(name)].eqNullSafe(renamed[_alias(number)]) for number, name in enumerate(on)]
        return reduce(Column.__and__, pairs)


def _alias(number: int) -> str:
    return f"__on_{number}"


def _renamed(rows: DataFrame, on: Sequence[str], *others: str) -> DataFrame:
    """Returns these columns under names that no table has."""
    columns = [F.col(quoted(name)).alias(_alias(number)) for number, name in enumerate(on)]
    return rows.select(*columns, *others)
