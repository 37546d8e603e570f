"""Runs the graph of a batch in this process, without Spark: for tests of pipelines that watch their own memory.

Bundles, rows and groups are the engine's own; only what Spark does, to move and to sort rows, is done here.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import pyarrow as pa

from headrace.engine.handle import Metrics, Status, with_results
from headrace.engine.worker.blame import plain_error
from headrace.engine.worker.bundleoperator import BundlesOperator
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.grouped import GroupedValues, needs_times, sort_columns
from headrace.engine.worker.shuffle import ToRows, shuffle_schema
from headrace.model.bundlefns import Bundles, WindowBounds
from headrace.model.errors import PipelineError
from headrace.model.keyed import Flatten, GroupByKey, Reshuffle
from headrace.model.metriccells import recording
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sources import Create
from headrace.model.validate import validate


@dataclass
class LocalContents:
    """The elements of a side input."""

    bundles: list[Bundle]

    def elements(self, window: WindowBounds | None) -> list[Any]:
        """Returns the elements in a window, or all elements for None."""
        return [
            element
            for bundle in self.bundles
            for element, bounds in zip(bundle.elements, bundle.windows(), strict=True)
            if window is None or bounds == window
        ]


@dataclass
class LocalHandle:
    """A run that is over."""

    _status: Status = field(default_factory=Status)
    _error: BaseException | None = None

    @staticmethod
    def run(graph: Graph) -> LocalHandle:
        """Runs a graph to its end."""
        handle = LocalHandle()
        with recording() as recorder:
            try:
                _LocalRun().run(validate(graph))
                handle._status.state = "done"
            except Exception as error:
                handle._status.state, handle._error = "failed", plain_error(error)
        handle._status.recorded = recorder.cells
        return handle

    def wait(self, timeout: float | None = None) -> Status:
        """Raises what the pipeline failed with."""
        if self._error is not None:
            raise self._error
        return self._status

    def stop(self, *, drain: bool = False) -> None:
        """Does nothing: it is over."""

    def status(self) -> Status:
        """Returns how it ended."""
        return self._status

    def metrics(self) -> Metrics:
        """Returns the metrics that functions recorded."""
        return with_results({}, self._status.recorded)

    def savepoint(self, path: str) -> None:
        """Only a stream has savepoints."""
        raise PipelineError(f"a batch has no savepoints, got {path!r}")


class _LocalRun:
    def __init__(self) -> None:
        self._made: dict[int, list[Bundle]] = {}

    def run(self, graph: Graph) -> None:
        for node in graph:
            outputs = self._outputs(node, [self._made[id(pc)] for pc in node.inputs])
            for pc in node.outputs:
                self._made[id(pc)] = outputs.get(pc.tag, [])

    def _outputs(self, node: Node, inputs: Sequence[list[Bundle]]) -> dict[str | None, list[Bundle]]:
        match node.transform:
            case Create():
                return {None: [Bundle(list(node.transform.elements))]}
            case Bundles(fn=fn, sides=sides):
                contents = [LocalContents(self._made[id(side.collection)]) for side in sides]
                return _run(BundlesOperator(node.label, pickle.loads(cloudpickle.dumps(fn)), ()), contents, inputs[0])
            case GroupByKey():
                return {None: _grouped(node.label, node.inputs[0], inputs[0])}
            case Flatten() | Reshuffle():
                return {None: [bundle for bundles in inputs for bundle in bundles]}
        raise PipelineError(f"{node}: it does not run without Spark")


def _run(op: BundlesOperator, contents: list[LocalContents], bundles: list[Bundle]) -> dict[str | None, list[Bundle]]:
    outputs: dict[str | None, list[Bundle]] = {}
    op.fn.open(contents)
    for bundle in bundles:
        for tag, result in op.run(bundle) if bundle.size else ():
            outputs.setdefault(tag, []).append(result)
    for tag, result in op.close():
        outputs.setdefault(tag, []).append(result)
    return outputs


def _grouped(label: str, pc: PCollection, bundles: list[Bundle]) -> list[Bundle]:
    windowing = pc.windowing
    timed = needs_times(windowing)
    rows = ToRows(label, shuffle_schema(windowed=not windowing.is_global, timed=timed))
    table = pa.Table.from_batches([rows.batch(bundle) for bundle in bundles if bundle.size], rows.schema())
    table = table.sort_by([(name, "ascending") for name in sort_columns(windowing)]).combine_chunks()
    return list(GroupedValues(label, windowing).bundles(iter(table.to_batches())))
