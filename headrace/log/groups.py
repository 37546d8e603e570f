"""Consumer groups: each record to one member of every group. Offsets are all a group remembers.

Members are of one machine, and alive as long as they hold the lock of their file. Partitions are shared out anew
when one comes or goes; a partition changes hands when its owner next polls, or is no more.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import IO, Literal

from headrace.local.filelock import file_lock, try_lock
from headrace.log import offsets
from headrace.log.errors import LogError
from headrace.log.topics import Log, Topic
from headrace.log.values import Record

Start = Literal["earliest", "latest"]


class Offset(int):
    """An offset, where a plain number would be a time."""


@dataclass
class Shares:
    """Who reads which partition, and who is to; a partition is free until its owner has let go of it."""

    members: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    heirs: dict[str, str] = field(default_factory=dict)

    def share_out(self, partitions: int, members: list[str]) -> None:
        """Shares partitions out evenly, and leaves as many as possible where they are.

        >>> shares = Shares()
        >>> shares.share_out(3, ["a"]); shares.share_out(3, ["a", "b"])
        >>> shares.heirs
        {'0': 'a', '1': 'a', '2': 'b'}
        """
        self.members = sorted(members)
        self.owners = {each: owner for each, owner in self.owners.items() if owner in self.members}
        load = dict.fromkeys(self.members, 0)
        kept: dict[str, str] = {}
        least, spare = divmod(partitions, max(len(members), 1))
        for number in map(str, range(partitions)):
            before = self.heirs.get(number)
            if before in load and (load[before] < least or (load[before] == least and spare)):
                spare -= load[before] == least
                kept[number] = before
                load[before] += 1
        for number in map(str, range(partitions)):
            if number not in kept and load:
                idlest = min(load, key=lambda member: (load[member], member))
                kept[number] = idlest
                load[idlest] += 1
        self.heirs = dict(sorted(kept.items(), key=lambda item: int(item[0])))


class Group:
    """A consumer group of a topic.

    >>> import tempfile
    >>> log = Log(tempfile.mkdtemp())
    >>> topic = log.create("visits")
    >>> topic.append(0, topic.batch([1, 2, 3], timestamps=[10, 20, 30]))
    0
    >>> group = Group(log, "visits", "billing")
    >>> group.commit({0: 2})
    >>> group.committed(), group.lag()
    ({0: 2}, {0: 1})
    """

    def __init__(self, log: Log, topic: str, name: str) -> None:
        self.topic, self.name = log.topic(topic), name
        self.folder = log.groups / name / topic

    @staticmethod
    def names(log: Log, topic: str) -> list[str]:
        """The groups of a topic."""
        return offsets.groups_of(log.groups, topic)

    def committed(self) -> dict[int, int]:
        """The offset of the next record to be read, of each partition the group has read from."""
        return offsets.committed(self.folder)

    def commit(self, read: dict[int, int]) -> None:
        """The group has read up to these offsets."""
        for partition in read:
            self.topic.partition(partition)
        with self.locked():
            offsets.commit(self.folder, read)

    def reset(self, to: Start | int, partition: int | None = None) -> dict[int, int]:
        """Moves the group to the start or the end, to an offset, or to the first record not older than a time."""
        if self.members():
            raise LogError(
                f"the group {self.name!r} of {self.topic.name} is being read by {len(self.members())} members; stop "
                "them first: they would go on from where they are"
            )
        numbers = range(len(self.topic.partitions)) if partition is None else [partition]
        with self.locked():
            return self.begin(numbers, to)

    def begin(self, partitions: Sequence[int], at: Start | int) -> dict[int, int]:
        """Moves to a place in partitions, which need what follows it from then on. For who holds the lock."""
        with ExitStack() as locks:
            for number in partitions:  # retention must not come between
                locks.enter_context(self.topic.partition(number).locked())
            places = {number: start_of(self.topic, number, at) for number in partitions}
            offsets.commit(self.folder, places)
        return places

    def delete(self) -> None:
        """Forgets the group, which then keeps no record from being removed."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def lag(self) -> dict[int, int]:
        """How many records of each partition the group has still to read."""
        committed = self.committed()
        return {
            number: partition.next_offset() - committed.get(number, partition.earliest())
            for number, partition in enumerate(self.topic.partitions)
        }

    def members(self) -> list[str]:
        """Those that are alive."""
        with self.locked():
            return self.living()

    def living(self) -> list[str]:
        """Members whose files are locked; files of others are removed. For who holds the lock."""
        alive = []
        for path in (self.folder / "members").glob("*"):
            with path.open("rb") as file:
                if try_lock(file):
                    path.unlink()
                else:
                    alive.append(path.name)
        return sorted(alive)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the group's lock."""
        (self.folder / "members").mkdir(parents=True, exist_ok=True)
        with file_lock(self.folder / "lock"):
            yield


