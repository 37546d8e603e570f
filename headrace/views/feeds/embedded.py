"""The feed of a topic of the embedded log."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from headrace import log
from headrace.edges.topicranges import end_offsets, topic_at
from headrace.log import Group, Log
from headrace.log.groups import start_of
from headrace.log.values import Values
from headrace.model.topics import ReadTopic
from headrace.model.watermarks import WatermarkPolicy
from headrace.views.declare.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import Receipt, RequestKey
from headrace.views.feeds.requests import Requests
from headrace.views.offsets import Offsets


class EmbeddedFeed:
    """The feed of a topic of an embedded log.

    >>> import headrace as hr, tempfile
    >>> feed = EmbeddedFeed(hr.Topic("visits", schema="user string"), Log(tempfile.mkdtemp()))
    >>> feed.create()
    >>> feed.append([{"user": "ann"}], [0], RequestKey("a1")), feed.append([{"user": "ann"}], [0], RequestKey("a1"))
    (Receipt(records=1, offsets={0: 0}, repeated=False), Receipt(records=1, offsets={0: 0}, repeated=True))
    """

    dense = strict = True

    def __init__(self, topic: Topic, log: Log) -> None:
        self.topic, self.log, self.folder = topic, log, os.path.abspath(log.path)

    def create(self) -> None:
        declared = self.topic
        if declared.name not in self.log.topics():
            self.log.create(declared.name, partitions=declared.partitions, values=declared.schema)
        existing = self.log.topic(declared.name)
        if existing.values.type() != Values(declared.schema).type():
            raise ViewError(
                f"topic {declared.name!r} has the columns {existing.settings.values!r}, but is declared with "
                f"{declared.schema!r}; declare the same columns, or choose another name"
            )

    def check(self) -> None:
        if (values := self._topic.settings.values) in ("json", "bytes"):
            raise ViewError(
                f"the values of topic {self.topic.name!r} are {values}; master data has columns: create the topic with "
                f"values={self.topic.schema!r}"
            )

    def starts(self) -> dict[int, int]:
        topic = self._topic
        return {number: start_of(topic, number, "earliest") for number in range(len(topic.partitions))}

    def ends(self) -> dict[int, int]:
        return end_offsets(self._topic)

    def groups(self) -> dict[str, Offsets]:
        names = Group.names(self.log, self.topic.name)
        return {name: Group(self.log, self.topic.name, name).committed() for name in names}

    def read(self, start: Offsets | None, watermark: WatermarkPolicy) -> ReadTopic:
        read = ReadTopic(
            self.topic.name,
            log=self.folder,
            schema=self.topic.schema,
            event_time=self.topic.event_time,
            start="earliest" if start is None else start,
            watermark=watermark,
        )
        return read.with_values(self._topic.settings.values)

    def offsets_in_log(self, end: Any) -> Offsets:
        return {int(partition): int(offset) for partition, offset in end.items()}

    def mark_archived(self, archived: Offsets) -> None:
        Group(self.log, self.topic.name, "master").commit(dict(archived))

    def append(
        self, events: Sequence[Mapping[str, Any]], times: Sequence[int] | None, request: RequestKey | None
    ) -> Receipt:
        return self.requests.append(events, times, request)

    @cached_property
    def requests(self) -> Requests:
        """The appender of requests to the topic."""
        return Requests(self.log.topic(self.topic.name), self.topic.key)

    @property
    def _topic(self) -> log.Topic:
        return topic_at(self.folder, self.topic.name)
