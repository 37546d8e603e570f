"""The batch layer: computes versions of a view from the master data and publishes them."""

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

ProgressListener = Callable[[str, int | None, int | None], None]
"""Called with each step of a computation, how much of it is done, and of how much: records, events or rows, None where
that is not known. Steps are "archiving", "computing", "loading" and "publishing", in that order."""

_PART: Final = 500_000
"""About the number of events whose rows the driver has at a time; there are not many more rows than events."""


def _ignore(step: str, done: int | None, of: int | None) -> None:
    """Ignores progress."""


class BatchLayer:
    """Computes versions of a stored view. A version covers the events that the speed layer has processed."""

    def __init__(self, view: View, stored: StoredView, master: Master) -> None:
        self.view, self.stored, self.master = view, stored, master

    def compute(self, *, incremental: bool = False, progress: ProgressListener = _ignore) -> Version:
        """Computes a version of all events up to now, publishes it and returns it.

        An incremental one reads only the events since the current version, and merges them into that; if there is none,
        all events are computed. `progress` is called with each step.
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
        published = self._current()
        assert published is not None
        return published

    def _current(self) -> Version | None:
        return next((version for version in self.stored.versions() if version.current), None)

    def _archive(self, until: Offsets, progress: ProgressListener) -> None:
        reached = self.master.reached()
        records = sum(max(end - reached.get(partition, 0), 0) for partition, end in until.items())
        progress("archiving", 0, records)
        self.master.archive(until)
        progress("archiving", records, records)

    def _compute(self, since: Offsets, until: Offsets, events: int, take: Callable[[pa.RecordBatch], None]) -> None:
        """Computes the partial aggregates of the events from `since` to before `until`."""
        pipeline = Pipeline(spark=self.master.spark)
        partials = self.view.partials(self.master.events(pipeline, since, until))
        # In about the order of the store's rows, so that they are written one after the other.
        partials | ForEachArrow(take, order=[*self.view.aggregate.keys, TIME], parts=1 + events // _PART)
        pipeline.run().wait()


class _Loading:
    """Loads the rows of a version, which come once its events are computed, and reports their number."""

    def __init__(self, version: Build, events: int, progress: ProgressListener) -> None:
        self.version, self.events, self.progress, self.rows = version, events, progress, 0

    def __call__(self, batch: pa.RecordBatch) -> None:
        if not self.rows:
            self.progress("computing", self.events, self.events)
        self.version.load_columns(batch)
        self.rows += batch.num_rows
        self.progress("loading", self.rows, None)
