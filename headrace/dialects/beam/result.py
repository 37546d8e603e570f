"""The result of a Beam pipeline that runs on Headrace, over the handle of the run."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.runners.runner import PipelineResult, PipelineState

from headrace.dialects.beam.compat import FnApiMetrics
from headrace.dialects.beam.errors import BeamPipelineError
from headrace.dialects.beam.metrics import infos_by_stage
from headrace.engine.handle import Handle

_STATES: Final = {
    "running": PipelineState.RUNNING,
    "done": PipelineState.DONE,
    "failed": PipelineState.FAILED,
    "stopped": PipelineState.CANCELLED,
}


class HeadraceResult(PipelineResult):
    """A running pipeline: its state, its end, its metrics."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(PipelineState.RUNNING)
        self.handle = handle

    @property
    def state(self) -> str:
        """The state of the pipeline, one of Beam's PipelineState."""
        state: str = _STATES[self.handle.status().state]
        return state

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Waits for the end, or for `duration` milliseconds; raises what the pipeline failed with."""
        try:
            self.handle.wait(None if duration is None else duration / 1000)
        except Exception as error:
            raise BeamPipelineError.of(error) from error
        return self.state

    def cancel(self) -> str:
        """Stops the pipeline where it is."""
        if not PipelineState.is_terminal(self.state):
            self.handle.stop()
        return self.state

    def metrics(self) -> Any:
        """Returns the metrics that DoFns recorded, to be queried."""
        return FnApiMetrics(infos_by_stage(self.handle.status().recorded), user_metrics_only=True)

    def monitoring_metrics(self) -> Any:
        """Returns all metrics, also Beam's own, to be queried."""
        return FnApiMetrics(infos_by_stage(self.handle.status().recorded), user_metrics_only=False)

    def monitoring_infos(self) -> list[Any]:
        """Returns the monitoring infos of all stages."""
        return [info for infos in infos_by_stage(self.handle.status().recorded).values() for info in infos]
