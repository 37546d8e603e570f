"""Beam's own optimiser, with the phases that suit this engine: from a pipeline to fused stages.

A stage reads from buffers and writes to buffers; between a buffer's writers and its readers is what a runner does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.transforms.sideinputs import SIDE_INPUT_REGEX

from headrace.dialects.beam.compat import DATA_INPUT_URN, DATA_OUTPUT_URN, Stage, TransformContext

RESHUFFLE: Final = "reshuffle"
"""The kind of a buffer whose readers get elements spread evenly."""
SCRIPT: Final = "script"
"""The kind of a buffer that a TestStream writes."""
SDF_PROCESS: Final = common_urns.sdf_components.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS.urn
SIDE_READERS: Final = (common_urns.primitives.PAR_DO.urn, SDF_PROCESS)
"""Transforms that use side inputs; the other parts of a splittable DoFn ask for them, too, but for nothing."""


def expand_reshuffle(stages: Iterable[Stage], context: TransformContext) -> Iterator[Stage]:
    """Turns each Reshuffle into a write to a buffer and a read from it, as Beam's phase does with a GroupByKey."""
    stages = list(stages)
    for stage in reversed(stages):  # the next may be a Reshuffle, too
        _encode_as_read(stage.transforms[0], context)
    for stage in stages:
        (transform,) = stage.transforms
        if transform.spec.urn != common_urns.composites.RESHUFFLE.urn:
            yield stage
            continue
        buffer = translations.create_buffer_id(transform.unique_name, kind=RESHUFFLE)
        inputs = _main_inputs(transform)
        write = Stage(
            f"{transform.unique_name}/Write",
            [_port(f"{transform.unique_name}/Write", DATA_OUTPUT_URN, buffer, inputs=inputs)],
            downstream_side_inputs=frozenset(),
            must_follow=stage.must_follow,
        )
        yield write
        yield Stage(
            f"{transform.unique_name}/Read",
            [_port(f"{transform.unique_name}/Read", DATA_INPUT_URN, buffer, outputs=transform.outputs)],
            downstream_side_inputs=stage.downstream_side_inputs,
            must_follow=translations.union(frozenset([write]), stage.must_follow),
        )


def _encode_as_read(transform: proto.PTransform, context: TransformContext) -> None:
    """Gives the input of a Reshuffle the coder of its output, which may be that of keys of a GroupByKey behind it."""
    if transform.spec.urn == common_urns.composites.RESHUFFLE.urn:
        collections = context.components.pcollections
        (output,) = transform.outputs.values()
        for collection in _main_inputs(transform).values():
            collections[collection].coder_id = collections[output].coder_id


def _main_inputs(transform: proto.PTransform) -> dict[str, str]:
    """Returns the inputs that are no side inputs: the Reshuffle within a splittable DoFn names those of the DoFn."""
    return {tag: pc for tag, pc in transform.inputs.items() if re.match(SIDE_INPUT_REGEX, tag) is None}


def annotate_side_readers_as_roots(stages: Iterable[Stage], context: TransformContext) -> Iterator[Stage]:
    """Makes whoever has a side input without an end the first of its stage: its elements wait before the stage."""
    for stage in stages:
        (transform,) = stage.transforms
        collections = context.components.pcollections
        if transform.spec.urn in SIDE_READERS and any(
            collections[transform.inputs[tag]].is_bounded == proto.IsBounded.UNBOUNDED
            for tag in proto.ParDoPayload.FromString(transform.spec.payload).side_inputs
        ):
            stage.forced_root = True
        yield stage


def expand_timed_combines(stages: Iterable[Stage], context: TransformContext) -> Iterator[Stage]:
    """Leaves combines whose results have the time of an element to the shuffle: before it, late ones are not known."""
    for stage in stages:
        (transform,) = stage.transforms
        if transform.spec.urn != common_urns.composites.COMBINE_PER_KEY.urn or not _timed_by_elements(
            transform, context
        ):
            yield stage
            continue
        for name in transform.subtransforms:
            part = context.components.transforms[name]
            yield Stage(
                part.unique_name,
                [part],
                downstream_side_inputs=stage.downstream_side_inputs,
                must_follow=stage.must_follow,
                parent=stage.name,
                environment=stage.environment,
            )


