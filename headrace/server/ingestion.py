"""Ingestion: turns lines of JSON into events of a topic and appends them, all of a request or none.

It knows no HTTP, and leaves to the feed where the records go. To find the bad lines of a request costs about as much as
to parse it, whatever its lines are, and no step of it takes long: other threads have their turns in between.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NoReturn

import pyarrow as pa

from headrace.log import LogError
from headrace.log.values import Values
from headrace.views.feeds import Feed, Receipt, RequestKey

MAX_BAD: Final = 100
"""The number of bad lines after which the others of a request are not looked at."""
_MAX_BYTES: Final = 1 << 20  # of a line; Kafka takes as much
_PIECE: Final = 1_000  # lines that are parsed and encoded at once

_Numbered = tuple[int, dict[str, Any]]
"""The number of a line, and its event."""


class BadLines(ValueError):
    """Some lines are no events of the topic. The first hundred have a reason, by line number; there may be more."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.count, self.reasons = len(reasons), dict(reasons)
        lines = "1 line is no event" if self.count == 1 else f"{self.count} lines are no events"
        least = "at least " if self.count >= MAX_BAD else ""
        super().__init__(f"{least}{lines} of the topic; none of the request was appended")


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
        events: list[dict[str, Any]] = []
        times: list[int] = []
        reasons: dict[int, str] = {}
        lines = enumerate(body.split(b"\n"), 1)
        while len(reasons) < MAX_BAD and (piece := list(islice(lines, _PIECE))):
            parsed = list(self._events(piece, reasons))
            try:
                times += self._times(self._values.encode([event for _, event in parsed]))
            except LogError as error:
                reasons |= dict(islice(self._unfit(parsed), MAX_BAD)) or {parsed[0][0]: str(error)}
            events += [event for _, event in parsed]
        if reasons:
            raise BadLines(dict(sorted(reasons.items())[:MAX_BAD]))
        return events, None if self.declared.event_time is None else times

    def _events(self, lines: Sequence[tuple[int, bytes]], reasons: dict[int, str]) -> Iterator[_Numbered]:
        """Yields the events of lines; adds the reasons of those that are none."""
        for number, line in lines:
            if not line.strip():
                continue
            try:
                yield number, _event(line, self.declared.event_time)
            except ValueError as error:
                reasons[number] = str(error)

    def _unfit(self, events: Sequence[_Numbered]) -> Iterator[tuple[int, str]]:
        """Yields the numbers of lines whose events are not of the topic's columns, with reasons: by bisection."""
        try:
            self._values.encode([event for _, event in events])
        except LogError as error:
            if len(events) == 1:
                yield events[0][0], str(error)
            else:
                middle = len(events) // 2
                yield from self._unfit(events[:middle])
                yield from self._unfit(events[middle:])

    def _times(self, values: pa.StructArray) -> list[int]:
        if self.declared.event_time is None:
            return []
        times = values.field(self.declared.event_time)
        return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


class _Constant(ValueError):
    """NaN or an infinity, which Python's parser takes."""


def _refuse_constant(name: str) -> NoReturn:
    raise _Constant(name)


_parse_json: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode  # json.loads would make one for each line


def _event(line: bytes, event_time: str | None) -> dict[str, Any]:
    if len(line) > _MAX_BYTES:
        raise ValueError(f"it has {len(line):,} bytes; a line has at most {_MAX_BYTES:,}")
    try:
        event = _parse_json(line.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at {error.colno}") from None
    except _Constant as name:
        raise ValueError(f"{name} is no number of JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # the quadratic cost of converting digits is limited by Python
        raise ValueError(f"a number of it has more than {sys.get_int_max_str_digits():,} digits") from None
    if not isinstance(event, dict):
        raise ValueError("it is not a JSON object of columns")
    if event_time is not None and event.get(event_time) is None:
        raise ValueError(f"it has no {event_time!r}, which is the time of the event")
    return event
