"""Metrics of topologies, read when somebody asks for metrics: counts, latencies and queues of every task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.server.service import Topologies

# Field of a task's status, name of the metric, description; of gauges also the divisor
_COUNTERS: Final = (
    ("emitted", "emitted", "Tuples emitted"),
    ("executed", "executed", "Tuples executed by bolts"),
    ("acked", "acked", "Tuples acked; of spouts, whose trees are done"),
    ("failed", "failed", "Tuples failed; of spouts, whose trees failed or timed out"),
    ("errors", "errors", "Errors reported"),
    ("replayed", "replayed", "Tuples of spouts replayed"),
    ("dead", "dead_letters", "Tuples of spouts given up"),
    ("throttled_seconds", "throttled_seconds", "Time in which spouts might not emit, since too much was under way"),
)
_GAUGES: Final = (
    ("queued", "queued", "Tuples of spouts not read yet, or handed to bolts in the last micro-batch", 1),
    ("pending", "pending", "Tuples of spouts under way", 1),
    ("throttled", "throttled", "Whether spouts may not emit now", 1),
    ("execute_ms", "execute_seconds", "Time of execute a tuple, mean", 1000),
    ("complete_ms", "complete_seconds", "Time from emit to ack, mean", 1000),
)
_QUANTILES: Final = (("complete_p50_ms", "0.5"), ("complete_p99_ms", "0.99"))
_TASK: Final = ("topology", "component", "task")


class TopologyMetrics(Collector):
    """Collects the metrics of a cluster."""

    def __init__(self, topologies: Topologies) -> None:
        self._topologies = topologies

    def collect(self) -> Iterator[Metric]:
        published = self._topologies.published()
        up = GaugeMetricFamily("headrace_storm_up", "Whether a cluster runs")
        up.add_metric([], published is not None)
        yield up
        statuses: list[dict[str, Any]] = [] if published is None else published["topologies"]
        yield from _task_metrics(statuses)
        state = GaugeMetricFamily("headrace_storm_state", "The state of a topology", labels=["topology", "state"])
        trees = GaugeMetricFamily("headrace_storm_trees", "Trees of tuples under way", labels=["topology"])
        batches = CounterMetricFamily("headrace_storm_batches", "Micro-batches of this run", labels=["topology"])
        seconds = GaugeMetricFamily("headrace_storm_batch_seconds", "Time of the last micro-batch", labels=["topology"])
        streams = CounterMetricFamily(
            "headrace_storm_transferred",
            "Tuples from component to component",
            labels=["topology", "from", "stream", "to"],
        )
        for status in statuses:
            name = status["name"]
            state.add_metric([name, status["state"]], 1)
            trees.add_metric([name], status["trees"])
            batches.add_metric([name], status["batches"])
            if status["batch_seconds"] is not None:
                seconds.add_metric([name], status["batch_seconds"])
            for component in status["components"]:
                for stream in component["inputs"]:
                    streams.add_metric([name, stream["source"], stream["stream"], component["id"]], stream["tuples"])
        yield from (state, trees, batches, seconds, streams)

    def describe(self) -> list[Metric]:
        return []  # so that registering reads nothing


def _task_metrics(statuses: list[dict[str, Any]]) -> Iterator[Metric]:
    tasks = [
        ([status["name"], task["component"], str(task["task"])], task)
        for status in statuses
        for task in status["tasks"]
        # A bolt's task counts in all its life, but reports only after its first micro-batch: until then there is no
        # number of it. Zero would look like a restart, and the next number like a sudden burst.
        if task["queued"] is not None
    ]
    for field, name, text in _COUNTERS:
        counter = CounterMetricFamily(f"headrace_storm_{name}", text, labels=_TASK)
        for labels, task in tasks:
            if task[field] is not None:
                counter.add_metric(labels, task[field])
        yield counter
    for field, name, text, divisor in _GAUGES:
        gauge = GaugeMetricFamily(f"headrace_storm_{name}", text, labels=_TASK)
        for labels, task in tasks:
            if task[field] is not None:
                gauge.add_metric(labels, task[field] / divisor)
        yield gauge
    latest = GaugeMetricFamily(
        "headrace_storm_complete_quantile_seconds",
        "Time from emit to ack, of the latest 10,000 tuples",
        labels=[*_TASK, "quantile"],
    )
    for labels, task in tasks:
        for field, quantile in _QUANTILES:
            if task[field] is not None:
                latest.add_metric([*labels, quantile], task[field] / 1000)
    yield latest
