"""Compaction of master data: of each day's many small files it makes few large ones, with the same records.

The new files are compared with the old ones before a manifest lets them count. The old ones stay for a while, for who
reads them; what a crash leaves is removed as that of an archive step is.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.views.archive.manifests import File, Step
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import OFFSET, PARTITION
from headrace.views.master import masterfiles

if TYPE_CHECKING:
    from headrace.views.master.masterdata import Master

_LARGE: Final = 128 << 20  # bytes of a file that is left alone, and that new ones are to have


def compact(master: Master) -> Step | None:
    """Compacts all steps there are; gives the base in their place, or None if there is nothing to do."""
    with master.written() as steps:
        old = small([each for step in steps for each in step.files])
        if not old or steps[-1].replaced is not None:
            return None
        last = steps[-1]
        new = _rewritten(master, old, last.number)
        gone = {each.path for each in old}
        kept = [each for step in steps for each in step.files if each.path not in gone]
        now = master.clock()
        pending = {path: at for path, at in (steps[0].replaced or {}).items() if at + master.grace > now}
        counts = [step.counts for step in steps]
        base = Step(
            last.number,
            steps[0].since,
            last.until,
            None if None in counts else dict(sum((Counter(each) for each in counts if each), Counter[int]())),
            dict(sum((Counter(step.bad) for step in steps), Counter[str]())),
            (*kept, *new),
            last.seal,
            {**pending, **dict.fromkeys(gone, now)},
        )
        master.put(base)
        return base


def small(files: list[File]) -> list[File]:
    """The files that are to be made one: small ones of days that have more than one of them.

    >>> [file.path for file in small([File(f"a/_day={day}/{n}", 1, 9, {}) for n, day in enumerate((1, 1, 2))])]
    ['a/_day=1/0', 'a/_day=1/1']
    """
    by_day: dict[str, list[File]] = defaultdict(list)
    for each in files:
        if each.bytes < _LARGE:
            by_day[each.day].append(each)
    return [each for found in by_day.values() if len(found) > 1 for each in found]


def _rewritten(master: Master, old: list[File], number: int) -> tuple[File, ...]:
    """New files with the records of old ones."""
    to = master.room("base", number)
    masterfiles.check(master.data, old)
    records = master.spark.read.parquet(*[master.address(each) for each in old])
    # A day too large for one file is divided by offsets, so that files have ranges of them.
    offsets = math.ceil(sum(each.records for each in old) * _LARGE / max(sum(each.bytes for each in old), 1))
    days = master.days(records).repartition("_day", F.floor(F.col(OFFSET) / offsets))
    days.sortWithinPartitions("_day", PARTITION, OFFSET).write.partitionBy("_day").parquet(str(to))
    _, new = masterfiles.written(master.spark, to, records.select(PARTITION, OFFSET).schema)
    before, after = _content(records), _content(master.spark.read.schema(records.schema).parquet(str(to)))
    if before != after or sum(each.records for each in new) != sum(each.records for each in old):
        raise ViewError(
            f"the compacted files of the master data in {master.folder} have other records than those before, which "
            "still count; compact again"
        )
    masterfiles.sync(to)
    return new


def _content(records: DataFrame) -> dict[int, tuple[object, ...]]:
    """Of each partition how many records there are, and sums over their places and their values."""
    values = F.xxhash64(*[F.col(f"`{name}`") for name in sorted(records.columns) if name != "_day"])
    sums = [F.sum(each.cast("decimal(38,0)")) for each in (F.col(OFFSET), values, F.xxhash64(values, F.col(OFFSET)))]
    found = records.groupBy(PARTITION).agg(F.count(OFFSET), F.count_distinct(OFFSET), *sums).collect()
    return {row[0]: tuple(row[1:]) for row in found}
