"""The master data of a topic as a table of ad-hoc SQL: what is archived, now or as of earlier offsets. No Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.log.values import Values
from headrace.model.times import DAY, InstantLike, instant
from headrace.views.adhoc.sqlrequest import Files
from headrace.views.archive.manifests import File, LocalShelf, Manifests
from headrace.views.declare.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import BAD, OFFSET, PARTITION, TIMESTAMP
from headrace.views.offsets import Offsets, reaches

_PLACES: Final = {PARTITION: pa.int32(), OFFSET: pa.int64(), TIMESTAMP: pa.timestamp("us", tz="UTC")}
_EPOCH: Final = dt.date(1970, 1, 1)


class Archive:
    """The master data of a topic in a directory of this machine, which a `Master` writes.

    Its table has the columns of the topic, and `_partition`, `_offset` and `_timestamp` of each record. If not all
    records need be rows of these columns (`strict`), those that are not are left out, as they are of views.

    >>> import headrace as hr, tempfile
    >>> archive = Archive(hr.Topic("visits", schema="url string"), tempfile.mkdtemp())
    >>> archive.table()[0].column_names
    ['url', '_partition', '_offset', '_timestamp']
    """

    def __init__(self, topic: Topic, path: str | Path, *, strict: bool = True) -> None:
        self.topic, self._data, self._strict = topic, Path(path, "data"), strict
        self._manifests = Manifests(LocalShelf(Path(path, "manifests")))
        values = Values(topic.schema).type()
        self._schema = pa.schema([*values, *(pa.field(name, kind) for name, kind in _PLACES.items())])

    def table(
        self, since: InstantLike | None = None, until: InstantLike | None = None, *, asof: Offsets | None = None
    ) -> tuple[pa.Table | Files, Offsets]:
        """The records whose time is from `since` to before `until`, and up to which offsets they are archived.

        With `asof` it is the table as it was when the topic ended there.
        """
        steps = self._manifests.steps()
        reached = dict(steps[-1].until) if steps else {}
        if asof is not None and not reaches(reached, asof):
            raise ViewError(f"topic {self.topic.name!r} is archived up to {reached}, not yet to {dict(asof)}")
        there = reached if asof is None else {number: asof.get(number, 0) for number in reached}
        first, last = _time(since), _time(until)
        files = [each for step in steps for each in step.files if each.overlaps({}, there) and _may(each, first, last)]
        if not files:
            return self.empty(), there
        found = Files(
            tuple(str(self._data / each.path) for each in files),
            None if asof is None else {number: (0, end) for number, end in there.items()},
            self.topic.event_time or TIMESTAMP,
            first,
            last,
            columns=tuple(self._schema.names),
            zoned=tuple(field.name for field in self._schema if pa.types.is_timestamp(field.type)),
            bad=None if self._strict else BAD,
        )
        return found, there

    def empty(self) -> pa.Table:
        """The table without rows."""
        return self._schema.empty_table()


def _time(value: InstantLike | None) -> int | None:
    try:
        return None if value is None else instant(value)
    except (TypeError, ValueError) as error:
        raise ViewError(str(error)) from None


def _may(file: File, since: int | None, until: int | None) -> bool:
    """Whether a file may have records between two times; those of no time are between none."""
    if since is None and until is None:
        return True
    try:
        start = (dt.date.fromisoformat(file.day.partition("=")[2]) - _EPOCH).days * DAY
    except ValueError:
        return False
    return (until is None or start < until) and (since is None or start + DAY > since)
