"""Key extractors: each subscriber of a stream has its own, so two computations may key one stream differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.dialects.millwheel.api.recordsandtimers import ComputationError, Record
from headrace.model.times import Instant
from headrace.model.watermarks import WatermarkPolicy, checked_policy


@dataclass(frozen=True)
class Key:
    """A key extractor: a function of the record, or the name of a field of its value.

    `watermark` is how the low watermark of the stream is known: "stream" if its writers say it, else by a policy.
    """

    by: Callable[[Record], Any] | str
    watermark: WatermarkPolicy | Literal["stream"] = "stream"

    def __call__(self, value: Any, timestamp: Instant, stream: str) -> Any:
        by = self.by
        if callable(by):
            return by(Record(None, value, timestamp, stream))
        return value[by]  # of an object of JSON as of a Row


def key(by: Callable[[Record], Any] | str, *, watermark: WatermarkPolicy | Literal["stream"] = "stream") -> Key:
    """Declares the key of a computation's input: a function of the record, or the name of a field of its value.

    For a stream whose writers say no watermarks, such as a topic of Kafka that others write, give a policy that
    estimates it: `watermark=hr.BoundedDisorder("10 seconds")`.

    >>> from headrace import millwheel as mw
    >>> mw.key("query")({"query": "mill"}, mw.Instant(0), "queries")
    'mill'
    >>> mw.key(lambda record: record.value[:1])("mill", mw.Instant(0), "queries")
    'm'
    """
    if not (callable(by) or (isinstance(by, str) and by)):
        raise ComputationError(f"key takes a function of the record or the name of a field of its value, got {by!r}")
    if watermark != "stream":
        checked_policy("key", watermark)
    return Key(by, watermark)
