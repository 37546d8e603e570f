"""The feed of a Kafka topic. Values are JSON objects of the topic's columns; others are archived as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from headrace.edges import kafkaclient
from headrace.model.topics import Address, ReadTopic
from headrace.model.watermarks import WatermarkPolicy
from headrace.views.declare.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import Receipt, RequestKey
from headrace.views.feeds.kafkarequests import KafkaRequests
from headrace.views.offsets import Offsets

_PATIENCE: Final = 5.0  # seconds for the offsets of a topic: a system asks all the time, and others wait for it


class KafkaFeed:
    """The feed of a Kafka topic.

    Not every offset has a record: compaction removes some, and transactions use some for themselves. The brokers decide
    how long records are kept: those that they remove before they are archived are lost, and archiving then fails.

    >>> import headrace as hr
    >>> from headrace.model.topics import address
    >>> feed = KafkaFeed(hr.Topic("visits", schema="user string"), address("kafka://127.0.0.1:9092/visits"))
    >>> feed.offsets_in_log({"visits": {"0": 25, "1": 7}})
    {0: 25, 1: 7}
    """

    dense = strict = False

    def __init__(self, topic: Topic, address: Address) -> None:
        self.topic, self.address = topic, address

    def __str__(self) -> str:
        return str(self.address)

    def create(self) -> None:
        kafkaclient.create(self.label, self.address, self.topic.partitions)

    def check(self) -> None:
        kafkaclient.partitions(self.label, self.address)

    def starts(self) -> dict[int, int]:
        return kafkaclient.offsets(self.label, self.address, "earliest", patience=_PATIENCE)

    def ends(self) -> dict[int, int]:
        return kafkaclient.offsets(self.label, self.address, "latest", patience=_PATIENCE)

    def groups(self) -> dict[str, Offsets]:
        return {}  # Kafka's own tools show them

    def read(self, start: Offsets | None, watermark: WatermarkPolicy) -> ReadTopic:
        return ReadTopic(
            str(self.address),
            schema=self.topic.schema,
            event_time=self.topic.event_time,
            start="earliest" if start is None else start,
            watermark=watermark,
            security=self.address.security,
        )

    def offsets_in_log(self, end: Any) -> Offsets:
        return {int(partition): int(offset) for partition, offset in end[self.topic.name].items()}

    def mark_archived(self, archived: Offsets) -> None:
        pass  # the brokers' retention does not depend on readers

    def append(
        self, events: Sequence[Mapping[str, Any]], times: Sequence[int] | None, request: RequestKey | None
    ) -> Receipt:
        # Times are in the events, and brokers refuse those too far ahead: a record has the time of its arrival.
        return self._requests.append(events, request)

    @cached_property
    def _requests(self) -> KafkaRequests:
        return KafkaRequests(self.topic, self.address)

    @property
    def label(self) -> str:
        """The name of the topic in errors."""
        return f"topic {self.topic.name!r}"

    def check_kept(self, since: Offsets, until: Offsets) -> None:
        """Refuses a range of which records are gone. Spark would refuse it too, but only when it reads them."""
        for number, first in self.starts().items():
            if since.get(number, 0) < min(first, until.get(number, 0)):
                raise ViewError(
                    f"topic {self.topic.name!r}: partition {number} begins at offset {first}, but the archive "
                    f"ends at {since.get(number, 0)}: Kafka has removed records before they were archived; raise the "
                    "topic's retention.ms, and begin new master data in another directory"
                )
