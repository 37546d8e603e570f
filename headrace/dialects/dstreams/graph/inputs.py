"""Inputs of a program: at the end of each interval an input says what came in it, its cut, which is then logged.

A cut is JSON, and whoever has it can read the same elements again: offsets of a topic, names of files, places in a
queue. What cannot be read twice, such as a socket, goes to a topic of the program's own log first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from pyspark import RDD, SparkContext

Cut = dict[str, Any]
"""Describes what came in an interval; it is JSON."""


class InputContext(Protocol):
    """The run that an input is in, as far as it knows of it."""

    sc: SparkContext
    folder: Path
    """The directory of the program's log and state."""


class Input:
    """A source of elements."""

    failure: Exception | None = None
    lasting = True
    """Whether the elements of a cut can cheaply be read again for as long as windows need them."""

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        """Begins to receive, at the start of a run. Cuts of earlier runs are given, the last one first."""

    def stop(self) -> None:
        """Stops receiving; what was received stays."""

    def leave(self) -> None:
        """Notes, after a run that nobody will continue, that nothing is needed any more."""

    def cut(self) -> Cut:
        """Returns what came since the last cut."""
        raise NotImplementedError

    def waiting(self) -> bool:
        """Returns whether something was received that is in no cut."""
        return False

    def release(self, cut: Cut) -> None:
        """Notes that nothing before a cut is needed any more."""

    def size(self, cut: Cut) -> int:
        """Returns the number of elements of a cut; 0 if it is not known without reading."""
        return 0

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        """Returns the elements of a cut."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_run_")}


class QueueInput(Input):
    """RDDs of a queue, one for each batch or all for the first; then a default one, or none."""

    def __init__(self, rdds: list[RDD[Any]], one_at_a_time: bool, default: RDD[Any] | None, number: int) -> None:
        self.count, self.one_at_a_time, self.number, self.has_default = len(rdds), one_at_a_time, number, bool(default)
        self._run_rdds: list[RDD[Any]] = [*rdds, *([default] if default is not None else [])]

    def save(self, context: InputContext) -> None:
        """Writes the RDDs to the program's directory, so that another run can read them."""
        for place, rdd in enumerate(self._run_rdds):
            rdd.saveAsPickleFile(self._path(context, place))

    def start(self, context: InputContext, earlier: Iterator[Cut]) -> None:
        last = next(earlier, None)
        self._run_next: int = 0 if last is None else last["next"]

    def cut(self) -> Cut:
        first = self._run_next
        self._run_next = min(first + 1, self.count) if self.one_at_a_time else self.count
        return {"items": list(range(first, self._run_next)), "next": self._run_next}

    def rdd(self, context: InputContext, cut: Cut) -> RDD[Any]:
        places = cut["items"] or ([self.count] if self.has_default else [])
        rdds = [self._rdd(context, place) for place in places]
        return context.sc.emptyRDD() if not rdds else rdds[0] if len(rdds) == 1 else context.sc.union(rdds)

    def _rdd(self, context: InputContext, place: int) -> RDD[Any]:
        if (rdds := self.__dict__.get("_run_rdds")) is not None:
            return rdds[place]  # type: ignore[no-any-return]
        return context.sc.pickleFile(self._path(context, place), 1)

    def _path(self, context: InputContext, place: int) -> str:
        return str(context.folder / "queues" / str(self.number) / str(place))


def read_shares(context: InputContext, shares: list[Any], reader: Callable[[Iterable[Any]], Iterator[Any]]) -> RDD[Any]:
    """Returns an RDD with a partition for each share, which a task reads; without partitions if there is nothing."""
    return context.sc.parallelize(shares, len(shares)).mapPartitions(reader) if shares else context.sc.emptyRDD()
