"""Counts the rows that views left out since an expression failed on them, over all the passes that computed a view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from headrace.dialects.sql.catalog import View
from headrace.engine.handle import Handle
from headrace.model.badrecords import FAILED_EXPRESSION, BadRecords
from headrace.model.pipeline import Graph


class FailedRows:
    """The number of rows that views left out since the session began, transforms too; those of one shape together."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Handle, Mapping[str, frozenset[str]]]] = {}
        self._before: Counter[str] = Counter()  # by the name of a view, those of passes that have ended

    def started(self, name: str, handle: Handle, graph: Graph, views: Iterable[View]) -> None:
        """Notes that a pass computes views; what leads to the sink of each is known from the graph."""
        labels = {view.name: _leading_to(graph, sink_label(view)) for view in views}
        self._running[name] = handle, labels

    def ended(self, name: str) -> None:
        """Adds up what a pass counted that has ended."""
        if name in self._running:
            handle, labels = self._running.pop(name)
            bad = handle.status().bad
            for view, steps in labels.items():
                self._before[view] += _counted(bad, steps)

    def counts(self, views: Iterable[View]) -> list[int]:
        """Returns how many rows each of these views left out; a pass is asked once, however many views it computes."""
        found = Counter(self._before)
        for handle, labels in self._running.values():
            bad = handle.status().bad
            for name, steps in labels.items():
                found[name] += _counted(bad, steps)
        return [found[view.shape or view.name] for view in views]

    def forget(self, view: str) -> None:
        """Forgets a view that is no more."""
        del self._before[view]


def sink_label(view: View) -> str:
    """Returns the label of the step that writes the rows of a view or a transform."""
    return f"{'table' if view.statement.into is None else 'into'} {view.name}"


def _leading_to(graph: Graph, label: str) -> frozenset[str]:
    """Returns the labels of all steps that lead to one."""
    (node,) = (each for each in graph if each.label == label)
    found, new = set[str](), [node]
    while new:
        node = new.pop()
        found.add(node.label)
        new += [each for each in map(graph.producer, node.inputs) if each.label not in found]
    return frozenset(found)


def _counted(bad: Mapping[str, BadRecords], labels: frozenset[str]) -> int:
    return sum(bad[label].counts.get(FAILED_EXPRESSION, 0) for label in labels & bad.keys())
