"""The operator of a function of bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Operator, Tagged
from headrace.engine.worker.sidevalues import SideResolver, SideValue
from headrace.model.bundlefns import BundleFn
from headrace.model.elementwise import SideInput


@dataclass
class BundlesOperator(Operator):
    """Runs a function over bundles; once it is bound to a run, its side inputs are their values."""

    fn: BundleFn
    sides: Sequence[SideInput | SideValue]

    @property
    def side_inputs(self) -> Sequence[SideInput]:
        return [side for side in self.sides if isinstance(side, SideInput)]

    def bind(self, resolve: SideResolver) -> Self:
        if not self.side_inputs:
            return self
        return replace(self, sides=[resolve(side) if isinstance(side, SideInput) else side for side in self.sides])

    def open(self) -> None:
        with blame(self.label):
            self.fn.open([side.source for side in self.sides if isinstance(side, SideValue)])

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        with blame(self.label):
            yield from self.fn.run(bundle)

    def close(self) -> Iterator[Tagged]:
        with blame(self.label):
            yield from self.fn.close()
