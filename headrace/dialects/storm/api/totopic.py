"""ToTopic: the bolt by which results leave a topology exactly once."""

from __future__ import annotations

import json
from typing import Any

from headrace.dialects.storm.api.components import BasicBolt
from headrace.dialects.storm.api.tuples import Tuple


class ToTopic(BasicBolt):
    """Appends each tuple to a topic of the embedded log in the directory `log`, as a record with the tuple's fields.

    A bolt that writes somewhere by itself may do so twice when a micro-batch is run again; what this one writes is
    there once. `key` names the field of the record's key. A topic that is not there is made, of JSON; a tuple with a
    value that JSON does not know fails.

    >>> from headrace import storm
    >>> storm.ToTopic("counts", log="/data/log", key="word").topic
    'counts'
    """

    transient = ("rows",)

    def __init__(self, topic: str, *, log: str, key: str | None = None) -> None:
        self.topic, self.log, self.key = topic, log, key
        self.rows: list[str] = []

    def execute(self, tup: Tuple) -> None:
        self._write(dict(zip(tup.fields, tup.values, strict=True)))

    def _write(self, row: dict[str, Any]) -> None:
        try:
            self.rows.append(json.dumps(row, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the topic {self.topic!r} takes what JSON knows (text, numbers, true, false, None, lists and dicts of "
                f"these): {error}"
            ) from None

    def taken(self) -> list[str]:
        """The rows since this was asked last, as JSON."""
        rows, self.rows = self.rows, []
        return rows
