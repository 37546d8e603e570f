"""Stages of Beam's as a stream: scripts and impulses are its sources, and exchanges are work of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.dialects.beam.batchgraph import BatchGraph, check_state_windows, plain_windowing
from headrace.dialects.beam.batchgrouping import EntriesFn
from headrace.dialects.beam.batchstate import KeyFn
from headrace.dialects.beam.beamscripts import Script
from headrace.dialects.beam.border import Form
from headrace.dialects.beam.driver import DriverWork
from headrace.dialects.beam.keyedstage import KeyedStage
from headrace.dialects.beam.phases import SCRIPT
from headrace.dialects.beam.splittable import SplittableStage, SpreadFn
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.dialects.beam.windowings import to_windowing
from headrace.engine.shard.work import Grouping
from headrace.model.bundlefns import AsBundles, Bundles
from headrace.model.errors import PipelineError
from headrace.model.keyed import Flatten, GroupByKey
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sharded import Sharded


def stream_pipeline(specs: Sequence[StageSpec], scripts: Mapping[str, Script], pipeline: Pipeline) -> Pipeline:
    """Adds the stages of a stream to a pipeline; returns it."""
    graph = _StreamGraph(pipeline, scripts=scripts)
    for spec in specs:
        graph.add(spec)
    return pipeline


@dataclass
class _StreamGraph(BatchGraph):
    """Adds stage after stage; groupings and state are in shards."""

    scripts: Mapping[str, Script] = field(default_factory=dict)

    def add(self, spec: StageSpec) -> None:
        """Adds a stage; refuses side inputs without an end whose windows would have to be mapped."""
        for side in spec.sides:
            if not spec.components.bounded(side.collection) and plain_windowing(spec, side) is not GLOBAL:
                raise PipelineError(
                    f"{side.transform!r} has a side input without an end, in windows, which is not possible yet: put "
                    "it into the global window with a trigger, or make it bounded"
                )
        super().add(spec)

    def _add_reading(self, label: str, spec: StageSpec, source: Port, sides: tuple[AsBundles, ...]) -> None:
        if source.kind == SCRIPT and source.buffer not in self.read:
            encode = spec.components.coder(source.collection).encode
            self.read[source.buffer] = self.pipeline | source.name >> self.scripts[source.name].source(encode)
        if spec.stateful is None and not spec.splittable:
            super()._add_reading(label, spec, source, sides)
            return
        if sides:
            raise PipelineError(
                f"{spec.name!r} has state or timers, or is splittable, and has side inputs, which is not possible in a "
                "stream yet; put a Map before it that sees the side inputs"
            )
        reads = Form.GROUPS if source.kind == "group" else Form.CODED
        windowing = _kept_windowing(spec, source)
        if spec.stateful is not None:
            check_state_windows(spec, source)
            fn: KeyFn | SpreadFn = KeyFn(spec, source, reads)
        else:
            fn = SpreadFn(spec, source)
        keyed = self._source(source) | f"{label}/key" >> Bundles(fn, {"pairs": windowing})
        writes = tuple((sink.transform, Form.PAIRS if sink.kind == "group" else Form.CODED) for sink in spec.sinks)
        outputs: dict[str | None, Windowing] = {sink.transform: self._windowing(spec, sink) for sink in spec.sinks}
        work = KeyedStage if spec.stateful is not None else SplittableStage
        written = keyed | label >> Sharded(work(spec, source, writes, windowing), outputs)
        for sink in spec.sinks:
            output = written if len(spec.sinks) == 1 else written[sink.transform]
            self.written[sink.buffer].append((output, spec, sink))

    def _windowing(self, spec: StageSpec, sink: Port) -> Windowing:
        native = to_windowing(spec.components.windowing_proto(sink.collection)) if sink.kind == "group" else None
        return native or plain_windowing(spec, sink)

    def _exchanged(self, port: Port) -> PCollection:
        written = self.written[port.buffer]
        if port.kind != "group" or not written:
            return super()._exchanged(port)
        collections = tuple(pc for pc, _, _ in written)
        pc = collections[0] if len(collections) == 1 else collections | f"{port.name}/flatten" >> Flatten()
        _, spec, sink = written[0]
        windowing = to_windowing(spec.components.windowing_proto(sink.collection))
        if windowing is not None and pc.bounded:  # it may be a side input, which is computed as a batch
            return pc | port.name >> GroupByKey()
        if windowing is not None:
            return pc | port.name >> Sharded(Grouping(windowing), {None: plain_windowing(spec, sink)})
        entries = pc | f"{port.name}/entries" >> Bundles(EntriesFn(spec, sink), {"pairs": GLOBAL})
        return entries | port.name >> Sharded(DriverWork(spec, sink), {None: plain_windowing(spec, sink)})


def _kept_windowing(spec: StageSpec, source: Port) -> Windowing:
    """Declares the windows of a collection that a stage with state reads: how late its elements may be."""
    plain = plain_windowing(spec, source)
    lateness = spec.components.windowing_proto(source.collection).allowed_lateness
    return Windowing(plain.window, allowed_lateness=lateness / 1000)
