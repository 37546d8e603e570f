"""Recognises the transforms that the fast lane runs, and makes its steps of them.

A ParDo is plain if its DoFn asks for nothing but the element, has no side inputs, no state, and does nothing at the
beginning or the end of a bundle. Windows must be such that every element is in one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final, Protocol

from apache_beam.internal import pickler
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms import core
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, TimestampCombiner

from headrace.dialects.beam.border import ElementBorder, Form
from headrace.dialects.beam.boundedreads import ReadStep
from headrace.dialects.beam.combinesteps import CombineStep, PrecombineStep
from headrace.dialects.beam.compat import SOURCE_READER, CallableWrapperDoFn, DoFnParam, DoFnSignature
from headrace.dialects.beam.fastlane import DoFnStep, FilterStep, FlatMapStep, ForwardStep, MapStep, Step, WindowStep

_ONE_WINDOW: Final = (GlobalWindows, FixedWindows, Sessions)
_PRECOMBINE: Final = common_urns.combine_components.COMBINE_PER_KEY_PRECOMBINE.urn
_COMBINE_PHASES: Final = {
    common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn: "merge_accumulators",
    common_urns.combine_components.COMBINE_PER_KEY_EXTRACT_OUTPUTS.urn: "extract_output",
    common_urns.combine_components.COMBINE_GROUPED_VALUES.urn: "apply",
}


class StageComponents(Protocol):
    """The components of a stage."""

    @property
    def context(self) -> PipelineContext: ...

    def windowing(self, collection: str) -> core.Windowing: ...

    def border(self, collection: str, form: Form) -> ElementBorder: ...


def plain_step(name: str, transform: proto.PTransform, components: StageComponents) -> Step | None:
    """Makes the step of a transform; None if Beam's bundle processor has to run it."""
    for collection in (*transform.inputs.values(), *transform.outputs.values()):
        if type(components.windowing(collection).windowfn) not in _ONE_WINDOW:
            return None
    step = _step(name, transform, components)
    if step is not None:
        step.takers = {tag: [] for tag in transform.outputs}
    return step


def _step(name: str, transform: proto.PTransform, components: StageComponents) -> Step | None:
    urn = transform.spec.urn
    if urn == common_urns.primitives.PAR_DO.urn:
        return _pardo(name, transform, components)
    if urn == common_urns.sdf_components.PROCESS_SIZED_ELEMENTS_AND_RESTRICTIONS.urn:
        return _read(name, transform, components)
    if urn == common_urns.primitives.FLATTEN.urn:
        return ForwardStep(name)
    if urn == common_urns.primitives.ASSIGN_WINDOWS.urn:
        (output,) = transform.outputs.values()
        return WindowStep(name, components.windowing(output).windowfn, components.border(output, Form.CODED))
    if urn == _PRECOMBINE or urn in _COMBINE_PHASES:
        return _combine(name, transform, components)
    return None


def _combine(name: str, transform: proto.PTransform, components: StageComponents) -> Step | None:
    payload = proto.CombinePayload.FromString(transform.spec.payload)
    fn = core.CombineFn.from_runner_api(payload.combine_fn, components.context)
    ((tag, output),) = transform.outputs.items()
    windowing = components.windowing(output)
    if transform.spec.urn != _PRECOMBINE:
        return CombineStep(name, fn, _COMBINE_PHASES[transform.spec.urn], tag)
    if windowing.timestamp_combiner != TimestampCombiner.OUTPUT_AT_EOW:
        return None
    windowed = type(windowing.windowfn) is not GlobalWindows
    return PrecombineStep(name, fn, tag, windowed=windowed, bare=windowing.is_default())


def _read(name: str, transform: proto.PTransform, components: StageComponents) -> Step | None:
    payload = proto.ParDoPayload.FromString(transform.spec.payload)
    dofn, *_ = pickler.loads(payload.do_fn.payload)
    if (type(dofn).__module__, type(dofn).__name__) != SOURCE_READER:
        return None
    (source,) = transform.inputs.values()
    return ReadStep(name, dofn.process, components.border(source, Form.CODED), components.windowing(source).windowfn)


