"""A stage in this process: Beam's bundle processor for what needs it, and the fast lane for what does not.

The transforms of a stage are cut into parts (`parts_of`), each of them a lane or a bundle processor of its own. A part
reads what earlier ones emit, as bundles of objects; what nobody reads but a sink is encoded and waits to be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.utils.windowed_value import WindowedValue

from headrace.dialects.beam.border import ElementBorder, Form
from headrace.dialects.beam.compat import (
    DATA_INPUT_URN,
    DATA_OUTPUT_URN,
    NativeStateHandler,
    current_tracker,
    set_current_tracker,
)
from headrace.dialects.beam.fastlane import Lane, Step, Taker
from headrace.dialects.beam.harness import Harness, Residual
from headrace.dialects.beam.plainsteps import plain_step
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle
from headrace.model.errors import PipelineError

Transforms = dict[str, proto.PTransform]


class StageProcess:
    """One stage in this process. What its sinks get is encoded in the forms of `writes`."""

    def __init__(self, spec: StageSpec, handler: NativeStateHandler, writes: Mapping[str, Form]) -> None:
        self._components = spec.components
        self._ready: list[tuple[str, Bundle]] = []
        self.waiting = 0
        """The number of elements that wait to be taken."""
        self._takers: dict[str, list[Taker]] = {}
        self._entries: dict[str, list[Callable[[WindowedValue], None]]] = {}
        self._harnesses: list[Harness] = []
        self._lanes: list[Lane] = []
        for sink in spec.sinks:
            border = spec.components.border(sink.collection, writes[sink.transform])
            self._add_taker(sink.collection, self._sink(sink.transform, border))
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(spec.descriptor)
        steps = plain_steps(spec)
        for plain, transforms in reversed(parts_of(descriptor, spec.plain)):  # each hands over to those behind it
            if plain:
                self._add_lane(transforms, {name: steps[name] for name in transforms})
            else:
                self._add_harness(_part(descriptor, transforms), transforms, handler)
        self._harnesses.reverse()
        self._lanes.reverse()

    # Making it

    def _add_taker(self, collection: str, taker: Taker) -> None:
        self._takers.setdefault(collection, []).append(taker)

    def _sink(self, name: str, border: ElementBorder) -> Taker:
        def take(bundle: Bundle) -> None:
            self._ready.append((name, border.packed(bundle)))
            self.waiting += bundle.size

        return take

    def _add_lane(self, transforms: Transforms, steps: Mapping[str, Step]) -> None:
        lane = Lane(steps)
        self._lanes.append(lane)
        inner = {collection for each in transforms.values() for collection in each.outputs.values()}
        readers: dict[str, list[Taker]] = {}
        for name, transform in transforms.items():
            for collection in transform.inputs.values():
                readers.setdefault(collection, []).append(steps[name].take)
        for name, transform in transforms.items():
            for tag, collection in transform.outputs.items():
                steps[name].takers[tag] = readers.get(collection, []) + self._takers.get(collection, [])
        for collection, takers in readers.items():
            if collection not in inner:
                for taker in takers:
                    self._add_taker(collection, _within(lane, taker))

    def _add_harness(self, descriptor: Any, transforms: Transforms, handler: NativeStateHandler) -> None:
        harness = Harness(descriptor, handler)
        self._harnesses.append(harness)
        for name, sink in harness.sinks.items():
            (collection,) = descriptor.transforms[name].inputs.values()
            sink.limit, sink.full = BUNDLE_SIZE, self._drain(sink, collection)
        for name, transform in descriptor.transforms.items():
            if transform.spec.urn == DATA_INPUT_URN:
                (collection,) = transform.outputs.values()
                enter = harness.entry(name)
                self._entries.setdefault(collection, []).append(enter)
                border = self._components.border(collection, Form.CODED)
                self._add_taker(collection, _entering(harness, enter, border))

    def _drain(self, sink: Any, collection: str) -> Callable[[], None]:
        border, takers = self._components.border(collection, Form.CODED), self._takers.get(collection, [])

        def drain() -> None:
            values, sink.taken = sink.taken, []
            for bundle in border.objects(values):
                for taker in takers:
                    taker(bundle)

        return drain

    # Running it

    @property
    def first(self) -> Harness:
        """The bundle processor that elements enter, of a stage with state or with a splittable DoFn."""
        return self._harnesses[0]

    def entry(self, source: Port) -> Callable[[WindowedValue], None] | None:
        """Returns the function that windowed values of a source enter by; None if a lane reads it, too."""
        entries = self._entries.get(source.collection, [])
        return entries[0] if len(entries) == len(self._takers.get(source.collection, [])) == 1 else None

    def take(self, source: Port, bundle: Bundle) -> None:
        """Takes a bundle of objects from a source."""
        for taker in self._takers.get(source.collection, []):
            taker(bundle)

    def start(self) -> None:
        """Starts a bundle."""
        for harness in reversed(self._harnesses):
            harness.start()

    def resume(self) -> None:
        """Goes on with a bundle, after another stage ran in this thread."""
        if self._harnesses:
            self.first.resume()

    def finish(self) -> list[Residual]:
        """Finishes the bundle; returns what is left of restrictions that were not processed to their end."""
        left: list[Residual] = []
        for harness in self._harnesses:
            harness.resume()
            left += harness.finish()
            for sink in harness.sinks.values():
                if sink.taken:
                    sink.full()
        return left

    def abandon(self) -> None:
        """Ends a bundle that failed."""
        for harness in self._harnesses:
            harness.abandon()
            for sink in harness.sinks.values():
                sink.taken = []
        self._ready, self.waiting = [], 0

    def flush(self) -> None:
        """Lets go of the accumulators that lanes combine from bundle to bundle."""
        for lane in self._lanes:
            lane.flush()

    def taken(self) -> Iterator[tuple[str, Bundle]]:
        """Takes what the sinks have got, with their names."""
        ready, self._ready, self.waiting = self._ready, [], 0
        return iter(ready)

    def emitted(self) -> int:
        """Returns the number of elements that wait to be taken, or for the next part."""
        return self.waiting + sum(len(sink.taken) for harness in self._harnesses for sink in harness.sinks.values())

    def requires_finalization(self) -> bool:
        """Returns whether somebody waits for the bundle to be committed."""
        return any(harness.processor.requires_finalization() for harness in self._harnesses)

    def finalize(self) -> bool:
        """Calls back those who wait for the bundle to be committed; if there are any, a report has to follow."""
        return any([harness.finalize() for harness in self._harnesses])

    def report(self) -> list[bytes]:
        """Returns the metrics since the last report, and forgets them."""
        return [info for part in self._parts() for info in part.report()]

    def close(self) -> None:
        """Tears the DoFns down."""
        for part in self._parts():
            part.close()

    def _parts(self) -> list[Harness | Lane]:
        return [*self._harnesses, *self._lanes]


def _within(lane: Lane, taker: Taker) -> Taker:
    def take(bundle: Bundle) -> None:
        with lane:
            taker(bundle)

    return take


def _entering(harness: Harness, enter: Callable[[WindowedValue], None], border: ElementBorder) -> Taker:
    def take(bundle: Bundle) -> None:
        before = current_tracker()
        harness.resume()
        for value in border.values(bundle):
            enter(value)
        set_current_tracker(before)

    return take


# Parts


def plain_steps(spec: StageSpec) -> dict[str, Step]:
    """Makes the steps of the transforms that the fast lane runs."""
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(spec.descriptor)
    steps = {name: plain_step(name, descriptor.transforms[name], spec.components) for name in sorted(spec.plain)}
    unknown = [name for name, step in steps.items() if step is None]
    if unknown:
        raise PipelineError(f"{unknown[0]!r} is plain on the driver and not here; use one version of Beam everywhere")
    return {name: step for name, step in steps.items() if step is not None}


def parts_of(descriptor: Any, plain: Collection[str]) -> list[tuple[bool, Transforms]]:
    """Cuts the transforms of a stage into parts, each behind those that it reads from, with whether it is a lane."""
    made_by = {pc: name for name, each in descriptor.transforms.items() for pc in each.outputs.values()}
    levels: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in levels:
            before = [made_by[pc] for pc in descriptor.transforms[name].inputs.values() if pc in made_by]
            least = max((level(each) for each in before), default=0)
            if descriptor.transforms[name].spec.urn == DATA_INPUT_URN:
                levels[name] = 0
            else:
                levels[name] = least + (least % 2 != (name in plain))  # lanes have odd numbers
        return levels[name]

    parts: dict[int, Transforms] = {}
    for name, transform in descriptor.transforms.items():
        if transform.spec.urn not in (DATA_INPUT_URN, DATA_OUTPUT_URN):
            parts.setdefault(level(name), {})[name] = transform
    return [(bool(number % 2), parts[number]) for number in sorted(parts)]


def _part(descriptor: Any, transforms: Transforms) -> Any:
    """Describes a part: a source for each collection that it reads, and a sink for each that others read."""
    part = beam_fn_api_pb2.ProcessBundleDescriptor()
    part.CopyFrom(descriptor)
    part.ClearField("transforms")
    made = {pc for each in transforms.values() for pc in each.outputs.values()}
    read = {pc for each in transforms.values() for pc in _main_inputs(each)}
    others = {pc for name, each in descriptor.transforms.items() if name not in transforms for pc in _main_inputs(each)}
    for name, transform in transforms.items():
        part.transforms[name].CopyFrom(transform)
    for collection in sorted(read - made):
        port = _port(part, collection, DATA_INPUT_URN)
        part.transforms[f"{collection}/source"].CopyFrom(proto.PTransform(outputs={"out": collection}, **port))
    for collection in sorted(made & others):
        port = _port(part, collection, DATA_OUTPUT_URN)
        part.transforms[f"{collection}/sink"].CopyFrom(proto.PTransform(inputs={"in": collection}, **port))
    return part


def _main_inputs(transform: proto.PTransform) -> list[str]:
    read = translations.side_inputs(transform) if transform.spec.urn in translations.PAR_DO_URNS else {}
    return [collection for tag, collection in transform.inputs.items() if tag not in read]


def _port(part: Any, collection: str, urn: str) -> dict[str, Any]:
    """Describes a source or a sink; its coder is for Beam's samples of sizes alone."""
    declared, coder = part.pcollections[collection], f"{collection}/windowed"
    parts = [declared.coder_id, part.windowing_strategies[declared.windowing_strategy_id].window_coder_id]
    spec = proto.FunctionSpec(urn=common_urns.coders.WINDOWED_VALUE.urn)
    part.coders[coder].CopyFrom(proto.Coder(spec=spec, component_coder_ids=parts))
    payload = beam_fn_api_pb2.RemoteGrpcPort(coder_id=coder).SerializeToString()
    name = f"{collection}/{'source' if urn == DATA_INPUT_URN else 'sink'}"
    return {"unique_name": name, "spec": proto.FunctionSpec(urn=urn, payload=payload)}
