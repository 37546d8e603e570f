"""A topology as a pipeline of the model: the topics that spouts fill, tasks of bolts, level after level, and ackers.

topic of a spout -> Sending -> tasks of bolts -> ... -> ackers -> topic of outcomes
                                    └-> topics of errors and of what ToTopic writes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Node, Topology, TopologyError
from headrace.dialects.storm.api.totopic import ToTopic
from headrace.dialects.storm.graph.enginetasks import (
    ACKER,
    ERRORS,
    VERDICTS,
    WRITTEN,
    AckerOnEngine,
    BoltOnEngine,
    Sending,
    outcomes,
    read_texts,
)
from headrace.dialects.storm.graph.seeds import Seeds
from headrace.log import Log
from headrace.model.elementwise import FlatMap, ParDo
from headrace.model.keyed import Flatten
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.tasks import Tasks
from headrace.model.topics import ReadTopic, WriteTopic

_MOST_ACKERS: Final = 4


@dataclass(frozen=True)
class Topics:
    """The topics of a topology: one for each spout, with a partition for each task, and those of what comes back.

    >>> topics = Topics("word-count", "/data/log")
    >>> topics.spout("sentences"), topics.outcomes
    ('word-count.sentences', 'word-count..outcomes')
    """

    name: str
    log: str

    def spout(self, spout: str) -> str:
        """Of what a spout emits."""
        return f"{self.name}.{spout}"

    # No component's id begins with a dot.

    @property
    def outcomes(self) -> str:
        """Of what became of tuples."""
        return f"{self.name}..outcomes"

    @property
    def errors(self) -> str:
        """Of errors that components reported."""
        return f"{self.name}..errors"

    @property
    def dead_letters(self) -> str:
        """Of tuples that were given up."""
        return f"{self.name}..dead"

    def create(self, topology: Topology) -> None:
        """Makes those that are not there."""
        log = Log(self.log)
        there = set(log.topics())
        wanted = {self.spout(node.id): node.tasks for node in topology.spouts}
        wanted |= dict.fromkeys([self.outcomes, self.errors, self.dead_letters], 1)
        for name, partitions in wanted.items():
            if name not in there:
                log.create(name, partitions=partitions)
            elif (held := len(log.topic(name).partitions)) != partitions:
                raise TopologyError(
                    f"the topic {name!r} has a partition for each of {held} tasks, but there are to be {partitions}; "
                    f"set the spout with {held} tasks, or kill the topology first"
                )
        for node in topology.bolts:
            if isinstance(node.component, ToTopic):
                log = Log(node.component.log)
                if node.component.topic not in log.topics():
                    log.create(node.component.topic)

    def remove(self) -> None:
        """Removes those of tuples under way; errors and dead letters stay."""
        log = Log(self.log)
        for name in log.topics():
            if name.startswith(f"{self.name}.") and name not in (self.errors, self.dead_letters):
                log.delete(name)


@dataclass
class Build:
    """Applies a topology's transforms to a pipeline.

    If it was rebalanced, `starts` are the offsets of spouts' topics at which it begins, and `seeds` the state it has.
    """

    p: Pipeline
    topology: Topology
    config: Config
    topics: Topics
    starts: Mapping[str, Mapping[int, int]]
    seeds: Seeds | None
    given: dict[str, dict[str | None, PCollection]] = field(default_factory=dict)  # what a component gives, by tag

    @property
    def ackers(self) -> int:
        """How many ackers the topology has."""
        return min(sum(node.tasks for node in self.topology.spouts), _MOST_ACKERS)

    def apply(self) -> None:
        for node in self.topology.spouts:
            self._spout(node)
        for level in self.topology.levels:
            for bolt in level:
                self._bolt(self.topology.node(bolt))
        if told := [parts[ACKER] for parts in self.given.values() if ACKER in parts]:
            timeout: Any = self.config.message_timeout
            acker = Tasks(
                partial(AckerOnEngine, timeout),
                tasks=self.ackers,
                outputs=(VERDICTS,),
                initial=self._initial(ACKER),
            )
            found = tuple(told) | f"{ACKER}" >> acker | f"{ACKER}/outcomes" >> FlatMap(outcomes)
            found | f"{ACKER}/write" >> WriteTopic(self.topics.outcomes, log=self.topics.log)
        errors = tuple(parts[ERRORS] for parts in self.given.values() if ERRORS in parts)
        reports = errors | f"{ERRORS}/all" >> Flatten() | f"{ERRORS}/reports" >> FlatMap(read_texts)
        reports | f"{ERRORS}/write" >> WriteTopic(self.topics.errors, log=self.topics.log)

    def _targets(self, node: Node) -> list[str]:
        """Who reads of a component, and the ackers."""
        readers = [bolt.id for bolt in self.topology.bolts if any(each.source == node.id for each in bolt.inputs)]
        return [*readers, *([ACKER] if self.config.acking else [])]

    def _spout(self, node: Node) -> None:
        start = self.starts.get(node.id, "earliest")
        source = ReadTopic(self.topics.spout(node.id), log=self.topics.log, start=start)
        sending = ParDo(Sending(self.topology, self.config, node.id, self.ackers))
        parts = self.p | node.id >> source | f"{node.id}/send" >> sending.with_outputs(*self._targets(node), ERRORS)
        self.given[node.id] = dict(parts)

    def _bolt(self, node: Node) -> None:
        sources = dict.fromkeys(each.source for each in node.inputs)
        inputs = tuple(self.given[source][node.id] for source in sources)
        writes = [WRITTEN] if isinstance(node.component, ToTopic) else []
        make = partial(BoltOnEngine, self.topology, self.config, node.id, self.ackers)
        tasks = Tasks(
            _Numbered(make),
            tasks=node.tasks,
            outputs=(*self._targets(node), ERRORS, *writes),
            initial=self._initial(node.id),
        )
        parts = inputs | node.id >> tasks
        self.given[node.id] = dict(parts) if len(tasks.outputs) > 1 else {tasks.outputs[0]: parts}
        if isinstance(node.component, ToTopic):
            self._write(node, node.component)

    def _initial(self, label: str) -> Callable[[int], list[bytes]] | None:
        return None if self.seeds is None else partial(self.seeds.read, label)

    def _write(self, node: Node, bolt: ToTopic) -> None:
        rows = self.given[node.id][WRITTEN] | f"{node.id}/rows" >> FlatMap(read_texts)
        key = None if bolt.key is None else _Field(bolt.key)
        rows | f"{node.id}/write" >> WriteTopic(bolt.topic, log=bolt.log, key=key)


@dataclass(frozen=True)
class _Numbered:
    """Makes a task by its number; how many there are, the topology knows."""

    make: Any

    def __call__(self, number: int, of: int) -> Any:
        return self.make(number)


@dataclass(frozen=True)
class _Field:
    """A field of a row, as text."""

    name: str

    def __call__(self, row: dict[str, Any]) -> str:
        return str(row[self.name])
