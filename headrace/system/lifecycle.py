"""Runs a system in this process, for `headrace up` until Ctrl-C, and for `headrace batch` until its job ends."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import SparkSession

from headrace.engine.spark.session import spark_session
from headrace.local.privatefolder import check_folder
from headrace.server import Proxies, Tokens
from headrace.server.process.childprocess import ServerProcess
from headrace.system.home import Home, SystemConfig
from headrace.system.jobs import Job
from headrace.system.served import Served, server_process
from headrace.system.system import Schedule, System
from headrace.views.declare.app import App
from headrace.views.errors import ViewError
from headrace.views.stores import Store
from headrace.views.systemstatus import SystemStatus

_log = logging.getLogger("headrace.system")

_POLL: Final = 1.0  # seconds between two polls of the system

_SPARK: Final = {
    "spark.scheduler.mode": "FAIR",  # a micro-batch does not wait for all of a batch
}


@dataclass(frozen=True)
class Deployment:
    """A deployment of an app: its directory, Spark master, store and log.

    The defaults are in the directory and on this machine. `storm` is the directory of a cluster of topologies that the
    server shows, too; `functions` is a file of functions that a file of SQL calls.
    """

    app: Path
    home: Home
    master: str | None = None
    store: str | None = None
    log: str | None = None
    storm: Path | None = None
    functions: Path | None = None

    @property
    def served(self) -> Served:
        """The deployment as its server needs it."""
        return Served(
            app=str(self.app.absolute()),
            store=self.store or self.home.store,
            log=self.log or self.home.log,
            master=str(self.home.masters),
            spark=self.master or "local[*]",
            storm="" if self.storm is None else str(self.storm.absolute()),
        )


@contextmanager
def run_system(
    deployment: Deployment, schedule: Schedule, host: str, port: int, tokens: Tokens, proxies: Proxies = Proxies()
) -> Iterator[tuple[System, ServerProcess]]:
    """Runs a system and its server in the `with` block."""
    app = App.load(deployment.app)  # one that cannot be loaded leaves no directory behind
    if deployment.home.has_statements():
        raise ViewError(f"{deployment.home.path} is the directory of a file of SQL; use another one, with --dir")
    if deployment.storm is not None:
        check_folder(deployment.storm)
    with (
        deployment.home.exclusive() as lock,
        _open_system(app, deployment, schedule) as system,
        server_process(deployment.served, system, host=host, port=port, tokens=tokens, proxies=proxies) as server,
    ):
        lock.publish_url(server.url)
        yield system, server


class Supervised(Protocol):
    """A system that is polled until it is stopped: of views in Python, or of continuous SQL."""

    def poll(self) -> None:
        """Does what is due."""

    def status(self) -> SystemStatus:
        """Returns its status."""


def supervise(
    system: Supervised, server: ServerProcess, stop: threading.Event, show: Callable[[SystemStatus], None]
) -> None:
    """Polls a system and its server, and shows its status, until `stop`."""
    failed = False
    while not stop.is_set():
        system.poll()
        server.restart_if_ended()
        try:
            show(system.status())
            failed = False
        except Exception as error:  # a store goes and comes back; the layers start again by themselves
            if not failed:
                _log.error("the status of the system cannot be read: %s", str(error).partition("\n")[0])
            failed = True
        stop.wait(_POLL)


def compute_version(deployment: Deployment, view: str, *, incremental: bool, show: Callable[[Job | None], None]) -> Job:
    """Computes a batch version of a system that does not run, of all events that are in its log now."""
    app = App.load(deployment.app)
    with deployment.home.exclusive(), _open_system(app, deployment, Schedule(None, None)) as system:
        show(None)
        # A version covers the events that the speed layer has processed: that catches up with the log first.
        system.speeds[view].poll()
        system.speeds[view].catch_up()
        job = system.begin(view, incremental=incremental)
        while job.ended is None:
            system.jobs.wait(_POLL)
            show(job)
        return job


def spark_of(deployment: Deployment) -> SparkSession:
    """Starts Spark for a deployment; Ctrl-C remains what it was."""
    logging.getLogger("headrace.system").setLevel(logging.ERROR)
    interrupted = signal.getsignal(signal.SIGINT)
    spark = spark_session(deployment.master, _SPARK)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupted)  # Spark's handler would interrupt whatever runs
    return spark


@contextmanager
def _open_system(app: App, deployment: Deployment, schedule: Schedule) -> Iterator[System]:
    served = deployment.served
    store = Store(served.store)
    try:
        spark = spark_of(deployment)
        with System(app, deployment.home, spark=spark, store=store, log=served.log, schedule=schedule) as system:
            deployment.home.save_config(SystemConfig.of(served.app, served.store, served.log))
            yield system
    finally:
        store.close()