class Consumer:
    """A member of a group. What a poll returned is committed by the next, or by `commit` alone if not `auto_commit`.

    >>> import tempfile
    >>> log = Log(tempfile.mkdtemp())
    >>> topic = log.create("visits")
    >>> topic.append(0, topic.batch(["a", "b"], timestamps=[1, 2]))
    0
    >>> with Consumer(log, "visits", "billing") as consumer:
    ...     [record.value for record in consumer.poll()], consumer.poll()
    (['a', 'b'], [])
    """

    def __init__(
        self, log: Log, topic: str, group: str, *, start: Start = "earliest", auto_commit: bool = True
    ) -> None:
        self.group, self.topic = Group(log, topic, group), log.topic(topic)
        self.start, self.auto_commit = start, auto_commit
        self.id = uuid.uuid4().hex
        self.positions: dict[int, int] = {}
        self._turn = 0
        with self.group.locked():
            self._file: IO[bytes] = (self.group.folder / "members" / self.id).open("wb")
            try_lock(self._file)  # succeeds: nobody else knows the name of a new member
            self._take_part()

    def poll(self, most: int = 500) -> list[Record]:
        """The next records of the partitions this member has, at most so many; none if there are none yet."""
        with self.group.locked():
            if self.auto_commit:
                self._commit()
            self._take_part()
        records: list[Record] = []
        numbers = sorted(self.positions)
        for number in numbers[self._turn % len(numbers) :] + numbers[: self._turn % len(numbers)] if numbers else []:
            at = self.positions[number]
            until = min(self.topic.partition(number).next_offset(), at + most - len(records))
            records += self.topic.read(number, at, until)
            self.positions[number] = max(at, until)
        self._turn += 1
        return records

    def commit(self) -> None:
        """What was polled counts as read. Partitions that went to others in the meantime are left to them."""
        with self.group.locked():
            self._commit()

    def close(self) -> None:
        """Leaves the group; its partitions go to the others."""
        with self.group.locked():
            if self.auto_commit:
                self._commit()
            (self.group.folder / "members" / self.id).unlink()
            self._file.close()

    def _commit(self) -> None:
        owners = self._shares().owners
        mine = {number: at for number, at in self.positions.items() if owners.get(str(number)) == self.id}
        offsets.commit(self.group.folder, mine)

    def _take_part(self) -> None:
        """Lets go of what is another's, and takes what is free and this member's."""
        shares, alive = self._shares(), self.group.living()
        before = asdict(shares)
        if shares.members != alive:
            shares.share_out(len(self.topic.partitions), alive)
        for number, heir in shares.heirs.items():
            owner = shares.owners.get(number)
            if owner == self.id and heir != self.id:
                del shares.owners[number]
            elif owner is None and heir == self.id:
                shares.owners[number] = self.id
        if asdict(shares) != before:
            offsets.replace(self.group.folder / "shares.json", asdict(shares))
        mine = {int(number) for number, owner in shares.owners.items() if owner == self.id}
        if mine - set(self.positions):
            committed = self.group.committed()
            begun = self.group.begin(sorted(mine - set(committed)), self.start)
            self.positions = {**committed, **begun, **self.positions}
        self.positions = {number: at for number, at in self.positions.items() if number in mine}

    def _shares(self) -> Shares:
        held = offsets.read(self.group.folder / "shares.json")
        return Shares(**held) if held else Shares()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.auto_commit = False  # what failed was not read
        self.close()


def start_of(topic: Topic, partition: int, at: Start | int) -> int:
    """The offset of the earliest or the next record, a given one, or that of the first not older than a time.

    Times are in microseconds.
    """
    source = topic.partition(partition)
    if isinstance(at, Offset):
        first, last = source.earliest(), source.next_offset()
        if not first <= at <= last:
            raise LogError(f"{source.place}: there is no offset {int(at)}; choose one from {first} to {last}")
        return int(at)
    if at == "earliest":
        return source.earliest()
    return source.next_offset() if at == "latest" else source.offset_at(at)
