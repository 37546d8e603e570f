"""ToTopic: the bolt by which results leave a topology exactly once."""

from __future__ import annotations

from typing import Any

from headrace.dialects.storm.components import BasicBolt
from headrace.dialects.storm.tuples import Tuple


class ToTopic(BasicBolt):
    """Appends each tuple to a topic of the embedded log in the directory `log`, as a record with the tuple's fields.

    A bolt that writes somewhere by itself may do so twice when a micro-batch is run again; what this one writes is
    there once. `key` names the field of the record's key. A topic that is not there is made, of JSON.

    >>> from headrace import storm
    >>> storm.ToTopic("counts", log="/data/log", key="word").topic
    'counts'
    """

    transient = ("rows",)

    def __init__(self, topic: str, *, log: str, key: str | None = None) -> None:
        self.topic, self.log, self.key = topic, log, key
        self.rows: list[dict[str, Any]] = []

    def execute(self, tup: Tuple) -> None:
        self.rows.append(dict(zip(tup.fields, tup.values, strict=True)))

    def taken(self) -> list[dict[str, Any]]:
        """The rows since this was asked last."""
        rows, self.rows = self.rows, []
        return rows
