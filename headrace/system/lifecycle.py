"""`headrace up` and `headrace batch`: a system in this process, from its start to Ctrl-C or to the end of its job."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.engine.spark.session import spark_session
from headrace.server import Tokens
from headrace.server.process.childprocess import ServerProcess
from headrace.system.home import Home, Runs
from headrace.system.jobs import Job
from headrace.system.served import Served, server_process
from headrace.system.system import Schedule, System
from headrace.views.declare.app import App
from headrace.views.stores import Store

_log = logging.getLogger("headrace.system")

_LOOK: Final = 1.0  # seconds from one look at the system to the next

_SPARK: Final = {
    "spark.scheduler.mode": "FAIR",  # a micro-batch does not wait for all of a batch
}


@dataclass(frozen=True)
class Place:
    """Where a system is and on what it runs: its app, its directory, its Spark master, store and log.

    What is not given is in the directory, or on this machine. `storm`: the directory of a cluster of topologies that
    its server shows, too.
    """

    app: Path
    home: Home
    master: str | None = None
    store: str | None = None
    log: str | None = None
    storm: Path | None = None

    @property
    def served(self) -> Served:
        """The same, as a server needs it."""
        return Served(
            app=str(self.app.absolute()),
            store=self.store or self.home.store,
            log=self.log or self.home.log,
            master=str(self.home.masters),
            spark=self.master or "local[*]",
            storm="" if self.storm is None else str(self.storm.absolute()),
        )


@contextmanager
def running(
    place: Place, schedule: Schedule, host: str, port: int, tokens: Tokens
) -> Iterator[tuple[System, ServerProcess]]:
    """A system and its server, for the time of a block."""
    with (
        place.home.exclusive() as lock,
        _system(place, schedule) as system,
        server_process(place.served, system, host=host, port=port, tokens=tokens) as server,
    ):
        lock.publish_url(server.url)
        yield system, server


def look_after(
    system: System, server: ServerProcess, stop: threading.Event, show: Callable[[dict[str, Any]], None]
) -> None:
    """Lets a system and its server do what is due, and shows how far it is, until `stop`."""
    told = False
    while not stop.is_set():
        system.look()
        server.restart_if_ended()
        try:
            show(system.status())
            told = False
        except Exception as error:  # a store goes and comes back; the layers see to themselves
            if not told:
                _log.error("the system cannot tell how far it is: %s", str(error).partition("\n")[0])
            told = True
        stop.wait(_LOOK)


def compute(place: Place, view: str, *, incremental: bool, show: Callable[[Job | None], None]) -> Job:
    """Computes a batch version of a system that does not run: of all events that its log has now."""
    with place.home.exclusive(), _system(place, Schedule(None, None)) as system:
        show(None)
        # A version covers what the speed layer has: first that catches up with the log.
        system.speeds[view].look()
        system.speeds[view].catch_up()
        job = system.begin(view, incremental=incremental)
        while job.ended is None:
            system.jobs.wait(_LOOK)
            show(job)
        return job


@contextmanager
def _system(place: Place, schedule: Schedule) -> Iterator[System]:
    app, served = App.load(place.app), place.served
    store = Store(served.store)
    try:
        logging.getLogger("headrace.system").setLevel(logging.ERROR)
        interrupted = signal.getsignal(signal.SIGINT)
        spark = spark_session(place.master, _SPARK)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupted)  # Spark's own would interrupt whatever is being done
        with System(app, place.home, spark=spark, store=store, log=served.log, schedule=schedule) as system:
            place.home.remember(Runs.of(served.app, served.store, served.log))
            yield system
    finally:
        store.close()
