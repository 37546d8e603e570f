"""Views of side inputs that are streams: a view shows the latest pane of each window.

A side input is grouped once more, by no key, as its windowing says; so triggers decide when it is first seen and when
it is refreshed, and the accumulation mode whether a refresh is everything so far or what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.work import Grouping
from headrace.model.algebra import CombineFn
from headrace.model.bundlefns import AsBundles, WindowBounds
from headrace.model.elementwise import SideInput
from headrace.model.errors import PipelineError
from headrace.model.grouping import is_grouping
from headrace.model.keyed import WindowInto
from headrace.model.lateoutput import LATE
from headrace.model.panes import Accumulation, Windowing
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.triggers import AfterCount, Repeatedly
from headrace.model.windows import WindowFn


@dataclass(frozen=True)
class DictFn(CombineFn[Any, dict[Any, Any], list[Any]]):
    """Combines pairs: of each key, the last value.

    >>> latest = DictFn()
    >>> latest.finish(latest.add_all(latest.zero(), [("a", 1), ("b", 2), ("a", 3)]))
    [('a', 3), ('b', 2)]
    """

    def zero(self) -> dict[Any, Any]:
        return {}

    def add(self, acc: dict[Any, Any], value: Any) -> dict[Any, Any]:
        key, latest = value
        acc[key] = latest
        return acc

    def merge(self, a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
        a.update(b)
        return a

    def finish(self, acc: dict[Any, Any]) -> list[Any]:
        return list(acc.items())


@dataclass(frozen=True)
class LastFn(CombineFn[Any, list[Any], list[Any]]):
    """Combines elements: the last one.

    >>> last = LastFn()
    >>> last.finish(last.add_all(last.zero(), [1, 3, 2]))
    [2]
    """

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return [value]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return b or a

    def finish(self, acc: list[Any]) -> list[Any]:
        return acc


@dataclass(frozen=True)
class SideView:
    """The view of a side input: how it is grouped, and the names of those whose watermarks it waits for.

    `mapping` gives the window that elements of a window of the main input see, if it is not the one of their last
    instant; with `complete`, they wait until it is over, and triggers of the grouping must not look at the watermark.
    """

    grouping: Grouping
    upstream: tuple[str, ...]
    mapping: Callable[[WindowBounds], WindowBounds] | None = None
    complete: bool = False

    @property
    def window(self) -> WindowFn:
        return self.grouping.windowing.window

    def identity(self) -> Identity:
        """Returns what must not change while there is state of it."""
        return {**self.grouping.identity(), "upstream": self.upstream}

    def describe(self) -> str:
        """Describes it for people."""
        return f"{self.grouping.describe()}, of {', '.join(self.upstream)}"


def side_view(node: Node, side: SideInput, graph: Graph, *, retractable: bool, upstream: tuple[str, ...]) -> SideView:
    """Makes the view of a collection that a node has as a side input."""
    pc = side.collection
    before = pc.windowing
    if CompiledTrigger(before.trigger).fractions:
        raise PipelineError(
            f"{node}: its side input {pc.label!r} fires by AfterPercentile, for which a side input keeps no delays; "
            "use AfterWatermark or AfterProcessingTime"
        )
    if is_grouped(graph, pc):
        # A trigger has decided already; what comes of it is seen as it comes.
        replaced = side.shape == "singleton" and not retractable
        windowing = _like(before, Repeatedly(AfterCount(1)), "discarding" if replaced else "accumulating")
    else:
        if retractable and before.accumulation == "discarding":
            raise PipelineError(
                f"{node}: its side input {pc.label!r} takes panes back, but with accumulation='discarding' it keeps "
                "nothing to take them from; say accumulation='accumulating' in WindowInto"
            )
        mode: Accumulation = "discarding" if before.accumulation == "discarding" else "accumulating"
        windowing = _like(before, before.trigger, mode)
    rows = RowKind.SIGNED_VALUES if retractable else RowKind.VALUES
    if isinstance(side, AsBundles):
        grouping = Grouping(side.windowing or windowing, LastFn() if side.latest else None, rows)
        return SideView(grouping, upstream, side.mapping, side.complete)
    return SideView(Grouping(windowing, DictFn() if side.shape == "dict" else None, rows), upstream)


def _like(before: Windowing, trigger: Any, accumulation: Accumulation) -> Windowing:
    return Windowing(before.window, trigger, accumulation, f"{before.allowed_lateness} us")


def is_grouped(graph: Graph, pc: PCollection) -> bool:
    """Returns whether the elements of a collection are of panes that its windowing fired."""
    node = graph.producer(pc)
    if isinstance(node.transform, WindowInto):
        return False
    if is_grouping(node) and pc.tag != LATE:
        return True
    return any(is_grouped(graph, read) for read in node.inputs)