def _pardo(name: str, transform: proto.PTransform, components: StageComponents) -> Step | None:
    payload = proto.ParDoPayload.FromString(transform.spec.payload)
    if payload.do_fn.urn != python_urns.PICKLED_DOFN_INFO or payload.side_inputs or payload.restriction_coder_id:
        return None
    if payload.state_specs or payload.timer_family_specs or payload.requests_finalization:
        return None
    dofn, args, kwargs, *_ = pickler.loads(payload.do_fn.payload)
    if hasattr(dofn, "_runtime_output_constraints") or not _asks_for_elements_only(dofn):
        return None
    (source,) = transform.inputs.values()
    placing = components.border(source, Form.CODED), components.windowing(source).windowfn
    if type(dofn) is CallableWrapperDoFn:
        return _callable_step(name, dofn._fn, args, kwargs, *placing)
    if args or kwargs:
        dofn.process = _with_arguments(dofn.process, args, kwargs)
    return DoFnStep(name, dofn, *placing, checked=not inspect.isgeneratorfunction(type(dofn).process))


def _asks_for_elements_only(dofn: core.DoFn) -> bool:
    kind, signature = type(dofn), DoFnSignature(dofn)
    wraps = kind is CallableWrapperDoFn
    return (
        not signature.is_stateful_dofn()
        and not signature.is_splittable_dofn()
        and not any(isinstance(each, DoFnParam) for each in signature.process_method.defaults)
        and kind.start_bundle is core.DoFn.start_bundle
        and kind.finish_bundle is core.DoFn.finish_bundle
        and kind.process_batch is core.DoFn.process_batch
        and not getattr(dofn.process, "_beam_yields_batches", False)
        and (wraps or "process" not in vars(dofn))
    )


# Map, Filter and their like are wrappers around the user's function, which the lane calls without them.


def _code(transform: Any) -> CodeType:
    code: CodeType = transform.fn._fn.__code__
    return code


def _takes_one(element: Any) -> Any:
    return element


def _takes_more(element: Any, more: Any) -> Any:
    return element


_KINDS: Final = {
    _code(core.Map(_takes_one)): "map",
    _code(core.Map(_takes_more, 1)): "map",
    _code(core.MapTuple(_takes_one)): "map tuple",
    _code(core.Filter(_takes_one)): "filter",
    _code(core.FlatMapTuple(_takes_one)): "flat map tuple",
}


def _callable_step(
    name: str, wrapper: Callable[..., Any], args: Any, kwargs: Any, border: ElementBorder, window_fn: Any
) -> Step:
    kind = _KINDS.get(wrapper.__code__) if isinstance(wrapper, FunctionType) else None
    if kind is None or (kind.endswith("tuple") and (args or kwargs)):
        return FlatMapStep(name, _with_arguments(wrapper, args, kwargs), border, window_fn)
    assert isinstance(wrapper, FunctionType) and wrapper.__closure__ is not None
    fn = wrapper.__closure__[wrapper.__code__.co_freevars.index("fn")].cell_contents
    if kind.endswith("tuple"):
        fn = partial(_spread, fn)
    step = {"map": MapStep, "map tuple": MapStep, "filter": FilterStep, "flat map tuple": FlatMapStep}[kind]
    return step(name, _with_arguments(fn, args, kwargs), border, window_fn)


def _spread(fn: Callable[..., Any], element: Any) -> Any:
    return fn(*element)


def _with_arguments(fn: Callable[..., Any], args: Any, kwargs: Any) -> Callable[[Any], Any]:
    """Returns a function of an element that is given further arguments."""
    if not args and not kwargs:
        return fn
    return lambda element: fn(element, *args, **kwargs)
