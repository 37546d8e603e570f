"""Stages as they are sent to workers: a descriptor with the components that the stage reaches, and its ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from apache_beam.coders import Coder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import translations

from headrace.dialects.beam.border import ElementBorder, Form, WindowBorder
from headrace.dialects.beam.compat import DATA_INPUT_URN, DATA_OUTPUT_URN, Stage, TransformContext
from headrace.dialects.beam.phases import SDF_PROCESS, SIDE_READERS
from headrace.dialects.beam.plainsteps import plain_step


@dataclass(frozen=True)
class Port:
    """A source or a sink of a stage: its transform, the buffer behind it, and the collection that passes."""

    transform: str
    buffer: bytes
    collection: str

    @property
    def kind(self) -> str:
        """The kind of the buffer: "materialize", "group", "reshuffle", or "impulse"."""
        if self.buffer == translations.IMPULSE_BUFFER:
            return "impulse"
        kind: str = translations.split_buffer_id(self.buffer)[0]
        return kind

    @property
    def name(self) -> str:
        """The name of the buffer."""
        if self.buffer == translations.IMPULSE_BUFFER:
            return "impulse"
        name: str = translations.split_buffer_id(self.buffer)[1]
        return name


@dataclass(frozen=True)
class SidePort:
    """A side input of a stage: the transform that reads it, its tag there, and its collection."""

    transform: str
    tag: str
    collection: str

    @property
    def buffer(self) -> bytes:
        """The buffer that has the collection."""
        buffer: bytes = translations.create_buffer_id(self.collection)
        return buffer


@dataclass(frozen=True)
class StageSpec:
    """A stage: picklable, and all that a worker needs to run it."""

    name: str
    descriptor: bytes
    sources: tuple[Port, ...]
    sinks: tuple[Port, ...]
    sides: tuple[SidePort, ...]
    stateful: str | None  # the transform with state or timers, which is the first of its stage
    splittable: str | None  # the transform that processes restrictions, which is the first of its stage
    finalizes: bool  # whether a transform asks to be called back when its bundle is committed
    plain: frozenset[str]  # the transforms that the fast lane runs

    @cached_property
    def components(self) -> Components:
        """The components of its descriptor."""
        return Components(beam_fn_api_pb2.ProcessBundleDescriptor.FromString(self.descriptor))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "components"}


class Components:
    """Coders and windowings of the collections of a pipeline, or of a stage."""

    def __init__(self, components: Any) -> None:
        self._protos, self.context = components, PipelineContext(_without_prefixes(components))

    def coder(self, collection: str) -> Coder:
        """Returns the coder of a collection's elements."""
        return self.context.coders[self._protos.pcollections[collection].coder_id]

    def asked_coder(self, collection: str) -> Coder:
        """Returns the coder by which a stage encodes what it asks about a side input, prefixes of lengths included."""
        return PipelineContext(self._protos).coders[self._protos.pcollections[collection].coder_id]

    def windowing(self, collection: str) -> Any:
        """Returns the windowing of a collection, as Beam's object."""
        return self.context.windowing_strategies[self._protos.pcollections[collection].windowing_strategy_id]

    def windowing_proto(self, collection: str) -> proto.WindowingStrategy:
        """Returns the windowing of a collection."""
        return self._protos.windowing_strategies[self._protos.pcollections[collection].windowing_strategy_id]

    def windowing_id(self, collection: str) -> str:
        """Returns the name of a collection's windowing."""
        name: str = self._protos.pcollections[collection].windowing_strategy_id
        return name

    def windows(self, collection: str) -> WindowBorder:
        """Returns the border of a collection's windows."""
        return WindowBorder.of(self.context.coders[self.windowing_proto(collection).window_coder_id])

    def border(self, collection: str, form: Form) -> ElementBorder:
        """Returns the border of a collection's elements in this form."""
        return ElementBorder(form, self.coder(collection), self.windows(collection))

    def side_input(self, side: SidePort) -> proto.SideInput:
        """Returns how a side input is read."""
        payload = proto.ParDoPayload.FromString(self._protos.transforms[side.transform].spec.payload)
        return payload.side_inputs[side.tag]

    def bounded(self, collection: str) -> bool:
        """Returns whether a collection ends."""
        return bool(self._protos.pcollections[collection].is_bounded != proto.IsBounded.UNBOUNDED)


def _without_prefixes(components: Any) -> Any:
    """Returns components whose coders prefix no lengths: Beam adds them on one side of a buffer or both."""
    bare = type(components)()
    bare.CopyFrom(components)
    for name in components.coders:
        coder = components.coders[name]
        while coder.spec.urn == common_urns.coders.LENGTH_PREFIX.urn:
            coder = components.coders[coder.component_coder_ids[0]]
        bare.coders[name].CopyFrom(coder)
    return bare


def stage_specs(context: TransformContext, stages: Iterable[Stage], *, streaming: bool = False) -> list[StageSpec]:
    """Makes the specs of stages, in their order."""
    return [_spec(context, stage, streaming=streaming) for stage in stages]