def _timed_by_elements(transform: proto.PTransform, context: TransformContext) -> bool:
    (collection,) = transform.inputs.values()
    strategy = context.components.pcollections[collection].windowing_strategy_id
    output_time: int = context.components.windowing_strategies[strategy].output_time
    return output_time != proto.OutputTime.END_OF_WINDOW


def expand_test_stream(stages: Iterable[Stage], context: TransformContext) -> Iterator[Stage]:
    """Turns each TestStream into reads from buffers, one for each of its outputs, which have the collections' names."""
    for stage in stages:
        (transform,) = stage.transforms
        if transform.spec.urn != common_urns.primitives.TEST_STREAM.urn:
            yield stage
            continue
        for tag, collection in transform.outputs.items():
            name = f"{transform.unique_name}/{tag}"
            buffer = translations.create_buffer_id(collection, kind=SCRIPT)
            yield Stage(
                name,
                [_port(name, DATA_INPUT_URN, buffer, outputs={tag: collection})],
                downstream_side_inputs=stage.downstream_side_inputs,
                must_follow=stage.must_follow,
            )


def read_nothing(stages: Iterable[Stage], context: TransformContext) -> Iterator[Stage]:
    """Turns each Flatten of no collections into a read from a buffer that nobody writes."""
    for stage in stages:
        for transform in stage.transforms:
            if transform.spec.urn == common_urns.primitives.FLATTEN.urn and not transform.inputs:
                transform.spec.urn = DATA_INPUT_URN
                transform.spec.payload = translations.create_buffer_id(transform.unique_name)
        yield stage


def _port(name: str, urn: str, buffer: bytes, **collections: Any) -> proto.PTransform:
    return proto.PTransform(unique_name=name, spec=proto.FunctionSpec(urn=urn, payload=buffer), **collections)


PHASES: Final = (
    translations.annotate_downstream_side_inputs,
    translations.annotate_stateful_dofns_as_roots,  # state begins at an exchange by key
    translations.fix_side_input_pcoll_coders,
    translations.pack_combiners,
    translations.lift_combiners,
    translations.expand_sdf,
    translations.expand_gbk,
    expand_reshuffle,
    expand_test_stream,
    translations.sink_flattens,
    translations.greedily_fuse,
    translations.read_to_impulse,
    translations.impulse_to_input,
    translations.sort_stages,
    read_nothing,
    translations.add_impulse_to_dangling_transforms,
    translations.setup_timer_mapping,
    translations.populate_data_channel_coders,
)

RUNNER_URNS: Final = frozenset(
    [
        common_urns.primitives.FLATTEN.urn,
        common_urns.primitives.GROUP_BY_KEY.urn,
        common_urns.composites.RESHUFFLE.urn,
        common_urns.primitives.TEST_STREAM.urn,
    ]
)


_SDF: Final = PHASES.index(translations.expand_sdf) + 1
STREAM_PHASES: Final = (expand_timed_combines, *PHASES[:_SDF], annotate_side_readers_as_roots, *PHASES[_SDF:])


def fused_stages(
    pipeline: proto.Pipeline, *, drain: bool = False, streaming: bool = False
) -> tuple[TransformContext, list[Stage]]:
    """Fuses the transforms of a pipeline into stages; the context has their components."""
    phases = STREAM_PHASES if streaming else PHASES
    copied = proto.Pipeline()
    copied.CopyFrom(pipeline)
    context, stages = translations.create_and_optimize_stages(
        copied, phases=phases, known_runner_urns=RUNNER_URNS, use_state_iterables=False, is_drain=drain
    )
    return context, stages
