"""A changed pipeline against the checkpoint of the one it was: which changes can go on from there, and which cannot.

Functions, sinks and stateless transforms may come, go and change; so may what a trigger waits for. What state was made
of may not: windows, combiners, the inputs of groupings. And Spark's own checkpoint pins how many sources and how many
levels of groupings there are, so neither can be added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.engine.checkpoint.manifest import Grouping, Manifest


@dataclass
class Changes:
    """What differs: `notes` tell of changes that are fine, `refusals` of those that are not, and why."""

    notes: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def compare(held: Manifest, new: Manifest) -> Changes:
    """The changes from the pipeline of a checkpoint to one that is to go on from it.

    >>> held = Manifest("a", 4, 2, sources={"events": "Rate: Rate(5 a second)"}, sinks={"out": "Collect"})
    >>> new = Manifest("a", 4, 2, sources={"visits": "Rate: Rate(5 a second)"})
    >>> compare(held, new).notes
    ["the sink 'out' is gone"]
    >>> for each in compare(held, new).refusals:
    ...     print(each)
    the source 'events' is gone
    the source 'visits' is new: a checkpoint keeps the sources it began with
    """
    changes = Changes()
    _sources(held, new, changes)
    _groupings(held, new, changes)
    _heartbeat(held, new, changes)
    changes.notes += [f"the sink {label!r} is gone" for label in held.sinks if label not in new.sinks]
    for label, sink in new.sinks.items():
        if label not in held.sinks:
            changes.notes.append(f"the sink {label!r} is new: it gets what comes from here on")
        elif sink != held.sinks[label]:
            changes.notes.append(f"the sink {label!r} was {held.sinks[label]} and is {sink}")
    return changes


def _sources(held: Manifest, new: Manifest, changes: Changes) -> None:
    for name, was in held.sources.items():
        now = new.sources.get(name)
        if now is None:
            changes.refusals.append(f"the source {name!r} is gone")
        elif now.split(":")[0] != was.split(":")[0]:
            changes.refusals.append(f"the source {name!r} was {_shown(was)} and is {_shown(now)}")
        elif now != was:
            changes.notes.append(f"the source {name!r} was {_shown(was)} and is {_shown(now)}")
    for name in new.sources:
        if name not in held.sources:
            changes.refusals.append(f"the source {name!r} is new: a checkpoint keeps the sources it began with")


def _groupings(held: Manifest, new: Manifest, changes: Changes) -> None:
    for label, was in held.groupings.items():
        now = new.groupings.get(label)
        if now is None:
            changes.refusals.append(f"the grouping {label!r} is gone, and would leave its state behind")
            continue
        changes.refusals += _differences(label, was, now)
        if now.work == was.work and now.settings != was.settings:
            changes.notes.append(f"the grouping {label!r} was {was.settings} and is {now.settings}")
    for label, now in new.groupings.items():
        if label in held.groupings:
            continue
        if now.level > held.depth:
            changes.refusals.append(
                f"the grouping {label!r} is new and at level {now.level}: a checkpoint keeps the number of levels it "
                f"began with, {held.depth}"
            )
        else:
            changes.notes.append(f"the grouping {label!r} is new: it begins empty")


def _differences(label: str, was: Grouping, now: Grouping) -> Iterator[str]:
    if now.work != was.work:
        yield f"the grouping {label!r} was {was.work} and is {now.work}"
    if now.level != was.level:
        yield f"the grouping {label!r} was at level {was.level} and is at level {now.level}"
    elif set(now.upstream) != set(was.upstream):
        yield f"the grouping {label!r} has other inputs"


def _heartbeat(held: Manifest, new: Manifest, changes: Changes) -> None:
    if new.heartbeat and not held.heartbeat:
        changes.refusals.append("something waits for the clock now, which this stream did not need when it began")
    elif held.heartbeat and not new.heartbeat:
        changes.refusals.append("it waited for the clock, and would not any more")


def _shown(source: str) -> str:
    return source.split(": ", 1)[1]
