"""A DoFn with state or timers, as batch and stream run it.

A batch runs it as an operator, over groups; in a stream the shards of an exchange call it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.engine.worker.operators import Call, LifeCycle, WindowOperator
from headrace.engine.worker.sidevalues import SideResolver
from headrace.model.dofn import DoFn
from headrace.model.panes import Windowing


@dataclass
class StatefulFn:
    """A DoFn with state or timers: the call of its `process`, its life cycle, and the windowing of its input."""

    label: str
    call: Call
    dofn: DoFn
    windowing: Windowing
    tags: tuple[str, ...] = ()
    opened: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.life = LifeCycle(self.label, self.dofn, WindowOperator(self.label, self.windowing.window), self.tags)

    def bind(self, resolve: SideResolver) -> StatefulFn:
        """Returns a copy with values in place of side inputs."""
        return replace(self, call=self.call.bind(resolve))

    def open(self) -> None:
        """Sets the DoFn up."""
        self.life.open()
        self.opened = True
