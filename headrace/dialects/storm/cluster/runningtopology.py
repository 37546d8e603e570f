"""A running topology: its stream, the hosts of its spouts, and the thread that brings them the outcomes of trees."""

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

from headrace.dialects.storm.api.components import Bolt, Spout, TopologyContext
from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.failures import DeadLetter, ErrorReport
from headrace.dialects.storm.api.topology import Topology, TopologyError
from headrace.dialects.storm.cluster.deadlettertopic import DeadLetterWriter, read_dead_letters
from headrace.dialects.storm.cluster.placement import Placement
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.dialects.storm.cluster.spoutlog import SpoutLog
from headrace.dialects.storm.cluster.topologystatus import (
    TaskStatus,
    TopologyStatus,
    bolt_status,
    component_statuses,
    spout_status,
)
from headrace.dialects.storm.graph.enginetasks import ACKER, clean_up_bolt, rebalance_bolt
from headrace.dialects.storm.graph.pipelinebuilder import PipelineBuilder
from headrace.dialects.storm.graph.seeds import Seeds
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.dialects.storm.task.treeoutcomes import TreeOutcomes
from headrace.engine.stream.taskstate import stream_position
from headrace.local.atomicfile import replace_file
from headrace.local.privatefolder import check_tree, make_folder
from headrace.log import Log, Topic
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Pipeline
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from headrace.engine.handle import StreamStatus
    from headrace.engine.stream.handle import StreamHandle

MAX_RECORDS: Final = 100_000
"""How many tuples of a spout a micro-batch takes at most."""
_POLL_SECONDS: Final = 0.01  # between two reads of the topic of outcomes
_STATUS_SECONDS: Final = 0.2  # between two reads of the status of the stream
_MAX_RESTARTS: Final = 5  # of a stream without progress in between
_KILLED: Final = "killed"  # a file: whatever is left of the topology is to be removed

_log = logging.getLogger("headrace.storm")


