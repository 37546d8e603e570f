"""The topics of a topology in the embedded log: their names, and how they are created and removed."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.dialects.storm.api.topology import Topology, TopologyError
from headrace.dialects.storm.api.totopic import ToTopic
from headrace.log import Log


@dataclass(frozen=True)
class TopologyTopics:
    """The topics of a topology: one for each spout, with a partition for each task, and three for what comes back.

    >>> topics = TopologyTopics("word-count", "/data/log")
    >>> topics.spout("sentences"), topics.outcomes
    ('word-count.sentences', 'word-count..outcomes')
    """

    name: str
    log: str

    def spout(self, spout: str) -> str:
        """Returns the topic of the tuples that a spout emits."""
        return f"{self.name}.{spout}"

    # No component's id begins with a dot.

    @property
    def outcomes(self) -> str:
        """The topic of the outcomes of trees."""
        return f"{self.name}..outcomes"

    @property
    def errors(self) -> str:
        """The topic of the errors that components reported."""
        return f"{self.name}..errors"

    @property
    def dead_letters(self) -> str:
        """The topic of tuples that were given up."""
        return f"{self.name}..dead"

    def create(self, topology: Topology) -> None:
        """Creates the topics that do not exist, those of `ToTopic` bolts too."""
        log = Log(self.log)
        existing = set(log.topics())
        wanted = {self.spout(node.id): node.tasks for node in topology.spouts}
        wanted |= dict.fromkeys([self.outcomes, self.errors, self.dead_letters], 1)
        for name, partitions in wanted.items():
            if name not in existing:
                log.create(name, partitions=partitions)
            elif (count := len(log.topic(name).partitions)) != partitions:
                raise TopologyError(
                    f"the topic {name!r} has partitions for {count} tasks, but the spout has {partitions}; set the "
                    f"spout with {count} tasks, or kill the topology first"
                )
        for node in topology.bolts:
            if isinstance(node.component, ToTopic):
                log = Log(node.component.log)
                if node.component.topic not in log.topics():
                    log.create(node.component.topic)

    def remove(self) -> None:
        """Removes the topics of pending tuples and of outcomes; errors and dead letters stay."""
        log = Log(self.log)
        for name in log.topics():
            if name.startswith(f"{self.name}.") and name not in (self.errors, self.dead_letters):
                log.delete(name)
