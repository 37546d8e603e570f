"""Batch jobs: run one at a time, in the order in which they were submitted, on a thread of their own."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from headrace.model.errors import HeadraceError
from headrace.model.times import SECOND
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import encode_time
from headrace.views.layers.batchlayer import ProgressListener
from headrace.views.systemstatus import JobStatus

_log = logging.getLogger("headrace.system")

_REMEMBERED: Final = 20  # jobs that have ended; those that have not are all known

Work = Callable[[ProgressListener], int]
"""Runs a job, reports its steps, and returns the number of the version that it made."""


@dataclass
class Job:
    """A job that computes a batch version of a view: waiting, running or ended."""

    id: int
    view: str
    incremental: bool
    asked: int
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    step: str = "waiting"
    done: int | None = None
    of: int | None = None
    ended: int | None = None
    version: int | None = None
    error: str | None = None

    def to_json(self, now: int) -> JobStatus:
        """Encodes the job as JSON.

        >>> Job(1, "visitors", False, asked=5_000_000).to_json(now=8_200_000)["seconds"]
        3.2
        """
        return {
            "id": self.id,
            "view": self.view,
            "incremental": self.incremental,
            "state": self.state,
            "step": self.step,
            "done": self.done,
            "of": self.of,
            "started": encode_time(self.asked),
            "seconds": ((self.ended or now) - self.asked) / SECOND,
            "version": self.version,
            "error": self.error,
        }


class JobStopped(HeadraceError):
    """A job ended with its system; its version is discarded, and the job can be submitted again."""


class Jobs:
    """The jobs of a system: all that have not ended, and the newest of those that have.

    >>> jobs = Jobs(clock=lambda: 0)
    >>> jobs.begin("visitors", incremental=False, work=lambda job: 4).view
    'visitors'
    >>> jobs.wait()
    >>> [(job.state, job.version) for job in jobs.list()]
    [('done', 4)]
    >>> jobs.close()
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock, self._number, self.closing = clock, 0, False
        self._lock = threading.Lock()
        self._jobs: list[Job] = []
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle, self._queued = threading.Condition(), 0
        self._thread = threading.Thread(target=self._run, name="headrace-batch", daemon=True)
        self._thread.start()

    def begin(self, view: str, *, incremental: bool, work: Work) -> Job:
        """Submits a job, one of a view at a time."""
        with self._lock:
            if any(job.view == view and job.state in ("waiting", "running") for job in self._jobs):
                raise ViewError(f"a batch version of view {view!r} is being computed; try again when it is done")
            self._number += 1
            job = Job(self._number, view, incremental, self._clock())
            forgotten = [old for old in self._jobs if old.ended is not None][:-_REMEMBERED]
            self._jobs = [*(old for old in self._jobs if old not in forgotten), job]
        self._put(lambda: self._run_job(job, work))
        return job

    def run_between(self, work: Callable[[], object]) -> None:
        """Calls a function between two jobs; its errors are logged."""
        self._put(lambda: self._try(work))

    def list(self) -> list[Job]:
        """Returns the jobs, oldest first."""
        with self._lock:
            return list(self._jobs)

    def wait(self, seconds: float | None = None) -> None:
        """Waits until all submitted work is done, at most so long."""
        with self._idle:
            self._idle.wait_for(lambda: not self._queued, seconds)

    def close(self) -> None:
        """Starts no more jobs. The running job ends at its next step."""
        self.closing = True
        self._put(lambda: None)
        self._thread.join()

    def _put(self, work: Callable[[], None]) -> None:
        with self._idle:
            self._queued += 1
        self._queue.put(work)

    def _run(self) -> None:
        while not self.closing:
            self._queue.get()()
            with self._idle:
                self._queued -= 1
                self._idle.notify_all()

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            if not self.closing:
                _log.error("%s", error)

    def _run_job(self, job: Job, work: Work) -> None:
        def report(step: str, done: int | None, of: int | None) -> None:
            if self.closing:
                raise JobStopped("the system was stopped; submit the job again")
            job.step, job.done, job.of = step, done, of

        job.state = "running"
        try:
            job.version = work(report)
            job.state = job.step = "done"
        except Exception as error:
            if not self.closing:
                _log.error("a batch version of view %r failed: %s", job.view, error)
            job.error, job.state = str(error), "failed"
        job.ended = self._clock()
