"""Metrics of Beam's as cells of a run: what a task recorded counts once, however often Spark runs the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from apache_beam.portability.api import metrics_pb2

from headrace.dialects.beam.compat import consolidate
from headrace.model.metriccells import Cell, current_recorder

METRIC: Final = "beam"
"""The name under which a stage's metrics are among those of a run."""


@dataclass(frozen=True)
class MonitoredCell:
    """Beam's monitoring infos of a stage, serialized; those of one name and labels are combined by Beam."""

    infos: tuple[bytes, ...]

    def merged(self, other: MonitoredCell) -> MonitoredCell:
        """Returns both together."""
        return MonitoredCell(tuple(info.SerializeToString() for info in consolidate([*self.parsed(), *other.parsed()])))

    def parsed(self) -> list[metrics_pb2.MonitoringInfo]:
        """Returns the monitoring infos."""
        return [metrics_pb2.MonitoringInfo.FromString(info) for info in self.infos]


def record(infos: Iterable[bytes]) -> None:
    """Records monitoring infos of the stage that is running."""
    recorder = current_recorder()
    if recorder is not None:
        recorder.record(METRIC, MonitoredCell(tuple(infos)))


def infos_by_stage(cells: Mapping[tuple[str, str], Cell]) -> dict[str, list[metrics_pb2.MonitoringInfo]]:
    """Returns the monitoring infos among the metrics of a run, by stage."""
    return {label: cell.parsed() for (label, _), cell in cells.items() if isinstance(cell, MonitoredCell)}
