"""Side inputs of streams that have no end themselves: which window an element sees, and when it may see it.

In windows of time an element waits until the window that it sees is over. The global window has no end: with a trigger,
an element waits for the first pane, and a singleton is the latest one; without, for the end of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.pvalue import SideInputData
from apache_beam.transforms.window import GlobalWindow

from headrace.dialects.beam.border import WindowBorder, WindowKind
from headrace.dialects.beam.compat import is_singleton
from headrace.dialects.beam.stagespecs import SidePort, StageSpec
from headrace.dialects.beam.windowings import GivenWindows
from headrace.model.bundlefns import AsBundles, WindowBounds
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection
from headrace.model.triggers import AfterCount, Repeatedly


@dataclass
class WindowMapping:
    """Gives the window of a side input that elements of a window see, by Beam's own mapping function."""

    side_input: bytes
    main: WindowKind
    side: WindowKind

    def __call__(self, bounds: WindowBounds) -> WindowBounds:
        """Returns the bounds of the side window."""
        found = self._found.get(bounds)
        if found is None:
            main, side, map_window = self._functions
            window = GlobalWindow() if self.main is WindowKind.GLOBAL else main.interval(bounds)[0]
            found = self._found[bounds] = side.bounds(map_window(window))
        return found

    @cached_property
    def _found(self) -> dict[WindowBounds, WindowBounds]:
        return {}

    @cached_property
    def _functions(self) -> tuple[WindowBorder, WindowBorder, Any]:
        data = SideInputData.from_runner_api(proto.SideInput.FromString(self.side_input), None)
        return _border(self.main), _border(self.side), data.window_mapping_fn

    def __getstate__(self) -> dict[str, Any]:
        return {"side_input": self.side_input, "main": self.main, "side": self.side}


def _border(kind: WindowKind) -> WindowBorder:
    return WindowBorder.of(GlobalWindowCoder() if kind is WindowKind.GLOBAL else IntervalWindowCoder())


def stream_side(spec: StageSpec, side: SidePort, pc: PCollection) -> AsBundles:
    """Returns a side input that is a stream as the elements of a stage see it."""
    components = spec.components
    strategy, seen = components.windowing_proto(side.collection), components.windows(side.collection).kind
    (main,) = {components.windows(source.collection).kind for source in spec.sources}
    if WindowKind.FOLDED in (main, seen):
        raise PipelineError(
            f"{side.transform!r} has a side input without an end, and its windows, or those of its main input, are of "
            "a class of their own, which cannot be mapped in a stream; use windows that are intervals, or the global "
            "one"
        )
    how = components.side_input(side)
    complete = seen is WindowKind.INTERVAL or not _fires_early(strategy.trigger)
    windowing = Windowing(
        GLOBAL.window if seen is WindowKind.GLOBAL else GivenWindows(),
        Repeatedly(AfterCount(1)),
        "accumulating",
        strategy.allowed_lateness / 1000,
    )
    latest = not complete and is_singleton(SideInputData.from_runner_api(how, None))
    mapping = WindowMapping(how.SerializeToString(), main, seen)
    return AsBundles(pc, mapping, windowing, complete, latest)


def _fires_early(trigger: proto.Trigger) -> bool:
    """Returns whether a trigger may fire before the end of a window."""
    kind = trigger.WhichOneof("trigger")
    if kind == "after_end_of_window":
        return trigger.after_end_of_window.HasField("early_firings")
    return kind not in (None, "default", "never")
