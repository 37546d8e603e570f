"""Metrics for Prometheus: requests as they are answered; views and topics as they are when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.model.times import SECOND
from headrace.server.service import Service

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of one server.

    >>> metrics = Metrics(Service({}, {}))
    >>> metrics.answered("GET", "/views", 200, 0.002)
    >>> print(metrics.text().decode().splitlines()[2])
    headrace_http_requests_total{method="GET",route="/views",status="200"} 1.0
    """

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "headrace_http_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "headrace_http_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=self.registry
        )
        self._records = Counter(
            "headrace_ingested_records", "Records taken by POST /topics", ["topic"], registry=self.registry
        )
        self._lines = Counter(
            "headrace_refused_lines", "Lines refused by POST /topics", ["topic"], registry=self.registry
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.registry.register(_State(service))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request. Routes are those that exist, so their number is bounded."""
        known = self._children.get((method, route, status))
        if known is None:
            shown = method if method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS") else "other"
            known = self._requests.labels(shown, route, str(status)), self._seconds.labels(route)
            if shown == method:
                self._children[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)

    def taken(self, topic: str, records: int) -> None:
        """Counts records that were appended."""
        self._records.labels(topic).inc(records)

    def refused(self, topic: str, lines: int) -> None:
        """Counts lines that were not."""
        self._lines.labels(topic).inc(lines)

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self.registry)


class _State(Collector):
    """What the views and topics are like now."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        version = GaugeMetricFamily("headrace_view_version", "Batch version that answers", labels=["view"])
        freshness = GaugeMetricFamily(
            "headrace_view_freshness_seconds", "Time since the last micro-batch", labels=["view"]
        )
        watermark = GaugeMetricFamily(
            "headrace_view_watermark_seconds", "Watermark of the speed layer", labels=["view"]
        )
        reached = GaugeMetricFamily("headrace_view_reached_offset", "Offset reached", labels=["view", "partition"])
        offsets = GaugeMetricFamily("headrace_topic_next_offset", "Next offset", labels=["topic", "partition"])
        for name, view in self.service.views.items():
            found = view.provenance()
            version.add_metric([name], found.version or 0)
            if found.freshness is not None:
                freshness.add_metric([name], found.freshness / SECOND)
            if found.watermark is not None:
                watermark.add_metric([name], found.watermark / SECOND)
            for partition, offset in found.reached.items():
                reached.add_metric([name, str(partition)], offset)
        for name, topic in self.service.topics.items():
            for partition, offset in topic.offsets().items():
                offsets.add_metric([name, str(partition)], offset)
        return iter((version, freshness, watermark, reached, offsets))

    def describe(self) -> list[Metric]:
        return []  # registering asks for nothing
