"""Compaction of master data: rewrites the many small files of each day as few large ones, with the same records.

The new files are compared with the old ones before a manifest makes them valid. The old ones stay for a while, for
those who read them; what a crash leaves is removed as after an interrupted archive step.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.views.archive.manifests import ArchiveStep, MasterFile
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import OFFSET, PARTITION
from headrace.views.master import masterfiles

if TYPE_CHECKING:
    from headrace.views.master.masterdata import Master

_LARGE: Final = 128 << 20  # bytes of a file that is not rewritten, and about those of new ones


def compact(master: Master) -> ArchiveStep | None:
    """Compacts all steps; returns the base that replaces them, or None if there is nothing to do."""
    with master.exclusive() as steps:
        old = small_files([file for step in steps for file in step.files])
        if not old or steps[-1].replaced is not None:
            return None
        last = steps[-1]
        new = _rewrite(master, old, last.number)
        replaced = {file.path for file in old}
        unchanged = [file for step in steps for file in step.files if file.path not in replaced]
        now = master.clock()
        pending = {path: at for path, at in (steps[0].replaced or {}).items() if at + master.grace > now}
        counts = [step.counts for step in steps]
        base = ArchiveStep(
            last.number,
            steps[0].since,
            last.until,
            None if None in counts else dict(sum((Counter(count) for count in counts if count), Counter[int]())),
            dict(sum((Counter(step.bad) for step in steps), Counter[str]())),
            (*unchanged, *new),
            last.seal,
            {**pending, **dict.fromkeys(replaced, now)},
        )
        master.publish(base)
        return base


def small_files(files: list[MasterFile]) -> list[MasterFile]:
    """Returns the files to rewrite: the small ones of days that have more than one of them.

    >>> files = [MasterFile(f"a/_day={day}/{n}", 1, 9, {}) for n, day in enumerate((1, 1, 2))]
    >>> [file.path for file in small_files(files)]
    ['a/_day=1/0', 'a/_day=1/1']
    """
    by_day: dict[str, list[MasterFile]] = defaultdict(list)
    for file in files:
        if file.bytes < _LARGE:
            by_day[file.day].append(file)
    return [file for of_day in by_day.values() if len(of_day) > 1 for file in of_day]


def _rewrite(master: Master, old: list[MasterFile], number: int) -> tuple[MasterFile, ...]:
    """Writes new files with the records of old ones."""
    to = master.new_folder("base", number)
    masterfiles.check_files(master.data, old)
    records = master.spark.read.parquet(*[master.uri(file) for file in old])
    # A day too large for one file is divided by offsets, so that each file has a range of them.
    offsets = math.ceil(sum(file.records for file in old) * _LARGE / max(sum(file.bytes for file in old), 1))
    days = master.with_day(records).repartition("_day", F.floor(F.col(OFFSET) / offsets))
    days.sortWithinPartitions("_day", PARTITION, OFFSET).write.partitionBy("_day").parquet(str(to))
    _, new = masterfiles.describe_files(master.spark, to, records.select(PARTITION, OFFSET).schema)
    before, after = _content(records), _content(master.spark.read.schema(records.schema).parquet(str(to)))
    if before != after or sum(file.records for file in new) != sum(file.records for file in old):
        raise ViewError(
            f"the compacted files of the master data in {master.folder} have other records than the old ones, which "
            "stay valid; compact again"
        )
    masterfiles.sync_files(to)
    return new


def _content(records: DataFrame) -> dict[int, tuple[object, ...]]:
    """Summarizes the records of each partition: their number, and sums over their offsets and values."""
    values = F.xxhash64(*[F.col(f"`{name}`") for name in sorted(records.columns) if name != "_day"])
    sums = [
        F.sum(number.cast("decimal(38,0)")) for number in (F.col(OFFSET), values, F.xxhash64(values, F.col(OFFSET)))
    ]
    rows = records.groupBy(PARTITION).agg(F.count(OFFSET), F.count_distinct(OFFSET), *sums).collect()
    return {row[0]: tuple(row[1:]) for row in rows}
