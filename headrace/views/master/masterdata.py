"""Master data: every record of a topic, archived once to Parquet, by event day. Records are only ever added.

An archive step is a directory of files and, put last, a manifest of what they have. Each step begins where the one
before ended. What no manifest names is of a step that did not come to its end: nobody reads it, and a later one removes
it. One process writes at a time. `compaction` makes few files of many.
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
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.columns import Select, Where
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sources import ReadParquet
from headrace.model.times import SECOND, now
from headrace.views.archive.manifests import File, LocalShelf, Manifests, Step
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

    Files that a compaction has replaced are there for `grace` more seconds, for who reads them still.
    """

    def __init__(
        self, spark: SparkSession, feed: Feed, *, path: str, grace: float = 3600, clock: Callable[[], int] = now
    ) -> None:
        self.spark, self.feed, self.topic = spark, feed, feed.topic
        self.grace, self.clock = int(grace * SECOND), clock
        self.folder = Folder(spark, path)
        self.data, self.shelf = self.folder.folder("data"), self.folder.folder("manifests")
        local = self.shelf.local
        self._manifests = Manifests(self.shelf if local is None else LocalShelf(local))
        self._turn = threading.Lock()
        feed.check()

    def steps(self) -> list[Step]:
        """The steps that are complete, of which a compaction has made one of many."""
        return self._manifests.steps()

    def reached(self) -> Offsets:
        """The offsets before which all records are archived, or were gone before there was an archive."""
        return self.archived() or self.feed.starts()

    def archived(self) -> Offsets:
        """The same, as far as the archive itself knows: nothing before its first step."""
        steps = self.steps()
        return steps[-1].until if steps else {}

    def archive(self, until: Offsets | None = None) -> Step | None:
        """Archives what came since the last step, up to `until` or to the end; None if that was nothing.

        From the first time on, retention leaves in the log what is not archived yet. Kafka's does not ask.
        """
        with self.written() as steps:
            there = self.feed.ends()
            reached = steps[-1].until if steps else self.feed.starts()
            since = {**dict.fromkeys(there, 0), **reached}  # partitions may have come
            self.feed.hold(since)
            wanted = there if until is None else until
            if not reaches(there, wanted):
                raise ViewError(
                    f"topic {self.topic.name!r} ends at {there}, and cannot be archived up to {dict(wanted)}"
                )
            ends = {number: max(at, wanted.get(number, 0)) for number, at in since.items()}
            if since == ends:
                return None
            number, before = (steps[-1].number + 1, steps[-1].seal) if steps else (0, "")
            step = self._write(Step(number, since, ends, before=before), self.room("step", number))
            self.put(step)
            self.feed.hold(step.until)
            return step

    def compact(self) -> Step | None:
        """Makes few files of many, with the same records; None if there is nothing to do."""
        from headrace.views.master.compaction import compact

        return compact(self)

    @contextmanager
    def written(self) -> Iterator[list[Step]]:
        """This process writes, until the end of the block; gives the steps there are."""
        with self._turn, exclusive_writer(self.folder.local):
            steps = self.steps()
            sweep(self, steps)
            yield steps

    def room(self, kind: str, number: int) -> Folder:
        """A directory for new files, which is nobody else's."""
        return self.data.folder(f"{kind}-{number:06d}-{uuid.uuid4().hex[:8]}")

    def put(self, step: Step) -> None:
        """Writes a manifest, which makes its files count."""
        try:
            self.shelf.make()
            self.shelf.put(step.name, step.write())
        except FileExistsError:
            raise ViewError(
                f"another process has written {step.name} of the master data in {self.folder} meanwhile, and that "
                "counts; let one process archive a topic"
            ) from None

    def events(self, pipeline: Pipeline, since: Offsets, until: Offsets) -> PCollection:
        """The archived events from `since` to before `until`, of which there must be some."""
        if not reaches(self.reached(), until):
            raise ViewError(f"topic {self.topic.name!r} is archived up to {self.reached()}, not yet to {dict(until)}")
        read = ReadParquet(
            [self.address(each) for each in self.files(since, until)], event_time=self.topic.event_time or TIMESTAMP
        )
        label = f"master of {self.topic.name}"
        records = pipeline | label >> read | f"{label}, as of" >> Where(self._meant(since, until))
        values: PCollection = records | f"{label}, values" >> Select(*self.topic.columns)
        return values

    def count(self, since: Offsets, until: Offsets) -> int:
        """How many records are archived from `since` to before `until`; at most, if not every offset has one."""
        if not self.files(since, until):  # there may be offsets, and no records
            return 0
        return sum(step.count(since, until) for step in self.steps())

    def bad(self) -> dict[str, int]:
        """How many records are archived, for each reason, that could not be read as the topic's columns."""
        return dict(sum((Counter(step.bad) for step in self.steps()), Counter[str]()))

    def verify(self, since: Offsets, until: Offsets) -> None:
        """Refuses master data if the files that have the records from `since` to before `until` are not whole.

        It looks at no others, and of these at their sizes and footers.
        """
        masterfiles.check(self.data, self.files(since, until))

    def audit(self) -> None:
        """Refuses master data that is not as it was written: every manifest, every byte of every file, and no other."""
        named = [each for step in self.steps() for each in step.files]
        masterfiles.check(self.data, named, bytes=True)
        known = {each.path for each in named}.union(*(step.replaced or () for step in self.steps()))
        rooms = {path.partition("/")[0] for path in known}
        there = (name for name in (self.data.lengths() if self.data.exists() else ()) if name.endswith(".parquet"))
        if extra := [name for name in there if name.partition("/")[0] in rooms and name not in known]:
            raise ViewError(
                f"the master data in {self.data} has files that were not archived, such as {extra[0]}; they are in no "
                "answer: remove them"
            )

    def files(self, since: Offsets, until: Offsets) -> list[File]:
        """The files that may have records from `since` to before `until`."""
        return [each for step in self.steps() for each in step.files if each.overlaps(since, until)]

    def address(self, file: File) -> str:
        """Where a file is."""
        return f"{self.data}/{file.path}"

    def days(self, records: DataFrame) -> DataFrame:
        """Records with the day that is the name of their directory."""
        return records.withColumn(DAY, self._day(records))

    def _write(self, step: Step, to: Folder) -> Step:
        """Writes the records of a step, and sees that they are there; gives the step with what is known of them."""
        records = records_between(self.spark, self.feed, step.since, step.until)
        read = Observation()
        counted = self.days(records).observe(read, F.count(F.lit(1)).alias("records"))
        counted.write.partitionBy(DAY).parquet(str(to))
        place = records.select(*[name for name in (PARTITION, OFFSET, BAD) if name in records.columns])
        rows, files = masterfiles.written(self.spark, to, place.schema)
        if self.feed.dense:
            self._check(step, rows)
        else:
            # Of a step without records there are no files that tell their columns.
            step = self._counted(step, rows, self.spark.read.schema(place.schema).parquet(str(to)), read.get["records"])
        masterfiles.sync(to)
        return replace(step, files=files)

    def _day(self, records: DataFrame) -> Column:
        """The day of an event in UTC; null if it has no time that pipelines take."""
        name = self.topic.event_time
        if name is not None and isinstance(records.schema[name].dataType, DateType):
            return F.col(name)
        micros = F.unix_micros(TIMESTAMP if name is None else name)
        days = F.round((micros - F.pmod(micros, F.lit(_DAY_LENGTH))) / _DAY_LENGTH)
        return F.when((micros >= YEAR_1) & (micros < YEAR_10000), F.date_from_unix_date(days.cast("int")))

    def _check(self, step: Step, rows: list[Row]) -> None:
        """Refuses a step that does not have each of its offsets once."""
        found = _by_partition(rows)
        for number, until in step.until.items():
            first, count = step.since[number], until - step.since[number]
            if count and found.get(number) != (count, first, until - 1, (first + until - 1) * count // 2):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have each offset from {first} to "
                    f"{until - 1} of partition {number} once, but has not; archive again"
                )

    def _counted(self, step: Step, rows: list[Row], written: DataFrame, expected: int) -> Step:
        """A step with the counts of its records, which need not be one for each offset; refuses one of more or less."""
        distinct: dict[int, int] = (
            dict(written.groupBy(PARTITION).agg(F.count_distinct(OFFSET)).collect()) if rows else {}
        )
        found = _by_partition(rows)
        for number, (count, first, last, _) in found.items():
            since, until = step.since.get(number, 0), step.until.get(number, 0)
            if not (count == distinct[number] and since <= first and last < until):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have records of partition {number} "
                    f"from offset {since} to {until - 1}, each once, but has {count} from {first} to {last}, "
                    f"{distinct[number]} of them different; archive again"
                )
        counts = {number: count for number, (count, *_) in sorted(found.items())}
        if sum(counts.values()) != expected:
            raise ViewError(
                f"step {step.number} of the master data in {self.folder} should have the {expected} records that were "
                f"read, but has {sum(counts.values())}; archive again"
            )
        bad = written.where(f"{BAD} IS NOT NULL").groupBy(f"{BAD}.reason").count().collect()
        return replace(step, counts=counts, bad={reason: count for reason, count in sorted(bad)})

    def _meant(self, since: Offsets, until: Offsets) -> str:
        """The condition of events from `since` to before `until`."""
        places = " OR ".join(
            f"({PARTITION} = {number} AND {OFFSET} >= {since.get(number, 0)} AND {OFFSET} < {end})"
            for number, end in sorted(until.items())
        )
        return places if self.feed.strict else f"({places}) AND {BAD} IS NULL"


def _by_partition(rows: list[Row]) -> dict[int, tuple[int, int, int, int]]:
    """Of each partition how many records there are, the first and last offset, and the sum of all."""
    found: dict[int, tuple[int, int, int, int]] = {}
    for row in rows:
        count, first, last, total = found.get(row["partition"], (0, row["first"], row["last"], 0))
        ends = min(first, row["first"]), max(last, row["last"])
        found[row["partition"]] = (count + row["count"], *ends, total + int(row["total"]))
    return found
