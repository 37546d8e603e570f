"""A topology that runs: its stream, the hosts of its spouts, and the thread that brings them what became of tuples."""

from __future__ import annotations

import copy
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.dialects.storm.api.collectors import ErrorReport
from headrace.dialects.storm.api.components import Bolt, Spout, TopologyContext
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Topology, TopologyError
from headrace.dialects.storm.cluster.deadletters import DeadLetter, DeadLetters, Outcome, dead_letters
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.dialects.storm.cluster.topologystatus import (
    TaskStatus,
    TopologyStatus,
    bolt_status,
    component_statuses,
    spout_status,
)
from headrace.dialects.storm.graph.enginetasks import ACKER, end_bolt, rebalanced_bolt
from headrace.dialects.storm.graph.pipelinebuilder import Build, Topics
from headrace.dialects.storm.graph.seeds import Placed, Seeds
from headrace.dialects.storm.task.loggedtuple import EmissionLog
from headrace.engine.stream.taskstate import standing
from headrace.local.atomicfile import replace_file
from headrace.log import Log, Topic
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Pipeline
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from headrace.engine.handle import StreamStatus
    from headrace.engine.stream.handle import StreamHandle

MAX_RECORDS: Final = 100_000
"""How many tuples of a spout a micro-batch takes at most."""
_LOOK: Final = 0.01  # seconds from one look at the topic of outcomes to the next
_STATUS: Final = 0.2  # seconds from one look at how far the stream is to the next
_RESTARTS: Final = 5  # of a stream that does not get on in between
_KILLED: Final = "killed"  # the file that says that what is left is to be removed

_log = logging.getLogger("headrace.storm")


