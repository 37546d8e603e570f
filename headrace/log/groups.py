"""Consumer groups: each record goes to one member of every group. A group stores offsets only.

Members are on one machine, and alive as long as they hold the lock of their file. Partitions are assigned again when a
member joins or leaves; a partition changes its owner when the old owner polls next, or is dead.
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
from headrace.local.privatefile import private_opener
from headrace.local.privatefolder import make_folder
from headrace.log import offsets
from headrace.log.errors import LogError
from headrace.log.topics import Log, Topic
from headrace.log.values import Record

Start = Literal["earliest", "latest"]


class Offset(int):
    """An offset, where a plain integer would be a time."""


@dataclass
class Assignment:
    """The current owners of partitions and the assigned ones, `heirs`, who own them once the owners release them."""

    members: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    heirs: dict[str, str] = field(default_factory=dict)

    def rebalance(self, partitions: int, members: list[str]) -> None:
        """Assigns partitions evenly to members, and leaves as many as possible where they are.

        >>> assignment = Assignment()
        >>> assignment.rebalance(3, ["a"]); assignment.rebalance(3, ["a", "b"])
        >>> assignment.heirs
        {'0': 'a', '1': 'a', '2': 'b'}
        """
        self.members = sorted(members)
        self.owners = {number: owner for number, owner in self.owners.items() if owner in self.members}
        load = dict.fromkeys(self.members, 0)
        assigned: dict[str, str] = {}
        least, spare = divmod(partitions, max(len(members), 1))
        for number in map(str, range(partitions)):
            before = self.heirs.get(number)
            if before in load and (load[before] < least or (load[before] == least and spare)):
                spare -= load[before] == least
                assigned[number] = before
                load[before] += 1
        for number in map(str, range(partitions)):
            if number not in assigned and load:
                idlest = min(load, key=lambda member: (load[member], member))
                assigned[number] = idlest
                load[idlest] += 1
        self.heirs = dict(sorted(assigned.items(), key=lambda item: int(item[0])))


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
        """Returns the names of a topic's groups."""
        return offsets.groups_of(log.groups, topic)

    def committed(self) -> dict[int, int]:
        """Returns the offset of the next record to read, for each partition that the group has read from."""
        return offsets.committed(self.folder)

    def commit(self, read: dict[int, int]) -> None:
        """Commits the offsets up to which the group has read."""
        for partition in read:
            self.topic.partition(partition)
        with self.locked():
            offsets.commit(self.folder, read)

    def reset(self, to: Start | int, partition: int | None = None) -> dict[int, int]:
        """Moves the group to the start or the end, to an offset, or to the first record not older than a time."""
        if self.members():
            raise LogError(
                f"the group {self.name!r} of {self.topic.name} has {len(self.members())} members that read; stop "
                "them first: they would continue from where they are"
            )
        numbers = range(len(self.topic.partitions)) if partition is None else [partition]
        with self.locked():
            return self.begin(numbers, to)

    def begin(self, partitions: Sequence[int], at: Start | int) -> dict[int, int]:
        """Moves the group to a start in partitions, and commits its offsets. The caller holds the group's lock."""
        with ExitStack() as locks:
            for number in partitions:  # retention must not remove the records in between
                locks.enter_context(self.topic.partition(number).locked())
            starts = {number: start_of(self.topic, number, at) for number in partitions}
            offsets.commit(self.folder, starts)
        return starts

    def delete(self) -> None:
        """Deletes the group, which then keeps no record from being removed."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def lag(self) -> dict[int, int]:
        """Returns the number of records of each partition that the group has still to read."""
        committed = self.committed()
        return {
            number: partition.next_offset() - committed.get(number, partition.earliest())
            for number, partition in enumerate(self.topic.partitions)
        }

    def members(self) -> list[str]:
        """Returns the members that are alive."""
        with self.locked():
            return self.find_members()

    def find_members(self) -> list[str]:
        """Returns the members whose files are locked, and removes the files of others. The caller holds the lock."""
        alive = []
        for path in (self.folder / "members").glob("*"):
            with open(path, "rb", opener=private_opener) as file:
                if try_lock(file):
                    path.unlink()
                else:
                    alive.append(path.name)
        return sorted(alive)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the group's lock."""
        make_folder(self.folder / "members")
        with file_lock(self.folder / "lock"):
            yield


class Consumer:
    """A member of a group. The next poll commits what a poll returned, or only `commit` does if not `auto_commit`.

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
            place = self.group.folder / "members" / self.id
            self._file: IO[bytes] = open(place, "xb", opener=private_opener)  # noqa: SIM115 (closed when it leaves)
            try_lock(self._file)  # succeeds: nobody else knows the name of a new member
            self._update_assignment()

    def poll(self, most: int = 500) -> list[Record]:
        """Returns the next records of this member's partitions, at most so many; none if there are none yet."""
        with self.group.locked():
            if self.auto_commit:
                self._commit()
            self._update_assignment()
        records: list[Record] = []
        numbers = sorted(self.positions)
        for number in numbers[self._turn % len(numbers) :] + numbers[: self._turn % len(numbers)] if numbers else []:
            position = self.positions[number]
            until = min(self.topic.partition(number).next_offset(), position + most - len(records))
            records += self.topic.read(number, position, until)
            self.positions[number] = max(position, until)
        self._turn += 1
        return records

    def commit(self) -> None:
        """Commits what was polled, except of partitions that other members own by now."""
        with self.group.locked():
            self._commit()

    def close(self) -> None:
        """Leaves the group; its partitions go to the other members."""
        with self.group.locked():
            if self.auto_commit:
                self._commit()
            (self.group.folder / "members" / self.id).unlink()
            self._file.close()

    def _commit(self) -> None:
        owners = self._assignment().owners
        owned = {number: offset for number, offset in self.positions.items() if owners.get(str(number)) == self.id}
        offsets.commit(self.group.folder, owned)

    def _update_assignment(self) -> None:
        """Releases partitions that are assigned to others, and takes the free ones that are assigned to this member."""
        assignment, alive = self._assignment(), self.group.find_members()
        before = asdict(assignment)
        if assignment.members != alive:
            assignment.rebalance(len(self.topic.partitions), alive)
        for number, heir in assignment.heirs.items():
            owner = assignment.owners.get(number)
            if owner == self.id and heir != self.id:
                del assignment.owners[number]
            elif owner is None and heir == self.id:
                assignment.owners[number] = self.id
        if asdict(assignment) != before:
            offsets.replace(self.group.folder / "shares.json", asdict(assignment))
        owned = {int(number) for number, owner in assignment.owners.items() if owner == self.id}
        if owned - set(self.positions):
            committed = self.group.committed()
            begun = self.group.begin(sorted(owned - set(committed)), self.start)
            self.positions = {**committed, **begun, **self.positions}
        self.positions = {number: offset for number, offset in self.positions.items() if number in owned}

    def _assignment(self) -> Assignment:
        return Assignment(**offsets.read(self.group.folder / "shares.json"))

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.auto_commit = False  # what failed does not count as read
        self.close()


def start_of(topic: Topic, partition: int, at: Start | int) -> int:
    """Returns the offset of the earliest or the next record, a given offset, or the first not older than a time.

    Times are in microseconds.
    """
    source = topic.partition(partition)
    if isinstance(at, Offset):
        first, last = source.earliest(), source.next_offset()
        if not first <= at <= last:
            raise LogError(f"{source.place} has no offset {int(at)}; choose one from {first} to {last}")
        return int(at)
    if at == "earliest":
        return source.earliest()
    return source.next_offset() if at == "latest" else source.offset_at(at)
