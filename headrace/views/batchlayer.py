"""The batch layer: versions of a view, computed from the master data, loaded aside, checked and swapped in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headrace.model.pipeline import Pipeline
from headrace.model.sinks import Collect
from headrace.views.declarations import View
from headrace.views.layout import Partial
from headrace.views.master import Master
from headrace.views.partials import partial_of
from headrace.views.progress import Offsets
from headrace.views.stores.store import StoredView
from headrace.views.stores.versions import Version

Report = Callable[[str, int | None, int | None], None]
"""Hears of each step of a computation, how much of it is done, and of how much: records, events or rows, None where
that is not known. Steps are "archiving", "computing", "loading" and "publishing", in that order."""

_TOLD: Final = 20_000  # rows between two reports


def _quietly(step: str, done: int | None, of: int | None) -> None:
    """Reports to nobody."""


class BatchLayer:
    """Computes versions of a stored view. Events come in through the speed layer: a version covers what that has."""

    def __init__(self, view: View, stored: StoredView, master: Master) -> None:
        self.view, self.stored, self.master = view, stored, master

    def compute(self, *, incremental: bool = False, progress: Report = _quietly) -> Version:
        """Computes a version of all events up to now, and lets it answer. Returns it.

        An incremental one reads only what came since the version that answers now, and merges it into that; if there
        is none, all is computed. `progress` hears how far it is.
        """
        base = self._current() if incremental else None
        cut = self.stored.cut()
        if base is not None and base.boundary == cut.boundary:
            return base
        self._archive(cut.boundary, progress)
        partials = self._partials({} if base is None else base.boundary, cut.boundary, progress)
        with self.stored.build(cut, base=None if base is None else base.number) as version:
            version.load(_told(partials, progress))
            progress("publishing", None, None)
            version.publish()
        made = self._current()
        assert made is not None
        return made

    def _current(self) -> Version | None:
        return next((each for each in self.stored.versions() if each.current), None)

    def _archive(self, until: Offsets, progress: Report) -> None:
        reached = self.master.reached()
        records = sum(max(end - reached.get(partition, 0), 0) for partition, end in until.items())
        progress("archiving", 0, records)
        self.master.archive(until)
        progress("archiving", records, records)

    def _partials(self, since: Offsets, until: Offsets, progress: Report) -> list[Partial]:
        """What the events from `since` to before `until` say."""
        events = self.master.count(since, until)
        progress("computing", 0, events)
        if not events:
            return []
        self.master.verify(since, until)
        pipeline = Pipeline(spark=self.master.spark)
        rows = self.view.partials(self.master.events(pipeline, since, until)) | Collect()
        pipeline.run().wait()
        progress("computing", events, events)
        return [partial_of(self.stored.layout, element) for element in rows.windowed]


def _told(partials: list[Partial], progress: Report) -> Iterator[Partial]:
    """The same, and tells how many were taken, now and then."""
    for number, partial in enumerate(partials):
        if number % _TOLD == 0:
            progress("loading", number, len(partials))
        yield partial
    progress("loading", len(partials), len(partials))