class RunningTopology:
    """One topology. All it needs to go on after a crash is in `folder` and in its topics."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        config: Config,
        folder: Path,
        log: str,
        spark: Any,
        clock: Callable[[], int],
    ) -> None:
        self.name, self.config, self.folder, self.spark = name, config, folder, spark
        self.topics, self._clock = Topics(name, log), clock
        if (folder / _KILLED).exists():
            self._remove()
        self.id = self._identity()
        self.placed = Placed.load(folder / "placed.json")
        self.topology = topology.capped(config.max_task_parallelism).with_tasks(self.placed.tasks)
        self.topics.create(self.topology)
        self.restarts = 0
        self.failure: BaseException | None = None
        self._handle: StreamHandle | None = None
        self._make()

    def _identity(self) -> str:
        """A name that no other topology has, of this name before or after it either."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "id").exists():
            replace_file(self.folder / "id", uuid.uuid4().hex.encode())
        return (self.folder / "id").read_text()

    def _make(self) -> None:
        """Makes the hosts of spouts, and the thread that follows what becomes of tuples."""
        self._read_to: dict[str, dict[int, int]] = {}
        self._stopping = threading.Event()
        self._hosts = {
            self.topology.tasks_of(node.id)[index]: self._host(node.id, index)
            for node in self.topology.spouts
            for index in range(node.tasks)
        }
        self._place = min(host.pending.outcomes for host in self._hosts.values())
        self._thread = threading.Thread(target=self._follow, name=f"{self.name}-outcomes", daemon=True)

    # Life

    def start(self) -> None:
        """Starts the stream, and then the spouts."""
        self._start_stream()
        for host in self._hosts.values():
            host.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops where it is: submitted again, it goes on from there."""
        self._stop_hosts()
        if self._handle is not None:
            self._handle.stop()

    def _stop_hosts(self) -> None:
        for host in self._hosts.values():
            host.stop()
        self._stopping.set()
        self._thread.join()

    def rebalance(self, tasks: dict[str, int], wait: float) -> None:
        """Goes on with other numbers of tasks: what is under way is done first, then state is shared out anew."""
        for component in tasks:
            if not isinstance(self.topology.node(component).component, Bolt):
                raise TopologyError(
                    f"{component!r} is a spout, whose tasks are partitions of its topic; only bolts are rebalanced"
                )
        self.check()
        after = self.topology.with_tasks(tasks)
        active = self.active
        self.activate(False)
        self.settle(wait)
        self._stop_hosts()
        before = self._checkpoint, self._seeds(self.placed)
        try:
            self.handle.halt()
            placed = self._shared_out(tasks)
            placed.save(self.folder / "placed.json")
            self.placed, self.topology = placed, after
        finally:  # also if it cannot be: it goes on as it was
            self._make()
            self.activate(active)
            self.start()
        for folder in before:
            shutil.rmtree(folder, ignore_errors=True)

    def _shared_out(self, tasks: dict[str, int]) -> Placed:
        """Writes down the state with which another checkpoint begins; returns where that is."""
        was = standing(self.spark, str(self._checkpoint))
        placed = Placed(
            self.placed.checkpoint + 1,
            {**self.placed.tasks, **tasks},
            {node.id: was.offsets[node.id] for node in self.topology.spouts},
        )
        seeds = Seeds(self._seeds(placed))
        for label, blocks in was.blocks.items():
            if label in tasks:
                blocks = rebalanced_bolt(self.topology, self.config, label, blocks, tasks[label])
            seeds.write(label, blocks)
        return placed

    def kill(self, wait: float) -> None:
        """Lets spouts emit no more, waits for what is under way, stops, and leaves nothing behind but the topics."""
        self.activate(False)
        self.settle(wait)
        self._stop_hosts()
        self._clean_up()
        self.handle.stop()
        replace_file(self.folder / _KILLED, b"")  # whoever submits that name is to begin anew, even after a crash now
        self._remove()

    def _remove(self) -> None:
        self.topics.remove()
        gone = self.folder.with_name(f".{self.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _clean_up(self) -> None:
        """Has tasks of bolts clean up. Workers end when it suits Spark; so it is done here, with the state they had."""
        overrides = {node.id: getattr(type(node.component), "cleanup", None) for node in self.topology.bolts}
        ending = [bolt for bolt, cleanup in overrides.items() if cleanup is not Bolt.cleanup]
        if not ending or self._failures():
            return
        try:
            self.handle.halt()
        except PipelineError:
            return  # it has failed meanwhile
        blocks = standing(self.spark, str(self._checkpoint)).blocks
        for bolt in ending:
            try:
                end_bolt(self.topology, self.config, bolt, blocks[bolt])
            except Exception:
                _log.exception("%s: a task of %s could not clean up", self.name, bolt)

    def activate(self, active: bool = True) -> None:
        """Lets spouts emit, or not."""
        for host in self._hosts.values():
            host.active = active

    @property
    def active(self) -> bool:
        """Whether spouts may emit."""
        return all(host.active for host in self._hosts.values())

    def settle(self, wait: float) -> bool:
        """Waits until nothing is under way of spouts that may emit no more, for so many seconds at most."""
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and not self._failures():
            if all(host.settled for host in self._hosts.values()):
                return True
            self._stopping.wait(_LOOK)
        return False

    def check(self) -> None:
        """Raises what it has failed with."""
        for failure in self._failures():
            raise failure

    def _failures(self) -> list[BaseException]:
        every = (self.failure, *(host.failure for host in self._hosts.values()))
        return [failure for failure in every if failure is not None]

    # The stream

    @property
    def handle(self) -> StreamHandle:
        """Of the stream that runs."""
        assert self._handle is not None
        return self._handle

    def _start_stream(self) -> None:
        p = Pipeline(spark=self.spark)
        seeds = Seeds(self._seeds(self.placed)) if self.placed.checkpoint else None
        Build(p, self.topology, self.config, self.topics, self.placed.starts, seeds).apply()
        handle: Any = p.run(checkpoint=str(self._checkpoint), max_records_per_batch=MAX_RECORDS)
        self._handle = handle

    @property
    def _checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.placed.checkpoint}"

    def _seeds(self, placed: Placed) -> Path:
        return self.folder / f"seeds-{placed.checkpoint}"

    def _look(self) -> None:
        """Notes how far the stream is; one that has failed is started again, as long as that helps."""
        status: StreamStatus = self.handle.status()
        for node in self.topology.spouts:
            self._read_to[node.id] = status.sources[node.id].offsets or self._read_to.get(node.id, {})
        if status.batches > 1:  # the first may be one that an earlier run had begun
            self.restarts = 0
        if status.state != "failed":
            return
        if self.restarts < _RESTARTS:
            self.restarts += 1
            _log.warning("the stream of %s has failed and is started again, time %d", self.name, self.restarts)
            self._start_stream()
        elif self.failure is None:
            try:
                self.handle.wait()
            except Exception as error:
                self.failure = error

    # Spouts

    def _host(self, spout: str, index: int) -> SpoutHost:
        component = self.topology.node(spout).component
        assert isinstance(component, Spout)
        first = self.topology.tasks_of(spout)[index] == 0
        return SpoutHost(
            copy.deepcopy(component),
            TopologyContext(self.topology, self.config, spout, index),
            EmissionLog(self._topic(self.topics.spout(spout)), index),
            self.folder / "spouts" / f"{spout}-{index}",
            read_to=lambda: self._read_to.get(spout, {}).get(index, 0),
            report=self._report,
            bury=DeadLetters(self._topic(self.topics.dead_letters), f"{self.id}/{spout}-{index}", self._clock).bury,
            clock=self._clock,
            wakes=self._wakes if first else lambda: None,
        )

    def _wakes(self) -> int | None:
        periods: list[Any] = [self.config.tick, *(node.tick for node in self.topology.bolts)]
        ticks: list[int] = [period for period in periods if period is not None]
        if any(len(host.pending) for host in self._hosts.values()):
            ticks.append(SECOND)  # trees may time out
        return min(ticks, default=None)

    def _topic(self, name: str) -> Topic:
        return Log(self.topics.log).topic(name)

    def _report(self, errors: list[ErrorReport]) -> None:
        topic = self._topic(self.topics.errors)
        topic.append(0, topic.batch(list(map(asdict, errors)), timestamps=[self._clock()] * len(errors)))

    def _follow(self) -> None:
        """Brings hosts what became of their tuples."""
        topic, looked = self._topic(self.topics.outcomes), 0.0
        try:
            while not self._stopping.is_set():
                end = topic.partition(0).next_offset()
                if end > self._place:
                    for record in topic.read(0, self._place, end):
                        told = {name: tuple(record.value[name]) for name in ("acked", "failed", "timed_out")}
                        self._hosts[record.value["spout"]].outcomes.put(Outcome(record.offset, **told))
                    self._place = end
                if time.monotonic() - looked > _STATUS:
                    self._look()
                    looked = time.monotonic()
                self._stopping.wait(_LOOK)
        except BaseException as error:
            self.failure = error

    # What is to be seen

    def status(self) -> TopologyStatus:
        """How far it is, task by task."""
        stream: StreamStatus = self.handle.status()
        failures, topology = self._failures(), self.topology
        told = {node.id: stream.exchanges[node.id].counts for node in topology.bolts}
        tasks: list[TaskStatus] = [spout_status(host) for host in self._hosts.values()]
        for node in topology.bolts:
            numbers = topology.tasks_of(node.id)
            tasks += [bolt_status(node.id, number, told[node.id].get(at, {})) for at, number in enumerate(numbers)]
        pending = sum(each["pending"] for each in stream.exchanges[ACKER].counts.values()) if self.config.acking else 0
        return TopologyStatus(
            self.name,
            "failed" if failures else "active" if self.active else "inactive",
            stream.batches,
            stream.batch_seconds,
            int(pending),
            tuple(tasks),
            component_statuses(topology, {bolt: counts.values() for bolt, counts in told.items()}),
            error=f"{type(failures[0]).__name__}: {failures[0]}" if failures else None,
        )

    def errors(self) -> list[ErrorReport]:
        """What components reported, oldest first."""
        return [ErrorReport(**record.value) for record in self._topic(self.topics.errors).read(0)]

    def dead_letters(self) -> list[DeadLetter]:
        """Tuples that were given up."""
        return dead_letters(self._topic(self.topics.dead_letters))
