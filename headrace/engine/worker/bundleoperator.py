"""The operator of a function of bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import Operator, Tagged
from headrace.engine.worker.sidevalues import SideResolver, SideValue
from headrace.model.bundlefns import AsBundles, BundleFn
from headrace.model.elementwise import SideInput


@dataclass
class BundlesOperator(Operator):
    """Runs a function over bundles; bound to a run, `values` are its side inputs."""

    fn: BundleFn
    sides: Sequence[AsBundles]
    values: Sequence[SideInput | SideValue] = field(default=())

    @property
    def side_inputs(self) -> Sequence[AsBundles]:
        return self.sides

    def bind(self, resolve: SideResolver) -> Self:
        if not self.sides:
            return self
        return replace(self, sides=(), values=tuple(map(resolve, self.sides)))  # collections stay in the driver

    def open(self) -> None:
        with blame(self.label):
            self.fn.open([value.source for value in self.values if isinstance(value, SideValue)])

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        with blame(self.label):
            yield from self.fn.run(bundle)

    def close(self) -> Iterator[Tagged]:
        with blame(self.label):
            yield from self.fn.close()
