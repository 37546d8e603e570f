"""Windowing strategies of Beam's as Headrace's windowings.

Beam assigns windows itself, inside a stage; Headrace gets them with the elements (`border.py`). So a windowing here
says how windows merge, when they fire and when they end. A strategy that Headrace cannot express is None, and Beam's
own trigger driver groups the collection (`driver.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2, standard_window_fns_pb2

from headrace.dialects.beam.beamtriggers import to_trigger
from headrace.model.panes import Accumulation, TimestampCombiner, Windowing
from headrace.model.windows import GlobalWindows, Sessions, WindowFn

_ACCUMULATION: Final[dict[int, Accumulation]] = {
    beam_runner_api_pb2.AccumulationMode.DISCARDING: "discarding",
    beam_runner_api_pb2.AccumulationMode.ACCUMULATING: "accumulating",
}
_TIMES: Final[dict[int, TimestampCombiner]] = {
    beam_runner_api_pb2.OutputTime.END_OF_WINDOW: "end_of_window",
    beam_runner_api_pb2.OutputTime.EARLIEST_IN_PANE: "earliest",
    beam_runner_api_pb2.OutputTime.LATEST_IN_PANE: "latest",
}


class GivenWindows(WindowFn):
    """Windows that elements bring with them; nothing assigns them.

    >>> GivenWindows() == GivenWindows()
    True
    """

    def windows_of(self, time: int, key: object) -> Iterable[tuple[int, int]]:
        raise TypeError("GivenWindows: elements bring their windows with them; none can be assigned")

    def __repr__(self) -> str:
        return "GivenWindows()"


def to_windowing(strategy: beam_runner_api_pb2.WindowingStrategy) -> Windowing | None:
    """Returns Headrace's windowing of a strategy; None if Beam's trigger driver has to group the collection.

    Beam's Python writes "emit always" as closing behaviour into every strategy, and its driver emits no closing pane
    at all: what no pane has had yet is emitted here when the window closes, and an empty pane is not.

    >>> import apache_beam as beam
    >>> from apache_beam.runners.pipeline_context import PipelineContext
    >>> from apache_beam.transforms.core import Windowing as BeamWindowing
    >>> sessions = BeamWindowing(beam.window.Sessions(10), allowed_lateness=60)
    >>> to_windowing(sessions.to_runner_api(PipelineContext()))
    Windowing(Sessions('10 s'), allowed_lateness='1 min')
    """
    window, trigger = _window_fn(strategy), to_trigger(strategy.trigger)
    accumulation, times = _ACCUMULATION.get(strategy.accumulation_mode), _TIMES.get(strategy.output_time)
    if window is None or trigger is None or accumulation is None or times is None:
        return None
    return Windowing(window, trigger, accumulation, timedelta(milliseconds=strategy.allowed_lateness), times)


def _window_fn(strategy: beam_runner_api_pb2.WindowingStrategy) -> WindowFn | None:
    spec = strategy.window_fn
    if spec.urn == common_urns.global_windows.urn:
        return GlobalWindows()
    if strategy.merge_status != beam_runner_api_pb2.MergeStatus.NEEDS_MERGE:
        return GivenWindows()
    if spec.urn != common_urns.session_windows.urn:
        return None
    payload = standard_window_fns_pb2.SessionWindowsPayload.FromString(spec.payload)
    return Sessions(payload.gap_size.ToTimedelta())
