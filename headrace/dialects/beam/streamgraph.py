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
from headrace.dialects.beam.stagespecs import Port, SidePort, StageSpec
from headrace.dialects.beam.streamsides import stream_side
from headrace.dialects.beam.windowings import to_windowing
from headrace.engine.shard.work import Grouping
from headrace.model.bundlefns import AsBundles, Bundles
from headrace.model.keyed import Flatten, GroupByKey
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sharded import Sharded


def stream_pipeline(
    specs: Sequence[StageSpec], scripts: Mapping[str, Script], pipeline: Pipeline, start: int
) -> Pipeline:
    """Adds the stages of a stream to a pipeline; returns it. The processing time of scripts begins at `start`."""
    graph = _StreamGraph(pipeline, scripts=scripts, start=start, finite=_finite_buffers(specs))
    for spec in specs:
        graph.add(spec)
    return pipeline


@dataclass
class _StreamGraph(BatchGraph):
    """Adds stage after stage; groupings and state are in shards."""

    scripts: Mapping[str, Script] = field(default_factory=dict)
    start: int = 0

    finite: frozenset[bytes] = frozenset()
    """Buffers that lead to side inputs with an end, which are computed as batches."""

    def _seen(self, spec: StageSpec, side: SidePort) -> AsBundles:
        seen = super()._seen(spec, side)
        return seen if spec.components.bounded(side.collection) else stream_side(spec, side, seen.collection)

    def _add_reading(self, label: str, spec: StageSpec, source: Port, sides: tuple[AsBundles, ...]) -> None:
        if source.kind == SCRIPT and source.buffer not in self.read:
            encode = spec.components.coder(source.collection).encode
            self.read[source.buffer] = self.pipeline | source.name >> self.scripts[source.name].source(
                encode, self.start
            )
        is_finite = any(sink.buffer in self.finite for sink in spec.sinks)
        if is_finite or (spec.stateful is None and spec.splittable is None):
            super()._add_reading(label, spec, source, sides)
            return
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
        unbounded = any(not spec.components.bounded(sink.collection) for sink in spec.sinks)
        written = keyed | label >> Sharded(work(spec, source, writes, windowing), outputs, sides, unbounded=unbounded)
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


def _finite_buffers(specs: Sequence[StageSpec]) -> frozenset[bytes]:
    """Returns the buffers that lead to side inputs with an end."""
    sides = {side.buffer for spec in specs for side in spec.sides if spec.components.bounded(side.collection)}
    found: set[bytes] = set(sides)
    for spec in reversed(specs):  # which come in their order
        if any(sink.buffer in found for sink in spec.sinks):
            found |= {source.buffer for source in spec.sources}
    return frozenset(found)


def _kept_windowing(spec: StageSpec, source: Port) -> Windowing:
    """Declares the windows of a collection that a stage with state reads: how late its elements may be."""
    plain = plain_windowing(spec, source)
    lateness = spec.components.windowing_proto(source.collection).allowed_lateness
    return Windowing(plain.window, allowed_lateness=lateness / 1000)
