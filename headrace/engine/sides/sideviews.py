"""What a side input that is itself a stream shows: the latest pane of each of its windows.

A side input is grouped once more, by no key, as its windowing says; so triggers decide when it is first seen and when
it is refreshed, and the accumulation mode whether a refresh is everything so far or what is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.engine.shard.compiledtriggers import Program
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.processor import ShardProcessor
from headrace.engine.shard.work import Grouping
from headrace.model.algebra import CombineFn
from headrace.model.elementwise import SideInput
from headrace.model.errors import PipelineError
from headrace.model.keyed import WindowInto
from headrace.model.lateoutput import LATE
from headrace.model.panes import Accumulation, Windowing
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.triggers import AfterCount, Repeatedly
from headrace.model.validate import is_grouping


@dataclass(frozen=True)
class DictFn(CombineFn[Any, dict[Any, Any], list[Any]]):
    """Pairs, of each key the last.

    >>> latest = DictFn()
    >>> latest.finish(latest.add_all(latest.zero(), [("a", 1), ("b", 2), ("a", 3)]))
    [('a', 3), ('b', 2)]
    """

    def zero(self) -> dict[Any, Any]:
        return {}

    def add(self, acc: dict[Any, Any], value: Any) -> dict[Any, Any]:
        key, given = value
        acc[key] = given
        return acc

    def merge(self, a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
        a.update(b)
        return a

    def finish(self, acc: dict[Any, Any]) -> list[Any]:
        return list(acc.items())


@dataclass(frozen=True)
class View:
    """How a side input is grouped, and the names of those whose watermarks it waits for."""

    windowing: Windowing
    fn: CombineFn[Any, Any, Any] | None
    retractable: bool
    upstream: tuple[str, ...]

    @property
    def needs_time(self) -> bool:
        return Program(self.windowing.trigger).needs_time

    def processor(self) -> ShardProcessor:
        return ShardProcessor(self.windowing, self.fn, retractable=self.retractable)

    @property
    def _grouping(self) -> Grouping:
        return Grouping(self.windowing, self.fn, retractable=self.retractable)

    def identity(self) -> Identity:
        """Returns what must not change while there is state of it."""
        return {**self._grouping.identity(), "upstream": self.upstream}

    def describe(self) -> str:
        """Describes it for people."""
        return f"{self._grouping.describe()}, of {', '.join(self.upstream)}"


def view(node: Node, side: SideInput, graph: Graph, *, retractable: bool, upstream: tuple[str, ...]) -> View:
    """The view of a collection that a node has as a side input."""
    pc = side.collection
    given = pc.windowing
    if Program(given.trigger).fractions:
        raise PipelineError(
            f"{node}: its side input {pc.label!r} fires by AfterPercentile, for which a side input keeps no delays; "
            "use AfterWatermark or AfterProcessingTime"
        )
    if is_grouped(graph, pc):
        # A trigger has decided already; what comes of it is seen as it comes.
        replaced = side.shape == "singleton" and not retractable
        windowing = _like(given, Repeatedly(AfterCount(1)), "discarding" if replaced else "accumulating")
    else:
        if retractable and given.accumulation == "discarding":
            raise PipelineError(
                f"{node}: its side input {pc.label!r} takes panes back, but with accumulation='discarding' it keeps "
                "nothing to take them from; say accumulation='accumulating' in WindowInto"
            )
        mode: Accumulation = "discarding" if given.accumulation == "discarding" else "accumulating"
        windowing = _like(given, given.trigger, mode)
    return View(windowing, DictFn() if side.shape == "dict" else None, retractable, upstream)


def _like(given: Windowing, trigger: Any, accumulation: Accumulation) -> Windowing:
    return Windowing(given.window, trigger, accumulation, f"{given.allowed_lateness} us")


def is_grouped(graph: Graph, pc: PCollection) -> bool:
    """Whether the elements of a collection are of panes that its windowing fired."""
    node = graph.producer(pc)
    if isinstance(node.transform, WindowInto):
        return False
    if is_grouping(node) and pc.tag != LATE:
        return True
    return any(is_grouped(graph, read) for read in node.inputs)
