"""LocalCluster: runs topologies on one Spark session, from this process."""

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

from headrace.dialects.storm.api.collectors import ErrorReport
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Topology, TopologyError
from headrace.dialects.storm.cluster.controlthread import ControlThread
from headrace.dialects.storm.cluster.topologystatus import State, TopologyStatus
from headrace.local.processlock import LockHolder, exclusive
from headrace.model.times import SECOND, DurationLike, duration, now

if TYPE_CHECKING:
    from headrace.dialects.storm.cluster.deadletters import DeadLetter
    from headrace.dialects.storm.cluster.runningtopology import RunningTopology

_OWN: Final = ("lock", "log", "requests")  # what the directory has beside a folder for each topology


class LocalCluster:
    """Runs topologies. What they need to go on after a crash is in `directory`; without one, it ends with the cluster.

    A topology that is submitted under a name that the directory knows goes on where it was. `spark` uses a session that
    exists. A cluster with a directory can be seen and commanded from elsewhere: by `headrace storm`, and on its page.

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
        self._doing: dict[str, State] = {}  # what is being done to topologies that are commanded now
        self._turns: dict[str, threading.Lock] = {}
        self._mine: ExitStack | None = None

    def __enter__(self) -> LocalCluster:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as mine:
            mine.enter_context(exclusive(self.directory / "lock", self._refusal))
            mine.callback(self._stop)
            if not self.temporary:
                mine.enter_context(ControlThread(self))  # it ends first, and so does what was asked for
            self._mine = mine.pop_all()
        return self

    def _refusal(self, other: LockHolder) -> TopologyError:
        return TopologyError(f"{str(self.directory)!r} is in use by the cluster of {other}; stop that first")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mine is not None:
            self._mine.close()
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _stop(self) -> None:
        for name in list(self._running):
            self._running.pop(name).stop()

    @contextmanager
    def _turn(self, name: str, doing: State | None = None) -> Iterator[None]:
        """Commands to a topology are done one after the other; its status says what is being done meanwhile."""
        with self._turns.setdefault(name, threading.Lock()):
            if doing is not None and name in self._running:
                self._doing[name] = doing
            try:
                yield
            finally:
                self._doing.pop(name, None)

    def submit(self, name: str, topology: Topology, config: Config | None = None) -> None:
        """Runs a topology under a name."""
        from headrace.dialects.storm.cluster.runningtopology import RunningTopology
        from headrace.engine.spark.session import spark_session

        if self._mine is None:
            raise TopologyError("the cluster is not running; write with storm.LocalCluster() as cluster: ...")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name) or name in _OWN:
            raise TopologyError(
                f"the name of a topology is letters, digits, '_' and '-', at most 100, and none of {', '.join(_OWN)}; "
                f"got {name!r}"
            )
        with self._turn(name):
            if name in self._running:
                raise TopologyError(f"a topology {name!r} is running already; kill it first, or choose another name")
            spark = self._spark or spark_session()
            log = str(self.directory / "log")
            running = RunningTopology(name, topology, config or Config(), self.directory / name, log, spark, self.clock)
            running.start()
            self._running[name] = running

    def names(self) -> list[str]:
        """The topologies that run."""
        return sorted(self._running)

    def activate(self, name: str) -> None:
        """Lets the spouts emit again."""
        with self._turn(name):
            self.running(name).activate()

    def deactivate(self, name: str) -> None:
        """Lets the spouts emit no more; what is under way goes on."""
        with self._turn(name):
            self.running(name).activate(False)

    def kill(self, name: str, wait: DurationLike | None = None) -> None:
        """Ends a topology once what is under way is done, or `wait` is over; that is the message timeout by default."""
        with self._turn(name, "killed"):
            running = self.running(name)
            running.kill(_seconds(wait, running.config))
            del self._running[name]

    def rebalance(
        self, name: str, tasks: Mapping[str, int] | None = None, /, *, wait: DurationLike | None = None, **more: int
    ) -> None:
        """Goes on with other numbers of tasks of bolts, e.g. rebalance("word-count", count=4).

        What is under way is done first, for the message timeout at most, or `wait`. Then the state of the bolts is
        shared out anew: what is grouped by fields moves with its keys. Bolts whose ids are no names of Python's are
        given in a dict: rebalance("word-count", {"split-words": 4}).
        """
        with self._turn(name, "rebalancing"):
            running = self.running(name)
            running.rebalance({**(tasks or {}), **more}, _seconds(wait, running.config))

    def status(self, name: str) -> TopologyStatus:
        """How far it is, task by task; prints as a table."""
        found = self.running(name).status()
        doing = self._doing.get(name)
        return found if doing is None or found.state == "failed" else replace(found, state=doing)

    def statuses(self) -> list[TopologyStatus]:
        """Those of all topologies; one that cannot tell has failed."""
        found = []
        for name in self.names():
            try:
                found.append(self.status(name))
            except Exception as error:
                if name in self._running:  # it was not killed meanwhile
                    found.append(TopologyStatus(name, "failed", 0, None, 0, (), error=f"no status: {error}"))
        return found

    def failures(self) -> dict[str, Exception]:
        """What topologies have failed with."""
        found = {}
        for name, running in list(self._running.items()):
            try:
                running.check()
            except Exception as error:
                found[name] = error
        return found

    def errors(self, name: str) -> list[ErrorReport]:
        """The errors that its components reported, oldest first."""
        return self.running(name).errors()

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """The tuples that failed more often than they were to be replayed."""
        return self.running(name).dead_letters()

    def running(self, name: str) -> RunningTopology:
        """A topology that runs."""
        try:
            return self._running[name]
        except KeyError:
            there = ", ".join(map(repr, self.names())) or "none"
            raise TopologyError(f"no topology {name!r} is running; there are: {there}") from None


def _seconds(wait: DurationLike | None, config: Config) -> float:
    # What a config has is in microseconds by now, where a number that is given is seconds.
    microseconds: Any = config.message_timeout if wait is None else duration(wait)
    return float(microseconds / SECOND)
