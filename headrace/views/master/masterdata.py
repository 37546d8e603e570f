"""Master data: every record of a topic, archived once to Parquet by event day. Records are only ever added.

An archive step is a directory of files and a manifest of them, which is written last. Each step begins where the one
before ended. Files that no manifest names are of a step that was interrupted: nobody reads them, and a later step
removes them. One process writes at a time. `compaction` makes few files of many.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from headrace.engine.spark.files import Folder
from headrace.local.privatefolder import check_tree
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.columns import Select, Where
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sources import ReadParquet
from headrace.model.times import SECOND, now
from headrace.views.archive.manifests import ArchiveStep, LocalManifestFolder, Manifests, MasterFile
from headrace.views.archive.writerlock import exclusive_writer
from headrace.views.errors import ViewError
from headrace.views.feeds import Feed
from headrace.views.feeds.feed import BAD, OFFSET, PARTITION, TIMESTAMP
from headrace.views.master import masterfiles
from headrace.views.master.feedframes import records_between
from headrace.views.master.sweep import sweep
from headrace.views.offsets import Offsets, reaches

DAY: Final = "_day"
_DAY_LENGTH: Final = 24 * 3600 * SECOND


class Master:
    """The master data of the topic of a feed, in a directory.

    Files that a compaction has replaced are deleted after `grace` seconds, so that readers of them can finish.
    """

    def __init__(
        self, spark: SparkSession, feed: Feed, *, path: str, grace: float = 3600, clock: Callable[[], int] = now
    ) -> None:
        self.spark, self.feed, self.topic = spark, feed, feed.topic
        self.grace, self.clock = int(grace * SECOND), clock
        self.folder = Folder(spark, path)
        if (place := self.folder.local) is not None:
            check_tree(place)
        self.data, self.manifests = self.folder.folder("data"), self.folder.folder("manifests")
        local = self.manifests.local
        self._steps = Manifests(self.manifests if local is None else LocalManifestFolder(local))
        self._writing = threading.Lock()
        feed.check()

    def steps(self) -> list[ArchiveStep]:
        """Returns the complete steps; a compaction makes one of many."""
        return self._steps.steps()

    def reached(self) -> Offsets:
        """Returns the offsets before which all records are archived, or were gone before there was an archive."""
        return self.archived() or self.feed.starts()

    def archived(self) -> Offsets:
        """Returns the offsets before which all records are archived; none before the first step."""
        steps = self.steps()
        return steps[-1].until if steps else {}

    def archive(self, until: Offsets | None = None) -> ArchiveStep | None:
        """Archives the records since the last step, up to `until` or to the end; returns None if there are none.

        From the first time on, the log's retention keeps what is not archived yet. Kafka's does not know of archives.
        """
        with self.exclusive() as steps:
            available = self.feed.ends()
            reached = steps[-1].until if steps else self.feed.starts()
            since = {**dict.fromkeys(available, 0), **reached}  # partitions may have been added
            self.feed.mark_archived(since)
            wanted = available if until is None else until
            if not reaches(available, wanted):
                raise ViewError(
                    f"topic {self.topic.name!r} ends at {available}, and cannot be archived up to {dict(wanted)}"
                )
            ends = {number: max(at, wanted.get(number, 0)) for number, at in since.items()}
            if since == ends:
                return None
            number, before = (steps[-1].number + 1, steps[-1].seal) if steps else (0, "")
            step = self._write(ArchiveStep(number, since, ends, before=before), self.new_folder("step", number))
            self.publish(step)
            self.feed.mark_archived(step.until)
            return step

    def compact(self) -> ArchiveStep | None:
        """Makes few files of many, with the same records; returns None if there is nothing to do."""
        from headrace.views.master.compaction import compact

        return compact(self)

    @contextmanager
    def exclusive(self) -> Iterator[list[ArchiveStep]]:
        """Holds the writer's lock in the `with` block; yields the steps there are."""
        with self._writing, exclusive_writer(self.folder.local):
            steps = self.steps()
            sweep(self, steps)
            yield steps

    def new_folder(self, kind: str, number: int) -> Folder:
        """Returns a directory for new files, with a unique name."""
        return self.data.folder(f"{kind}-{number:06d}-{uuid.uuid4().hex[:8]}")

    def publish(self, step: ArchiveStep) -> None:
        """Writes the manifest of a step, which makes its files part of the master data."""
        try:
            self.manifests.make()
            self.manifests.put(step.name, step.write())
        except FileExistsError:
            raise ViewError(
                f"another process has written {step.name} of the master data in {self.folder} meanwhile, and that one "
                "is valid; let only one process archive a topic"
            ) from None

    def events(self, pipeline: Pipeline, since: Offsets, until: Offsets) -> PCollection:
        """Reads the archived events from `since` to before `until`; there must be some."""
        if not reaches(self.reached(), until):
            raise ViewError(f"topic {self.topic.name!r} is archived up to {self.reached()}, not yet to {dict(until)}")
        read = ReadParquet(
            [self.uri(file) for file in self.files(since, until)],
            event_time=self.topic.event_time or TIMESTAMP,
            bad="skip",
        )
        label = f"master of {self.topic.name}"
        records = pipeline | label >> read | f"{label}, as of" >> Where(self._condition(since, until))
        values: PCollection = records | f"{label}, values" >> Select(*self.topic.columns)
        return values

    def count(self, since: Offsets, until: Offsets) -> int:
        """Counts the archived records from `since` to before `until`; an upper bound, if not every offset has one."""
        if not self.files(since, until):  # there may be offsets without records
            return 0
        return sum(step.count(since, until) for step in self.steps())

    def bad(self) -> dict[str, int]:
        """Counts, by reason, the archived records that could not be read as the topic's columns."""
        return dict(sum((Counter(step.bad) for step in self.steps()), Counter[str]()))

    def verify(self, since: Offsets, until: Offsets) -> None:
        """Refuses damaged files, by size and footer, among those of the records from `since` to before `until`."""
        masterfiles.check_files(self.data, self.files(since, until))

    def audit(self) -> None:
        """Refuses master data that is not as it was written: checks every manifest, every byte, and for extra files."""
        files = [file for step in self.steps() for file in step.files]
        masterfiles.check_files(self.data, files, bytes=True)
        known = {file.path for file in files}.union(*(step.replaced or () for step in self.steps()))
        folders = {path.partition("/")[0] for path in known}
        existing = (name for name in (self.data.lengths() if self.data.exists() else ()) if name.endswith(".parquet"))
        if extra := [name for name in existing if name.partition("/")[0] in folders and name not in known]:
            raise ViewError(
                f"the master data in {self.data} has files that were not archived, such as {extra[0]}; no answer "
                "reads them: remove them"
            )

    def files(self, since: Offsets, until: Offsets) -> list[MasterFile]:
        """Returns the files that may have records from `since` to before `until`."""
        return [file for step in self.steps() for file in step.files if file.overlaps(since, until)]

    def uri(self, file: MasterFile) -> str:
        """Returns the URI of a file."""
        return f"{self.data}/{file.path}"

    def with_day(self, records: DataFrame) -> DataFrame:
        """Adds the column of the event day, which names the directory of a record."""
        return records.withColumn(DAY, self._day(records))

    def _write(self, step: ArchiveStep, to: Folder) -> ArchiveStep:
        """Writes the records of a step and checks them; returns the step with its files."""
        records = records_between(self.spark, self.feed, step.since, step.until)
        observed = Observation()
        counted = self.with_day(records).observe(observed, F.count(F.lit(1)).alias("records"))
        counted.write.partitionBy(DAY).parquet(str(to))
        columns = records.select(*[name for name in (PARTITION, OFFSET, BAD) if name in records.columns])
        rows, files = masterfiles.describe_files(self.spark, to, columns.schema)
        if self.feed.dense:
            self._check(step, rows)
        else:
            # The schema is given, since a step without records has no files to infer it from.
            written = self.spark.read.schema(columns.schema).parquet(str(to))
            step = self._counted(step, rows, written, observed.get["records"])
        masterfiles.sync_files(to)
        return replace(step, files=files)

    def _day(self, records: DataFrame) -> Column:
        """Returns the column of the event day in UTC; null if the event has no time that pipelines accept."""
        name = self.topic.event_time
        if name is not None and isinstance(records.schema[name].dataType, DateType):
            return F.col(name)
        micros = F.unix_micros(TIMESTAMP if name is None else name)
        days = F.round((micros - F.pmod(micros, F.lit(_DAY_LENGTH))) / _DAY_LENGTH)
        return F.when((micros >= YEAR_1) & (micros < YEAR_10000), F.date_from_unix_date(days.cast("int")))

    def _check(self, step: ArchiveStep, rows: list[Row]) -> None:
        """Refuses a step that does not have each of its offsets once."""
        summaries = _by_partition(rows)
        for number, until in step.until.items():
            first, count = step.since[number], until - step.since[number]
            if count and summaries.get(number) != (count, first, until - 1, (first + until - 1) * count // 2):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have each offset from {first} to "
                    f"{until - 1} of partition {number} once, but does not; archive again"
                )

    def _counted(self, step: ArchiveStep, rows: list[Row], written: DataFrame, expected: int) -> ArchiveStep:
        """Returns a step with the counts of its records, if offsets may be missing; refuses it if records are."""
        distinct: dict[int, int] = (
            dict(written.groupBy(PARTITION).agg(F.count_distinct(OFFSET)).collect()) if rows else {}
        )
        summaries = _by_partition(rows)
        for number, (count, first, last, _) in summaries.items():
            since, until = step.since.get(number, 0), step.until.get(number, 0)
            if not (count == distinct[number] and since <= first and last < until):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have records of partition {number} "
                    f"from offset {since} to {until - 1}, each once, but has {count} from {first} to {last}, "
                    f"{distinct[number]} of them different; archive again"
                )
        counts = {number: count for number, (count, *_) in sorted(summaries.items())}
        if sum(counts.values()) != expected:
            raise ViewError(
                f"step {step.number} of the master data in {self.folder} should have the {expected} records that were "
                f"read, but has {sum(counts.values())}; archive again"
            )
        bad = written.where(f"{BAD} IS NOT NULL").groupBy(f"{BAD}.reason").count().collect()
        return replace(step, counts=counts, bad={reason: count for reason, count in sorted(bad)})

    def _condition(self, since: Offsets, until: Offsets) -> str:
        """Returns the SQL condition of events from `since` to before `until`."""
        places = " OR ".join(
            f"({PARTITION} = {number} AND {OFFSET} >= {since.get(number, 0)} AND {OFFSET} < {end})"
            for number, end in sorted(until.items())
        )
        return places if self.feed.strict else f"({places}) AND {BAD} IS NULL"


def _by_partition(rows: list[Row]) -> dict[int, tuple[int, int, int, int]]:
    """Summarizes the records of each partition: count, first and last offset, and the sum of all offsets."""
    summaries: dict[int, tuple[int, int, int, int]] = {}
    for row in rows:
        count, first, last, total = summaries.get(row["partition"], (0, row["first"], row["last"], 0))
        ends = min(first, row["first"]), max(last, row["last"])
        summaries[row["partition"]] = (count + row["count"], *ends, total + int(row["total"]))
    return summaries
