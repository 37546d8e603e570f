"""LocalCluster: runs topologies on one Spark session, from this process."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.dialects.storm.collected import ErrorReport
from headrace.dialects.storm.config import Config
from headrace.dialects.storm.topology import Topology, TopologyError
from headrace.holding import Holder, held
from headrace.model.times import SECOND, DurationLike, duration, now

if TYPE_CHECKING:
    from headrace.dialects.storm.outcomes import DeadLetter
    from headrace.dialects.storm.running import RunningTopology
    from headrace.dialects.storm.status import TopologyStatus


class LocalCluster:
    """Runs topologies. What they need to go on after a crash is in `directory`; without one, it ends with the cluster.

    A topology that is submitted under a name that the directory knows goes on where it was. `spark` uses a session that
    exists.

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
        self._spark, self._clock = spark, clock
        self._running: dict[str, RunningTopology] = {}
        self._mine: ExitStack | None = None

    def __enter__(self) -> LocalCluster:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ExitStack() as mine:
            mine.enter_context(held(self.directory / "lock", self._refusal))
            self._mine = mine.pop_all()
        return self

    def _refusal(self, other: Holder) -> TopologyError:
        return TopologyError(f"{str(self.directory)!r} is in use by the cluster of {other}; stop that first")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._running):
            self._running.pop(name).stop()
        if self._mine is not None:
            self._mine.close()
        if self.temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def submit(self, name: str, topology: Topology, config: Config | None = None) -> None:
        """Runs a topology under a name."""
        from headrace.dialects.storm.running import RunningTopology
        from headrace.engine.session import spark_session

        if self._mine is None:
            raise TopologyError("the cluster is not running; write with storm.LocalCluster() as cluster: ...")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
            raise TopologyError(f"the name of a topology is letters, digits, '_' and '-', at most 100, got {name!r}")
        if name in self._running:
            raise TopologyError(f"a topology {name!r} is running already; kill it first, or choose another name")
        spark = self._spark or spark_session()
        log = str(self.directory / "log")
        running = RunningTopology(name, topology, config or Config(), self.directory / name, log, spark, self._clock)
        running.start()
        self._running[name] = running

    def names(self) -> list[str]:
        """The topologies that run."""
        return sorted(self._running)

    def activate(self, name: str) -> None:
        """Lets the spouts emit again."""
        self.running(name).activate()

    def deactivate(self, name: str) -> None:
        """Lets the spouts emit no more; what is under way goes on."""
        self.running(name).activate(False)

    def kill(self, name: str, wait: DurationLike | None = None) -> None:
        """Ends a topology once what is under way is done, or `wait` is over; that is the message timeout by default."""
        running = self.running(name)
        running.kill(duration(running.config.message_timeout if wait is None else wait) / SECOND)
        del self._running[name]

    def rebalance(self, name: str, *, wait: DurationLike | None = None, **tasks: int) -> None:
        """Goes on with other numbers of tasks of bolts, e.g. rebalance("word-count", count=4).

        What is under way is done first, for the message timeout at most, or `wait`. Then the state of the bolts is
        shared out anew: what is grouped by fields moves with its keys.
        """
        running = self.running(name)
        running.rebalance(tasks, duration(running.config.message_timeout if wait is None else wait) / SECOND)

    def status(self, name: str) -> TopologyStatus:
        """How far it is, task by task; prints as a table."""
        return self.running(name).status()

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
