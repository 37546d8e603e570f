"""The manifest of a checkpoint: what the stream is, so that a changed pipeline can be compared with it.

Sources, groupings and sinks are known by their labels. Nothing here reads or writes files.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from headrace.engine.plan.line import Line
from headrace.engine.plan.stages import shown
from headrace.engine.plan.taps import Tap
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.slots import SLOTS
from headrace.model.errors import PipelineError, other_format
from headrace.model.pipeline import Node
from headrace.model.sinks import WriteFiles
from headrace.model.sources import FileSource

FORMAT: Final = 4
"""The format of checkpoints; it changes when this version would misread the state or logs of an earlier one."""

_FIRST, _SECOND, _THIRD = 1, 2, 3
"""Formats that are still read. None of them has slots; the first two have stamps of shards apart, and the first has
descriptions in place of identities."""

_RENAMED: Final = {"KeptFn(": "PartialFn("}
"""Classes in descriptions of the first format, and what they are called now."""


READABLE: Final = (_FIRST, _SECOND, _THIRD, FORMAT)


@dataclass(frozen=True)
class SourceEntry:
    """A source: its kind, which must not change, and a description for people.

    `inputs` is how many of the sources in Spark's own checkpoint it is, None if an earlier version wrote the manifest.
    """

    kind: str
    description: str
    inputs: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class GroupingEntry:
    """A grouping: its number and level, what it waits for, what must not change about it, and descriptions for people.

    `identity` is None if the manifest is of the first format, which has the description in its place.
    """

    number: int
    level: int
    upstream: list[str]
    identity: Identity
    description: str
    settings: str

    @property
    def shards(self) -> int | None:
        """The number of its shards, if it is not that of the stream."""
        return self.identity.get("tasks") if isinstance(self.identity, dict) else None

    def same_work(self, other: GroupingEntry) -> bool:
        """Returns whether the state of one is good for the other."""
        if self.identity is None or other.identity is None:
            return self.description == other.description
        return bool(self.identity == other.identity)


@dataclass(frozen=True)
class ForgottenEntry:
    """A grouping that is gone: its number, which no other gets, and where its state was."""

    number: int
    level: int
    shards: int


@dataclass(frozen=True)
class SinkEntry:
    """A sink: its kind, the directory it writes to, if it does, and a description for people.

    `kind` is None if the manifest is of the first format, which has descriptions only.
    """

    kind: str | None
    directory: str | None
    description: str

    def same_target(self, other: SinkEntry | None) -> bool:
        """Returns whether the other sink wrote to the same place in the same format."""
        if other is None:
            return False
        if self.kind is None or other.kind is None:
            return self.description == other.description
        return (self.kind, self.directory) == (other.kind, other.directory)


@dataclass(frozen=True)
class Manifest:
    """Description of a stream: an id, its shards and partitions; and by label its sources, groupings and sinks.

    Sources are in the order in which Spark's own checkpoint has them. `heartbeat`: the clock is one of them; `rounds`:
    so is what shards send to those of the next micro-batch. `levels`: how many levels of groupings it has had.
    `forgotten`: groupings whose state is removed. `stamps_apart`: stamps of shards are a state variable of their own,
    which stays so. `slots`: how many slots keys belong to, 0 if to the remainders of their hashes. `format`: that of
    the file it was read from.

    >>> manifest = Manifest("a", shards=4, partitions=2, sources={"events": SourceEntry("Rate", "Rate(5 a second)")})
    >>> Manifest.read(manifest.write()) == manifest, manifest.forked().stream == manifest.stream
    (True, False)
    """

    stream: str
    shards: int
    partitions: int
    heartbeat: bool = False
    sources: dict[str, SourceEntry] = field(default_factory=dict)
    groupings: dict[str, GroupingEntry] = field(default_factory=dict)
    sinks: dict[str, SinkEntry] = field(default_factory=dict)
    levels: int = 0
    forgotten: list[ForgottenEntry] = field(default_factory=list)
    stamps_apart: bool = False
    rounds: bool = False
    slots: int = SLOTS
    format: int = FORMAT

    @property
    def depth(self) -> int:
        """The number of levels of groupings, which never falls: Spark's own checkpoint has them all."""
        return max([self.levels, *(grouping.level for grouping in self.groupings.values())])

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of groupings, which are part of where their state is."""
        return {label: grouping.number for label, grouping in self.groupings.items()}

    def of(self, line: Line, *, heartbeat: bool) -> Manifest:
        """Returns the manifest of a pipeline, under the same id."""
        labels = {exchange.label for exchange in line.exchanges}
        gone = [grouping for label, grouping in self.groupings.items() if label not in labels]
        return replace(
            self,
            format=FORMAT,  # one of another is written anew, so that no earlier version reads what this one adds
            heartbeat=heartbeat,
            rounds=self.rounds or line.rounds,
            sources=_sources(line.taps),
            groupings={
                exchange.label: GroupingEntry(
                    exchange.number,
                    exchange.level,
                    list(exchange.upstream),
                    _as_json(exchange.work.identity()),
                    _without_addresses(exchange.work.describe()),
                    _without_addresses(exchange.settings()),
                )
                for exchange in line.exchanges
            },
            sinks={outlet.node.label: _sink(outlet.node) for outlet in line.outlets},
            levels=max(self.depth, line.depth),
            forgotten=[*self.forgotten, *(ForgottenEntry(e.number, e.level, e.shards or self.shards) for e in gone)],
        )

    def forked(self) -> Manifest:
        """Returns the same pipeline as another stream, which has not written to any sink yet."""
        return replace(self, stream=uuid.uuid4().hex, sinks={})

    def in_order(self, taps: Iterable[Tap]) -> list[Tap]:
        """Sorts sources into the order of this manifest."""
        order = list(self.sources)
        return sorted(taps, key=lambda tap: order.index(tap.name) if tap.name in order else len(order))

    def write(self) -> bytes:
        """Encodes the manifest."""
        return json.dumps({"format": FORMAT, **asdict(replace(self, format=FORMAT))}, indent=1).encode()

    @classmethod
    def read(cls, data: bytes, what: str = "the checkpoint") -> Manifest:
        """Decodes the manifest of `what`. Refuses one of a format that is not known."""
        entries = json.loads(data)
        number = entries.setdefault("format", _FIRST)  # the first had no number
        if number in (_FIRST, _SECOND):
            entries = {**(_from_first(entries) if number == _FIRST else entries), "stamps_apart": True, "slots": 0}
        elif number == _THIRD:
            entries = {**entries, "slots": 0}
        elif number != FORMAT:
            raise PipelineError(other_format(what, number, FORMAT, "run with a new checkpoint"))
        for name, kind in (("sources", SourceEntry), ("groupings", GroupingEntry), ("sinks", SinkEntry)):
            entries[name] = {label: kind(**entry) for label, entry in entries[name].items()}
        entries["forgotten"] = [ForgottenEntry(**entry) for entry in entries.get("forgotten", [])]
        return cls(**entries)


def _from_first(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Converts what a manifest of the first format has."""
    sources = {name: text.partition(": ") for name, text in entries["sources"].items()}
    return {
        **entries,
        "sources": {name: {"kind": kind, "description": shown} for name, (kind, _, shown) in sources.items()},
        "groupings": {
            label: {
                **{name: grouping[name] for name in ("number", "level", "upstream", "settings")},
                "identity": None,
                "description": _renamed(grouping["work"]),
            }
            for label, grouping in entries["groupings"].items()
        },
        "sinks": {
            label: {"kind": None, "directory": None, "description": text} for label, text in entries["sinks"].items()
        },
    }


def _renamed(text: str) -> str:
    for was, now in _RENAMED.items():
        text = text.replace(was, now)
    return text


def _sources(taps: Iterable[Tap]) -> dict[str, SourceEntry]:
    sources: dict[str, SourceEntry] = {}
    opened: set[int] = set()
    for tap in taps:
        transform = tap.source.transform
        inputs = len(transform.paths) if isinstance(transform, FileSource) else 1
        # The taps of a source share what Spark reads.
        shared = id(tap.source) in opened
        sources[tap.name] = SourceEntry(type(transform).__name__, shown(transform), 0 if shared else inputs)
        opened.add(id(tap.source))
    return sources


def _sink(node: Node) -> SinkEntry:
    sink = node.transform
    return SinkEntry(type(sink).__name__, sink.path if isinstance(sink, WriteFiles) else None, shown(sink))


def _as_json(identity: Identity) -> Identity:
    """Returns an identity as it will be read back: tuples are lists."""
    return json.loads(json.dumps(identity))


def _without_addresses(text: str) -> str:
    """Removes from a description what differs from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)
