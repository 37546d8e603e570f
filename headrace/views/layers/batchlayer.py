"""The batch layer: versions of a view, computed from the master data, loaded aside, checked and swapped in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headrace.engine.worker.hidden import TIME
from headrace.model.pipeline import Pipeline
from headrace.model.sinks import ForEachArrow
from headrace.views.declare.declarations import View
from headrace.views.master.masterdata import Master
from headrace.views.offsets import Offsets
from headrace.views.stores.store import StoredView
from headrace.views.stores.versions import Build, Version

Report = Callable[[str, int | None, int | None], None]
"""Hears of each step of a computation, how much of it is done, and of how much: records, events or rows, None where
that is not known. Steps are "archiving", "computing", "loading" and "publishing", in that order."""

_PART: Final = 500_000
"""About as many rows as the driver has at a time, of which there are not many more than events."""


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
        since: Offsets = {} if base is None else base.boundary
        self._archive(cut.boundary, progress)
        events = self.master.count(since, cut.boundary)
        with self.stored.build(cut, base=None if base is None else base.number) as version:
            progress("computing", 0, events)
            if events:
                self.master.verify(since, cut.boundary)
                self._compute(since, cut.boundary, events, _Loading(version, events, progress))
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

    def _compute(self, since: Offsets, until: Offsets, events: int, take: Callable[[pa.RecordBatch], None]) -> None:
        """Works out what the events from `since` to before `until` say."""
        pipeline = Pipeline(spark=self.master.spark)
        partials = self.view.partials(self.master.events(pipeline, since, until))
        # In about the order of the store's rows, which then are written one after the other.
        partials | ForEachArrow(take, order=[*self.view.aggregate.keys, TIME], parts=1 + events // _PART)
        pipeline.run().wait()


class _Loading:
    """Takes the rows of a version, once its events are computed, and tells how many there were."""

    def __init__(self, version: Build, events: int, progress: Report) -> None:
        self.version, self.events, self.progress, self.rows = version, events, progress, 0

    def __call__(self, batch: pa.RecordBatch) -> None:
        if not self.rows:
            self.progress("computing", self.events, self.events)
        self.version.load_columns(batch)
        self.rows += batch.num_rows
        self.progress("loading", self.rows, None)
