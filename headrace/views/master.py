"""Master data: every record of a topic, archived once to Parquet, by event day. It is only ever added to.

An archive step is a directory of files and, written last, a manifest of the offsets it covers. Each step begins where
the one before ended. What no manifest names is of a step that did not come to its end: nobody reads it, and the next
step removes it. One process archives a topic at a time.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from headrace.engine.files import Folder
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.columns import Select, Where
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sources import ReadParquet
from headrace.model.times import SECOND
from headrace.views.errors import ViewError
from headrace.views.feeds import Feed
from headrace.views.feeds.feed import BAD, OFFSET, PARTITION, TIMESTAMP
from headrace.views.progress import Offsets, dump_offsets, load_offsets, reaches

_DAY: Final = "_day"
_DAY_LENGTH: Final = 24 * 3600 * SECOND


@dataclass(frozen=True)
class Step:
    """An archive step: it has the records from `since` to before `until`.

    `counts` says how many those are in each partition, if not every offset has one. So many could not be read as the
    topic's columns, for each reason, as `bad` says: they are kept as they came.

    >>> Step(0, {0: 2}, {0: 7, 1: 4}).count({0: 5}, {0: 6, 1: 9})
    5
    >>> Step(0, {0: 2}, {0: 7}, counts={0: 3}).records
    3
    """

    number: int
    since: Offsets
    until: Offsets
    counts: Offsets | None = None
    bad: Mapping[str, int] = field(default_factory=dict)

    def count(self, since: Offsets, until: Offsets) -> int:
        """How many of its records are from `since` to before `until`; at most, if not every offset has one."""
        there = [number for number in self.until if self.counts is None or self.counts.get(number)]
        ends = {number: min(self.until[number], until.get(number, 0)) for number in there}
        firsts = {number: max(self.since.get(number, 0), since.get(number, 0)) for number in there}
        return sum(max(ends[number] - firsts[number], 0) for number in there)

    @property
    def records(self) -> int:
        """How many it has."""
        return self.count(self.since, self.until) if self.counts is None else sum(self.counts.values())

    def write(self) -> bytes:
        held: dict[str, Any] = {"since": dump_offsets(self.since), "until": dump_offsets(self.until)}
        if self.counts is not None:
            held |= {"counts": dump_offsets(self.counts), "bad": dict(self.bad)}
        return json.dumps(held).encode()

    @classmethod
    def read(cls, number: int, data: bytes) -> Step:
        """What `write` wrote.

        >>> Step.read(3, Step(3, {0: 2}, {0: 7}).write()) == Step(3, {0: 2}, {0: 7})
        True
        """
        held = json.loads(data)
        counts = load_offsets(held["counts"]) if "counts" in held else None
        return cls(number, load_offsets(held["since"]), load_offsets(held["until"]), counts, held.get("bad", {}))


class Master:
    """The master data of the topic of a feed, in a directory."""

    def __init__(self, spark: SparkSession, feed: Feed, *, path: str) -> None:
        self.spark, self.feed, self.topic = spark, feed, feed.topic
        self.folder = Folder(spark, path)
        self._data, self._manifests = self.folder.folder("data"), self.folder.folder("manifests")
        self._steps: list[Step] = []  # those that were read: they never change
        feed.check()

    def steps(self) -> list[Step]:
        """The steps that are complete."""
        while (data := self._manifests.read(_manifest(len(self._steps)))) is not None:
            step = Step.read(len(self._steps), data)
            if self._steps and not _same(step.since, self._steps[-1].until):
                raise ViewError(
                    f"the master data in {self.folder} is damaged: step {step.number} begins at {step.since}, but the "
                    f"one before ended at {self._steps[-1].until}; restore its manifests"
                )
            self._steps.append(step)
        return list(self._steps)

    def reached(self) -> Offsets:
        """The offsets before which all records are archived, or were gone before there was an archive."""
        steps = self.steps()
        return steps[-1].until if steps else self.feed.starts()

    def archive(self, until: Offsets | None = None) -> Step | None:
        """Archives what came since the last step, up to `until` or to the end; None if that was nothing.

        From the first time on, retention leaves in the log what is not archived yet. Kafka's does not ask.
        """
        reached, there = self.reached(), self.feed.ends()
        since = {**dict.fromkeys(there, 0), **reached}  # partitions may have come
        self.feed.hold(since)
        wanted = there if until is None else until
        if not reaches(there, wanted):
            raise ViewError(f"topic {self.topic.name!r} ends at {there}, and cannot be archived up to {dict(wanted)}")
        step = Step(len(self._steps), since, {number: max(at, wanted.get(number, 0)) for number, at in since.items()})
        if step.since == step.until:
            return None
        self._remove_incomplete()
        step = self._write(step, self._data.folder(_directory(step.number)))
        self._manifests.make()
        self._manifests.write(_manifest(step.number), step.write())
        self.feed.hold(step.until)
        return step

    def events(self, pipeline: Pipeline, since: Offsets, until: Offsets) -> PCollection:
        """The archived events from `since` to before `until`, of which there must be some."""
        if not reaches(self.reached(), until):
            raise ViewError(f"topic {self.topic.name!r} is archived up to {self.reached()}, not yet to {dict(until)}")
        read = ReadParquet(self._files(since, until), event_time=self.topic.event_time or TIMESTAMP)
        label = f"master of {self.topic.name}"
        records = pipeline | label >> read | f"{label}, as of" >> Where(self._meant(since, until))
        values: PCollection = records | f"{label}, values" >> Select(*self.topic.columns)
        return values

    def count(self, since: Offsets, until: Offsets) -> int:
        """How many records are archived from `since` to before `until`; at most, if not every offset has one."""
        return sum(step.count(since, until) for step in self.steps())

    def bad(self) -> dict[str, int]:
        """How many records are archived, for each reason, that could not be read as the topic's columns."""
        return dict(sum((Counter(step.bad) for step in self.steps()), Counter[str]()))

    def verify(self, since: Offsets, until: Offsets) -> None:
        """Refuses master data if the files that have the records from `since` to before `until` are not whole."""
        steps = [step for step in self.steps() if step.count(since, until)]
        if not (expected := sum(step.records for step in steps)):
            return
        found = self.spark.read.parquet(*self._files(since, until)).count()
        if found != expected:
            raise ViewError(
                f"the master data in {self.folder} is damaged: steps {steps[0].number} to {steps[-1].number} should "
                f"have {expected} records, but have {found}; restore its files"
            )

    def _files(self, since: Offsets, until: Offsets) -> list[str]:
        """The files that have the records from `since` to before `until`."""
        # Not their directories: Spark would want them all in one, since it makes a column of the days in their names.
        folders = [self._data.folder(_directory(step.number)) for step in self.steps() if step.count(since, until)]
        return [f"{folder}/*/*.parquet" for folder in folders]

    def _write(self, step: Step, to: Folder) -> Step:
        """Writes the records of a step, and sees that they are there; gives the step with what is known of them."""
        records = self.feed.records(self.spark, step.since, step.until)
        read = Observation()
        counted = records.withColumn(_DAY, self._day(records)).observe(read, F.count(F.lit(1)).alias("records"))
        counted.write.partitionBy(_DAY).parquet(str(to))
        place = records.select(*[name for name in (PARTITION, OFFSET, BAD) if name in records.columns])
        # Of a step without records there are no files that tell their columns.
        written = self.spark.read.schema(place.schema).parquet(str(to))
        if self.feed.dense:
            self._check(step, written)
        else:
            step = self._counted(step, written, read.get["records"])
        _sync(to)
        return step

    def _day(self, records: DataFrame) -> Column:
        """The day of an event in UTC; null if it has no time that pipelines take."""
        name = self.topic.event_time
        if name is not None and isinstance(records.schema[name].dataType, DateType):
            return F.col(name)
        micros = F.unix_micros(TIMESTAMP if name is None else name)
        days = F.round((micros - F.pmod(micros, F.lit(_DAY_LENGTH))) / _DAY_LENGTH)
        return F.when((micros >= YEAR_1) & (micros < YEAR_10000), F.date_from_unix_date(days.cast("int")))

    def _check(self, step: Step, written: DataFrame) -> None:
        """Refuses a step that does not have each of its offsets once."""
        total = F.sum(F.col(OFFSET).cast("decimal(20,0)"))
        places = F.count(OFFSET), F.min(OFFSET), F.max(OFFSET), total
        found = {row[0]: row[1:] for row in written.groupBy(PARTITION).agg(*places).collect()}
        for number, until in step.until.items():
            first, count = step.since[number], until - step.since[number]
            if count and found.get(number) != (count, first, until - 1, (first + until - 1) * count // 2):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have each offset from {first} to "
                    f"{until - 1} of partition {number} once, but has not; archive again"
                )

    def _counted(self, step: Step, written: DataFrame, expected: int) -> Step:
        """A step with the counts of its records, which need not be one for each offset; refuses one of more or less."""
        places = F.count(OFFSET), F.count_distinct(OFFSET), F.min(OFFSET), F.max(OFFSET)
        found = {row[0]: row[1:] for row in written.groupBy(PARTITION).agg(*places).collect()}
        for number, (count, distinct, first, last) in found.items():
            since, until = step.since.get(number, 0), step.until.get(number, 0)
            if not (count == distinct and since <= first and last < until):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have records of partition {number} "
                    f"from offset {since} to {until - 1}, each once, but has {count} from {first} to {last}, "
                    f"{distinct} of them different; archive again"
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

    def _remove_incomplete(self) -> None:
        complete = {_directory(step.number) for step in self._steps}
        for name in self._data.names():
            if name not in complete:
                self._data.folder(name).delete()


def _same(one: Offsets, other: Offsets) -> bool:
    """Whether two offsets are the same; a partition that is missing is at its beginning."""
    return reaches(one, other) and reaches(other, one)


def _directory(number: int) -> str:
    return f"step-{number:06d}"


def _manifest(number: int) -> str:
    return f"step-{number:06d}.json"


def _sync(folder: Folder) -> None:
    """Sees to it that files on a local disk outlive a power cut: the log may forget what they have."""
    where = urlsplit(str(folder))
    if where.scheme != "file":
        return
    for path in [*Path(where.path).rglob("*"), Path(where.path), Path(where.path).parent]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