class RunningTopology:
    """Runs one topology. All it needs to continue after a crash is in `folder` and in its topics."""

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
        self.topics, self._clock = TopologyTopics(name, log), clock
        if (folder / _KILLED).exists():
            self._remove()
        self.id = self._read_id()
        self.placement = Placement.load(folder / "placed.json")
        self.topology = topology.capped(config.max_task_parallelism).with_tasks(self.placement.tasks)
        self.topics.create(self.topology)
        self.restarts = 0
        self.failure: BaseException | None = None
        self._handle: StreamHandle | None = None
        self._make_hosts()

    def _read_id(self) -> str:
        """Reads or makes an id that differs from that of any other topology, even one of the same name."""
        make_folder(self.folder)
        check_tree(self.folder)
        if not (self.folder / "id").exists():
            replace_file(self.folder / "id", uuid.uuid4().hex.encode())
        return (self.folder / "id").read_text()

    def _make_hosts(self) -> None:
        """Makes the hosts of spouts, and the thread that reads outcomes."""
        self._read_to: dict[str, dict[int, int]] = {}
        self._stopping = threading.Event()
        self._hosts = {
            self.topology.tasks_of(node.id)[index]: self._host(node.id, index)
            for node in self.topology.spouts
            for index in range(node.tasks)
        }
        self._outcomes_end = min(host.pending.outcomes for host in self._hosts.values())
        self._thread = threading.Thread(target=self._read_outcomes, name=f"{self.name}-outcomes", daemon=True)

    # Start, stop, rebalance and kill

    def start(self) -> None:
        """Starts the stream, and then the spouts."""
        self._start_stream()
        for host in self._hosts.values():
            host.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops it; submitted again, it continues where it was."""
        self._stop_hosts()
        if self._handle is not None:
            self._handle.stop()

    def _stop_hosts(self) -> None:
        for host in self._hosts.values():
            host.stop()
        self._stopping.set()
        self._thread.join()

    def rebalance(self, tasks: dict[str, int], wait: float) -> None:
        """Changes numbers of tasks: waits for pending tuples, divides the state anew, and continues."""
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
        before = self._checkpoint, self._seeds(self.placement)
        try:
            self.handle.halt()
            placement = self._write_seeds(tasks)
            placement.save(self.folder / "placed.json")
            self.placement, self.topology = placement, after
        finally:  # also after an error: it continues as it was
            self._make_hosts()
            self.activate(active)
            self.start()
        for folder in before:
            shutil.rmtree(folder, ignore_errors=True)

    def _write_seeds(self, tasks: dict[str, int]) -> Placement:
        """Writes the initial state of the next checkpoint; returns the new placement."""
        position = stream_position(self.spark, str(self._checkpoint))
        placement = Placement(
            self.placement.checkpoint + 1,
            {**self.placement.tasks, **tasks},
            {node.id: position.offsets[node.id] for node in self.topology.spouts},
        )
        seeds = Seeds(self._seeds(placement))
        for label, blocks in position.blocks.items():
            if label in tasks:
                blocks = rebalance_bolt(self.topology, self.config, label, blocks, tasks[label])
            seeds.write(label, blocks)
        return placement

    def kill(self, wait: float) -> None:
        """Deactivates spouts, waits for pending tuples, stops, and removes all but errors and dead letters."""
        self.activate(False)
        self.settle(wait)
        self._stop_hosts()
        self._clean_up()
        self.handle.stop()
        replace_file(self.folder / _KILLED, b"")  # a topology of this name begins anew, even after a crash now
        self._remove()

    def _remove(self) -> None:
        self.topics.remove()
        removed = self.folder.with_name(f".{self.name}.gone")
        shutil.rmtree(removed, ignore_errors=True)
        self.folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    def _clean_up(self) -> None:
        """Calls `cleanup` of the bolts here, with the state of their tasks: workers end whenever Spark ends them."""
        overrides = {node.id: getattr(type(node.component), "cleanup", None) for node in self.topology.bolts}
        ending = [bolt for bolt, cleanup in overrides.items() if cleanup is not Bolt.cleanup]
        if not ending or self._failures():
            return
        try:
            self.handle.halt()
        except PipelineError:
            return  # it has failed meanwhile
        blocks = stream_position(self.spark, str(self._checkpoint)).blocks
        for bolt in ending:
            try:
                clean_up_bolt(self.topology, self.config, bolt, blocks[bolt])
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
        """Waits until no tuple of the deactivated spouts is pending, for `wait` seconds at most."""
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and not self._failures():
            if all(host.settled for host in self._hosts.values()):
                return True
            self._stopping.wait(_POLL_SECONDS)
        return False

    def check(self) -> None:
        """Raises the error that it failed with, if any."""
        for failure in self._failures():
            raise failure

    def _failures(self) -> list[BaseException]:
        failures = (self.failure, *(host.failure for host in self._hosts.values()))
        return [failure for failure in failures if failure is not None]

    # The stream

    @property
    def handle(self) -> StreamHandle:
        """The handle of the running stream."""
        assert self._handle is not None
        return self._handle

    def _start_stream(self) -> None:
        p = Pipeline(spark=self.spark)
        seeds = Seeds(self._seeds(self.placement)) if self.placement.checkpoint else None
        PipelineBuilder(p, self.topology, self.config, self.topics, self.placement.starts, seeds).apply()
        handle: Any = p.run(checkpoint=str(self._checkpoint), max_records_per_batch=MAX_RECORDS)
        self._handle = handle

    @property
    def _checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.placement.checkpoint}"

    def _seeds(self, placement: Placement) -> Path:
        return self.folder / f"seeds-{placement.checkpoint}"

    def _watch_stream(self) -> None:
        """Notes the offsets that the stream has read; starts a failed one again, up to _MAX_RESTARTS times."""
        status: StreamStatus = self.handle.status()
        for node in self.topology.spouts:
            self._read_to[node.id] = status.sources[node.id].offsets or self._read_to.get(node.id, {})
        if status.batches > 1:  # the first may have been begun by an earlier run
            self.restarts = 0
        if status.state != "failed":
            return
        if self.restarts < _MAX_RESTARTS:
            self.restarts += 1
            _log.warning("the stream of %s has failed; restart %d", self.name, self.restarts)
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
        letters = DeadLetterWriter(self._topic(self.topics.dead_letters), f"{self.id}/{spout}-{index}", self._clock)
        return SpoutHost(
            copy.deepcopy(component),
            TopologyContext(self.topology, self.config, spout, index),
            SpoutLog(self._topic(self.topics.spout(spout)), index),
            self.folder / "spouts" / f"{spout}-{index}",
            read_to=lambda: self._read_to.get(spout, {}).get(index, 0),
            report=self._report,
            bury=letters.append,
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

    def _read_outcomes(self) -> None:
        """Brings hosts the outcomes of their trees, and watches the stream."""
        topic, watched = self._topic(self.topics.outcomes), 0.0
        try:
            while not self._stopping.is_set():
                end = topic.partition(0).next_offset()
                if end > self._outcomes_end:
                    for record in topic.read(0, self._outcomes_end, end):
                        outcomes = TreeOutcomes.read(record.value)
                        self._hosts[outcomes.spout].outcomes.put((record.offset, outcomes))
                    self._outcomes_end = end
                if time.monotonic() - watched > _STATUS_SECONDS:
                    self._watch_stream()
                    watched = time.monotonic()
                self._stopping.wait(_POLL_SECONDS)
        except BaseException as error:
            self.failure = error

    # Status

    def status(self) -> TopologyStatus:
        """Returns the status of the topology."""
        stream: StreamStatus = self.handle.status()
        failures, topology = self._failures(), self.topology
        counts = {node.id: stream.exchanges[node.id].counts for node in topology.bolts}
        tasks: list[TaskStatus] = [spout_status(host) for host in self._hosts.values()]
        for node in topology.bolts:
            numbers = topology.tasks_of(node.id)
            tasks += [bolt_status(node.id, number, counts[node.id].get(at, {})) for at, number in enumerate(numbers)]
        ackers = stream.exchanges[ACKER].counts.values() if self.config.acking else ()
        return TopologyStatus(
            self.name,
            "failed" if failures else "active" if self.active else "inactive",
            stream.batches,
            stream.batch_seconds,
            int(sum(acker["pending"] for acker in ackers)),
            tuple(tasks),
            component_statuses(topology, {bolt: by_task.values() for bolt, by_task in counts.items()}),
            error=f"{type(failures[0]).__name__}: {failures[0]}" if failures else None,
        )

    def errors(self) -> list[ErrorReport]:
        """Reads the errors that components reported, oldest first."""
        return [ErrorReport(**record.value) for record in self._topic(self.topics.errors).read(0)]

    def dead_letters(self) -> list[DeadLetter]:
        """Reads the tuples that were given up, oldest first."""
        return read_dead_letters(self._topic(self.topics.dead_letters))
