"""Master data: every record of a topic, archived once to Parquet, by event day. It is only ever added to.

An archive step is a directory of files and, written last, a manifest of the offsets it covers. Each step begins where
the one before ended. What no manifest names is of a step that did not come to its end: nobody reads it, and the next
step removes it. One process archives a topic at a time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from headrace.edges import topicsource
from headrace.edges.ranges import available, topic_at
from headrace.edges.topicrecords import OFFSET, kind_of
from headrace.engine.bundles import PART, TIME
from headrace.engine.files import Folder
from headrace.log import Group, Log
from headrace.log import Topic as LogTopic
from headrace.log.groups import start_of
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.columns import Select, Where
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sources import ReadParquet
from headrace.model.times import SECOND
from headrace.views.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.progress import Offsets, dump_offsets, load_offsets, reaches

# Beside the topic's columns, whose names begin with a letter.
_PARTITION: Final = "_partition"
_OFFSET: Final = "_offset"
_TIMESTAMP: Final = "_timestamp"
_DAY: Final = "_day"
_DAY_LENGTH: Final = 24 * 3600 * SECOND


@dataclass(frozen=True)
class Step:
    """An archive step: it has the records from `since` to before `until`.

    >>> Step(0, {0: 2}, {0: 7, 1: 4}).count({0: 5}, {0: 6, 1: 9})
    5
    """

    number: int
    since: Offsets
    until: Offsets

    def count(self, since: Offsets, until: Offsets) -> int:
        """How many of its records are from `since` to before `until`."""
        ends = {partition: min(end, until.get(partition, 0)) for partition, end in self.until.items()}
        firsts = {partition: max(self.since.get(partition, 0), since.get(partition, 0)) for partition in ends}
        return sum(max(ends[partition] - firsts[partition], 0) for partition in ends)

    def write(self) -> bytes:
        return json.dumps({"since": dump_offsets(self.since), "until": dump_offsets(self.until)}).encode()

    @classmethod
    def read(cls, number: int, data: bytes) -> Step:
        """What `write` wrote.

        >>> Step.read(3, Step(3, {0: 2}, {0: 7}).write())
        Step(number=3, since={0: 2}, until={0: 7})
        """
        held = json.loads(data)
        return cls(number, load_offsets(held["since"]), load_offsets(held["until"]))


class Master:
    """The master data of a topic of the embedded log, in a directory."""

    def __init__(self, spark: SparkSession, topic: Topic, *, log: str, path: str) -> None:
        self.spark, self.topic, self.log = spark, topic, os.path.abspath(log)
        self.folder = Folder(spark, path)
        self._data, self._manifests = self.folder.folder("data"), self.folder.folder("manifests")
        self._steps: list[Step] = []  # those that were read: they never change
        if kind_of(self._topic.settings.values) != "rows":
            raise ViewError(
                f"the values of topic {topic.name!r} are {self._topic.settings.values}; master data has columns: "
                f"create the topic with values={topic.schema!r}"
            )

    def steps(self) -> list[Step]:
        """The steps that are complete."""
        while (data := self._manifests.read(_manifest(len(self._steps)))) is not None:
            step = Step.read(len(self._steps), data)
            if self._steps and step.since != self._steps[-1].until:
                raise ViewError(
                    f"the master data in {self.folder} is damaged: step {step.number} begins at {step.since}, but the "
                    f"one before ended at {self._steps[-1].until}; restore its manifests"
                )
            self._steps.append(step)
        return list(self._steps)

    def reached(self) -> Offsets:
        """The offsets before which all records are archived, or were gone before there was an archive."""
        steps = self.steps()
        if steps:
            return steps[-1].until
        return {number: start_of(self._topic, number, "earliest") for number in range(len(self._topic.partitions))}

    def archive(self, until: Offsets | None = None) -> Step | None:
        """Archives what came since the last step, up to `until` or to the end; None if that was nothing.

        From the first time on, retention leaves in the log what is not archived yet.
        """
        since, there = dict(self.reached()), available(self._topic)
        group = Group(Log(self.log), self.topic.name, "master")
        group.commit(since)
        wanted = there if until is None else until
        if not reaches(there, wanted):
            raise ViewError(f"topic {self.topic.name!r} ends at {there}, and cannot be archived up to {dict(wanted)}")
        step = Step(len(self._steps), since, {number: max(at, wanted.get(number, 0)) for number, at in since.items()})
        if step.since == step.until:
            return None
        self._remove_incomplete()
        written = self._data.folder(_directory(step.number))
        self._records(step).write.partitionBy(_DAY).parquet(str(written))
        self._check(step, self.spark.read.parquet(str(written)))
        _sync(written)
        self._manifests.make()
        self._manifests.write(_manifest(step.number), step.write())
        group.commit(dict(step.until))
        return step

    def events(self, pipeline: Pipeline, since: Offsets, until: Offsets) -> PCollection:
        """The archived events from `since` to before `until`, of which there must be some."""
        if not reaches(self.reached(), until):
            raise ViewError(f"topic {self.topic.name!r} is archived up to {self.reached()}, not yet to {dict(until)}")
        read = ReadParquet(self._files(since, until), event_time=self.topic.event_time or _TIMESTAMP)
        label = f"master of {self.topic.name}"
        records = pipeline | label >> read | f"{label}, as of" >> Where(_meant(since, until))
        values: PCollection = records | f"{label}, values" >> Select(*self.topic.columns)
        return values

    def count(self, since: Offsets, until: Offsets) -> int:
        """How many events are archived from `since` to before `until`."""
        return sum(step.count(since, until) for step in self.steps())

    def verify(self, since: Offsets, until: Offsets) -> None:
        """Refuses master data whose files do not have the records from `since` to before `until` that it covers."""
        if not (expected := self.count(since, until)):
            return
        found = self.spark.read.parquet(*self._files(since, until)).where(_meant(since, until)).count()
        if found != expected:
            raise ViewError(
                f"the master data in {self.folder} is damaged: from {dict(since)} to {dict(until)} there should be "
                f"{expected} records, but there are {found}; restore its files"
            )

    def _files(self, since: Offsets, until: Offsets) -> list[str]:
        """The files that have the records from `since` to before `until`."""
        # Not their directories: Spark would want them all in one, since it makes a column of the days in their names.
        folders = [self._data.folder(_directory(step.number)) for step in self.steps() if step.count(since, until)]
        return [f"{folder}/*/*.parquet" for folder in folders]

    @property
    def _topic(self) -> LogTopic:
        return topic_at(self.log, self.topic.name)

    def _records(self, step: Step) -> DataFrame:
        """The records of a step, with their place and their day."""
        tasks = self.spark.sparkContext.defaultParallelism
        label = f"master of {self.topic.name}"
        scan = topicsource.Scan(label, self.log, self.topic.name, dict(step.since), dict(step.until), tasks)
        records = topicsource.load(self.spark, scan)
        own = [name for name in records.columns if name not in (TIME, PART, OFFSET)]
        return records.select(
            *own,
            F.timestamp_micros(TIME).alias(_TIMESTAMP),
            F.col(PART).cast("int").alias(_PARTITION),
            F.col(OFFSET).alias(_OFFSET),
            self._day(records).alias(_DAY),
        )

    def _day(self, records: DataFrame) -> Column:
        """The day of an event in UTC; null if it has no time that pipelines take."""
        name = self.topic.event_time
        if name is not None and isinstance(records.schema[name].dataType, DateType):
            return F.col(name)
        micros = F.col(TIME) if name is None else F.unix_micros(name)
        days = F.round((micros - F.pmod(micros, F.lit(_DAY_LENGTH))) / _DAY_LENGTH)
        return F.when((micros >= YEAR_1) & (micros < YEAR_10000), F.date_from_unix_date(days.cast("int")))

    def _check(self, step: Step, written: DataFrame) -> None:
        """Refuses a step that does not have each of its records once."""
        total = F.sum(F.col(_OFFSET).cast("decimal(20,0)"))
        places = F.count(_OFFSET), F.min(_OFFSET), F.max(_OFFSET), total
        found = {row[0]: row[1:] for row in written.groupBy(_PARTITION).agg(*places).collect()}
        for number, until in step.until.items():
            first, count = step.since[number], until - step.since[number]
            if count and found.get(number) != (count, first, until - 1, (first + until - 1) * count // 2):
                raise ViewError(
                    f"step {step.number} of the master data in {self.folder} should have each offset from {first} to "
                    f"{until - 1} of partition {number} once, but has not; archive again"
                )

    def _remove_incomplete(self) -> None:
        complete = {_directory(step.number) for step in self._steps}
        for name in self._data.names():
            if name not in complete:
                self._data.folder(name).delete()


def _meant(since: Offsets, until: Offsets) -> str:
    """The condition of records from `since` to before `until`."""
    return " OR ".join(
        f"({_PARTITION} = {number} AND {_OFFSET} >= {since.get(number, 0)} AND {_OFFSET} < {end})"
        for number, end in sorted(until.items())
    )


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
