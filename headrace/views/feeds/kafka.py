"""Topics of Kafka's as feeds. Values are JSON objects of the topic's columns; what is none is kept as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from headrace.edges import kafkaclient
from headrace.model.topics import Address, ReadTopic
from headrace.model.watermarks import WatermarkPolicy
from headrace.views.declare.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import Receipt, Tried
from headrace.views.feeds.kafkarequests import KafkaRequests
from headrace.views.offsets import Offsets

_PATIENCE: Final = 5.0  # seconds for where a topic begins and ends: a system asks all the time, and others wait for it


class KafkaFeed:
    """A topic of Kafka's.

    Not every offset has a record: compaction removes some, and transactions take some for themselves. How long records
    are kept, the brokers say: what they remove before it is archived is lost, and archiving then fails.

    >>> import headrace as hr
    >>> from headrace.model.topics import address
    >>> feed = KafkaFeed(hr.Topic("visits", schema="user string"), address("kafka://127.0.0.1:9092/visits"))
    >>> feed.logged({"visits": {"0": 25, "1": 7}})
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
        )

    def logged(self, end: Any) -> Offsets:
        return {int(partition): int(offset) for partition, offset in end[self.topic.name].items()}

    def hold(self, archived: Offsets) -> None:
        pass  # the brokers ask nobody

    def append(self, events: Sequence[Mapping[str, Any]], times: Sequence[int] | None, tried: Tried | None) -> Receipt:
        # Times are in the events, and brokers refuse those that are too far ahead: a record has that of its arrival.
        return self._requests.append(events, tried)

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
                    f"topic {self.topic.name!r}: partition {number} begins at offset {first}, but what is archived "
                    f"ends at {since.get(number, 0)}: Kafka has removed records before they were archived; let the "
                    "topic keep more (retention.ms), and begin master data anew in another directory"
                )
