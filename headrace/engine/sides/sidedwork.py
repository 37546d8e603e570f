"""Work by key that sees side inputs: what a dialect brings, with the contents of side inputs before each step.

Side inputs that are bounded are broadcast. Of those that are streams every shard has all elements, and the main input
waits in the shard of its key until they are ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.rows import to_pairs
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.shard.work import Processor, Work
from headrace.engine.sides.processor import SideProcessor, released_bundles
from headrace.engine.sides.sideviews import SideView
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.sidevalues import ShownCells, SideResolver, SideValue
from headrace.model.bundlefns import SideContents, WindowBounds
from headrace.model.elementwise import SideInput
from headrace.model.panes import Windowing


class SeeingProcessor(Processor, Protocol):
    """The processor of work that sees side inputs."""

    def kept_windows(self) -> set[WindowBounds]:
        """Returns the windows of elements that it keeps and whose side inputs it will look at again."""


class SeeingWork(Work, Protocol):
    """Work that sees side inputs."""

    def seeing(self, contents: Sequence[SideContents]) -> Work:
        """Returns the work with the contents of its side inputs, which change from step to step if they are streams.

        Its processors are `SeeingProcessor`s.
        """


class SidedProcessor:
    """The processor of a shard whose elements wait for side inputs that are streams before work is done with them."""

    def __init__(self, work: SidedWork, processor: SeeingProcessor, shown: list[SideValue]) -> None:
        self.waiting = SideProcessor(work.windowing, work.views, keeps=True)
        self.processor, self._shown = processor, shown
        self._windowing, self._label = work.windowing, work.label
        self.fractions: set[float] = set()

    @property
    def clocks(self) -> Clocks:
        """The clocks of the input."""
        return self.waiting.clocks

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Releases the elements whose side inputs are ready, and steps the work with them."""
        self.waiting.reused = self.processor.kept_windows()
        released = self.waiting.step(rows, clocks)
        to_rows = to_pairs(self._label, self._windowing, retractable=False)
        batches: list[pa.RecordBatch] = []
        for bundle in released_bundles(released.panes, self._shown, windowed=not self._windowing.is_global):
            batches += to_rows.add(bundle)
        batches += to_rows.finish()
        keyed = pa.concat_batches(batches) if batches else None
        done = self.processor.step(keyed, Clocks(released.watermark, self.clocks.now))
        assert done.late is None, "what waits holds the watermark, so that nothing that is released is too late"
        return replace(done, late=released.late, refused=released.refused, held=done.held + released.held)

    def dump(self) -> list[bytes]:
        """Encodes the whole state."""
        return _packed(self.waiting.dump(), self.processor.dump())

    def changes(self) -> list[bytes]:
        """Encodes the state delta."""
        return _packed(self.waiting.changes(), self.processor.changes())

    def load(self, blocks: list[bytes]) -> None:
        """Restores the state from its blocks, in order."""
        parts: dict[str, list[bytes]] = {"waiting": [], "work": []}
        for header, rows in map(unpack, blocks):
            parts[header["part"]] += rows.column(0).to_pylist()
        self.waiting.load(parts["waiting"])
        self.processor.load(parts["work"])


def _packed(waiting: list[bytes], work: list[bytes]) -> list[bytes]:
    parts = {"waiting": waiting, "work": work}
    return [
        pack({"part": name}, pa.record_batch([pa.array(blocks, pa.binary())], BLOCK_SCHEMA))
        for name, blocks in parts.items()
    ]


@dataclass(frozen=True)
class SidedWork:
    """Does work that sees side inputs: `views` are of those that are streams. In a run, `sides` are their values."""

    label: str
    work: SeeingWork
    windowing: Windowing
    views: tuple[SideView, ...]
    sides: tuple[SideInput | SideValue, ...] = field(repr=False)

    @property
    def needs_time(self) -> bool:
        return self.work.needs_time or any(view.grouping.needs_time for view in self.views)

    @property
    def retracts(self) -> bool:
        return self.work.retracts

    def bind(self, resolve: SideResolver) -> SidedWork:
        """Returns the work for a run, with values of bounded side inputs."""
        sides = [resolve(side) if isinstance(side, SideInput) else side for side in self.sides]
        return replace(self, sides=tuple(sides))

    def processor(self, shard: int = 0) -> Any:
        values = [side for side in self.sides if isinstance(side, SideValue)]
        processor: Any = self.work.seeing([side.source for side in values]).processor(shard)
        shown = [side for side in values if isinstance(side.source, ShownCells)]
        return SidedProcessor(self, processor, shown) if self.views else processor

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle | ColumnBundle]]:
        return self.work.bundles(emitted)

    def identity(self) -> Identity:
        if not self.views:
            return self.work.identity()
        sides = [view.identity() for view in self.views]
        return {**self.work.identity(), "sides": sides, "main": identity_of(self.windowing.window)}

    def describe(self) -> str:
        return " beside ".join([self.work.describe(), *(view.describe() for view in self.views)])
