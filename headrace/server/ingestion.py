"""Ingestion: turns lines of JSON into events of a topic and appends them, all of a request or none.

It knows no HTTP, and leaves to the feed where the records go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import pyarrow as pa

from headrace.log import LogError
from headrace.log.values import Values
from headrace.views.feeds import Feed, Receipt, RequestKey

_MAX_REASONS: Final = 100  # bad lines whose reasons are given


class BadLines(ValueError):
    """Some lines are no events of the topic. All are counted; the first hundred have a reason, by line number."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        lines = "1 line is no event" if len(reasons) == 1 else f"{len(reasons)} lines are no events"
        super().__init__(f"{lines} of the topic; none of the request was appended")
        self.count, self.reasons = len(reasons), dict(list(reasons.items())[:_MAX_REASONS])


class Ingestion:
    """Appends events to one topic. Any number of threads may use it at once.

    >>> import headrace as hr, tempfile
    >>> from headrace.views.feeds import feed_of
    >>> visits = hr.Topic("visits", schema="user string, ts timestamp", event_time="ts", key="user")
    >>> feed = feed_of(tempfile.mkdtemp(), visits)
    >>> feed.create()
    >>> ingestion = Ingestion(feed)
    >>> line = b'{"user": "ann", "ts": "2026-01-31T12:00:00Z"}'
    >>> ingestion.append(line, RequestKey("a1")), ingestion.append(line, RequestKey("a1"))
    (Receipt(records=1, offsets={0: 0}, repeated=False), Receipt(records=1, offsets={0: 0}, repeated=True))
    """

    def __init__(self, feed: Feed) -> None:
        self.feed, self.declared = feed, feed.topic
        self._values = Values(feed.topic.schema)

    def append(self, body: bytes, request: RequestKey | None = None) -> Receipt:
        """Appends the events of a body, one in each line that is not empty; they are durable when it returns."""
        events, times = self._parse(body)
        return self.feed.append(events, times, request)

    def offsets(self) -> dict[int, int]:
        """Returns the offset of the next record of each partition."""
        return self.feed.ends()

    def _parse(self, body: bytes) -> tuple[list[dict[str, Any]], list[int] | None]:
        """Returns the events of a body, and their times if a column has them."""
        events, numbers, reasons = [], [], {}
        for number, line in enumerate(body.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                events.append(_event(line, self.declared.event_time))
                numbers.append(number)
            except ValueError as error:
                reasons[number] = str(error)
            except RecursionError:
                reasons[number] = "it is nested too deeply"
        try:
            if not reasons:
                return events, self._times(self._values.encode(events))
        except (LogError, OverflowError):
            pass
        for number, event in zip(numbers, events, strict=True):
            try:
                self._values.encode([event])
            except (LogError, OverflowError) as error:
                reasons[number] = str(error)
        raise BadLines(dict(sorted(reasons.items())))

    def _times(self, values: pa.StructArray) -> list[int] | None:
        if self.declared.event_time is None:
            return None
        times = values.field(self.declared.event_time)
        return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _event(line: bytes, event_time: str | None) -> dict[str, Any]:
    try:
        event = json.loads(line, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at {error.colno}") from None
    if not isinstance(event, dict):
        raise ValueError("it is not a JSON object of columns")
    if event_time is not None and event.get(event_time) is None:
        raise ValueError(f"it has no {event_time!r}, which is the time of the event")
    return event


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
