"""The batch layer: versions of a view, computed from the master data, loaded aside, checked and swapped in."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.pipeline import Pipeline
from headrace.model.sinks import Collect
from headrace.views.declarations import View
from headrace.views.layout import Partial
from headrace.views.master import Master
from headrace.views.partials import partial_of
from headrace.views.progress import Offsets
from headrace.views.stores.store import StoredView
from headrace.views.stores.versions import Version


class BatchLayer:
    """Computes versions of a stored view. Events come in through the speed layer: a version covers what that has."""

    def __init__(self, view: View, stored: StoredView, master: Master) -> None:
        self.view, self.stored, self.master = view, stored, master

    def compute(self, *, incremental: bool = False) -> Version:
        """Computes a version of all events up to now, and lets it answer. Returns it.

        An incremental one reads only what came since the version that answers now, and merges it into that; if there
        is none, all is computed.
        """
        base = self._current() if incremental else None
        cut = self.stored.cut()
        if base is not None and base.boundary == cut.boundary:
            return base
        self.master.archive(cut.boundary)
        partials = self._partials({} if base is None else base.boundary, cut.boundary)
        with self.stored.build(cut, base=None if base is None else base.number) as version:
            version.load(partials)
            version.publish()
        made = self._current()
        assert made is not None
        return made

    def _current(self) -> Version | None:
        return next((each for each in self.stored.versions() if each.current), None)

    def _partials(self, since: Offsets, until: Offsets) -> Iterator[Partial]:
        """What the events from `since` to before `until` say."""
        if not self.master.count(since, until):
            return iter(())
        self.master.verify(since, until)
        pipeline = Pipeline(spark=self.master.spark)
        rows = self.view.partials(self.master.events(pipeline, since, until)) | Collect()
        pipeline.run().wait()
        return (partial_of(self.stored.layout, element) for element in rows.windowed)
