"""ToTopic: a bolt that writes tuples to a topic exactly once."""

from __future__ import annotations

import json
from typing import Any

from headrace.dialects.storm.api.components import BasicBolt
from headrace.dialects.storm.api.tuples import Tuple


class ToTopic(BasicBolt):
    """Appends each tuple to a topic of the embedded log in the directory `log`, as a record with the tuple's fields.

    A bolt that writes somewhere itself writes twice when a micro-batch is run again; the records of this bolt are
    there once. `key` names the field of the record's key. A topic that does not exist is created, with values in JSON;
    a tuple with a value that JSON cannot represent fails.

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
                f"the topic {self.topic!r} takes values of JSON (text, numbers, true, false, None, lists and dicts of "
                f"these): {error}"
            ) from None

    def take_rows(self) -> list[str]:
        """Returns the rows written since the last call, as JSON."""
        rows, self.rows = self.rows, []
        return rows
