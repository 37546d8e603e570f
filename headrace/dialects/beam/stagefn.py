"""Runs a stage in a worker: a function of bundles that drives Beam's bundle processor."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.dialects.beam import metrics
from headrace.dialects.beam.border import ElementBorder, Form
from headrace.dialects.beam.harness import Harness, Residual
from headrace.dialects.beam.sides import SideHandler
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.engine.worker.bundles import Bundle
from headrace.model.bundlefns import SideContents

WAITING: Final = 20_000
"""From so many elements on, what a stage has emitted is passed on before the end of its bundle."""
Tagged = tuple[str | None, Bundle]


@dataclass
class StageFn:
    """Runs the elements of one source through a stage. Its outputs are tagged with the transforms of its sinks."""

    spec: StageSpec
    source: Port
    reads: Form
    writes: dict[str, Form]
    _harness: Harness | None = field(default=None, repr=False)

    def open(self, sides: Sequence[SideContents]) -> None:
        """Notes the side inputs; DoFns are made with the first bundle, as many tasks have none."""
        self._sides, self._harness = sides, None

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        """Runs a bundle, and the bundles in which restrictions that were left are processed to their end."""
        harness = self._made()
        residuals = yield from self._bundle(harness, self._entered(harness, bundle))
        while residuals:
            residuals = yield from self._bundle(harness, map(harness.process_residual, residuals))
        yield from self._ended(harness)

    def close(self) -> Iterator[Tagged]:
        """Reports metrics, and tears the DoFns down."""
        if self._harness is not None:
            metrics.record(self._harness.report())
            self._harness.close()
            self._harness = None
        return iter(())

    def _bundle(self, harness: Harness, steps: Iterator[None]) -> Generator[Tagged, None, list[Residual]]:
        """Runs one bundle of Beam's, step by step; returns what is left of restrictions."""
        harness.start()
        try:
            for _ in steps:
                if harness.waiting >= WAITING:
                    yield from self._taken(harness)
                    harness.resume()
            residuals = harness.finish()
        except BaseException:
            harness.abandon()
            raise
        yield from self._taken(harness)
        if harness.finalize():
            metrics.record(harness.report())
        return residuals

    def _entered(self, harness: Harness, bundle: Bundle) -> Iterator[None]:
        """Hands each element of a bundle to the stage."""
        for value in self._border.from_bundle(bundle):
            self._enter(value)
            yield

    def _ended(self, harness: Harness) -> Iterator[Tagged]:
        """Does what is left to do once the elements of a bundle were processed."""
        return iter(())

    def _made(self) -> Harness:
        if self._harness is None:
            components = self.spec.components
            self._handler = SideHandler(self.spec, self._sides)
            self._harness = Harness(self.spec.descriptor, self._handler)
            self._enter = self._harness.entry(self.source.transform)
            self._border: ElementBorder = components.border(self.source.collection, self.reads)
            self._sinks = {
                sink.transform: components.border(sink.collection, self.writes[sink.transform])
                for sink in self.spec.sinks
            }
        return self._harness

    def _taken(self, harness: Harness) -> Iterator[Tagged]:
        for sink, values in harness.take().items():
            for bundle in self._sinks[sink].to_bundles(values):
                yield sink, bundle
