"""A system: the speed layers of all views, their batches and their master data, on one Spark session.

It has no clock of its own: whoever runs a system calls `poll` now and then, which does what is due.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.sql import SparkSession

from headrace.engine.spark.session import spark_session
from headrace.local.privatefolder import make_folder
from headrace.model.times import SECOND, now
from headrace.server.service import Service
from headrace.system.home import Home
from headrace.system.jobs import Job, Jobs
from headrace.system.rates import Rate
from headrace.system.speedsupervisor import SpeedSupervisor
from headrace.system.statusjson import topic_status, view_status
from headrace.views.declare.app import App
from headrace.views.declare.declarations import View
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import encode_time
from headrace.views.layers.batchlayer import BatchLayer, ProgressListener
from headrace.views.layers.speedlayer import SpeedLayer
from headrace.views.master.masterdata import Master
from headrace.views.offsets import Offsets
from headrace.views.query.queries import Answer, Query
from headrace.views.stores import Store
from headrace.views.systemstatus import DeadLetterJson, JobStatus, SystemStatus

_log = logging.getLogger("headrace.system")

_BATCH_TAG: Final = "headrace-batch"
_MINUTE: Final = 60 * SECOND
_STEPS: Final = 60  # archive steps of master data; more are compacted


@dataclass(frozen=True)
class Schedule:
    """The intervals at which topics are archived and views get a batch version, in microseconds; None for never."""

    archive: int | None = _MINUTE
    batch: int | None = 10 * _MINUTE


class System:
    """Runs the views of an app. Leaving its block stops everything; another system continues from there.

    >>> import headrace as hr, pathlib, tempfile
    >>> clicks = hr.Topic("clicks", schema="user string")
    >>> @hr.view(clicks)
    ... def per_user(events):
    ...     return events | hr.GroupBy("user").aggregate(n=hr.count())
    >>> with System.at(pathlib.Path(tempfile.mkdtemp()), App.of({"per_user": per_user})) as system:
    ...     _ = system.service.topics["clicks"].append(b'{"user": "ann"}')
    ...     system.catch_up()
    ...     [(row.key, row.values) for row in system.answer("per_user").rows]
    [({'user': 'ann'}, {'n': 1})]
    """

    def __init__(
        self,
        app: App,
        home: Home,
        *,
        spark: SparkSession,
        store: Store,
        log: str,
        schedule: Schedule = Schedule(),
        clock: Callable[[], int] = now,
    ) -> None:
        self.app, self.home, self.spark, self.store = app, home, spark, store
        self._schedule, self._clock, self._began = schedule, clock, clock()
        self.service = Service.of(app, store, log, self)
        self.masters = {name: self._master(name) for name in app.topics}
        self.jobs = Jobs(clock)
        self.speeds = {name: SpeedSupervisor(self._speed_layer(view), clock) for name, view in app.views.items()}
        self._rates = {name: Rate() for name in app.topics}
        self._unreachable = set[str]()  # topics whose offsets could not be read
        self._archived = self._computed = self._began
        self._closed = False

    @classmethod
    def at(cls, path: Path, app: App, *, spark: SparkSession | None = None) -> Self:
        """Makes a system with store and log in a directory, for notebooks and examples: nothing is scheduled."""
        home = Home(path)
        make_folder(path)
        spark, store = spark or spark_session(), Store(home.store)
        return cls(app, home, spark=spark, store=store, log=home.log, schedule=Schedule(None, None))

    def catch_up(self) -> None:
        """Waits until the speed layers have processed all that is in the topics now."""
        self.poll()
        for speed in self.speeds.values():
            speed.catch_up()

    def answer(self, view: str, query: Query = Query()) -> Answer:
        """Queries a view."""
        return self.service.views[view].answer(query)

    def poll(self) -> None:
        """Does what is due: starts speed layers, also those that failed; archives; submits batch jobs."""
        time = self._clock()
        for speed in self.speeds.values():
            speed.poll()
        for name, rate in self._rates.items():
            try:
                rate.record(time, sum(self.service.topics[name].offsets().values()))
                self._unreachable.discard(name)
            except Exception as error:  # brokers go and come back; the layers start again by themselves
                if name not in self._unreachable:  # logged once, and not with every poll
                    _log.error("the offsets of topic %r cannot be read: %s", name, error)
                self._unreachable.add(name)
        if self._schedule.archive is not None and time - self._archived >= self._schedule.archive:
            self._archived = time
            for master in self.masters.values():
                self.jobs.run_between(partial(self._archive, master))
        if self._schedule.batch is not None and time - self._computed >= self._schedule.batch:
            self._computed = time
            for name in self.app.views:
                with suppress(ViewError):  # a job of the view is running already
                    self.begin(name, incremental=True)

    def begin(self, view: str, *, incremental: bool) -> Job:
        """Submits a job that computes a batch version of a view."""
        layer = BatchLayer(
            self.app.views[view], self.service.views[view], self.masters[self.app.views[view].topic.name]
        )

        def work(report: ProgressListener) -> int:
            self._beside_streams()
            self.spark.sparkContext.addJobTag(_BATCH_TAG)
            return layer.compute(incremental=incremental, progress=report).number

        return self.jobs.begin(view, incremental=incremental, work=work)

    def compute(self, view: str, *, incremental: bool) -> JobStatus:
        """Submits a job that computes a batch version of a view; returns its status."""
        return self.begin(view, incremental=incremental).to_json(self._clock())

    def status(self) -> SystemStatus:
        """Returns the status of topics, views and jobs."""
        time = self._clock()
        topics = {
            name: topic_status(master.feed, master.archived(), self._rates[name].per_second, self._read(name))
            for name, master in self.masters.items()
        }
        views = {
            name: view_status(speed, self.service.views[name], topics[speed.layer.view.topic.name])
            for name, speed in self.speeds.items()
        }
        return {
            "pid": os.getpid(),
            "started": encode_time(self._began),
            "now": encode_time(time),
            "topics": topics,
            "views": views,
            "dead_letters": self.store.dead_letters.counts(),
            "jobs": [job.to_json(time) for job in self.jobs.list()],
        }

    def dead_letters(self, limit: int) -> list[DeadLetterJson]:
        """Returns the records that are no events of a view, newest first."""
        return [
            {
                "view": letter.view,
                "position": letter.position,
                "reason": letter.reason,
                "message": letter.message,
                "record": letter.record,
                "time": encode_time(letter.met),
            }
            for letter in self.store.dead_letters.newest(limit)
        ]

    def close(self) -> None:
        """Stops everything. The next system repeats interrupted micro-batches; jobs must be submitted again."""
        if self._closed:
            return
        self._closed = True
        self.spark.sparkContext.cancelJobsWithTag(_BATCH_TAG)
        self.jobs.close()
        for speed in self.speeds.values():
            speed.stop()

    def _archive(self, master: Master) -> None:
        self._beside_streams()
        _archive(master)

    def _beside_streams(self) -> None:
        """Puts what this thread does into another pool than the streams: micro-batches would wait for it."""
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "batch")

    def _master(self, topic: str) -> Master:
        return Master(self.spark, self.service.topics[topic].feed, path=str(self.home.masters / topic))

    def _speed_layer(self, view: View) -> SpeedLayer:
        stored = self.service.views[view.name]
        return SpeedLayer(
            view,
            stored,
            self.service.topics[view.topic.name].feed,
            checkpoint=str(self.home.checkpoint(view.name, stored.identity())),
            spark=self.spark,
            dead_letters=self.store.dead_letters,
        )

    def _read(self, topic: str) -> dict[str, Offsets]:
        """Returns the offsets that each view of a topic has reached."""
        views = [name for name, view in self.app.views.items() if view.topic.name == topic]
        return {name: self.service.views[name].progress().reached or {} for name in views}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _archive(master: Master) -> None:
    master.archive()
    if len(master.steps()) > _STEPS:
        master.compact()
