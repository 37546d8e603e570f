"""Compares a changed pipeline with the checkpoint of the one it was: which changes can go on from there.

Functions, sinks and stateless transforms may come, go and change; so may what a trigger waits for. What state was made
of may not: windows, combiners, the inputs of groupings. A grouping may go if the pipeline says that it is to be
forgotten. And Spark's own checkpoint pins how many sources and how many levels of groupings there are, so neither can
be added; levels can be reserved. A stream that begins anew, with a checkpoint of Spark's own that has nothing but our
state, is free of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from headrace.engine.checkpoint.manifest import GroupingEntry, Manifest


@dataclass
class Changes:
    """The differences of two manifests: `notes` for changes that are fine, `refusals` for those that are not."""

    notes: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def compare(before: Manifest, new: Manifest, forget: Collection[str] = (), *, anew: bool = False) -> Changes:
    """Lists the changes from the pipeline of a checkpoint to one that is to go on from it, without groupings to forget.

    `anew`: in a new checkpoint of Spark's.

    >>> from headrace.engine.checkpoint.manifest import SourceEntry
    >>> rate = SourceEntry("Rate", "Rate(5 a second)")
    >>> changes = compare(Manifest("a", 4, 2, sources={"events": rate}), Manifest("a", 4, 2, sources={"visits": rate}))
    >>> for refusal in changes.refusals:
    ...     print(refusal)
    the source 'events' is gone
    the source 'visits' is new: a checkpoint keeps the sources it began with
    >>> compare(Manifest("a", 4, 2), Manifest("a", 4, 2, sources={"visits": rate}), anew=True).notes
    ["the source 'visits' is new: it begins as in a new stream"]
    """
    changes = Changes()
    _sources(before, new, changes, anew=anew)
    _groupings(before, new, changes, forget, anew=anew)
    if not anew:
        _heartbeat(before, new, changes)
        if new.rounds and not before.rounds:
            changes.refusals.append(
                "shards send to those of the next micro-batch now, which no shard did when it began"
            )
    changes.notes += [f"the sink {label!r} is gone" for label in before.sinks if label not in new.sinks]
    for label, sink in new.sinks.items():
        if (was := before.sinks.get(label)) is None:
            changes.notes.append(f"the sink {label!r} is new: it gets what comes from here on")
        elif sink.description != was.description:
            changes.notes.append(f"the sink {label!r} was {was.description} and is {sink.description}")
    return changes


def _sources(before: Manifest, new: Manifest, changes: Changes, *, anew: bool) -> None:
    for name, was in before.sources.items():
        now = new.sources.get(name)
        if now is None and anew:
            changes.notes.append(f"the source {name!r} is gone: what it has not read yet is not read")
        elif now is None:
            changes.refusals.append(f"the source {name!r} is gone")
        elif now != was:
            difference = f"the source {name!r} was {was.description} and is {now.description}"
            (changes.notes if now.kind == was.kind else changes.refusals).append(difference)
        if anew and now is not None and was.inputs is not None and now.inputs != was.inputs:
            changes.refusals.append(f"the source {name!r} read {was.inputs} paths and reads {now.inputs}")
    for name in new.sources:
        if name not in before.sources and anew:
            changes.notes.append(f"the source {name!r} is new: it begins as in a new stream")
        elif name not in before.sources:
            changes.refusals.append(f"the source {name!r} is new: a checkpoint keeps the sources it began with")


def _groupings(before: Manifest, new: Manifest, changes: Changes, forget: Collection[str], *, anew: bool) -> None:
    for label in forget:
        if label in new.groupings:
            changes.refusals.append(f"the grouping {label!r} is to be forgotten, but the pipeline still has it")
    for label, was in before.groupings.items():
        now = new.groupings.get(label)
        if now is None and label in forget:
            changes.notes.append(f"the grouping {label!r} is gone, and its state is removed")
            continue
        if now is None:
            changes.refusals.append(
                f"the grouping {label!r} is gone, and would leave its state behind: to remove that, say "
                f"run(forget=[{label!r}])"
            )
            continue
        changes.refusals += _differences(label, was, now)
        (changes.notes if anew else changes.refusals).extend(_moves(label, was, now))
        if now.same_work(was) and now.settings != was.settings:
            changes.notes.append(f"the grouping {label!r} was {was.settings} and is {now.settings}")
    for label, now in new.groupings.items():
        if label in before.groupings:
            continue
        if now.level > before.depth and not anew:
            changes.refusals.append(
                f"the grouping {label!r} is new and at level {now.level}: a checkpoint keeps the number of levels it "
                f"began with, {before.depth}; one that begins with run(levels={now.level}) has room"
            )
        else:
            changes.notes.append(f"the grouping {label!r} is new: it begins empty")
    if not anew and new.depth > before.depth >= max([0, *(now.level for now in new.groupings.values())]):
        changes.refusals.append(
            f"levels is {new.depth}: a checkpoint keeps the number of levels it began with, {before.depth}"
        )


def _differences(label: str, was: GroupingEntry, now: GroupingEntry) -> Iterator[str]:
    if not now.same_work(was):
        yield f"the grouping {label!r} was {was.description} and is {now.description}"


def _moves(label: str, was: GroupingEntry, now: GroupingEntry) -> Iterator[str]:
    """Lists what differs in where a grouping is, which state does not depend on."""
    if now.level != was.level:
        yield f"the grouping {label!r} was at level {was.level} and is at level {now.level}"
    elif set(now.upstream) != set(was.upstream):
        yield f"the grouping {label!r} has other inputs"


def _heartbeat(before: Manifest, new: Manifest, changes: Changes) -> None:
    if new.heartbeat and not before.heartbeat:
        changes.refusals.append("something waits for the clock now, which this stream did not need when it began")
    elif before.heartbeat and not new.heartbeat:
        changes.refusals.append("it waited for the clock, and would not any more")
