"""Names of Beam's own insides: every private one that this dialect touches is named here.

None of them is an interface that Beam promises to keep; `tests/dialects/beam/test_compat.py` fails where a release has
moved one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apache_beam.io import filebasedsource, textio
from apache_beam.metrics.execution import MetricsContainer
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.pvalue import AsSingleton, SideInputData
from apache_beam.runners import common
from apache_beam.runners.direct import test_stream_impl
from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.worker import bundle_processor, operations, sdk_worker, statesampler
from apache_beam.transforms import core
from apache_beam.utils.counters import CounterFactory
from apache_beam.utils.windowed_value import WindowedValue

from headrace.dialects.beam.userstate import UserState

BundleProcessor = bundle_processor.BundleProcessor
ExecutionContext = bundle_processor.ExecutionContext
DATA_INPUT_URN = bundle_processor.DATA_INPUT_URN
DATA_OUTPUT_URN = bundle_processor.DATA_OUTPUT_URN
FnApiMetrics = fn_runner.FnApiMetrics
Stage = translations.Stage
TransformContext = translations.TransformContext
StateSampler = statesampler.StateSampler
NameContext = common.NameContext
DoFnSignature = common.DoFnSignature
CallableWrapperDoFn = core.CallableWrapperDoFn
SingleFileSource = filebasedsource._SingleFileSource
TextSource = textio._TextSource
DoFnParam = core._DoFnParam
current_tracker = statesampler.get_current_tracker
set_current_tracker = statesampler.set_current_tracker
event_of = test_stream_impl._TestStream.test_stream_payload_to_events


def is_singleton(side_input: SideInputData) -> bool:
    """Returns whether a view is one element: Beam says it in the function alone that makes the view."""
    cells = getattr(side_input.view_fn, "__closure__", None) or ()
    return any(cell.cell_contents == AsSingleton._from_runtime_iterable for cell in cells)


SOURCE_READER = ("apache_beam.io.iobase", "SDFBoundedSourceDoFn")
"""Module and name of the class, within a function, of the DoFn that reads bounded sources."""

__all__ = ["CounterFactory", "MetricsContainer"]


class NativeStateHandler(sdk_worker.CachingStateHandler):
    """A state handler that lives in this process; whoever drives a stage subclasses it.

    A stage with such a handler has native sinks, and its user state is ours.
    """

    user_state: UserState
    """The context of the stage's stateful transform, which sets it when it is made."""

    def extend(self, state_key: Any, coder: Any, elements: Any) -> Any:
        raise NotImplementedError("user state does not go through state requests here")

    def clear(self, state_key: Any) -> Any:
        raise NotImplementedError("user state does not go through state requests here")

    def process_instruction_id(self, bundle_id: Any, cache_tokens: Any) -> Any:
        raise NotImplementedError("bundles are not driven by instructions here")

    def done(self) -> None:
        pass


class NativeSink(operations.Operation):
    """Takes what a stage emits, as objects."""

    def __init__(self, name: Any, counter_factory: Any, state_sampler: Any) -> None:
        super().__init__(name, None, counter_factory, state_sampler)
        self.taken: list[WindowedValue] = []
        self.limit = 0
        """The number of elements at which `full` is called; none is 0."""
        self.full: Callable[[], None] = _do_nothing

    def process(self, windowed_value: WindowedValue) -> None:
        self.taken.append(windowed_value)
        if len(self.taken) == self.limit:
            self.full()


def _do_nothing() -> None:
    pass


class NoDataChannels:
    """Makes no data channels: elements come and go as objects."""

    def create_data_channel(self, port: Any) -> None:
        return None


_known_urns: dict[str, Any] = bundle_processor.BeamTransformFactory._known_urns
_grpc_sink, _ = _known_urns[DATA_OUTPUT_URN]
_grpc_user_state = bundle_processor.FnApiUserStateContext


def _sink(factory: Any, transform_id: str, proto: Any, port: Any, consumers: Any) -> Any:
    if not isinstance(factory.state_handler, NativeStateHandler):
        return _grpc_sink(factory, transform_id, proto, port, consumers)
    name = common.NameContext(proto.unique_name, transform_id)
    return NativeSink(name, factory.counter_factory, factory.state_sampler)


def _user_state(handler: Any, transform_id: str, key_coder: Any, window_coder: Any) -> Any:
    if not isinstance(handler, NativeStateHandler):
        return _grpc_user_state(handler, transform_id, key_coder, window_coder)
    return UserState(handler, transform_id, key_coder, window_coder)


# Other stages of this process, those of Beam's own runner, keep their sinks and their state.
_known_urns[DATA_OUTPUT_URN] = (_sink, beam_fn_api_pb2.RemoteGrpcPort)
bundle_processor.FnApiUserStateContext = _user_state
