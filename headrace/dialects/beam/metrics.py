"""Metrics of Beam's as cells of a run: what a task recorded counts once, however often Spark runs the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from apache_beam.coders import IterableCoder, StrUtf8Coder
from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import metrics_pb2

from headrace.model.metriccells import Cell, current_recorder

METRIC: Final = "beam"
"""The name under which a stage's metrics are among those of a run."""


@dataclass(frozen=True)
class MonitoredCell:
    """Beam's monitoring infos of a stage, serialized; those of one name and labels are combined by Beam."""

    infos: tuple[bytes, ...]

    def merged(self, other: MonitoredCell) -> MonitoredCell:
        """Returns both together."""
        return MonitoredCell(tuple(info.SerializeToString() for info in combined([*self.parsed(), *other.parsed()])))

    def parsed(self) -> list[metrics_pb2.MonitoringInfo]:
        """Returns the monitoring infos."""
        return [metrics_pb2.MonitoringInfo.FromString(info) for info in self.infos]


def combined(infos: Iterable[metrics_pb2.MonitoringInfo]) -> Iterable[metrics_pb2.MonitoringInfo]:
    """Combines those of one name and labels: Beam does it with numbers, and leaves sets and gauges as they are."""
    found: dict[object, metrics_pb2.MonitoringInfo] = {}
    for info in monitoring_infos.consolidate(infos):
        key = monitoring_infos.to_key(info)
        found[key] = _merged(found[key], info) if key in found else info
    return found.values()


def _merged(one: metrics_pb2.MonitoringInfo, other: metrics_pb2.MonitoringInfo) -> metrics_pb2.MonitoringInfo:
    merged = metrics_pb2.MonitoringInfo()
    merged.CopyFrom(other)
    if monitoring_infos.is_string_set(one):
        texts = {text for each in (one, other) for text in monitoring_infos.extract_string_set_value(each)}
        merged.payload = IterableCoder(StrUtf8Coder()).encode(sorted(texts))
    elif monitoring_infos.is_bounded_trie(one):
        tries = [monitoring_infos.extract_bounded_trie_value(each) for each in (one, other)]
        merged.payload = tries[0].combine(tries[1]).to_proto().SerializeToString()
    elif monitoring_infos.is_gauge(one):
        merged.CopyFrom(max(one, other, key=monitoring_infos.extract_gauge_value))
    return merged


def record(infos: Iterable[bytes]) -> None:
    """Records monitoring infos of the stage that is running."""
    recorder = current_recorder()
    if recorder is not None:
        recorder.record(METRIC, MonitoredCell(tuple(infos)))


def infos_by_stage(cells: Mapping[tuple[str, str], Cell]) -> dict[str, list[metrics_pb2.MonitoringInfo]]:
    """Returns the monitoring infos among the metrics of a run, by stage."""
    return {label: cell.parsed() for (label, _), cell in cells.items() if isinstance(cell, MonitoredCell)}
