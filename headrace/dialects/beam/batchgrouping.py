"""Groupings in a batch: Headrace's own where it can express the windows, Beam's trigger driver where it cannot.

A batch fires each window once, when all of its input is there. Triggers that may fire earlier, by the number of
elements for instance, are Beam's to judge: its driver says what they do with a whole key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from apache_beam.portability.api import beam_runner_api_pb2 as proto
from apache_beam.transforms.trigger import create_trigger_driver
from apache_beam.utils import windowed_value

from headrace.dialects.beam.border import Form, WindowKind, fold, from_pane, from_times, to_pane, to_times
from headrace.dialects.beam.stagefn import Tagged
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.dialects.beam.windowings import to_windowing
from headrace.engine.worker.bundles import Bundle
from headrace.model.bundlefns import SideContents
from headrace.model.panes import Windowing


def native_windowing(strategy: proto.WindowingStrategy) -> Windowing | None:
    """Returns the windowing by which Headrace groups a collection in a batch; None if Beam's driver has to."""
    windowing = to_windowing(strategy)
    trigger = strategy.trigger.WhichOneof("trigger")
    fires_once = trigger in (None, "default", "never") or (
        trigger == "after_end_of_window" and not strategy.trigger.after_end_of_window.HasField("early_firings")
    )
    if windowing is None or not fires_once:
        return None
    return Windowing(windowing.window, timestamp_combiner=windowing.timestamp_combiner)


@dataclass
class EntriesFn:
    """Makes pairs of the bytes of a key, and the time, window, pane and bytes of a value, for Beam's driver."""

    spec: StageSpec
    sink: Port

    def open(self, sides: Sequence[SideContents]) -> None:
        self._border = self.spec.components.border(self.sink.collection, Form.PAIRS)

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        """Makes a pair of each pair; all of them are in the global window."""
        windows = self._border.windows
        entries = []
        for (key, value), placed, time in zip(*self._border.placed(bundle), bundle.all_times().tolist(), strict=False):
            entries.append((key, (time, windows.bytes_of(placed[0]), bundle.pane, value)))
        yield "pairs", Bundle(entries)

    def close(self) -> Iterator[Tagged]:
        return iter(())


@dataclass
class DriverFn:
    """Lets Beam's driver make panes of the entries of a key."""

    spec: StageSpec
    source: Port
    _windowing: object = field(default=None, repr=False)

    def open(self, sides: Sequence[SideContents]) -> None:
        self._windowing = None

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        """Makes groups: the bytes of keys, and those of the values of a pane."""
        if self._windowing is None:
            self._windowing = self.spec.components.windowing(self.source.collection)
            self._windows = self.spec.components.windows(self.source.collection)
        windows = self._windows
        for key, entries in bundle.elements:
            values = [
                windowed_value.create(value, micros, windows.decoded(window), from_pane(pane))
                for micros, (_, window, pane, value) in zip(
                    from_times(np.array([entry[0] for entry in entries], np.int64)), entries, strict=True
                )
            ]
            driver = create_trigger_driver(self._windowing, True)
            for pane in driver.process_entire_key(key, values):
                yield "groups", self._group(pane)

    def _group(self, pane: windowed_value.WindowedValue) -> Bundle:
        (window,), info, (key, values) = pane.windows, pane.pane_info, pane.value
        ours = to_pane(info.is_first, info.is_last, info.timing, info.index, info.nonspeculative_index)
        times = to_times([pane.timestamp_micros])
        if self._windows.kind is WindowKind.GLOBAL:
            return Bundle([(key, list(values))], times, pane=ours)
        if self._windows.kind is WindowKind.FOLDED:
            key = fold(self._windows.bytes_of(window), key)
        start, end = self._windows.bounds(window)
        return Bundle([(key, list(values))], times, np.array([start]), np.array([end]), ours)

    def close(self) -> Iterator[Tagged]:
        return iter(())
