"""Steps the graph of a stream in this process, without Spark: one shard for each exchange, one step after the other.

It is for tests whose functions watch the memory of their own process, and for trying many pipelines quickly. Shards are
the engine's; after each step their state goes through blocks, as it does on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from headrace.dialects.beam.local import LocalContents, LocalHandle
from headrace.dialects.beam.runner import HeadraceRunner
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.reports import ClockReport
from headrace.engine.shard.rows import to_pairs
from headrace.engine.shard.work import Grouping
from headrace.engine.sides.processor import SideInputWork
from headrace.engine.sides.rows import MAIN, ToKeyedRole, ToRole, clock_rows
from headrace.engine.sides.sidedwork import SidedWork
from headrace.engine.sides.sideviews import SideView, side_view
from headrace.engine.worker.blame import plain_error
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.sidevalues import ShownCells, SideValue
from headrace.model.bundlefns import AsBundles, Bundles
from headrace.model.keyed import Flatten, GroupByKey, Reshuffle
from headrace.model.metriccells import recording
from headrace.model.pipeline import Graph, Node, Pipeline
from headrace.model.sharded import Sharded
from headrace.model.sources import Create
from headrace.model.teststream import TestStream
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.model.validate import validate


class LocalRunner(HeadraceRunner):
    """Runs batches and streams in this process."""

    def __init__(self) -> None:
        super().__init__(local=True)

    def _start(self, stream: Pipeline, options: Any) -> Any:
        return LocalStream.run(stream.graph())


class LocalStream:
    """The nodes of a graph, each with the functions and shards it runs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = validate(graph)
        self.now = MIN_TIME
        self.watermarks: dict[int, int] = {}
        self.kept: dict[int, list[Bundle]] = {}  # of collections that are side inputs
        self.fns: dict[int, Any] = {}
        self.shards: dict[int, Any] = {}
        self.again: dict[int, int] = {}
        self.outputs: dict[int, list[Bundle]] = {}  # of this step
        self.sides = {id(pc) for node in self.graph for pc in node.transform.side_inputs()}

    @staticmethod
    def run(graph: Graph) -> LocalHandle:
        """Runs a graph until its scripts have ended."""
        handle = LocalHandle()
        with recording() as recorder:
            try:
                LocalStream(graph).play()
                handle._status.state = "done"
            except Exception as error:
                handle._status.state, handle._error = "failed", plain_error(error)
        handle._status.recorded = recorder.cells
        return handle

    def play(self) -> None:
        """Plays all steps."""
        scripts = [node.transform for node in self.graph if isinstance(node.transform, TestStream)]
        self.now = 0
        steps = max((len(script.steps) for script in scripts), default=1)
        for step in range(steps):
            self._step(step)
        while (again := min(self.again.values(), default=None)) is not None:
            self.now = max(self.now, again)
            self._step(steps)

    def _step(self, number: int) -> None:
        self.outputs = outputs = dict[int, list[Bundle]]()
        for node in self.graph:
            inputs = [bundle for pc in node.inputs for bundle in outputs[id(pc)]]
            low = min((self.watermarks[id(pc)] for pc in node.inputs), default=MIN_TIME)
            given, low = self._run(node, number, inputs, low)
            for pc in node.outputs:
                outputs[id(pc)] = given.get(pc.tag, [])
                self.watermarks[id(pc)] = max(low, self.watermarks.get(id(pc), MIN_TIME))
                if id(pc) in self.sides:
                    self.kept.setdefault(id(pc), []).extend(outputs[id(pc)])

    def _run(self, node: Node, number: int, inputs: list[Bundle], low: int) -> tuple[dict[Any, list[Bundle]], int]:
        transform = node.transform
        if isinstance(transform, Create):
            times = [MIN_TIME if time is None else time for time in transform.times]
            bundle = Bundle(list(transform.elements), np.array(times, np.int64))
            return {None: [bundle] if number == 0 and bundle.elements else []}, MAX_TIME
        if isinstance(transform, TestStream):
            if number >= len(transform.steps):
                return {}, MAX_TIME
            step = transform.steps[number]
            self.now = max(self.now, step.clock)
            bundle = Bundle(list(step.elements), np.array(step.times, np.int64))
            return {None: [bundle] if step.elements else []}, MIN_TIME if step.watermark is None else step.watermark
        if isinstance(transform, Flatten | Reshuffle):
            return {None: inputs}, low
        if isinstance(transform, Bundles) and any(not side.collection.bounded for side in transform.sides):
            return self._beside(node, transform, inputs, low)
        if isinstance(transform, Bundles):
            return self._bundles(node, transform, inputs), low
        if isinstance(transform, GroupByKey):
            transform = Sharded(Grouping(node.inputs[0].windowing), {None: node.outputs[0].windowing})
        assert isinstance(transform, Sharded), transform
        return self._shard(node, transform, inputs, low)

    def _beside(
        self, node: Node, transform: Bundles, inputs: list[Bundle], low: int
    ) -> tuple[dict[Any, list[Bundle]], int]:
        """Lets elements wait for side inputs that are streams, then runs the function."""
        values, views, rows = self._sides(node, transform.sides)
        rows += [ToRole(MAIN).batch(bundle) for bundle in inputs]
        shown = [value for value in values if isinstance(value.source, ShownCells)]
        work = SideInputWork(node.inputs[0].windowing, views, tuple(shown))
        taken = self._stepped(node, work, pa.concat_batches(rows), low)
        released = [bundle for _, bundle in work.bundles(taken.panes)]
        return self._bundles(node, transform, released, [value.source for value in values]), taken.watermark

    def _sides(
        self, node: Node, sides: Sequence[AsBundles]
    ) -> tuple[list[SideValue], tuple[SideView, ...], list[pa.RecordBatch]]:
        """Returns the values of side inputs; of those that are streams also the views, and the rows of this step."""
        values, views, rows = list[SideValue](), list[SideView](), list[pa.RecordBatch]()
        for side in sides:
            pc = side.collection
            if pc.bounded:
                contents: Any = LocalContents(self.kept.get(id(pc), []))
                values.append(SideValue.of(side, contents))
                continue
            values.append(SideValue.of(side, ShownCells()))
            views.append(side_view(node, side, self.graph, retractable=False, upstream=(pc.label,)))
            rows += [ToRole(len(views)).batch(bundle) for bundle in self.outputs[id(pc)]]
            rows.append(clock_rows(len(views), ClockReport(lows={pc.label: self.watermarks[id(pc)]})))
        return values, tuple(views), rows

    def _bundles(
        self, node: Node, transform: Bundles, inputs: list[Bundle], contents: list[Any] | None = None
    ) -> dict[Any, list[Bundle]]:
        given: dict[Any, list[Bundle]] = {}
        if not inputs:
            return given
        if id(node) not in self.fns:
            self.fns[id(node)] = cloudpickle.loads(cloudpickle.dumps(transform.fn))
        fn = self.fns[id(node)]
        fn.open(contents or [value.source for value in self._sides(node, transform.sides)[0]])
        for bundle in inputs:
            for tag, each in fn.run(bundle):
                given.setdefault(tag, []).append(each)
        for tag, each in fn.close():
            given.setdefault(tag, []).append(each)
        return given

    def _shard(
        self, node: Node, transform: Sharded, inputs: list[Bundle], low: int
    ) -> tuple[dict[Any, list[Bundle]], int]:
        work, windowing = transform.work, node.inputs[0].windowing
        values, views, batches = self._sides(node, transform.sides)
        if transform.sides:
            work = SidedWork(node.label, work, windowing, views, tuple(values))
        if views:
            batches += [ToKeyedRole(MAIN).batch(bundle) for bundle in inputs]
        else:
            rows = to_pairs(node.label, windowing, retractable=False)
            batches += [batch for bundle in inputs for batch in rows.add(bundle)] + list(rows.finish())
        taken = self._stepped(node, work, pa.concat_batches(batches) if batches else None, low)
        self.again.pop(id(node), None)
        if taken.again is not None:
            self.again[id(node)] = taken.again
        given: dict[Any, list[Bundle]] = {}
        for tag, bundle in work.bundles(taken.panes):
            given.setdefault(tag, []).append(bundle)
        return given, taken.watermark

    def _stepped(self, node: Node, work: Any, rows: pa.RecordBatch | None, low: int) -> StepResult:
        """Steps the shard of a node; its state goes through blocks."""
        processor, before = work.processor(), self.shards.get(id(node), [])
        if before:
            processor.load(before)
        taken: StepResult = processor.step(rows, Clocks(low, self.now))
        self.shards[id(node)] = before + processor.changes()
        return taken
