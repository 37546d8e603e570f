"""The embedded log, which is a directory of topics, and the topics with their partitions."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.local.atomicfile import sync_path
from headrace.local.privatefile import private_opener, read_private
from headrace.local.privatefolder import check_tree
from headrace.log import offsets
from headrace.log.errors import LogError
from headrace.log.fences import Fence
from headrace.log.partitions import Partition
from headrace.log.retention import Retention
from headrace.log.values import HEADERS, Record, Values
from headrace.model.errors import other_format
from headrace.model.times import now

_META: Final = "topic.json"
FORMAT: Final = 1  # of a topic's files; it gets another number when one version would misread the other's
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class Settings:
    """The settings of a topic: its partitions, its kind of values, the size of segments, and the limits of retention.

    Sizes are in bytes, of one partition; ages in microseconds.
    """

    partitions: int = 1
    values: str = "json"
    segment_bytes: int = 64 << 20
    keep_bytes: int | None = None
    keep_age: int | None = None

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise LogError(f"a topic has at least one partition, got {self.partitions}")
        Values(self.values)


class Log:
    """A directory of topics. Retention measures the age of records by its clock.

    >>> import tempfile
    >>> log = Log(tempfile.mkdtemp())
    >>> visits = log.create("visits", partitions=2, values="user string, url string")
    >>> visits.append(0, visits.batch([{"user": "ann", "url": "/"}], timestamps=[5]))
    0
    >>> [record.value for record in log.topic("visits").read(0)]
    [{'user': 'ann', 'url': '/'}]
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], int] = now) -> None:
        self.path, self.clock = Path(path), clock

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        values: str = "json",
        segment_bytes: int = 64 << 20,
        keep_bytes: int | None = None,
        keep_age: int | None = None,
    ) -> Topic:
        """Creates a topic, atomically."""
        if not _NAME.fullmatch(name) or name.startswith("."):
            raise LogError(f"a topic's name has at most 200 letters, digits, '.', '_' and '-', got {name!r}")
        settings = Settings(partitions, values, segment_bytes, keep_bytes, keep_age)
        folder = self._topics / name
        if folder.exists():
            raise LogError(f"the topic {name!r} exists already in {str(self.path)!r}; choose another name, or use it")
        new = self._topics / f".{name}.new-{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        for number in range(partitions):
            Partition(new / str(number), Values(values).schema(), f"{name}/{number}").create()
        with open(new / _META, "xb", opener=private_opener) as file:
            file.write(json.dumps({"format": FORMAT, **asdict(settings)}, indent=1).encode())
        try:
            new.rename(folder)
        except OSError:
            shutil.rmtree(new)
            raise LogError(f"another process has just created the topic {name!r}; use it") from None
        sync_path(self._topics)
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """Opens an existing topic."""
        check_tree(self._topics / name)
        try:
            stored = json.loads(read_private(self._topics / name / _META))
        except (FileNotFoundError, NotADirectoryError):
            topics = ", ".join(self.topics()) or "none"
            raise LogError(
                f"there is no topic {name!r} in {str(self.path)!r} (topics: {topics}); create it with "
                f"`headrace topic create {name}`"
            ) from None
        if (format := stored.pop("format", 1)) != FORMAT:  # the first had no number
            what = f"the topic {name!r} in {str(self.path)!r}"
            raise LogError(other_format(what, format, FORMAT, "copy its records with that one into a new topic"))
        return Topic(name, self._topics / name, Settings(**stored), self)

    def topics(self) -> list[str]:
        """Returns the names of all topics."""
        return sorted(path.parent.name for path in self._topics.glob(f"[!.]*/{_META}"))

    def delete(self, name: str) -> None:
        """Removes a topic and all its records."""
        deleted = self._topics / f".{name}.gone-{os.getpid()}"
        self.topic(name).folder.rename(deleted)
        shutil.rmtree(deleted)

    @property
    def groups(self) -> Path:
        """The directory of consumer groups."""
        return self.path / "groups"

    @property
    def _topics(self) -> Path:
        return self.path / "topics"


class Topic:
    """A topic and its partitions."""

    def __init__(self, name: str, folder: Path, settings: Settings, log: Log) -> None:
        self.name, self.folder, self.settings, self.log = name, folder, settings, log
        self.values = Values(settings.values)
        self.schema = self.values.schema()
        self.partitions = [
            Partition(
                folder / str(number),
                self.schema,
                f"{name}/{number}",
                settings.segment_bytes,
                Retention(settings.keep_age, settings.keep_bytes, partial(self.needed, number), log.clock),
            )
            for number in range(settings.partitions)
        ]

    def partition(self, number: int) -> Partition:
        """Returns a partition by its number."""
        if not 0 <= number < len(self.partitions):
            raise LogError(f"{self.name} has no partition {number}; it has 0 to {len(self.partitions) - 1}")
        return self.partitions[number]

    def append(self, partition: int, batch: pa.RecordBatch) -> int:
        """Appends records to a partition, all or none; returns the offset of the first."""
        return self.partition(partition).append(batch)

    def batch(
        self,
        values: list[object] | pa.StructArray,
        *,
        timestamps: list[int],
        keys: list[bytes | None] | None = None,
        headers: list[dict[str, bytes] | None] | None = None,
    ) -> pa.RecordBatch:
        """Encodes records as a record batch."""
        count, kind = len(values), self.schema.field(HEADERS).type
        if headers is None or not any(headers):
            none = pa.nulls(0, kind.key_type), pa.nulls(0, kind.item_type)
            encoded = pa.MapArray.from_arrays(np.zeros(count + 1, np.int32), *none)
        else:
            encoded = pa.array([list((header or {}).items()) for header in headers], kind)
        columns = [
            pa.array(keys, pa.binary()) if keys is not None else pa.nulls(count, pa.binary()),
            pa.array(timestamps, pa.int64()),
            encoded,
            values if isinstance(values, pa.StructArray) else self.values.encode(values),
        ]
        return pa.record_batch(columns, schema=self.schema)

    def read(self, partition: int, offset: int | None = None, until: int | None = None) -> Iterator[Record]:
        """Reads the records of a partition from an offset on, or from its first."""
        source = self.partition(partition)
        for first, batch in source.read(source.earliest() if offset is None else offset, until):
            yield from self.values.records(partition, first, batch)

    def needed(self, partition: int) -> int | None:
        """Returns the least offset of a partition that some group has still to read; None if there is no group."""
        return offsets.needed(self.log.groups, self.name, partition)

    def take_over(self, producer: int) -> Fence:
        """Takes a producer over from whatever process has it: appends with an older fence are refused from now on.

        It waits for appends under way, so that what the other process has appended can be read.
        """
        fence = Fence.take(self.folder / "fences", producer)
        for partition in self.partitions:
            with partition.locked():
                pass
        return fence

    def forget_producer(self, producer: int) -> None:
        """Removes the fence of a producer that never comes back; whoever still has it is refused."""
        Fence.remove(self.folder / "fences", producer)

    def retain(self, *, force: bool = False) -> int:
        """Removes records beyond the limits of the topic's settings; returns their number.

        Records that a group has still to read stay, unless `force`. A partition does so itself with each new segment.
        """
        return sum(partition.retain(force=force) for partition in self.partitions)
