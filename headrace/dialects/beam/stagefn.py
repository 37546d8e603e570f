"""Runs a stage in a worker, as a function of bundles."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.dialects.beam import metrics
from headrace.dialects.beam.border import ElementBorder, Form
from headrace.dialects.beam.harness import Residual
from headrace.dialects.beam.sides import SideHandler
from headrace.dialects.beam.stageprocess import StageProcess
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
    _process: StageProcess | None = field(default=None, repr=False)

    def open(self, sides: Sequence[SideContents]) -> None:
        """Notes the side inputs; DoFns are made with the first bundle, as many tasks have none."""
        self._sides, self._process = sides, None

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        """Runs a bundle, and the bundles in which restrictions that were left are processed to their end."""
        process = self._made()
        residuals = yield from self._bundle(process, self._entered(process, bundle))
        while residuals:
            residuals = yield from self._bundle(process, map(process.first.process_residual, residuals))
        yield from self._ended(process)

    def close(self) -> Iterator[Tagged]:
        """Passes on what was combined from bundle to bundle, reports metrics, and tears the DoFns down."""
        process, self._process = self._process, None
        if process is not None:
            process.flush()
            yield from process.taken()
            metrics.record(process.report())
            process.close()

    def _bundle(self, process: StageProcess, steps: Iterator[None]) -> Generator[Tagged, None, list[Residual]]:
        """Runs one bundle of Beam's, step by step; returns what is left of restrictions."""
        process.start()
        try:
            for _ in steps:
                if process.waiting >= WAITING:
                    yield from process.taken()
                    process.resume()
            residuals = process.finish()
        except BaseException:
            process.abandon()
            raise
        yield from process.taken()
        if process.finalize():
            metrics.record(process.report())
        return residuals

    def _entered(self, process: StageProcess, bundle: Bundle) -> Iterator[None]:
        """Hands the elements of a bundle to the stage, one by one where Beam's bundle processor alone reads them."""
        if self._enter is None:
            process.take(self.source, self._border.opened(bundle))
            return
        for value in self._border.from_bundle(bundle):
            self._enter(value)
            yield

    def _ended(self, process: StageProcess) -> Iterator[Tagged]:
        """Does what is left to do once the elements of a bundle were processed."""
        return iter(())

    def _made(self) -> StageProcess:
        if self._process is None:
            self._handler = SideHandler(self.spec, self._sides)
            self._process = StageProcess(self.spec, self._handler, self.writes)
            self._enter = self._process.entry(self.source)
            self._border: ElementBorder = self.spec.components.border(self.source.collection, self.reads)
        return self._process
