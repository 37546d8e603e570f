"""The pipelines that a script runs, watched: their status as JSON, for a server in a process of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace.engine.handle import Handle, Metrics, Status, StreamStatus
from headrace.engine.plan.graphjson import graph_json
from headrace.model.elementwise import DeadLetter
from headrace.model.pipeline import Graph
from headrace.model.times import SECOND, now
from headrace.server.http.listening import PORT
from headrace.server.process.childprocess import ServerProcess
from headrace.server.security.proxies import Proxies
from headrace.server.security.tokens import Tokens
from headrace.server.service import Operations, Service
from headrace.system.rates import Rate
from headrace.system.statusjson import encode_metrics, stage_status
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import encode_time
from headrace.views.systemstatus import DeadLetterJson, JobStatus, PipelineStatus, SystemStatus

_LONGEST: Final = 10_000  # characters of a bad record that are shown
_MAX_RUNS: Final = 50  # of a script that runs pipelines in a loop, the last ones are shown

_WAYS: Final = {"in", "out"}


class Run:
    """A run of a pipeline, from its start on. What it was at its end is remembered, since Spark may be gone then."""

    def __init__(self, graph: Graph, handle: Handle, clock: Callable[[], int]) -> None:
        self.handle, self._graph, self._clock = handle, graph, clock
        self._began, self._rate = clock(), Rate()
        self._last: tuple[PipelineStatus, dict[str, DeadLetter]] | None = None
        self._ended = False

    def status(self) -> PipelineStatus:
        """Returns the status of the run."""
        return self._look()[0]

    def dead_letters(self) -> dict[str, DeadLetter]:
        """Returns the last bad record of each source that had some, by label."""
        return self._look()[1]

    def _look(self) -> tuple[PipelineStatus, dict[str, DeadLetter]]:
        if not self._ended or self._last is None:
            status = self.handle.status()
            error = None if status.state != "failed" else error_of(self.handle)
            letters = {label: records.last for label, records in status.bad.items() if records.last is not None}
            self._last = self._encode(status, self.handle.metrics(), error), letters
            self._ended = status.state != "running"
        return self._last

    def _encode(self, status: Status, metrics: Metrics, error: str | None) -> PipelineStatus:
        time = self._clock()
        stream = status if isinstance(status, StreamStatus) else None
        sources = [] if stream is None else list(stream.sources.values())
        watermarks = [source.watermark for source in sources if source.watermark is not None]
        lags = [source.lag for source in sources if source.lag is not None]
        if stream is None:  # of a batch Spark does not say what it reads: the busiest transform stands for it
            self._rate.record(
                time, max((each[way] for each in metrics.values() for way in _WAYS & each.keys()), default=0)
            )
        rates = [source.rows_per_second for source in sources if source.rows_per_second is not None]
        return {
            "kind": "batch" if stream is None else "stream",
            "state": status.state,
            "error": error,
            "started": encode_time(self._began),
            "seconds": (time - self._began) / SECOND,
            "step": status.stage,
            "tasks_done": status.tasks_done,
            "tasks": status.tasks,
            "batches": None if stream is None else stream.batches,
            "batch_seconds": None if stream is None else stream.batch_seconds,
            "records_per_second": self._rate.per_second if stream is None else sum(rates) if rates else None,
            "lag": sum(lags) if lags else None,
            "watermark": encode_time(min(watermarks, default=None)),
            "stages": [] if stream is None else [stage_status(*each) for each in stream.exchanges.items()],
            "graph": graph_json(self._graph, metrics),
            "bad": {label: records.counts for label, records in status.bad.items()},
            "metrics": encode_metrics(status.recorded),
        }


class Runs:
    """The runs of a script, in the order in which they began. Pass `add` to `Settings(started=...)`.

    >>> import headrace as hr
    >>> from headrace.engine.settings import Settings, using
    >>> runs = Runs()
    >>> with using(Settings(started=runs.add)), hr.Pipeline() as p:
    ...     odd = p | "numbers" >> hr.Create([1, 2, 3]) | "odd" >> hr.Filter(lambda n: n % 2) | "keep" >> hr.Collect()
    >>> (run,) = runs.status()["pipelines"].values()
    >>> run["kind"], run["state"], run["graph"]["edges"][1]
    ('batch', 'done', {'from': 'odd', 'to': 'keep', 'elements': 2})
    """

    def __init__(self, clock: Callable[[], int] = now) -> None:
        self._clock, self._began = clock, clock()
        self._runs: dict[str, Run] = {}
        self._number, self._over, self._lock = 0, False, threading.Lock()

    def add(self, graph: Graph, handle: Handle) -> None:
        """Adds a run that has begun."""
        with self._lock:
            self._number += 1
            place = next(iter(graph)).place
            self._runs[f"{self._number}: {Path(place.file).name}:{place.line}"] = Run(graph, handle, self._clock)
            while len(self._runs) > _MAX_RUNS:
                del self._runs[next(iter(self._runs))]

    def of(self, handle: Handle) -> Run | None:
        """Returns the run of a handle; None if it is not known any more."""
        return next((run for run in self._listed().values() if run.handle is handle), None)

    def end(self) -> None:
        """Notes that the script is over: there will be no more runs."""
        self._over = True

    def status(self) -> SystemStatus:
        """Returns the status of the pipelines; a script has no topics, views and jobs."""
        return {
            "pid": os.getpid(),
            "started": encode_time(self._began),
            "now": encode_time(self._clock()),
            "topics": {},
            "views": {},
            "jobs": [],
            "pipelines": {name: run.status() for name, run in self._listed().items()},
            "over": self._over,
        }

    def compute(self, view: str, *, incremental: bool) -> JobStatus:
        """Refuses: there are no views."""
        raise ViewError(f"a script has no view {view!r}; headrace up runs views")

    def dead_letters(self, limit: int) -> list[DeadLetterJson]:
        """Returns the last bad record of each source, those of the last pipeline first."""
        letters: list[DeadLetterJson] = [
            {
                "view": name,
                "position": str(letter.position),
                "reason": letter.error,
                "message": letter.message,
                "record": str(letter.element)[:_LONGEST],
                "time": None,
            }
            for name, run in reversed(self._listed().items())
            for letter in run.dead_letters().values()
        ]
        return letters[:limit]

    def _listed(self) -> dict[str, Run]:
        with self._lock:
            return dict(self._runs)


def service_of(arguments: Mapping[str, Any], operations: Operations) -> Service:
    """Makes the service of a script's server, in its process."""
    return Service({}, {}, operations, pipelines=True)


@contextmanager
def serve_runs(
    *, host: str = "127.0.0.1", port: int | None = None, tokens: Tokens = Tokens(), proxies: Proxies = Proxies()
) -> Iterator[tuple[Runs, str]]:
    """Serves the page and the metrics of runs for the duration of the block; yields the runs and the URL.

    Without a port it takes the default one, or if that is taken any free one.
    """
    runs = Runs()
    make = partial(
        ServerProcess, f"{__name__}:{service_of.__name__}", {}, runs, host=host, tokens=tokens, proxies=proxies
    )
    try:
        server = make(port=PORT if port is None else port)
    except OSError:
        if port is not None:
            raise
        server = make(port=0)
    with server:
        yield runs, server.url


def error_of(handle: Handle) -> str:
    """Returns the error that a pipeline has failed with, as text."""
    try:
        handle.wait(0)
    except Exception as error:
        return str(error)
    return ""
