"""Key extractors: each subscriber of a stream has its own, so two computations may key one stream differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.dialects.millwheel.api.recordsandtimers import ComputationError, Record
from headrace.model.times import Instant


@dataclass(frozen=True)
class Key:
    """A key extractor: a function of the record, or the name of a field of its value."""

    by: Callable[[Record], Any] | str

    def __call__(self, value: Any, timestamp: Instant, stream: str) -> Any:
        by = self.by
        if callable(by):
            return by(Record(None, value, timestamp, stream))
        return value[by]  # of an object of JSON as of a Row


def key(by: Callable[[Record], Any] | str) -> Key:
    """Declares the key of a computation's input: a function of the record, or the name of a field of its value.

    >>> from headrace import millwheel as mw
    >>> mw.key("query")({"query": "mill"}, mw.Instant(0), "queries")
    'mill'
    >>> mw.key(lambda record: record.value[:1])("mill", mw.Instant(0), "queries")
    'm'
    """
    if not (callable(by) or (isinstance(by, str) and by)):
        raise ComputationError(f"key takes a function of the record or the name of a field of its value, got {by!r}")
    return Key(by)
