"""Drives a stage of Beam's in this process: Beam's own bundle processor, with Python objects in and out.

There are no data channels and no instructions. Whoever drives it starts a bundle, hands over windowed values and
timers, finishes the bundle, and takes what the sinks got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from headrace.dialects.beam.compat import (
    BundleProcessor,
    ExecutionContext,
    NativeSink,
    NativeStateHandler,
    NoDataChannels,
    set_current_tracker,
)

Residual = tuple[Any, Any]
"""The operation that stopped before the end of a restriction, and what is left of it."""


class Harness:
    """One stage in this process. Its DoFns are set up when it is made, and torn down by `close`."""

    def __init__(self, descriptor: Any, handler: NativeStateHandler) -> None:
        self.processor = BundleProcessor(frozenset(), descriptor, handler, NoDataChannels())
        for (transform, family), info in self.processor.timers_info.items():
            self.processor.ops[transform].add_timer_info(family, info)
        self.sinks: Mapping[str, NativeSink] = {
            name: op for name, op in self.processor.ops.items() if isinstance(op, NativeSink)
        }
        self._context = ExecutionContext()

    def entry(self, transform: str) -> Callable[[WindowedValue], None]:
        """Returns the function that hands a windowed value to the readers of a source."""
        output: Callable[[WindowedValue], None] = self.processor.ops[transform].output
        return output

    def start(self) -> None:
        """Starts a bundle."""
        self._context = ExecutionContext(instruction_id="native")
        self.processor.state_sampler.reset()
        self.processor.state_sampler.start()
        for op in reversed(self.processor.ops.values()):
            op.execution_context = self._context
            op.start()

    def resume(self) -> None:
        """Goes on with a bundle, after another stage ran in this thread: metrics are this stage's again."""
        set_current_tracker(self.processor.state_sampler)

    def fire(self, transform: str, family: str, timer: Any) -> None:
        """Calls the method of a timer."""
        self.processor.ops[transform].process_timer(family, timer)

    def finish(self) -> list[Residual]:
        """Finishes the bundle; returns what is left of restrictions that were not processed to their end."""
        try:
            for op in self.processor.ops.values():
                op.finish()
        finally:
            self.abandon()
        return list(self._context.delayed_applications)

    def abandon(self) -> None:
        """Ends a bundle that failed."""
        self.processor.state_sampler.stop_if_still_running()

    def process_residual(self, residual: Residual) -> None:
        """Goes on with a restriction, in a bundle."""
        op, _ = residual
        op.process(self.residual_element(residual))

    def residual_element(self, residual: Residual) -> WindowedValue:
        """Returns what is left of a restriction as an element of its transform."""
        op, _ = residual
        return op.input_info.main_input_coder.get_impl().decode_nested(self.residual_bytes(residual))

    def residual_bytes(self, residual: Residual) -> bytes:
        """Returns the bytes of that element, by the coder of the transform's input."""
        encoded: bytes = self.processor.delayed_bundle_application(*residual).application.element
        return encoded

    def finalize(self) -> bool:
        """Calls back those who wait for the bundle to be committed; if there are any, a report has to follow."""
        if not self.processor.requires_finalization():
            return False
        self.processor.finalize_bundle()
        return True

    def report(self) -> list[bytes]:
        """Returns the metrics since the last report, and forgets them, with the side inputs that were read."""
        infos = [info.SerializeToString() for info in self.processor.monitoring_infos()]
        self.processor.reset()
        return infos

    def close(self) -> None:
        """Tears the DoFns down."""
        self.processor.shutdown()
