"""Builds the pipeline of a topology: topics that spouts fill, tasks of bolts, level after level, and ackers.

topic of a spout -> SpoutSender -> tasks of bolts -> ... -> ackers -> topic of outcomes
                                        └-> topics of errors and of what ToTopic writes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from headrace.dialects.storm.api.config import Config
from headrace.dialects.storm.api.topology import Node, Topology
from headrace.dialects.storm.api.totopic import ToTopic
from headrace.dialects.storm.graph.enginetasks import (
    ACKER,
    ERRORS,
    VERDICTS,
    WRITTEN,
    EngineAckerTask,
    EngineBoltTask,
    SpoutSender,
    outcome_records,
    read_texts,
)
from headrace.dialects.storm.graph.seeds import Seeds
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.model.elementwise import FlatMap, ParDo
from headrace.model.keyed import Flatten
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.tasks import Tasks
from headrace.model.topics import ReadTopic, WriteTopic

_MAX_ACKERS: Final = 4


@dataclass
class PipelineBuilder:
    """Applies the transforms of a topology to a pipeline.

    After a rebalance, `starts` are the offsets of the spouts' topics at which it begins, and `seeds` its initial state.
    """

    p: Pipeline
    topology: Topology
    config: Config
    topics: TopologyTopics
    starts: Mapping[str, Mapping[int, int]]
    seeds: Seeds | None
    outputs: dict[str, dict[str | None, PCollection]] = field(default_factory=dict)  # of components, by tag

    @property
    def ackers(self) -> int:
        """The number of ackers."""
        return min(sum(node.tasks for node in self.topology.spouts), _MAX_ACKERS)

    def apply(self) -> None:
        """Applies all transforms."""
        for node in self.topology.spouts:
            self._apply_spout(node)
        for level in self.topology.levels:
            for bolt in level:
                self._apply_bolt(self.topology.node(bolt))
        if acks := [outputs[ACKER] for outputs in self.outputs.values() if ACKER in outputs]:
            timeout: Any = self.config.message_timeout
            acker = Tasks(
                partial(EngineAckerTask, timeout),
                tasks=self.ackers,
                outputs=(VERDICTS,),
                initial=self._initial(ACKER),
            )
            outcomes = tuple(acks) | f"{ACKER}" >> acker | f"{ACKER}/outcomes" >> FlatMap(outcome_records)
            outcomes | f"{ACKER}/write" >> WriteTopic(self.topics.outcomes, log=self.topics.log)
        errors = tuple(outputs[ERRORS] for outputs in self.outputs.values() if ERRORS in outputs)
        reports = errors | f"{ERRORS}/all" >> Flatten() | f"{ERRORS}/reports" >> FlatMap(read_texts)
        reports | f"{ERRORS}/write" >> WriteTopic(self.topics.errors, log=self.topics.log)

    def _targets(self, node: Node) -> list[str]:
        """Returns the tags of the bolts that read a component, and of the ackers."""
        readers = [bolt.id for bolt in self.topology.bolts if any(read.source == node.id for read in bolt.inputs)]
        return [*readers, *([ACKER] if self.config.acking else [])]

    def _apply_spout(self, node: Node) -> None:
        start = self.starts.get(node.id, "earliest")
        source = ReadTopic(self.topics.spout(node.id), log=self.topics.log, start=start)
        sender = ParDo(SpoutSender(self.topology, self.config, node.id, self.ackers))
        outputs = self.p | node.id >> source | f"{node.id}/send" >> sender.with_outputs(*self._targets(node), ERRORS)
        self.outputs[node.id] = dict(outputs)

    def _apply_bolt(self, node: Node) -> None:
        sources = dict.fromkeys(read.source for read in node.inputs)
        inputs = tuple(self.outputs[source][node.id] for source in sources)
        writes = [WRITTEN] if isinstance(node.component, ToTopic) else []
        make = partial(EngineBoltTask, self.topology, self.config, node.id, self.ackers)
        tasks = Tasks(
            _ByNumber(make),
            tasks=node.tasks,
            outputs=(*self._targets(node), ERRORS, *writes),
            initial=self._initial(node.id),
        )
        outputs = inputs | node.id >> tasks
        self.outputs[node.id] = dict(outputs) if len(tasks.outputs) > 1 else {tasks.outputs[0]: outputs}
        if isinstance(node.component, ToTopic):
            self._apply_write(node, node.component)

    def _initial(self, label: str) -> Callable[[int], list[bytes]] | None:
        return None if self.seeds is None else partial(self.seeds.read, label)

    def _apply_write(self, node: Node, bolt: ToTopic) -> None:
        rows = self.outputs[node.id][WRITTEN] | f"{node.id}/rows" >> FlatMap(read_texts)
        key = None if bolt.key is None else _Field(bolt.key)
        rows | f"{node.id}/write" >> WriteTopic(bolt.topic, log=bolt.log, key=key)


@dataclass(frozen=True)
class _ByNumber:
    """Makes a task by its number; the topology knows how many there are."""

    make: Any

    def __call__(self, number: int, of: int) -> Any:
        return self.make(number)


@dataclass(frozen=True)
class _Field:
    """Returns a field of a row, as text."""

    name: str

    def __call__(self, row: dict[str, Any]) -> str:
        return str(row[self.name])
