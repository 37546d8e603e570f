"""Stages of Beam's as a pipeline of Headrace's primitives: bundles through stages, and exchanges between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.dialects.beam.batchgrouping import DriverFn, EntriesFn, native_windowing
from headrace.dialects.beam.batchstate import KeyFn, StatefulStageFn
from headrace.dialects.beam.border import Form, WindowKind
from headrace.dialects.beam.stagefn import StageFn
from headrace.dialects.beam.stagespecs import Port, SidePort, StageSpec
from headrace.dialects.beam.windowings import GivenWindows
from headrace.model.bundlefns import AsBundles, Bundles
from headrace.model.errors import PipelineError
from headrace.model.keyed import Flatten, GroupByKey, Reshuffle
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sources import Create


def batch_pipeline(specs: Sequence[StageSpec], pipeline: Pipeline) -> Pipeline:
    """Adds the stages of a batch to a pipeline; returns it."""
    graph = BatchGraph(pipeline)
    for spec in specs:
        graph.add(spec)
    return pipeline


@dataclass
class BatchGraph:
    """Adds stage after stage, each behind those that it reads from, and notes who has written to which buffer."""

    pipeline: Pipeline
    written: defaultdict[bytes, list[tuple[PCollection, StageSpec, Port]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    read: dict[bytes, PCollection] = field(default_factory=dict)

    def add(self, spec: StageSpec) -> None:
        """Adds a stage, once for each of its sources."""
        sides = tuple(self._seen(spec, side) for side in spec.sides)
        for number, source in enumerate(spec.sources):
            label = spec.name if len(spec.sources) == 1 else f"{spec.name} {number + 1}"
            self._add_reading(label, spec, source, sides)

    def _add_reading(self, label: str, spec: StageSpec, source: Port, sides: tuple[AsBundles, ...]) -> None:
        pc = self._source(source)
        reads = Form.GROUPS if source.kind == "group" else Form.CODED
        writes = {sink.transform: Form.PAIRS if sink.kind == "group" else Form.CODED for sink in spec.sinks}
        outputs = {sink.transform: self._windowing(spec, sink) for sink in spec.sinks}
        if spec.stateful is not None:
            pc = self._keyed(label, spec, source, reads, pc)
            fn: StageFn = StatefulStageFn(spec, source, reads, writes)
        else:
            fn = StageFn(spec, source, reads, writes)
        written = pc | label >> Bundles(fn, outputs, sides)
        for sink in spec.sinks:
            output = written if len(spec.sinks) == 1 else written[sink.transform]
            self.written[sink.buffer].append((output, spec, sink))

    def _keyed(self, label: str, spec: StageSpec, source: Port, reads: Form, pc: PCollection) -> PCollection:
        """Groups the elements of a stage with state by key and window."""
        check_state_windows(spec, source)
        pairs = pc | f"{label}/key" >> Bundles(KeyFn(spec, source, reads), {"pairs": plain_windowing(spec, source)})
        return pairs | f"{label}/group" >> GroupByKey()

    def _windowing(self, spec: StageSpec, sink: Port) -> Windowing:
        native = native_windowing(spec.components.windowing_proto(sink.collection)) if sink.kind == "group" else None
        return native or plain_windowing(spec, sink)

    def _seen(self, spec: StageSpec, side: SidePort) -> AsBundles:
        """Returns the side input as a stage sees it."""
        return AsBundles(self._source(Port(side.transform, side.buffer, side.collection)))

    def _source(self, port: Port) -> PCollection:
        """Returns the collection that readers of a buffer get."""
        if port.buffer not in self.read:
            self.read[port.buffer] = self._exchanged(port)
        return self.read[port.buffer]

    def _exchanged(self, port: Port) -> PCollection:
        if port.kind == "impulse":
            return self.pipeline | "Impulse" >> Create([b""])
        written = self.written[port.buffer]
        if not written:
            return self.pipeline | f"{port.name}/nothing" >> Create([])
        collections = tuple(pc for pc, _, _ in written)
        pc = collections[0] if len(collections) == 1 else collections | f"{port.name}/flatten" >> Flatten()
        if port.kind == "reshuffle":
            return pc | port.name >> Reshuffle()
        if port.kind != "group":
            return pc
        _, spec, sink = written[0]
        if native_windowing(spec.components.windowing_proto(sink.collection)) is not None:
            return pc | port.name >> GroupByKey()
        entries = pc | f"{port.name}/entries" >> Bundles(EntriesFn(spec, sink), {"pairs": GLOBAL})
        panes = {"groups": plain_windowing(spec, sink)}
        return entries | f"{port.name}/keys" >> GroupByKey() | port.name >> Bundles(DriverFn(spec, sink), panes)


def check_state_windows(spec: StageSpec, source: Port) -> None:
    """Refuses state in windows that merge."""
    strategy = spec.components.windowing(source.collection)
    if strategy.windowfn.is_merging():
        raise PipelineError(
            f"{spec.stateful!r} has state or timers and its input is in merging windows ({strategy.windowfn}), "
            "where a window that has state may become a part of another; put it into windows that do not merge"
        )


def plain_windowing(spec: StageSpec, port: Port | SidePort) -> Windowing:
    """Declares the windows of a collection that nobody groups as it is."""
    if spec.components.windows(port.collection).kind is WindowKind.GLOBAL:
        return GLOBAL
    return Windowing(GivenWindows())