def _spec(context: TransformContext, stage: Stage, *, streaming: bool) -> StageSpec:
    sources: list[Port] = []
    sinks: list[Port] = []
    sides: list[SidePort] = []
    transforms: dict[str, proto.PTransform] = {}
    names = [transform.unique_name for transform in stage.transforms]
    stateful, splittable, finalizes = None, None, False
    for transform in stage.transforms:
        copied = proto.PTransform()
        copied.CopyFrom(transform)
        urn, name = transform.spec.urn, transform.unique_name
        if urn in (DATA_INPUT_URN, DATA_OUTPUT_URN):
            (collection,) = (transform.outputs if urn == DATA_INPUT_URN else transform.inputs).values()
            if urn == DATA_INPUT_URN and names.count(name) > 1:
                name = f"{name}/source"  # the impulse of a transform without inputs has its name
            (sources if urn == DATA_INPUT_URN else sinks).append(Port(name, transform.spec.payload, collection))
            port = beam_fn_api_pb2.RemoteGrpcPort(coder_id=context.data_channel_coders[collection])
            copied.spec.payload = port.SerializeToString()
        elif urn in translations.PAR_DO_URNS:
            payload = proto.ParDoPayload.FromString(transform.spec.payload)
            if urn in SIDE_READERS:
                sides += [SidePort(name, tag, transform.inputs[tag]) for tag in payload.side_inputs]
            if payload.state_specs or payload.timer_family_specs:
                stateful = name
            splittable = name if urn == SDF_PROCESS else splittable
            finalizes = finalizes or payload.requests_finalization
        transforms[name] = copied
    descriptor = _descriptor(stage.name, transforms, context.components)
    ports = tuple(sources), tuple(sinks), tuple(sides)
    first = {port.collection for port in sources} if stateful or (splittable and streaming) else set()
    plain = _plain(transforms, first, Components(beam_fn_api_pb2.ProcessBundleDescriptor.FromString(descriptor)))
    return StageSpec(_label(stage), descriptor, *ports, stateful, splittable, finalizes, plain)


def _plain(transforms: Mapping[str, proto.PTransform], entered: set[str], components: Components) -> frozenset[str]:
    """Returns the transforms that the fast lane runs; not those that read what must enter Beam's bundle processor."""
    return frozenset(
        name
        for name, transform in transforms.items()
        if entered.isdisjoint(transform.inputs.values()) and plain_step(name, transform, components) is not None
    )


def _label(stage: Stage) -> str:
    """Names a stage after its first transform, and its last, which no other stage has."""
    ports = (DATA_INPUT_URN, DATA_OUTPUT_URN)
    names = [each.unique_name for each in stage.transforms if each.spec.urn not in ports] or [stage.name]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def _descriptor(name: str, transforms: Mapping[str, proto.PTransform], all_components: Any) -> bytes:
    """Describes a stage with the components that it reaches, not with all of the pipeline."""
    collections = {pc for each in transforms.values() for pc in (*each.inputs.values(), *each.outputs.values())}
    windowings = {all_components.pcollections[pc].windowing_strategy_id for pc in collections}
    coders = {all_components.pcollections[pc].coder_id for pc in collections}
    coders |= {all_components.windowing_strategies[each].window_coder_id for each in windowings}
    for transform in transforms.values():
        coders |= _coders_of(transform)
    environments = {each.environment_id for each in transforms.values()}
    environments |= {all_components.windowing_strategies[each].environment_id for each in windowings}
    return beam_fn_api_pb2.ProcessBundleDescriptor(
        id=name,
        transforms=transforms,
        pcollections={pc: all_components.pcollections[pc] for pc in collections},
        windowing_strategies={each: all_components.windowing_strategies[each] for each in windowings},
        coders=_with_parts(coders, all_components.coders),
        environments={each: all_components.environments[each] for each in environments if each},
    ).SerializeToString()


def _coders_of(transform: proto.PTransform) -> set[str]:
    """Returns the coders that a transform's payload names."""
    urn, payload = transform.spec.urn, transform.spec.payload
    if urn in (DATA_INPUT_URN, DATA_OUTPUT_URN):
        return {beam_fn_api_pb2.RemoteGrpcPort.FromString(payload).coder_id}
    if urn in translations.PAR_DO_URNS:
        parsed = proto.ParDoPayload.FromString(payload)
        coders = {timer.timer_family_coder_id for timer in parsed.timer_family_specs.values()}
        for state in parsed.state_specs.values():
            fields = getattr(state, state.WhichOneof("spec")).ListFields()
            coders |= {value for field, value in fields if field.name.endswith("coder_id")}
        if parsed.restriction_coder_id:
            coders.add(parsed.restriction_coder_id)
        return coders
    if urn in _COMBINE_URNS:
        return {proto.CombinePayload.FromString(payload).accumulator_coder_id}
    return set()


_COMBINE_URNS: Final = {
    common_urns.combine_components.COMBINE_PER_KEY_PRECOMBINE.urn,
    common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn,
    common_urns.combine_components.COMBINE_PER_KEY_EXTRACT_OUTPUTS.urn,
    common_urns.combine_components.COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS.urn,
    common_urns.combine_components.COMBINE_GROUPED_VALUES.urn,
    common_urns.composites.COMBINE_PER_KEY.urn,
}


def _with_parts(names: set[str], coders: Mapping[str, proto.Coder]) -> dict[str, proto.Coder]:
    found: dict[str, proto.Coder] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name and name not in found:
            found[name] = coders[name]
            wanted += found[name].component_coder_ids
    return found
