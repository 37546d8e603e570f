"""LocalCluster: runs topologies from this process, on one Spark session."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.failures import DeadLetter, ErrorReport
from headrace.dialects.storm.api.topology import Topology, TopologyError
from headrace.dialects.storm.cluster.controlthread import ControlThread
from headrace.dialects.storm.cluster.topologystatus import State, TopologyStatus
from headrace.local.processlock import LockHolder, exclusive
from headrace.model.times import SECOND, DurationLike, duration, now

if TYPE_CHECKING:
    from headrace.dialects.storm.cluster.runningtopology import RunningTopology

_RESERVED: Final = ("lock", "log", "requests")  # what the directory has besides a folder for each topology


class LocalCluster:
    """Runs topologies, which continue after a crash from `directory`; without one, their state ends with the cluster.

    A topology that is submitted under a name that the directory knows continues where it was. `spark` is a session to
    use. A cluster with a directory can be watched and commanded from other processes, by `headrace storm` and its page.

    >>> from headrace import storm
    >>> import tempfile, time
    >>> class Greetings(storm.Spout):
    ...     fields = ["word"]
    ...     def open(self, context):
    ...         self.left = ["hello", "world"]
    ...     def next_tuple(self):
    ...         if self.left:
    ...             self.emit([self.left.pop(0)], message_id=len(self.left))
    >>> class Exclaim(storm.BasicBolt):
    ...     fields = ["word"]
    ...     def execute(self, tup):
    ...         self.emit([tup["word"] + "!"])
    >>> log = tempfile.mkdtemp()
    >>> builder = storm.TopologyBuilder()
    >>> _ = builder.set_spout("greetings", Greetings())
    >>> _ = builder.set_bolt("exclaim", Exclaim(), parallelism=2).shuffle_grouping("greetings")
    >>> _ = builder.set_bolt("out", storm.ToTopic("loud", log=log)).global_grouping("exclaim")
    >>> with storm.LocalCluster() as cluster:
    ...     cluster.submit("greet", builder.create())
    ...     while sum(task.acked for task in cluster.status("greet").of("greetings")) < 2:
    ...         time.sleep(0.05)
    >>> from headrace.log import Log
    >>> sorted(record.value["word"] for record in Log(log).topic("loud").read(0))
    ['hello!', 'world!']
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, spark: Any = None, clock: Callable[[], int] = now
    ) -> None:
        self.temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="headrace-storm-") if directory is None else directory)
        self._spark, self.clock = spark, clock
        self._running: dict[str, RunningTopology] = {}
        self._commanded: dict[str, State] = {}  # the state of topologies during a command
        self._locks: dict[str, threading.Lock] = {}
        self._resources: ExitStack | None = None

    def __enter__(self) -> LocalCluster:
        with ExitStack() as resources:
            resources.enter_context(exclusive(self.directory / "lock", self._refusal))
            resources.callback(self._stop)
            if not self.temporary:
                resources.enter_context(ControlThread(self))  # it ends first, after the requests to it
            self._resources = resources.pop_all()
        return self

    def _refusal(self, other: LockHolder) -> TopologyError:
        return TopologyError(f"{str(self.directory)!r} is in use by the cluster of {other}; stop that first")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._resources is not None:
            self._resources.close()
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _stop(self) -> None:
        for name in list(self._running):
            self._running.pop(name).stop()

    @contextmanager
    def _command(self, name: str, state: State | None = None) -> Iterator[None]:
        """Executes commands to a topology one after the other; its status has this state meanwhile."""
        with self._locks.setdefault(name, threading.Lock()):
            if state is not None and name in self._running:
                self._commanded[name] = state
            try:
                yield
            finally:
                self._commanded.pop(name, None)

    def submit(self, name: str, topology: Topology, config: Config | None = None) -> None:
        """Runs a topology under a name."""
        from headrace.dialects.storm.cluster.runningtopology import RunningTopology
        from headrace.engine.spark.session import spark_session

        if self._resources is None:
            raise TopologyError("the cluster is not running; write with storm.LocalCluster() as cluster: ...")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name) or name in _RESERVED:
            raise TopologyError(
                f"the name of a topology is letters, digits, '_' and '-', at most 100, and none of "
                f"{', '.join(_RESERVED)}; got {name!r}"
            )
        with self._command(name):
            if name in self._running:
                raise TopologyError(f"a topology {name!r} is running already; kill it first, or choose another name")
            spark = self._spark or spark_session()
            log = str(self.directory / "log")
            running = RunningTopology(name, topology, config or Config(), self.directory / name, log, spark, self.clock)
            running.start()
            self._running[name] = running

    def names(self) -> list[str]:
        """Returns the names of the running topologies."""
        return sorted(self._running)

    def activate(self, name: str) -> None:
        """Lets the spouts emit again."""
        with self._command(name):
            self.running(name).activate()

    def deactivate(self, name: str) -> None:
        """Lets the spouts emit no more; pending tuples are processed."""
        with self._command(name):
            self.running(name).activate(False)

    def kill(self, name: str, wait: DurationLike | None = None) -> None:
        """Ends a topology once no tuple is pending, or after `wait`, by default the message timeout."""
        with self._command(name, "killed"):
            running = self.running(name)
            running.kill(_seconds(wait, running.config))
            del self._running[name]

    def rebalance(
        self, name: str, tasks: Mapping[str, int] | None = None, /, *, wait: DurationLike | None = None, **more: int
    ) -> None:
        """Changes the numbers of tasks of bolts, e.g. rebalance("word-count", count=4).

        Pending tuples are processed first, for `wait` at most, by default the message timeout. Then the state of the
        bolts is divided anew: state grouped by fields moves with its keys. Bolts whose ids are not names in Python go
        in a dict: rebalance("word-count", {"split-words": 4}).
        """
        with self._command(name, "rebalancing"):
            running = self.running(name)
            running.rebalance({**(tasks or {}), **more}, _seconds(wait, running.config))

    def status(self, name: str) -> TopologyStatus:
        """Returns the status of a topology; it prints as a table."""
        status = self.running(name).status()
        state = self._commanded.get(name)
        return status if state is None or status.state == "failed" else replace(status, state=state)

    def statuses(self) -> list[TopologyStatus]:
        """Returns the status of every topology; one whose status cannot be read has failed."""
        statuses = []
        for name in self.names():
            try:
                statuses.append(self.status(name))
            except Exception as error:
                if name in self._running:  # it was not killed meanwhile
                    statuses.append(TopologyStatus(name, "failed", 0, None, 0, (), error=f"no status: {error}"))
        return statuses

    def failures(self) -> dict[str, Exception]:
        """Returns the errors of the topologies that have failed."""
        failures = {}
        for name, running in list(self._running.items()):
            try:
                running.check()
            except Exception as error:
                failures[name] = error
        return failures

    def errors(self, name: str) -> list[ErrorReport]:
        """Returns the errors that its components reported, oldest first."""
        return self.running(name).errors()

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Returns the tuples that were given up, oldest first."""
        return self.running(name).dead_letters()

    def running(self, name: str) -> RunningTopology:
        """Returns a running topology."""
        try:
            return self._running[name]
        except KeyError:
            names = ", ".join(map(repr, self.names())) or "none"
            raise TopologyError(f"no topology {name!r} is running; there are: {names}") from None


def _seconds(wait: DurationLike | None, config: Config) -> float:
    # A number in a config is in microseconds already, a number in `wait` in seconds.
    microseconds: Any = config.message_timeout if wait is None else duration(wait)
    return float(microseconds / SECOND)
