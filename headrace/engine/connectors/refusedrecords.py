"""Says on standard error which records the sources of a run refused, and fails a run whose source gave none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from headrace.model.badrecords import BadRecords, RecordSource
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node


class RefusedRecords:
    """The records that the sources of a run refused, as `bad` counts them by the label of a source."""

    def __init__(self, nodes: Iterable[Node], bad: Callable[[], dict[str, BadRecords]]) -> None:
        self._nodes = {node.label: node for node in nodes if isinstance(node.transform, RecordSource)}
        self._bad = bad
        self._said: dict[str, int] = {}  # how many of each source

    def say(self, *, again: bool = False) -> None:
        """Prints a line for each source that refused records, once; with `again`, also if there are more since then."""
        for label, records in self._refused():
            before = self._said.get(label)
            if before is None or (again and before != records.count):
                self._said[label] = records.count
                print(f"{records.summary(label)}; {self._source(label).whereabouts}", file=sys.stderr, flush=True)

    def check(self) -> None:
        """Raises an error if all records of a source were refused, and nobody sees to them."""
        for label, records in self._refused():
            if records.count == records.records and self._source(label).needs_records:
                self._said[label] = records.count
                raise PipelineError(
                    f"{self._nodes[label]}: {records.summary(label)}; as all are bad, check its schema and options, or "
                    "say by with_exception_handling() or bad='skip' that this may be"
                )

    def _refused(self) -> list[tuple[str, BadRecords]]:
        return [(label, records) for label, records in self._bad().items() if label in self._nodes]

    def _source(self, label: str) -> RecordSource:
        source = self._nodes[label].transform
        assert isinstance(source, RecordSource)
        return source
