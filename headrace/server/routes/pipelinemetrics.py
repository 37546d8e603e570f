"""Metrics of pipelines that run, read when somebody asks for metrics: their progress, and those of their functions."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from headrace.server.service import Operations

_log = logging.getLogger("headrace.server")

_OWN: Final = ("pipeline", "transform", "name")


class PipelineMetrics(Collector):
    """Collects the metrics of a script's pipelines, or of the pipelines of views."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def collect(self) -> Iterator[Metric]:
        try:
            status = self._operations.status()
        except Exception as error:  # the store is away; requests have metrics all the same
            _log.warning("no metrics of pipelines: %s", error)
            return
        runs: dict[str, Mapping[str, Any]] = {**status["views"], **status.get("pipelines", {})}
        yield from _progress(runs)
        counters = CounterMetricFamily("headrace_metric_counter", "Counters of functions", labels=_OWN)
        gauges = GaugeMetricFamily("headrace_metric_gauge", "Gauges of functions", labels=_OWN)
        sums = SummaryMetricFamily("headrace_metric_distribution", "Distributions of functions", labels=_OWN)
        least = GaugeMetricFamily("headrace_metric_distribution_min", "The least of distributions", labels=_OWN)
        most = GaugeMetricFamily("headrace_metric_distribution_max", "The greatest of distributions", labels=_OWN)
        for name, run in runs.items():
            for metric in run.get("metrics", ()):
                labels = [name, metric["transform"], metric["name"]]
                if metric["kind"] == "counter":
                    counters.add_metric(labels, metric["value"])
                elif metric["kind"] == "gauge":
                    gauges.add_metric(labels, metric["value"])
                else:
                    sums.add_metric(labels, metric["count"], metric["value"])
                    least.add_metric(labels, metric["min"])
                    most.add_metric(labels, metric["max"])
        yield from (counters, gauges, sums, least, most)

    def describe(self) -> list[Metric]:
        return []  # so that registering reads nothing


def _progress(runs: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    state = GaugeMetricFamily("headrace_pipeline_state", "The state of a pipeline", labels=["pipeline", "state"])
    rate = GaugeMetricFamily("headrace_pipeline_records_per_second", "Records read a second", labels=["pipeline"])
    lag = GaugeMetricFamily("headrace_pipeline_lag_records", "Records of topics not read yet", labels=["pipeline"])
    batches = CounterMetricFamily("headrace_pipeline_batches", "Micro-batches of this run", labels=["pipeline"])
    behind = GaugeMetricFamily(
        "headrace_pipeline_watermark_lag_seconds",
        "How far a watermark is behind the clock",
        labels=["pipeline", "stage"],
    )
    late = CounterMetricFamily("headrace_pipeline_late", "Elements that came too late", labels=["pipeline", "stage"])
    bad = CounterMetricFamily("headrace_pipeline_bad_records", "Bad records", labels=["pipeline", "source", "reason"])
    for name, run in runs.items():
        if run["state"] is not None:
            state.add_metric([name, run["state"]], 1)
        for family, field in ((rate, "records_per_second"), (lag, "lag"), (batches, "batches")):
            if run.get(field) is not None:
                family.add_metric([name], run[field])
        for stage in run.get("stages", ()):
            late.add_metric([name, stage["label"]], stage["late"])
            if stage["lag_seconds"] is not None:
                behind.add_metric([name, stage["label"]], stage["lag_seconds"])
        for source, reasons in run.get("bad", {}).items():
            for reason, count in reasons.items():
                bad.add_metric([name, source, reason], count)
    yield from (state, rate, lag, batches, behind, late, bad)
