"""The archive of a topic as a table for ad-hoc SQL, as of now or of earlier offsets. Needs no Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.local.privatefolder import check_tree
from headrace.log.values import Values
from headrace.model.times import DAY, InstantLike, instant
from headrace.views.adhoc.sqlrequest import ParquetRows
from headrace.views.archive.manifests import LocalManifestFolder, Manifests, MasterFile
from headrace.views.declare.declarations import Topic
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import BAD, OFFSET, PARTITION, TIMESTAMP
from headrace.views.offsets import Offsets, reaches

_PLACES: Final = {PARTITION: pa.int32(), OFFSET: pa.int64(), TIMESTAMP: pa.timestamp("us", tz="UTC")}
_EPOCH: Final = dt.date(1970, 1, 1)


class Archive:
    """The archive of a topic in a local directory, which a `Master` writes.

    Its table has the columns of the topic, and `_partition`, `_offset` and `_timestamp` of each record. If not
    `strict`, it leaves out records that are no rows of these columns, as views do.

    >>> import headrace as hr, tempfile
    >>> archive = Archive(hr.Topic("visits", schema="url string"), tempfile.mkdtemp())
    >>> archive.table()[0].column_names
    ['url', '_partition', '_offset', '_timestamp']
    """

    def __init__(self, topic: Topic, path: str | Path, *, strict: bool = True) -> None:
        check_tree(Path(path))
        self.topic, self._data, self._strict = topic, Path(path, "data"), strict
        self._manifests = Manifests(LocalManifestFolder(Path(path, "manifests")))
        values = Values(topic.schema).type()
        self._schema = pa.schema([*values, *(pa.field(name, kind) for name, kind in _PLACES.items())])

    def table(
        self, since: InstantLike | None = None, until: InstantLike | None = None, *, asof: Offsets | None = None
    ) -> tuple[pa.Table | ParquetRows, Offsets]:
        """Returns the records with times from `since` to before `until`, and the offsets up to which they are archived.

        With `asof` it is the table as it was when the topic ended at these offsets.
        """
        steps = self._manifests.steps()
        reached = dict(steps[-1].until) if steps else {}
        if asof is not None and not reaches(reached, asof):
            raise ViewError(f"topic {self.topic.name!r} is archived up to {reached}, not yet to {dict(asof)}")
        ends = reached if asof is None else {number: asof.get(number, 0) for number in reached}
        first, last = _time(since), _time(until)
        files = [
            file for step in steps for file in step.files if file.overlaps({}, ends) and _may_have(file, first, last)
        ]
        if not files:
            return self.empty(), ends
        rows = ParquetRows(
            tuple(str(self._data / file.path) for file in files),
            None if asof is None else {number: (0, end) for number, end in ends.items()},
            self.topic.event_time or TIMESTAMP,
            first,
            last,
            columns=tuple(self._schema.names),
            zoned=tuple(field.name for field in self._schema if pa.types.is_timestamp(field.type)),
            bad=None if self._strict else BAD,
        )
        return rows, ends

    def empty(self) -> pa.Table:
        """Returns the table without rows."""
        return self._schema.empty_table()


def _time(value: InstantLike | None) -> int | None:
    try:
        return None if value is None else instant(value)
    except (TypeError, ValueError) as error:
        raise ViewError(str(error)) from None


def _may_have(file: MasterFile, since: int | None, until: int | None) -> bool:
    """Returns whether a file may have records between two times; records without a time are between none."""
    if since is None and until is None:
        return True
    try:
        start = (dt.date.fromisoformat(file.day.partition("=")[2]) - _EPOCH).days * DAY
    except ValueError:
        return False
    return (until is None or start < until) and (since is None or start + DAY > since)
